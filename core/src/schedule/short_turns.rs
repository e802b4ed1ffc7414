// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short turns: the turn of a vCPU is ended early, so that others of its band get theirs sooner.
//!
//! The vCPUs of the band share the core as fairly as with whole turns: after a turn that was ended early, each other vCPU that waited then has
//! one turn of the same length. And switches stay rare, however often a turn may be ended early: a turn is ended early only if it has lasted
//! twice as long as the last short one. Only a whole turn, which ends with its time slice, lets turns be shortest again; sleep does not, or a
//! guest that sleeps often could make all turns short.

use super::{Band, Ticks};

/// The short turns of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShortTurns {
    /// No time below is longer.
    quantum: Ticks,
    /// The band whose vCPUs have short turns.
    band: Band,
    /// How many vCPUs of the band are still to have a short turn.
    left: u8,
    /// How long those turns are: as long as the longest short turn since the one that was ended early, grace included.
    length: Ticks,
    /// How long the next turn to be ended early must have lasted.
    least: Ticks,
    /// How long the present turn had lasted when the vCPU was preempted last.
    used: Ticks,
    /// Whether the present turn is short.
    is_short: bool,
    /// Whether the vCPU was preempted in the present turn, and has not run since.
    is_paused: bool,
}

impl ShortTurns {
    /// No turn was ended early. For time slices of one `quantum`.
    pub(super) const fn new(quantum: Ticks) -> Self {
        Self::of(Band::LOWEST, quantum)
    }

    const fn of(band: Band, quantum: Ticks) -> Self {
        Self {
            quantum,
            band,
            left: 0,
            length: Ticks(0),
            least: Ticks(0),
            used: Ticks(0),
            is_short: false,
            is_paused: false,
        }
    }

    /// How long the running vCPU, of `band`, must still run before its turn may be ended early. No turn that is ended early is shorter than `shortest`.
    #[inline(always)]
    pub(super) fn least(&self, band: Band, shortest: Ticks) -> Ticks {
        match self.band == band {
            true => shortest.max(self.least).saturating_sub(self.used),
            false => shortest,
        }
    }

    /// The turn of the running vCPU, of `band`, is ended early. The vCPU has run for `ran` since it got the core, and `waiting` others of its band wait.
    pub(super) fn end_early(&mut self, band: Band, ran: Ticks, waiting: usize) {
        if self.band != band {
            *self = Self::of(band, self.quantum);
        }
        self.left = waiting as u8;
        self.length = self.lasted(ran);
        self.is_short = true;
    }

    /// How long the present turn has lasted, if its vCPU has run for `ran` since it got the core.
    #[inline(always)]
    fn lasted(&self, ran: Ticks) -> Ticks {
        self.used.saturating_add(ran).min(self.quantum)
    }

    /// A vCPU of `band` gets the core. `rest` is left of its time slice; `is_alone`: no other vCPU of the band waits. Returns how long its turn may last.
    #[inline(always)]
    pub(super) fn begin(&mut self, band: Band, rest: Ticks, is_alone: bool) -> Ticks {
        if self.band != band {
            return rest;
        }
        if is_alone {
            self.left = 0;
        }
        if core::mem::take(&mut self.is_paused) {
            return rest;
        }
        self.used = Ticks(0);
        self.is_short = self.left > 0;
        if !self.is_short {
            return rest;
        }
        self.left -= 1;
        // What it has run out of turn is taken off.
        let has_run = self.quantum.saturating_sub(rest);
        rest.min(self.length.saturating_sub(has_run).max(Ticks(1)))
    }

    /// A vCPU of `band` is preempted, and keeps its turn. It has run for `ran` since it got the core.
    #[inline(always)]
    pub(super) fn pause(&mut self, band: Band, ran: Ticks) {
        if self.band == band {
            self.used = self.lasted(ran);
            self.is_paused = true;
        }
    }

