// SPDX-License-Identifier: MIT OR Apache-2.0
//! The governor: from what cores have spent a window of time on, it decides whether a core is to go off, or to come on.

use super::Limits;
use crate::schedule::Ticks;
use crate::sets::CoreSet;
use core::cmp::Reverse;
use spumone_config::packed::{Power, PowerMode};
use spumone_config::types::{MAX_PCPUS, PcpuId};

/// In microseconds: the shortest time for which the load must have been low before a core goes off.
const CALM_US: u32 = 100_000;
/// That time is so many times what it costs to turn a core off and on, so that this takes at most a hundredth of a core's time.
const CALM_PER_COST: u32 = 100;
/// It grows by this factor at most, if cores are missed soon after they have gone off.
const MOST_PATIENCE: u32 = 8;
/// A core was missed soon if it came back within so many such times.
const SOON: u32 = 8;
/// A whole, in the unit of [`Load`].
const WHOLE: u32 = 1000;

/// What a core has spent a window on, in thousandths. The rest it has idled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// On vCPUs that stay there: no other core can have this load.
    pub fixed: u32,
    /// On vCPUs that migrate.
    pub movable: u32,
}

/// What the governor decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// No change.
    Stay,
    /// This core is to come on.
    On(PcpuId),
    /// This core is to go off.
    Off(PcpuId),
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
            PowerMode::Balanced => Self { off: 50, on: 80 },
            PowerMode::Saving => Self { off: 80, on: 95 },
        }
    }
}

/// The governor. There is one in a system, on the console's core.
#[derive(Debug)]
pub struct Governor {
    limits: Limits,
    fill: Fill,
    /// For how long the load must have been low before a core goes off, if no core was missed lately.
    calm: Ticks,
    /// By what that grows: from 1 to [`MOST_PATIENCE`].
    patience: u32,
    /// The cores that were to be on after the last step.
    wanted: CoreSet,
    /// Since when the load has been low; after each change, since that change.
    calm_since: Ticks,
    /// When the last core was to go off; `None`: none was yet.
    off_at: Option<Ticks>,
}

impl Governor {
    /// For these limits and costs, on a core whose counter has this frequency. `wanted`: the cores that are on at first, at `now`.
    pub fn new(
        power: &Power,
        limits: Limits,
        wanted: CoreSet,
        now: Ticks,
        frequency_hz: u32,
    ) -> Self {
        let cost = power.off_us.saturating_add(power.on_us);
        let calm = CALM_US.max(cost.saturating_mul(CALM_PER_COST));
        Self {
            limits,
            fill: Fill::of(power.mode),
            calm: Ticks::from_micros(calm, frequency_hz),
            patience: 1,
            wanted,
            calm_since: now,
            off_at: None,
        }
    }

    /// A window has ended at `now`. `wanted`: the cores that are to be on; if there are more than after the last step, a vCPU that waited has brought
    /// them back.
    pub fn window_end(&mut self, now: Ticks, wanted: CoreSet, loads: &[Load; MAX_PCPUS]) -> Step {
        if wanted != self.wanted {
            self.wanted = wanted;
            self.core_was_missed(now);
        }
        let load: u32 = loads.iter().map(|it| it.movable).sum();
        let few = wanted.count() < self.limits.least;
        let may_come = wanted.count() < self.limits.most;
        if few || may_come && self.is_fuller(loads, wanted, load, self.fill.on) {
            return self.come_on(now);
        }
        let Some(core) = self.least_loaded(loads) else {
            return Step::Stay;
        };
        let rest = wanted - CoreSet::of(core);
        if self.is_fuller(loads, rest, load, self.fill.off) {
            self.calm_since = now;
            return Step::Stay;
        }
        let due = self.calm_since.saturating_add(self.patient_calm());
        if now < due {
            return Step::Stay;
        }
        self.wanted = rest;
        self.calm_since = now;
        if self.off_at.replace(now).is_some() {
            // The last one has not been missed.
            self.patience = (self.patience / 2).max(1);
        }
        Step::Off(core)
    }

    /// For how long the load must be low now.
    fn patient_calm(&self) -> Ticks {
        Ticks(self.calm.0.saturating_mul(self.patience.into()))
    }

    /// Whether the load would fill these cores by more than this share of the time that their own vCPUs leave.
    fn is_fuller(
        &self,
        loads: &[Load; MAX_PCPUS],
        cores: CoreSet,
        load: u32,
        percent: u32,
    ) -> bool {
        // At most 8 times: cores.
        let room: u32 = (0..)
            .map(PcpuId)
            .zip(loads)
            .filter(|(core, _)| cores.contains(*core))
            .map(|(_, it)| WHOLE.saturating_sub(it.fixed))
            .sum();
        // Without any room, vCPUs that wait have no load.
        room == 0 || u64::from(load) * 100 > u64::from(room) * u64::from(percent)
    }

    /// The core that goes off next: the one that spends least time on vCPUs that migrate; of several such cores, the one with the highest number.
    fn least_loaded(&self, loads: &[Load; MAX_PCPUS]) -> Option<PcpuId> {
        if self.wanted.count() <= self.limits.least {
            return None;
        }
        let candidates = (self.wanted - self.limits.stay).iter();
        let load = |core: PcpuId| loads.get(core.index()).map_or(0, |it| it.movable);
        // At most 8 times: cores.
        candidates.min_by_key(|&core| (load(core), Reverse(core.0)))
    }

    fn come_on(&mut self, now: Ticks) -> Step {
        self.core_was_missed(now);
        match (self.limits.all - self.wanted).iter().next() {
            Some(core) => {
                self.wanted.insert(core);
                Step::On(core)
            }
            None => Step::Stay,
        }
    }

    /// A core comes back. If that is soon after one has gone off, the next one goes off later.
    fn core_was_missed(&mut self, now: Ticks) {
        if let Some(off_at) = self.off_at.take() {
            let soon = Ticks(self.patient_calm().0.saturating_mul(SOON.into()));
            self.patience = match now.0.saturating_sub(off_at.0) < soon.0 {
                true => (self.patience * 2).min(MOST_PATIENCE),
                false => 1,
            };
        }
        self.calm_since = now;
    }
}
