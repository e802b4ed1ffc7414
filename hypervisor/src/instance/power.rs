// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that go off and come back. `core/src/power` decides which ones are wanted, and `core/src/migration/off.rs` what a core does about that.

use super::Instance;
use super::platform::{CorePlatform, is_low};
use crate::cpu;
use crate::epitaph;
use crate::hardware::{self, TurnOn, halt};
use crate::machine::Machine;
use crate::power::Power;
use crate::steps::mark;
use crate::timers;
use spumone_config::packed::PowerMode;
use spumone_config::{PcpuId, VcpuId};
use spumone_core::migration;
use spumone_core::power::{Governor, Loads, Step, brings_back};
use spumone_core::schedule::{Band, Ticks};
use spumone_core::sets::CoreSet;
use spumone_core::usage::{Shares, Watch};

/// In microseconds: by how much a decision is put off, once, if the core is about to wake a vCPU. Above the lowest band it is put off for longer, as the
/// console's work is.
const PUT_OFF_US: u32 = 20;
/// Most steps at the end of a window.
const MAX_STEPS: usize = 121;
/// The same before a guest above the lowest band goes on. An interrupt that it has just been given waits for them.
const STEPS_ABOVE_LOWEST_BAND: usize = 4;

/// What the console's core keeps for the governor.
pub(super) struct Governing {
    governor: Governor,
    /// What the governor saw of all cores.
    watch: Watch,
    loads: Loads,
    /// Those of the core that is being read.
    shares: Option<Shares>,
    phase: Phase,
    /// Whether a decision was put off: the core was about to wake a vCPU, or runs a guest above the lowest band.
    was_put_off: bool,
}

/// How far the work at the end of a window is.
#[derive(Clone, Copy)]
enum Phase {
    /// It has not begun.
    Waits,
    /// The load of this core is read next.
    Reads(PcpuId, Asked),
    /// The governor decides.
    Decides(Asked),
    /// These cores are added to the wish, one by one.
    Adds(CoreSet),
    /// These cores are taken out of the wish, if it is still the first set.
    TakesOut(CoreSet, CoreSet),
    /// These cores, which were taken out, are called, one by one.
    Calls(CoreSet),
}

/// For what a decision is.
#[derive(Clone, Copy)]
struct Asked {
    mode: PowerMode,
    /// The cores that were wanted when it began.
    seen: CoreSet,
}

impl Governing {
    /// The governor of a system in which cores go off; `None`: they do not.
    pub(super) fn new(power: &Power, now: Ticks, frequency_hz: u32) -> Option<Self> {
        let described = power.described.as_ref()?;
        let (limits, movers) = (power.limits, power.movers.clone());
        let wanted = power.wish.cores();
        Some(Self {
            governor: Governor::new(described, limits, movers, wanted, now, frequency_hz),
            watch: Watch::new(),
            loads: Loads::NONE,
            shares: None,
            phase: Phase::Waits,
            was_put_off: false,
        })
    }

    /// One step at the end of a window. Returns when the next window ends, after the last step.
    fn step(&mut self, machine: &Machine, now: Ticks) -> Option<Ticks> {
        let power = &machine.power;
        match self.phase {
            Phase::Waits => {
                self.loads = Loads::NONE;
                let mode = power.request.take();
                let seen = power.wish.cores();
                self.phase = Phase::Reads(PcpuId(0), Asked { mode, seen });
            }
            Phase::Reads(id, asked) => match machine.cores.get(id.index()) {
                Some(core) => match self.shares.take() {
                    None => self.shares = Some(self.watch.look(id, &core.usage, now)),
                    Some(shares) => {
                        self.loads.add(id, &shares, self.governor.movers());
                        self.phase = Phase::Reads(PcpuId(id.0 + 1), asked);
                    }
                },
                None => self.phase = Phase::Decides(asked),
            },
            Phase::Decides(Asked { mode, seen }) => {
                self.phase = match self.governor.step(now, seen, mode, &self.loads)? {
                    Step::Stay => Phase::Calls(CoreSet::EMPTY),
                    Step::On(cores) => Phase::Adds(cores),
                    Step::Off(cores) => Phase::TakesOut(seen, cores),
                };
            }
            Phase::Adds(cores) => {
                self.phase = match cores.iter().next() {
                    Some(core) => {
                        machine.add_wanted(CoreSet::of(core));
                        Phase::Adds(cores - CoreSet::of(core))
                    }
                    None => Phase::Calls(CoreSet::EMPTY),
                };
            }
            Phase::TakesOut(seen, cores) => {
                let is_out = power.wish.take_out(&power.limits, seen, cores);
                self.phase = Phase::Calls(match is_out {
                    true => cores,
                    // Another core has changed the wish, and has asked for the next decision.
                    false => CoreSet::EMPTY,
                });
            }
            Phase::Calls(cores) => {
                let Some(core) = cores.iter().next() else {
                    self.phase = Phase::Waits;
                    return Some(self.governor.next_end(now));
                };
                // If it runs a higher band, it goes off when it idles.
                machine.call_core(core, Band::LOWEST);
                self.phase = Phase::Calls(cores - CoreSet::of(core));
            }
        }
        None
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
        // What comes from here on is followed by a look whether the core is off, and by CPU_ON (core/src/power/supply.rs).
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
        let _ = machine.gic.set_up_core(self.platform.core);
        mark!(TurnedOn);
        self.platform.begin_anew();
        if cpu::interrupt_pending() {
            self.take_interrupts();
        }
        machine.power.supply.come_on(self.platform.core);
        if epitaph::is_written() {
            // A core has died, and the SGI by which it stops others was lost.
            halt();
        }
        // SGIs that were sent to the core while it was off may be lost.
        let kicks = self.platform.kicks();
        migration::handle(&mut self.state, &mut self.platform, kicks);
        if !migration::follow_wish(&mut self.state, &mut self.platform) {
            // It is not wanted, and is to do what it was turned on for.
            self.state.decide_anew();
        }
    }