    /// The turn of a vCPU of `band` is over. The vCPU has run for `ran` since it got the core.
    #[inline(always)]
    pub(super) fn end(&mut self, band: Band, ran: Ticks) {
        if self.band != band {
            return;
        }
        let lasted = self.lasted(ran);
        self.least = match self.is_short {
            true => {
                self.length = self.length.max(lasted);
                lasted.saturating_add(lasted).min(self.quantum)
            }
            false => Ticks(0),
        };
        self.is_short = false;
    }

    /// The vCPU of `band` that runs sleeps, is off, leaves the core, or gives up its turn.
    #[inline(always)]
    pub(super) fn give_up(&mut self, band: Band) {
        if self.band == band {
            self.is_short = false;
            self.is_paused = false;
        }
    }

    /// The same state, without what is of no consequence.
    #[cfg(test)]
    pub fn normalized(mut self) -> Self {
        if self.left == 0 && !self.is_short {
            self.length = Ticks(0);
        }
        if self == Self::of(self.band, self.quantum) {
            self.band = Band::LOWEST;
        }
        self
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const BAND: Band = Band::LOWEST;
    const QUANTUM: Ticks = Ticks(2_000);

    /// A vCPU that has a whole time slice begins its turn.
    fn begin(turns: &mut ShortTurns) -> u64 {
        turns.begin(BAND, QUANTUM, false).0
    }

    #[test]
    fn each_vcpu_that_waits_has_a_turn_as_short_as_the_one_that_was_ended_early() {
        let mut turns = ShortTurns::new(QUANTUM);
        assert_eq!(begin(&mut turns), 2_000);
        turns.end_early(BAND, Ticks(100), 3);
        turns.end(BAND, Ticks(130));
        assert_eq!(begin(&mut turns), 130, "with its grace");
        turns.pause(BAND, Ticks(90));
        let above = turns.begin(Band::HIGHEST, QUANTUM, true);
        assert_eq!(above, QUANTUM);
        assert_eq!(turns.begin(BAND, Ticks(40), false), Ticks(40));
        turns.end(BAND, Ticks(40));
        let after_80_out_of_turn = turns.begin(BAND, Ticks(1_920), false);
        assert_eq!(after_80_out_of_turn, Ticks(50));
        turns.end(BAND, Ticks(50));
        assert_eq!(begin(&mut turns), 130);
        turns.end(BAND, Ticks(130));
        assert_eq!(begin(&mut turns), 2_000);
    }

    #[test]
    fn a_vcpu_that_is_alone_has_a_whole_turn() {
        let mut turns = ShortTurns::new(QUANTUM);
        turns.end_early(BAND, Ticks(100), 2);
        turns.end(BAND, Ticks(100));
        assert_eq!(turns.begin(BAND, QUANTUM, true), QUANTUM);
        assert_eq!(begin(&mut turns), 2_000);
    }

    #[test]
    fn a_turn_is_ended_early_only_if_it_has_lasted_twice_as_long_as_the_last_short_one() {
        let mut turns = ShortTurns::new(QUANTUM);
        for lasted in [100, 400, 1_600] {
            let _ = begin(&mut turns);
            turns.pause(BAND, Ticks(60));
            let _ = turns.begin(BAND, Ticks(1_940), false);
            assert!(turns.least(BAND, Ticks(100)) <= Ticks(lasted - 60));
            turns.end_early(BAND, Ticks(lasted - 60), 1);
            turns.end(BAND, Ticks(lasted - 60));
            let _ = begin(&mut turns);
            // The other vCPU is in its kernel, and has grace.
            turns.end(BAND, Ticks(lasted + 50));
            let _ = begin(&mut turns);
            turns.give_up(BAND);
            assert_eq!(
                turns.least(BAND, Ticks(100)),
                Ticks((2 * lasted + 100).min(QUANTUM.0))
            );
            assert_eq!(turns.least(Band::HIGHEST, Ticks(100)), Ticks(100));
        }
        let _ = begin(&mut turns);
        turns.end(BAND, QUANTUM);
        assert_eq!(
            turns.least(BAND, Ticks(100)),
            Ticks(100),
            "after a whole turn"
        );
    }
}
