// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hypervisor on one core: what `hypervisor/src/instance/` does around the decisions of `spumone-core`, with the same
//! names, without registers, guests' lives and devices.
//!
//! Each call of [`Instance::step`] is one iteration of the hypervisor's loop. It takes effect at its start, and the core
//! is back when its cost has passed; interrupts that arrive in between are seen then.

mod interrupts;
mod site;
mod switch;

use crate::setup::Setup;
use crate::time::FREQUENCY_HZ;
use crate::world::{RT, SMP_VCPUS, STORM_CORE, Token, World};
use spumone_config::packed::Without;
use spumone_config::types::{MAX_VCPUS, PcpuId, VcpuId};
use spumone_core::migration::{self, Catch, CoreSetup, CoreState};
use spumone_core::schedule::{Ticks, VcpuState};
use spumone_core::sets::VcpuSet;

/// One core's hypervisor.
#[derive(Debug)]
pub struct Instance {
    core: PcpuId,
    local: CoreState<Token>,
    /// vCPUs whose interrupts are not held back: the priority mask.
    mask: u32,
    /// When the current step began.
    begun: Ticks,
    /// Instructions of the current step.
    spent: u64,
    /// The core is at EL2 until this time.
    busy_until: Ticks,
    /// When the next interrupt of the storm is pending; [`Ticks::NEVER`]: there is no storm here.
    storm_at: Ticks,
}

impl Instance {
    /// The instance of `core`, with the vCPUs that have their home there.
    pub fn new(core: PcpuId, setup: &Setup, world: &mut World) -> Self {
        let home_vcpus = (0..world.vcpus.len() as u8)
            .map(VcpuId)
            .filter(|&id| world.home(id) == core)
            .collect();
        let setting = CoreSetup {
            quantum: setup.quantum,
            frequency_hz: FREQUENCY_HZ,
            rules: world.deciding.rules(),
            without: Without::default(),
            moving: VcpuSet::from_bits(world.moving),
            home_vcpus,
            excludes_kernels: world.excludes_kernels(core),
        };
        let mut own = Self {
            core,
            local: CoreState::new(&setting, [const { None }; MAX_VCPUS]),
            mask: u32::MAX,
            begun: Ticks(0),
            spent: 0,
            busy_until: Ticks(0),
            storm_at: match setup.storm {
                Some(storm) if core == STORM_CORE => storm.interval,
                _ => Ticks::NEVER,
            },
        };
        for index in 0..world.vcpus.len() {
            let id = VcpuId(index as u8);
            if world.home(id) == core && (id != RT || setup.rt.is_some()) {
                own.adopt(id, world);
                // Other vCPUs may start it, as one that is turned on.
                migration::park(&mut own.at(world), id);
            }
        }
        own.spent = 0;
        own
    }

    fn adopt(&mut self, id: VcpuId, world: &mut World) {
        world.location[id.index()] = self.core;
        let band = world.band(id);
        let admitted = self.local.scheduler.admit(id, band, VcpuState::Suspend);
        debug_assert!(admitted.is_ok(), "each vCPU is placed once");
        self.local.vcpus[id.index()] = Some(Token { id });
    }

    /// The time within the step.
    fn now(&self) -> Ticks {
        Ticks(self.begun.0 + self.spent)
    }

    fn spend(&mut self, instructions: u64) {
        self.spent += instructions;
    }

    /// One iteration of the loop, at the time that [`Self::next_event`] returned.
    pub fn step(&mut self, w: &mut World, now: Ticks) {
        self.begun = now;
        self.spent = 0;
        if !self.local.must_decide {
            match self.local.running {
                None => self.idle(w),
                Some(id) if self.local.loaded == Some(id) => self.run_vcpu(w, id),
                Some(id) => self.exchange(w, id),
            }
        }
        // A step that has taken time is over: interrupts that arrived meanwhile come first.
        if self.local.must_decide && self.spent <= w.costs.exit {
            migration::next_action(&mut self.at(w));
        } else {
            migration::arm_stale_alarm(&mut self.at(w));
        }
        w.counters.el2 += self.spent;
        self.busy_until = self.now();
        if let Some(id) = self.in_guest()
            && w.vcpus[id.index()].on.is_none()
        {
            w.enter(id, self.core, self.busy_until);
        }
    }

