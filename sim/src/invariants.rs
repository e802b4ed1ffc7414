// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must hold after each event, whatever the policy decides.
//!
//! - The token of each vCPU is in exactly one place: on a core or in its parking slot.
//! - A vCPU's registers are on one core at most, which has its token; only that core runs it.
//! - No runnable vCPU waits for long while a core where it may run is on and idles. There is one exception: the timer of a vCPU expires while
//!   the vCPU sleeps on a core that runs a vCPU of the same band. It may wait for the end of a time slice. Whether a vCPU is
//!   runnable is read from the guest and from the interrupts that were sent, not from the hypervisor: so a lost wake-up is
//!   found, too.
//! - No vCPU waits for more than four time slices of each vCPU of its guest. Where there are more vCPUs than cores, the limit
//!   grows with the share of its core that the real-time vCPU takes. Policies that do not help have larger limits: [`Waits`].
//! - If a core has sent a vCPU away, no core has claimed it, and the core idles, then its alarm is armed to take it back.
//! - The real-time vCPU waits for no other vCPU: only for one step at EL2 and its own switch. Under `delay`, also for the
//!   longest delay.

use crate::instance::Instance;
use crate::setup::{Decisions, Setup};
use crate::time::us;
use crate::world::{RT, World};
use core::fmt;
use spumone_config::packed::Policy;
use spumone_config::types::{PcpuId, VcpuId};
use spumone_core::migration::{Level, TAKE_BACK_US};
use spumone_core::schedule::Ticks;

/// If the hypervisor has not acted within this time, it has forgotten to: longer than a park delay, a grace and some kicks.
const FORGOTTEN: Ticks = us(500);
/// Longest wait for each vCPU that shares the cores: a time slice and its grace, four times. A few more than three of them were seen, once in
/// some 4,000 simulations, with seven vCPUs on two cores beside a real-time vCPU that used a third of one.
const SLICES: u64 = 4;
/// The same where chance decides, which is not fair.
const SLICES_BY_CHANCE: u64 = 20;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The time.
    pub at: Ticks,
    /// The system of the machine.
    pub system: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, system, what } = self;
        write!(f, "at tick {} in system {system}: {what}", at.0)
    }
}

/// What a vCPU may wait for, by policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waits {
    /// For time slices of others, while no core idles.
    Slices,
    /// As `Slices`, and for the real-time vCPU. (A core that runs no kernel code of the guest may idle.)
    SlicesAndRt,
    /// As above, also while other cores idle.
    Host,
    /// For time slices on its own core, when the real-time vCPU does not have it.
    Home,
    /// For time slices on its own core, which has no real-time vCPU.
    Gang,
}

impl Waits {
    fn of(decisions: Decisions, moves: bool) -> Self {
        match decisions {
            Decisions::Policy(Policy::Cosched) => Self::Gang,
            _ if !moves => Self::Home,
            Decisions::Policy(Policy::Balance | Policy::Trap) => Self::SlicesAndRt,
            Decisions::Policy(Policy::OnDemand) => Self::Host,
            Decisions::Policy(Policy::Steal | Policy::Random) | Decisions::Chance => Self::Slices,
            Decisions::Policy(Policy::None | Policy::Delay) => Self::Home,
        }
    }

    fn is_for_rt(self) -> bool {
        matches!(self, Self::SlicesAndRt | Self::Host)
    }
}

/// The invariants of one system.
#[derive(Debug)]
pub struct Invariants {
    /// All vCPUs; bit n for vCPU n.
    all: u32,
    /// The tokens that each core has, and the vCPU that is loaded on it; bit n for vCPU n.
    held: Vec<u32>,
    loaded: Vec<u32>,
    waits: Waits,
    homes: Vec<usize>,
    /// The vCPU that each core runs; bit n for vCPU n.
    runs: Vec<u32>,
    /// vCPUs that are runnable; bit n for vCPU n.
    waiting: u32,
    /// Those of them that were woken by their timers.
    by_timer: u32,
    /// Since when, by vCPU.
    waits_since: Vec<Ticks>,
    /// Since when each core idles; [`Ticks::NEVER`]: it does not idle.
    idle_since: Vec<Ticks>,
    /// Cores that run a vCPU of a higher band; bit n for core n.
    cut_off: u32,
    /// When each core last stopped running such a vCPU.
    free_since: Vec<Ticks>,
    /// Longest time that a vCPU may wait while a core idles.
    forgotten: Ticks,
    /// The longest time slice.
    slice: Ticks,
    bound_of_wait: Ticks,
    bound_of_dispatch: Ticks,
    pub longest_wait: Ticks,
    pub longest_wait_beside_idle: Ticks,
}

