// SPDX-License-Identifier: MIT OR Apache-2.0
//! The governor: from what cores have spent a window of time on, it decides which cores are to go off, or to come on.

use super::fit::{Fit, Fits};
use super::{Limits, Loads, Movers};
use crate::schedule::Ticks;
use crate::sets::CoreSet;
use core::cmp::Reverse;
use spumone_config::packed::{Power, PowerMode};
use spumone_config::types::{MAX_PCPUS, PcpuId};

/// A window is so many microseconds long, or more if it costs much to turn a core off and on: the bounds.
const WINDOW_US: (u32, u32) = (2_000, 30_000);
/// The load must have been low before a core goes off for so many times what it costs to turn a core off and on, so that this takes at most a
/// hundredth of a core's time; for a window at least.
const CALM_PER_COST: u32 = 100;
/// A window is so many times shorter than that.
const WINDOWS_PER_CALM: u32 = 8;
/// That time grows by this factor at most, if cores are missed soon after they have gone off.
const MOST_PATIENCE: u32 = 2;
/// A core was missed soon if it came back within so many such times.
const SOON: u32 = 8;
/// If no core was missed soon for so many such times, those that were are forgotten.
const FORGET: u32 = 32;

/// What the governor decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No change.
    Stay,
    /// These cores are to come on.
    On(CoreSet),
    /// These cores are to go off.
    Off(CoreSet),
}

/// How full cores may be, in percent of the time that vCPUs that stay there leave.
#[derive(Clone, Copy, Debug)]
struct Fill {
    /// A core goes off if the others are not fuller than this afterwards.
    off: u32,
    /// A core comes on if the cores that are on are fuller than this. It is above `off`, so that a constant load changes nothing.
    on: u32,
}

impl Fill {
    const fn of(mode: PowerMode) -> Self {
        match mode {
            PowerMode::Saving => Self { off: 80, on: 95 },
            PowerMode::Balanced | PowerMode::Performance => Self { off: 70, on: 80 },
        }
    }
}

/// How full cores may be in a mode in which they go off, in percent of the time that vCPUs that stay there leave: if the cores that are on are fuller, another
/// one comes on. For measurements.
pub const fn full_percent(mode: PowerMode) -> u32 {
    Fill::of(mode).on
}

/// How far a decision is.
#[derive(Debug)]
enum Phase {
    /// It has not begun.
    Begins,
    /// Whether the cores that are on can carry the load.
    Enough(Fit),
    /// The next core whose load others may carry is to be chosen.
    Chooses,
    /// Whether the others can carry the load without this core.
    Without(PcpuId, Fit),
}

/// The governor. There is one in a system, on the console's core. Each decision consists of short steps.
#[derive(Debug)]
pub struct Governor {
    limits: Limits,
    movers: Movers,
    /// For how long the load must have been low before a core goes off, if no core was missed lately.
    pub(super) calm: Ticks,
    pub(super) window: Ticks,
    /// By what `calm` grows: from 1 to [`MOST_PATIENCE`].
    patience: u32,
    /// When a core was missed soon for the last time.
    missed_at: Ticks,
    /// The cores that were to be on after the last decision.
    wanted: CoreSet,
    /// By a number of cores, less one: since when so many could have carried the load; after a core has come on, since then.
    low_since: [Ticks; MAX_PCPUS],
    /// When cores were to go off last; `None`: none was yet, or it was missed.
    off_at: Option<Ticks>,
    /// Whether there are windows. If not, the next loads are those of a long time, and say nothing.
    has_windows: bool,
    phase: Phase,
    /// The mode of the present decision.
    mode: PowerMode,
    /// Those of `wanted` that are needed, as far as the present decision knows.
    needed: CoreSet,
    /// The cores that may still turn out not to be needed.
    open: CoreSet,
    /// Those that are not needed, in the order in which they go off.
    spare: heapless::Vec<PcpuId, MAX_PCPUS>,
}

impl Governor {
    /// For these limits and costs, on a core whose counter has this frequency. `wanted`: the cores that are on at first, at `now`.
    pub fn new(
        power: &Power,
        limits: Limits,
        movers: Movers,
        wanted: CoreSet,
        now: Ticks,
        frequency_hz: u32,
    ) -> Self {
        let cost = power.off_us.saturating_add(power.on_us);
        let calm = cost.saturating_mul(CALM_PER_COST).max(WINDOW_US.0);
        let window = (calm / WINDOWS_PER_CALM).clamp(WINDOW_US.0, WINDOW_US.1);
        Self {
            limits,
            movers,
            calm: Ticks::from_micros(calm, frequency_hz),
            window: Ticks::from_micros(window, frequency_hz),
            patience: 1,
            missed_at: now,
            wanted,
            low_since: [now; MAX_PCPUS],
            off_at: None,
            has_windows: true,
            phase: Phase::Begins,
            mode: power.mode,
            needed: wanted,
            open: CoreSet::EMPTY,
            spare: heapless::Vec::new(),
        }
    }

    /// The guests whose loads it takes into account.
    pub const fn movers(&self) -> &Movers {
        &self.movers
    }

    /// When the window that begins at `now` ends; [`Ticks::NEVER`]: none begins, because as few cores are on as may be, or as many as the mode has on.
    /// Then the next decision is due when a core is asked for, or the mode has changed.
    pub fn next_end(&mut self, now: Ticks) -> Ticks {
        let may_go_off =
            !(self.wanted - self.limits.stay).is_empty() && self.wanted.count() > self.limits.least;
        let misses = self.wanted.count() < self.limits.least;
        let follows_load = may_go_off && self.mode != PowerMode::Performance;
        // After a rest, the load of the window that begins now decides whether there are more.
        let was_asked = !self.has_windows && self.mode != PowerMode::Performance;
        self.has_windows = follows_load || misses || was_asked;
        match self.has_windows {
            true => now.saturating_add(self.window),
            false => Ticks::NEVER,
        }
    }