    /// The vCPU that runs in its guest when the core is not at EL2.
    #[inline]
    pub fn in_guest(&self) -> Option<VcpuId> {
        self.local
            .running
            .filter(|_| self.local.running == self.local.loaded && !self.local.must_decide)
    }

    /// When the next event of this core is, if no other core acts.
    pub fn next_event(&self, w: &World) -> Ticks {
        if self.local.must_decide
            || self.local.running.is_some() && self.local.running != self.local.loaded
        {
            return self.busy_until;
        }
        if self.in_guest().is_some_and(|id| self.is_caught(w, id)) {
            return self.busy_until;
        }
        let mut next = self.local.alarm;
        if self.mask & SMP_VCPUS != 0 {
            next = next.min(self.storm_at);
        }
        let shared = &w.cores[self.core.index()];
        if shared.kicked & self.mask != 0 {
            next = next.min(shared.arrives);
        }
        if let Some(id) = self.local.loaded {
            // The timer of a loaded vCPU that sleeps is still in the hardware.
            let vcpu = &w.vcpus[id.index()];
            next = next.min(vcpu.timer).min(vcpu.end());
        }
        next.max(self.busy_until)
    }

    /// No vCPU runs, and there was an event.
    fn idle(&mut self, w: &mut World) {
        migration::take_interrupts(&mut self.at(w));
    }

    /// The vCPU that runs was interrupted, or its step has ended.
    fn run_vcpu(&mut self, w: &mut World, id: VcpuId) {
        let now = self.begun;
        if self.interrupt_pending(w) {
            w.leave(id, now);
            self.spend(w.costs.exit);
            migration::take_interrupts(&mut self.at(w));
        } else if self.is_caught(w, id) {
            self.come_back(w, id);
        } else {
            self.end_of_step(w, id);
        }
    }

    /// The vCPU does what is to be caught: it exits.
    fn come_back(&mut self, w: &mut World, id: VcpuId) {
        w.leave(id, self.begun);
        self.spend(w.costs.exit);
        migration::caught(&mut self.at(w), id);
    }

    /// Whether the loaded vCPU `id`, as it is now, does what is to be caught.
    fn is_caught(&self, w: &World, id: VcpuId) -> bool {
        match self.local.catches {
            Catch::Nothing => false,
            Catch::Exit => !w.vcpus[id.index()].is_in_kernel(),
            Catch::Entry => w.vcpus[id.index()].is_in_kernel(),
        }
    }

    /// For the invariants: whether the core idles without an alarm although no core has claimed a vCPU that it has sent
    /// away.
    pub fn has_forgotten(&self, w: &World) -> bool {
        let ids = || (0..w.vcpus.len() as u8).map(VcpuId);
        let is_left = |id: VcpuId| w.parking[id.index()].slot.sent_by(self.core).is_some();
        self.is_idle()
            && self.local.alarm == Ticks::NEVER
            && ids().any(|id| self.local.has_sent(id) && is_left(id))
    }

    /// The tokens that the core has, of the first `count` vCPUs; bit n for vCPU n.
    #[inline]
    pub fn holds(&self, count: usize) -> u32 {
        let mut held = 0;
        for (index, token) in self.local.vcpus.iter().take(count).enumerate() {
            held |= u32::from(token.is_some()) << index;
        }
        held
    }

    /// The vCPU whose registers are on the core.
    pub fn loaded(&self) -> Option<VcpuId> {
        self.local.loaded
    }

    /// Whether no vCPU runs here and the core decides nothing.
    pub fn is_idle(&self) -> bool {
        self.local.running.is_none() && !self.local.must_decide
    }

    /// Whether a vCPU of a higher band than the SMP guest's runs here.
    pub fn is_cut_off(&self) -> bool {
        self.mask != u32::MAX
    }
}
