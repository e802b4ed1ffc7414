// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor on one core: the model of `hypervisor/src/instance/`, with the same names, around the same decisions
//! of `spumone-core`, without registers, lives of guests and devices.
//!
//! Each call of [`Instance::step`] is one iteration of the hypervisor's loop. It takes effect at its start, and the
//! core is busy until its cost has passed; interrupts that arrive meanwhile are taken after that.

mod interrupts;
mod platform;

use crate::setup::Setup;
use crate::time::FREQUENCY_HZ;
use crate::world::{RT, SMP_VCPUS, STORM_CORE, Token, World};
use platform::{Core, Hardware};
use spumone_config::packed::Without;
use spumone_config::types::{PcpuId, VcpuId};
use spumone_core::migration::{self, Catch, CoreSetup, CoreState};
use spumone_core::schedule::{Ticks, VcpuState};

/// The core that has the governor.
const GOVERNORS_CORE: PcpuId = PcpuId(0);

/// One core's hypervisor.
#[derive(Debug)]
pub struct Instance {
    state: CoreState<Token>,
    hardware: Hardware,
}

impl Instance {
    /// The instance of `core`, with the vCPUs that have their home there.
    pub fn new(core: PcpuId, setup: &Setup, world: &mut World) -> Self {
        let core_setup = CoreSetup {
            quantum: setup.quantum,
            frequency_hz: FREQUENCY_HZ,
            rules: world.deciding.rules(),
            without: Without::default(),
        };
        let storm_at = match setup.storm {
            Some(storm) if core == STORM_CORE => storm.interval,
            _ => Ticks::NEVER,
        };
        let mut own = Self {
            state: CoreState::new(core, &core_setup, &world.shared),
            hardware: Hardware::new(core, storm_at),
        };
        for id in (0..world.vcpus.len() as u8).map(VcpuId) {
            if world.home(id) == core && (id != RT || setup.rt.is_some()) {
                world.doorbells[id.index()].settle(core);
                let token = Token { id };
                own.state
                    .place(id, token, world.band(id), VcpuState::Runnable);
                // Parked, so that each core of the guest can claim it when another vCPU starts it.
                let (state, mut core) = own.at(world);
                migration::park(state, &mut core, id);
            }
        }
        own.hardware.spent = 0;
        own
    }