    /// A step of the decision at the end of a window, at `now`, or because a core was asked for or the mode has changed. `wanted`, the cores that are to be
    /// on, `mode` and `loads` must be the same until it is decided. If there are more cores than after the last decision, vCPUs that waited have
    /// brought them back. `None`: the decision takes more steps. Each looks at 8 cores or guests at most, and there are at most 83.
    pub fn step(
        &mut self,
        now: Ticks,
        wanted: CoreSet,
        mode: PowerMode,
        loads: &Loads,
    ) -> Option<Step> {
        match &mut self.phase {
            Phase::Begins => self.begin(now, wanted, mode, loads),
            Phase::Enough(fit) => match fit.step(&self.movers, loads) {
                Fits::All => {
                    self.phase = Phase::Chooses;
                    None
                }
                Fits::SoFar => None,
                Fits::Not(guest) => {
                    let more = self.movers.cores_of(guest) & self.limits.all;
                    let core = (more - self.wanted).iter().next()?;
                    // Its load does not fit, so it cannot be low.
                    Some(self.come_on(now, CoreSet::of(core)))
                }
            },
            Phase::Chooses => self.choose(now, loads),
            Phase::Without(core, fit) => {
                let core = *core;
                match fit.step(&self.movers, loads) {
                    Fits::All => {
                        self.needed.remove(core);
                        let _ = self.spare.push(core);
                        self.phase = Phase::Chooses;
                    }
                    Fits::SoFar => {}
                    Fits::Not(_) => self.phase = Phase::Chooses,
                }
                None
            }
        }
    }

    fn begin(
        &mut self,
        now: Ticks,
        wanted: CoreSet,
        mode: PowerMode,
        loads: &Loads,
    ) -> Option<Step> {
        self.mode = mode;
        if wanted != self.wanted {
            self.wanted = wanted;
            self.core_was_missed(now);
        }
        let forgets = Ticks(self.calm.0.saturating_mul(FORGET.into()));
        if self.missed_at.saturating_add(forgets) <= now {
            self.patience = 1;
        }
        let count = self.wanted.count();
        let enough = match mode {
            PowerMode::Performance => self.limits.most,
            PowerMode::Balanced | PowerMode::Saving => self.limits.least,
        };
        if count < enough {
            let mut more = CoreSet::EMPTY;
            // At most 8 times: cores.
            for core in (self.limits.all - wanted).iter() {
                more.insert_if(core, count + more.count() < enough);
            }
            if mode == PowerMode::Performance {
                // No core is missed.
                self.off_at = None;
            }
            return Some(self.come_on(now, more));
        }
        if mode == PowerMode::Performance || !self.has_windows {
            self.low_since = [now; MAX_PCPUS];
            return Some(Step::Stay);
        }
        self.needed = wanted;
        self.open = wanted - self.limits.stay;
        self.spare.clear();
        self.phase = match count < self.limits.most {
            true => Phase::Enough(Fit::new(wanted, loads, Fill::of(mode).on)),
            false => Phase::Chooses,
        };
        None
    }

    /// Chooses the core that others may carry the load of next: the one that spends least time on vCPUs that migrate; of several such cores, the one with
    /// the highest number.
    fn choose(&mut self, now: Ticks, loads: &Loads) -> Option<Step> {
        // At most 8 times: cores.
        let next = self
            .open
            .iter()
            .min_by_key(|&core| (loads.movable(core), Reverse(core.0)));
        let Some(core) = next.filter(|_| self.needed.count() > self.limits.least) else {
            self.phase = Phase::Begins;
            return Some(self.go_off(now));
        };
        self.open.remove(core);
        let rest = self.needed - CoreSet::of(core);
        self.phase = Phase::Without(core, Fit::new(rest, loads, Fill::of(self.mode).off));
        None
    }

    /// So many cores are needed in this window: those go off that were not needed for long.
    fn go_off(&mut self, now: Ticks) -> Step {
        let needed = self.needed.count() as usize;
        let due = Ticks(self.calm.0.saturating_mul(self.patience.into()));
        let mut off = CoreSet::EMPTY;
        let count = self.wanted.count() as usize;
        // At most 8 times: numbers of cores.
        for (less, since) in self.low_since.iter_mut().enumerate() {
            if less + 1 < needed {
                *since = now;
            } else if less + 1 < count && since.saturating_add(due) <= now && off.is_empty() {
                let spare = self.spare.iter().take(count - less - 1);
                // At most 8 times: cores.
                off = spare.copied().collect();
            }
        }
        if off.is_empty() {
            return Step::Stay;
        }
        self.wanted -= off;
        self.off_at = Some(now);
        Step::Off(off)
    }

    fn come_on(&mut self, now: Ticks, cores: CoreSet) -> Step {
        self.phase = Phase::Begins;
        self.core_was_missed(now);
        self.wanted |= cores;
        Step::On(cores)
    }

    /// A core comes back. If that is soon after one has gone off, the next one goes off later.
    fn core_was_missed(&mut self, now: Ticks) {
        if let Some(off_at) = self.off_at.take() {
            let soon = Ticks(self.calm.0.saturating_mul(SOON.into()));
            if now.saturating_sub(off_at) < soon {
                self.missed_at = now;
                self.patience = (self.patience + 1).min(MOST_PATIENCE);
            }
        }
        self.low_since = [now; MAX_PCPUS];
    }
}