impl Invariants {
    pub fn new(setup: &Setup, cores: &[Instance], world: &World) -> Self {
        let vcpus = world.vcpus.len();
        let first = usize::from(setup.rt.is_none());
        let slice = setup.quantum.0 + us(300).0;
        let waits = Waits::of(
            setup.decisions,
            world.shared.roles.highest_movable != Level::IDLE,
        );
        let slices = match setup.decisions {
            Decisions::Policy(Policy::Random) | Decisions::Chance => SLICES_BY_CHANCE,
            Decisions::Policy(Policy::None | Policy::Steal | Policy::OnDemand | Policy::Trap) => {
                SLICES
            }
            Decisions::Policy(Policy::Delay | Policy::Balance | Policy::Cosched) => SLICES,
        };
        let slices = slices * setup.guest_vcpus as u64;
        let mut bound_of_wait = slices * slice;
        // Where there are more vCPUs than cores, the other cores may have enough to do and take no vCPU from the core of the
        // real-time vCPU: time slices on that core take longer, as the real-time vCPU leaves less time.
        if let Some(rt) = setup.rt
            && (setup.guest_vcpus > setup.guest_cores || waits.is_for_rt() || setup.power.is_some())
        {
            bound_of_wait = bound_of_wait * rt.period.0 / (rt.period.0 - rt.busy.0) + rt.busy.0;
        }
        let rules = world.deciding.rules();
        // The core that idles may be the one that has sent the vCPU away.
        let forgotten = match rules.returns_home || rules.max_stay.is_some() {
            true => Ticks(FORGOTTEN.0 + us(TAKE_BACK_US.into()).0),
            false => FORGOTTEN,
        };
        let (bound_of_wait, forgotten) = match setup.storm {
            // A storm may take any share of its core from the SMP guest.
            Some(_) => (Ticks::NEVER, Ticks::NEVER),
            None => (Ticks(bound_of_wait + forgotten.0), forgotten),
        };
        let all = ((1_u64 << vcpus) - 1) as u32;
        Self {
            all: all & !(first as u32),
            held: cores.iter().map(|it| it.holds(vcpus)).collect(),
            loaded: vec![0; cores.len()],
            waits,
            homes: (0..vcpus).map(|it| it % setup.guest_cores).collect(),
            runs: vec![0; setup.guest_cores],
            waiting: 0,
            by_timer: 0,
            waits_since: vec![Ticks(0); vcpus],
            idle_since: vec![Ticks::NEVER; setup.guest_cores],
            cut_off: 0,
            free_since: vec![Ticks(0); setup.guest_cores],
            forgotten,
            slice: Ticks(slice),
            bound_of_wait,
            bound_of_dispatch: setup
                .costs
                .bound_of_dispatch(&rules, vcpus, setup.guest_cores)
                // When the real-time vCPU is due, EL2 may be handling an interrupt: one, however many are pending.
                .saturating_add(Ticks(setup.storm.map_or(0, |it| it.cost)))
                // Or the core may be at a step of the governor.
                .saturating_add(Ticks(
                    setup
                        .power
                        .map_or(0, |_| setup.costs.exit + setup.costs.govern),
                )),
            longest_wait: Ticks(0),
            longest_wait_beside_idle: Ticks(0),
        }
    }

    /// Checks all invariants after an event at `now` on core `worked`.
    #[inline]
    pub fn check(
        &mut self,
        cores: &[Instance],
        w: &mut World,
        worked: usize,
        now: Ticks,
    ) -> Result<(), String> {
        self.check_places(cores, w, worked)?;
        if cores[worked].has_forgotten(w) {
            return Err(format!(
                "core {worked} idles, and has no alarm to fetch back the vCPU that it has sent away"
            ));
        }
        self.check_waits(cores, w, worked, now)?;
        if let Some(rt) = &w.rt
            && rt.longest_wait > self.bound_of_dispatch
        {
            return Err(format!(
                "the real-time vCPU was dispatched after {} instructions, more than {}",
                rt.longest_wait.0, self.bound_of_dispatch.0
            ));
        }
        Ok(())
    }

