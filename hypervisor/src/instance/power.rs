// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that go off and come back. `core/src/power` decides which ones are wanted, and `core/src/migration/off.rs` what a core does about that.

use super::Instance;
use super::platform::CorePlatform;
use crate::cpu;
use crate::hardware::{self, TurnOn};
use crate::machine::Machine;
use crate::power::Power;
use crate::steps::mark;
use spumone_config::types::MAX_PCPUS;
use spumone_config::{PcpuId, VcpuId};
use spumone_core::migration;
use spumone_core::power::{Governor, Load, Step, brings_back};
use spumone_core::schedule::{Band, Ticks};
use spumone_core::sets::CoreSet;
use spumone_core::usage::{Usage, Watch};

/// In microseconds: the shortest window of the governor. It ends when the core serves the console next.
const WINDOW_US: u32 = 30_000;

/// What the console's core keeps for the governor.
pub(super) struct Governing {
    governor: Governor,
    /// What the governor saw of all cores.
    watch: Watch,
    loads: [Load; MAX_PCPUS],
    /// The core whose load is read next. The core looks for interrupts in between.
    next: PcpuId,
    /// What was decided, with the cores that were wanted then, and is not done yet.
    decided: Option<(CoreSet, Step)>,
    /// When the window ends.
    due: Ticks,
    window: Ticks,
}

impl Governing {
    /// The governor of a system in which cores go off; `None`: they do not.
    pub(super) fn new(power: &Power, now: Ticks, frequency_hz: u32) -> Option<Self> {
        let described = power.described.as_ref()?;
        let wanted = power.wish.cores();
        let window = Ticks::from_micros(WINDOW_US, frequency_hz);
        Some(Self {
            governor: Governor::new(described, power.limits, wanted, now, frequency_hz),
            watch: Watch::new(),
            loads: [Load::default(); MAX_PCPUS],
            next: PcpuId(0),
            decided: None,
            due: now.saturating_add(window),
            window,
        })
    }

    /// One step at the end of a window. Returns whether it was the last one.
    fn step(&mut self, machine: &Machine, now: Ticks) -> bool {
        if let Some((seen, step)) = self.decided.take() {
            self.next = PcpuId(0);
            self.due = now.saturating_add(self.window);
            match step {
                Step::Stay => {}
                Step::On(core) => machine.bring_back(CoreSet::of(core)),
                Step::Off(core) => machine.send_off(seen, core),
            }
            return true;
        }
        match machine.cores.get(self.next.index()) {
            Some(core) => self.read_load(machine.power.moving, &core.usage, now),
            None => {
                let seen = machine.power.wish.cores();
                self.decided = Some((seen, self.governor.window_end(now, seen, &self.loads)));
            }
        }
        false
    }

    /// Reads the load of the next core.
    fn read_load(&mut self, moving: u32, usage: &Usage, now: Ticks) {
        let shares = self.watch.look(self.next, usage, now);
        if let Some(load) = self.loads.get_mut(self.next.index()) {
            *load = Load {
                fixed: shares.of_guests(!moving),
                movable: shares.of_guests(moving),
            };
        }
        self.next = PcpuId(self.next.0 + 1);
    }
}

impl Instance {
    /// The core idles, and has nothing else to do. If it is not wanted, it goes off; if it is, it comes back. Returns whether there was something to
    /// do; if not, the core waits for an interrupt.
    pub(super) fn follows_wish(&mut self) -> bool {
        self.platform.machine.power.described.is_some() && self.step_of_wish()
    }

    #[inline(never)]
    fn step_of_wish(&mut self) -> bool {
        if cpu::interrupt_pending() {
            self.take_interrupts();
            return true;
        }
        if migration::follow_wish(&mut self.state, &mut self.platform) {
            if cpu::interrupt_pending() {
                self.take_interrupts();
            }
            return true;
        }
        let supply = &self.platform.machine.power.supply;
        supply.turns_off(self.platform.core)
            && migration::is_at_rest(&self.state, &self.platform)
            && self.turn_core_off()
    }