    /// Has the firmware turn on cores that were on their way off, until an interrupt is pending. The console's core does this, which never turns itself off.
    #[cold]
    #[inline(never)]
    pub(super) fn turn_cores_on(&mut self, now: Ticks) {
        let machine = self.platform.machine;
        // At most 8 times: cores.
        for core in machine.power.supply.take_starts().iter() {
            let Some(mpidr) = machine.cores.get(core.index()).map(|it| it.mpidr) else {
                continue;
            };
            let answer = match cpu::interrupt_pending() {
                true => TurnOn::IsOn,
                false => hardware::turn_on(core.index(), mpidr),
            };
            match answer {
                TurnOn::Begins => {}
                TurnOn::IsOn => {
                    // It is on its way off.
                    machine.power.supply.order_start(core);
                    self.platform.attendance.come_back(now);
                }
                TurnOn::Fails => machine.power.supply.note_refusal(core),
            }
        }
    }

    /// Does what the governor does at the end of a window, or if it was asked for a decision, until an interrupt is pending: it reads the loads of
    /// cores, decides, and calls the cores that go off or come on. Above the lowest band it does a few steps, and comes back for the others.
    pub(super) fn govern(&mut self, now: Ticks) {
        let machine = self.platform.machine;
        let is_low = is_low(self.state.current_band());
        let is_due = self.platform.governs_at(now) <= now;
        let Some(governing) = self.governing.as_mut().filter(|_| is_due) else {
            return;
        };
        // Above the lowest band, the governor's work waits for the next duty: the guest is interrupted twice, and for less time at once.
        let is_begun = !matches!(governing.phase, Phase::Waits);
        let is_quiet = migration::quiet_from(&self.state, &self.platform, now) <= now;
        governing.was_put_off = !governing.was_put_off && (is_quiet || !is_low && !is_begun);
        if governing.was_put_off {
            if is_low {
                let put_off = Ticks::from_micros(PUT_OFF_US, timers::frequency() as u32);
                self.platform.window_end = now.saturating_add(put_off);
            } else {
                self.platform.attendance.come_back(now);
            }
            return;
        }
        // If an interrupt comes in between, the rest is due at once. The request may be taken by then.
        self.platform.window_end = now;
        let steps = match is_low {
            true => MAX_STEPS,
            false => STEPS_ABOVE_LOWEST_BAND,
        };
        // At most 121 times: a beginning, 17 for cores, 83 of the decision, and up to 20 for what follows from it.
        for _ in 0..steps {
            // An interrupt that was taken before may have woken a vCPU of a higher band.
            if cpu::interrupt_pending() || self.state.must_decide() {
                break;
            }
            if let Some(end) = governing.step(machine, now) {
                self.platform.window_end = end;
                return;
            }
        }
        if !is_low {
            self.platform.attendance.come_back(now);
        }
    }
}

impl CorePlatform {
    /// See [`Platform::waits_for_core`](migration::Platform::waits_for_core).
    #[inline(never)]
    pub(super) fn bring_core_back(&self, id: VcpuId) -> bool {
        let (shared, power) = (&self.machine.shared, &self.machine.power);
        let Some(vcpu) = shared.vcpu(id).filter(|_| power.described.is_some()) else {
            return false;
        };
        let lowest = shared.roles.lowest_movable;
        let brings = brings_back(power.request.mode(), Some(vcpu.band), lowest);
        let is_added = brings && self.machine.add_wanted(vcpu.cores);
        // Windows begin, if there are none.
        if !brings || is_added {
            self.machine.ask_governor(power.request.ask());
        }
        is_added
    }

    /// Whether this core is to turn others on that were on their way off.
    #[inline(always)]
    pub(super) fn turns_cores_on(&self) -> bool {
        self.machine.power.supply.has_starts() && self.has_governor
    }

    /// When the governor's next decision is due, if this core has the governor; it is `now` if there are no windows and a decision is asked for.
    #[inline(always)]
    pub(super) fn governs_at(&self, now: Ticks) -> Ticks {
        match self.is_asked() {
            true => now,
            false => self.window_end,
        }
    }

    /// Whether this core has the governor, there are no windows, and a decision is asked for.
    #[inline(always)]
    pub(super) fn is_asked(&self) -> bool {
        self.window_end == Ticks::NEVER
            && self.has_governor
            && self.machine.power.request.is_asked()
    }
}

impl Machine {
    /// Has a core of these come on, if one is not wanted and may be. Returns whether there was one.
    fn add_wanted(&self, among: CoreSet) -> bool {
        let added = self.power.wish.add(&self.power.limits, among);
        if let Some(core) = added {
            self.call_core(core, Band::LOWEST);
        }
        added.is_some()
    }

    /// The governor was asked for a decision: calls its core, unless another core does.
    fn ask_governor(&self, is_first: bool) {
        if is_first {
            self.call_core(self.console_core, Band::LOWEST);
        }
    }

    /// Changes the mode. Any core may call this. Returns the mode before; `None`: all cores stay on in this system.
    pub fn set_power_mode(&self, mode: PowerMode) -> Option<PowerMode> {
        self.power.described.as_ref()?;
        let (before, is_first) = self.power.request.set_mode(mode);
        self.ask_governor(is_first);
        Some(before)
    }
}