    /// The state of the core, and the platform on which it executes a step.
    fn at<'a>(&'a mut self, world: &'a mut World) -> (&'a mut CoreState<Token>, Core<'a>) {
        (&mut self.state, Core::new(&mut self.hardware, world))
    }

    /// The current time within the step.
    fn now(&self) -> Ticks {
        self.hardware.now()
    }

    fn spend(&mut self, instructions: u64) {
        self.hardware.spend(instructions);
    }

    /// One iteration of the loop, at the time that [`Self::next_event`] returned.
    pub fn step(&mut self, w: &mut World, now: Ticks) {
        self.hardware.begin_step(now);
        if self.governs_at(w) <= now && !self.hardware.interrupt_pending(w) {
            self.govern(w, now);
            return;
        }
        if !self.state.must_decide() {
            match self.state.running() {
                None => self.idle(w),
                Some(id) if self.state.loaded() == Some(id) => self.run_vcpu(w, id),
                Some(id) => self.switch(w, id),
            }
        }
        // A step that has taken time ends here: interrupts that arrived meanwhile are taken before the next decision.
        let is_short = self.hardware.spent <= w.costs.exit;
        let (state, mut core) = self.at(w);
        if state.must_decide() && is_short {
            migration::next_action(state, &mut core);
        } else {
            migration::arm_stale_alarm(state, &mut core);
        }
        w.counters.el2 += self.hardware.spent;
        self.hardware.busy_until = self.now();
        if let Some(id) = self.in_guest() {
            self.state.enters_guest();
            if w.vcpus[id.index()].on.is_none() {
                w.enter(id, self.hardware.core, self.hardware.busy_until);
            }
        }
        if w.power.is_some() {
            let (state, core) = self.at(w);
            let rests = migration::is_at_rest(state, &core);
            if let Some(power) = &mut w.power {
                power.turn(self.hardware.core, now, rests);
            }
        }
    }

    /// The vCPU whose guest code the core executes when it is not at EL2.
    #[inline]
    pub fn in_guest(&self) -> Option<VcpuId> {
        self.state
            .running()
            .filter(|_| self.state.running() == self.state.loaded() && !self.state.must_decide())
    }

    /// When this core does what the governor does: if it has the governor, idles or runs a vCPU of the lowest band, and is not at EL2.
    fn governs_at(&self, w: &World) -> Ticks {
        let is_free = self.is_idle() || self.in_guest().is_some_and(|id| id != RT);
        match &w.power {
            Some(power) if is_free && self.hardware.core == GOVERNORS_CORE => {
                power.next().max(self.hardware.busy_until)
            }
            _ => Ticks::NEVER,
        }
    }

    /// What the governor does at the end of a window. Its further steps, between which EL2 looks for interrupts, take no time here.
    fn govern(&mut self, w: &mut World, now: Ticks) {
        let (state, core) = self.at(w);
        let quiet_from = migration::quiet_from(state, &core, now);
        let Some(power) = &mut w.power else {
            return;
        };
        if power.puts_off(now, quiet_from) {
            return;
        }
        w.touched |= power.step(now);
        let interrupted = self.in_guest();
        if let Some(id) = interrupted {
            w.leave(id, now);
        }
        self.spend(w.costs.exit + w.costs.govern);
        w.counters.el2 += self.hardware.spent;
        self.hardware.busy_until = self.now();
        if let Some(id) = interrupted {
            w.enter(id, self.hardware.core, self.hardware.busy_until);
        }
    }

    /// When the next event of this core is, if no other core acts.
    pub fn next_event(&self, w: &World) -> Ticks {
        self.next_own_event(w).min(self.governs_at(w))
    }

    fn next_own_event(&self, w: &World) -> Ticks {
        let running = self.state.running();
        if self.state.must_decide() || running.is_some() && running != self.state.loaded() {
            return self.hardware.busy_until;
        }
        if self.in_guest().is_some_and(|id| self.is_caught(w, id)) {
            return self.hardware.busy_until;
        }
        let hardware = &self.hardware;
        if let Some(power) = &w.power
            && running.is_none()
            && w.is_wanted(hardware.core) == w.is_off(hardware.core)
        {
            // It has been called.
            let called_at = power.called_at(hardware.core);
            return hardware
                .busy_until
                .max(power.acts_at(hardware.core, called_at));
        }
        let mut next = self.state.alarm();
        if hardware.mask & SMP_VCPUS != 0 {
            next = next.min(hardware.storm_at);
        }
        let shared = &w.cores[hardware.core.index()];
        if shared.kicked & hardware.mask != 0 {
            next = next.min(shared.arrives);
        }
        if let Some(id) = self.state.loaded() {
            // The timer of a loaded vCPU that sleeps is still in the hardware.
            let vcpu = &w.vcpus[id.index()];
            next = next.min(vcpu.timer).min(vcpu.end());
        }
        if let Some(power) = &w.power {
            next = power.acts_at(hardware.core, next);
        }
        next.max(hardware.busy_until)
    }

    /// Handles an event while no vCPU runs.
    fn idle(&mut self, w: &mut World) {
        self.take_interrupts(w);
        let (state, mut core) = self.at(w);
        if !state.must_decide() {
            migration::follow_wish(state, &mut core);
        }
    }

    /// Handles an interrupt of the running vCPU, a catch, or the end of its step.
    fn run_vcpu(&mut self, w: &mut World, id: VcpuId) {
        let now = self.hardware.begun;
        if self.hardware.interrupt_pending(w) {
            w.leave(id, now);
            self.spend(w.costs.exit);
            self.take_interrupts(w);
        } else if self.is_caught(w, id) {
            self.exit_caught(w, id);
        } else {
            self.end_of_step(w, id);
        }
    }

    fn take_interrupts(&mut self, w: &mut World) {
        let (state, mut core) = self.at(w);
        migration::take_interrupts(state, &mut core);
    }

    /// One step of a switch to the vCPU that is to run: saves the registers that are on the core, or loads that vCPU's
    /// registers.
    fn switch(&mut self, w: &mut World, id: VcpuId) {
        if self.hardware.interrupt_pending(w) {
            self.take_interrupts(w);
        }
        let (state, mut core) = self.at(w);
        if state.must_decide() {
            return;
        }
        match state.loaded() {
            Some(_) => migration::switch_out(state, &mut core),
            None => migration::switch_in(state, &mut core, id),
        }
    }

    /// Handles the exit of a vCPU that is caught.
    fn exit_caught(&mut self, w: &mut World, id: VcpuId) {
        w.leave(id, self.hardware.begun);
        self.spend(w.costs.exit);
        let (state, mut core) = self.at(w);
        migration::caught(state, &mut core);
    }

    /// Whether the loaded vCPU `id`, in its current state, is to be caught.
    fn is_caught(&self, w: &World, id: VcpuId) -> bool {
        match self.state.catches() {
            Catch::Nothing => false,
            Catch::Exit => !w.vcpus[id.index()].is_in_kernel(),
            Catch::Entry => w.vcpus[id.index()].is_in_kernel(),
        }
    }

    /// For the invariants: whether the core idles without an alarm, although a vCPU that it has sent away was not
    /// claimed.
    pub fn has_forgotten(&self, w: &World) -> bool {
        let ids = || (0..w.vcpus.len() as u8).map(VcpuId);
        let is_left = |id| w.shared.slot(id).sent_by(self.hardware.core).is_some();
        self.is_idle()
            && self.state.alarm() == Ticks::NEVER
            && ids().any(|id| self.state.has_sent(id) && is_left(id))
    }

    /// The tokens that the core has, of the first `count` vCPUs; bit n for vCPU n.
    #[inline]
    pub fn holds(&self, count: usize) -> u32 {
        self.state.tokens().bits() & crate::world::mask(count)
    }

    /// The loaded vCPU.
    pub fn loaded(&self) -> Option<VcpuId> {
        self.state.loaded()
    }

    /// Whether no vCPU runs here and the core has nothing to decide.
    pub fn is_idle(&self) -> bool {
        self.state.running().is_none() && !self.state.must_decide()
    }

    /// Whether a vCPU of a higher band than the SMP guest's runs here.
    pub fn is_cut_off(&self) -> bool {
        self.hardware.mask != u32::MAX
    }
}