    /// The core is off, and has nothing left to do: has the firmware turn it off. Returns after it was turned on again; or, with false, at once, if
    /// something has come for it, or if the firmware does not turn cores off.
    fn turn_core_off(&mut self) -> bool {
        let machine = self.platform.machine;
        let core = self.platform.core;
        machine.power.supply.begin_off(core);
        // What comes from here on is followed by an order to turn the core on (core/src/power/supply.rs).
        let has_work = self.platform.own.is_kicked()
            || self.platform.port.has_mail()
            || machine.power.wish.wants(core)
            || cpu::interrupt_pending();
        if has_work {
            machine.power.supply.come_on(core);
            return false;
        }
        mark!(TurnOff);
        if hardware::turn_off(core.index()).is_err() {
            machine.power.supply.come_on(core);
            machine.power.supply.note_refusal(core);
            return false;
        }
        self.come_on();
        true
    }

    /// The firmware has turned the core on, with the initial translation tables and the registers of a reset.
    pub(super) fn come_on(&mut self) {
        let machine = self.platform.machine;
        hardware::set_vectors();
        // SAFETY: as at the start: `spm` has made them for this hypervisor.
        unsafe { hardware::activate_tables(machine.own_tables) };
        cpu::set_up(machine.vtcr);
        let _ = machine.gic.set_up_core();
        mark!(TurnedOn);
        self.platform.begin_anew();
        if cpu::interrupt_pending() {
            self.take_interrupts();
        }
        machine.power.supply.come_on(self.platform.core);
        // SGIs that were sent to the core while it was off may be lost.
        let kicks = self.platform.kicks();
        migration::handle(&mut self.state, &mut self.platform, kicks);
        if !migration::follow_wish(&mut self.state, &mut self.platform) {
            // It is not wanted, and is to do what it was turned on for.
            self.state.decide_anew();
        }
    }

    /// Has the firmware turn cores on, until an interrupt is pending. The console's core does this, which never turns itself off.
    #[cold]
    #[inline(never)]
    pub(super) fn turn_cores_on(&mut self, now: Ticks) {
        let machine = self.platform.machine;
        if self.platform.core != machine.console_core {
            return;
        }
        // At most 8 times: cores.
        for core in machine.power.supply.take_starts().iter() {
            let Some(mpidr) = machine.cores.get(core.index()).map(|it| it.mpidr) else {
                continue;
            };
            let answer = match cpu::interrupt_pending() {
                true => TurnOn::IsOn,
                false => hardware::turn_on(core.index(), mpidr),
            };
            if answer == TurnOn::Fails {
                machine.power.supply.note_refusal(core);
            }
            if answer != TurnOn::Begins {
                // It is on its way off.
                machine.power.supply.start_again(core);
                self.platform.attendance.come_back(now);
            }
        }
    }

    /// Reads the loads of cores if the governor's window has ended, until an interrupt is pending. When all are read, the governor decides, and then the
    /// core does what was decided.
    pub(super) fn govern(&mut self, now: Ticks) {
        let machine = self.platform.machine;
        let Some(governing) = self.governing.as_mut().filter(|it| it.due <= now) else {
            return;
        };
        // At most 10 times: cores, the decision, and what follows from it.
        for _ in 0..MAX_PCPUS + 2 {
            if cpu::interrupt_pending() || governing.step(machine, now) {
                return;
            }
        }
    }
}

impl CorePlatform {
    /// See [`Platform::waits_for_core`](migration::Platform::waits_for_core).
    #[inline(never)]
    pub(super) fn bring_core_back(&self, id: VcpuId) {
        let shared = &self.machine.shared;
        if let Some(power) = &self.machine.power.described
            && let Some(vcpu) = shared.vcpu(id)
            && brings_back(power.mode, Some(vcpu.band), shared.roles.lowest_movable)
        {
            self.machine.bring_back(vcpu.cores);
        }
    }
}

impl Machine {
    /// Brings a core of these back, if one is off and may come on.
    fn bring_back(&self, among: CoreSet) {
        if let Some(core) = self.power.wish.add(&self.power.limits, among) {
            self.call_core(core, Band::LOWEST);
        }
    }

    /// Has a core go off, if the cores that are wanted are still those that were `seen`.
    fn send_off(&self, seen: CoreSet, core: PcpuId) {
        if self.power.wish.take_out(&self.power.limits, seen, core) {
            // If it runs a higher band, it goes off when it idles.
            self.call_core(core, Band::LOWEST);
        }
    }
}