    fn check_places(
        &mut self,
        cores: &[Instance],
        w: &mut World,
        worked: usize,
    ) -> Result<(), String> {
        let count = w.vcpus.len();
        // A core changes nothing of what other cores own.
        self.held[worked] = cores[worked].holds(count);
        self.loaded[worked] = cores[worked].loaded().map_or(0, |id| 1 << id.0);
        let (mut once, mut twice, mut loaded, mut loaded_twice) = (w.parked, 0, 0, 0);
        for (&held, &own) in self.held.iter().zip(&self.loaded) {
            twice |= once & held;
            once |= held;
            loaded_twice |= loaded & own | own & !held;
            loaded |= own;
        }
        let mut changed = core::mem::take(&mut w.changed_places);
        while changed != 0 {
            let index = changed.trailing_zeros();
            changed &= changed - 1;
            let is_there = w.is_parked(VcpuId(index as u8));
            let is_said = w.shared.slot(VcpuId(index as u8)).parked().is_some();
            if is_there != is_said || is_there != (w.parked >> index & 1 != 0) {
                return Err(format!(
                    "the parking slot of vCPU {index} and its summary differ"
                ));
            }
        }
        if twice != 0 || once != self.all {
            return Err(format!(
                "each of the vCPUs {:#x} must be in one place: {once:#x} are in at least one, {twice:#x} in two",
                self.all
            ));
        }
        if loaded_twice != 0 {
            return Err(format!(
                "the vCPUs {loaded_twice:#x} are loaded on two cores, or on a core without their tokens"
            ));
        }
        if let Some(id) = cores[worked].in_guest()
            && w.vcpus[id.index()].on != Some(PcpuId(worked as u8))
        {
            return Err(format!(
                "vCPU {id} runs on core {worked} and on another one"
            ));
        }
        Ok(())
    }

    fn check_waits(
        &mut self,
        cores: &[Instance],
        w: &World,
        worked: usize,
        now: Ticks,
    ) -> Result<(), String> {
        let core = &cores[worked];
        self.runs[worked] = core.in_guest().map_or(0, |id| 1 << id.0);
        let is_off = w.is_off(PcpuId(worked as u8));
        self.idle_since[worked] = match core.is_idle() && !is_off {
            true => now.min(self.idle_since[worked]),
            false => Ticks::NEVER,
        };
        if core.is_cut_off() {
            self.cut_off |= 1 << worked;
        } else if self.cut_off >> worked & 1 != 0 {
            self.cut_off &= !(1 << worked);
            self.free_since[worked] = now;
        }
        let running = self.runs.iter().fold(0, |all, own| all | own);
        self.waiting &= !running;
        let mut left = self.all & !running & !(1 << RT.0);
        let mut longest_idle = Ticks::NEVER;
        if left != 0 {
            let idle = (0..).zip(&self.idle_since);
            let idle = idle.filter(|(core, _)| !w.shared.excludes_kernels(PcpuId(*core as u8)));
            longest_idle = idle.map(|(_, &it)| it).min().unwrap_or(longest_idle);
        }
        while left != 0 {
            let index = left.trailing_zeros() as usize;
            let bit = left & left.wrapping_neg();
            left ^= bit;
            let vcpu = &w.vcpus[index];
            if !vcpu.wants_to_run(now) {
                self.waiting &= !bit;
                continue;
            }
            if self.waiting & bit == 0 {
                self.waiting |= bit;
                self.waits_since[index] = now;
                self.by_timer &= !bit;
                if !vcpu.is_awake() {
                    self.by_timer |= bit;
                }
            }
            let since = self.waits_since[index];
            let (idle, from) = match self.waits {
                Waits::Slices | Waits::SlicesAndRt => (longest_idle, since),
                Waits::Host => (Ticks::NEVER, since),
                Waits::Home | Waits::Gang => {
                    // A vCPU that stays can wait only for its own core, and only the time that the core has for it counts.
                    let home = self.homes[index];
                    // Only core 0 is ever cut off.
                    let cut_off = match self.waits {
                        Waits::Gang => 0,
                        _ => home,
                    };
                    if self.cut_off >> cut_off & 1 != 0 {
                        continue;
                    }
                    let free_since = self.free_since[cut_off];
                    (self.idle_since[home], free_since.max(since))
                }
            };
            let waits = now.saturating_sub(from);
            self.longest_wait = self.longest_wait.max(waits);
            if waits > self.bound_of_wait {
                return Err(format!(
                    "vCPU {index} has not run for {} ticks, more than {}",
                    waits.0, self.bound_of_wait.0
                ));
            }
            if idle != Ticks::NEVER {
                let waits = now.saturating_sub(from.max(idle));
                self.longest_wait_beside_idle = self.longest_wait_beside_idle.max(waits);
                // The deadline of a vCPU in the same band is served at the end of a time slice, even if another core idles.
                let bound = match self.by_timer & bit == 0 {
                    true => self.forgotten,
                    false => self.forgotten.saturating_add(self.slice),
                };
                if waits > bound {
                    return Err(format!(
                        "vCPU {index} has been runnable for {} ticks and has not run, and a core idles",
                        waits.0
                    ));
                }
            }
        }
        Ok(())
    }
}
