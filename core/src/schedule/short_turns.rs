// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short turns: the turn of a vCPU is ended early, so that others of its band get theirs sooner.
//!
//! The vCPUs of the band share the core as fairly as with whole turns: after a turn that was ended early, each other vCPU that waited then has
//! one turn of the same length. And switches stay rare, however often a turn may be ended early: a turn is ended early only if it has lasted
//! twice as long as the last short turn, up to a whole time slice, after which turns may be shortest again.

use super::{Band, Ticks};

/// The short turns of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShortTurns {
    /// The band whose vCPUs have them.
    band: Band,
    /// How many vCPUs are still to have one.
    left: u8,
    /// How long these are.
    length: Ticks,
    /// How long the next turn to be ended early must have lasted.
    least: Ticks,
    /// Whether the turn of the vCPU of `band` that runs, or has run last, is short.
    is_short: bool,
}

impl ShortTurns {
    /// No turn was ended early.
    pub(super) const fn new() -> Self {
        Self {
            band: Band::LOWEST,
            left: 0,
            length: Ticks(0),
            least: Ticks(0),
            is_short: false,
        }
    }

    /// How long the running turn of a vCPU of `band` lasts at least.
    #[inline(always)]
    pub(super) fn least(&self, band: Band) -> Ticks {
        match self.band == band {
            true => self.least,
            false => Ticks(0),
        }
    }

    /// The turn of the vCPU that runs is ended early, after it has `lasted` so long, while so many others wait.
    pub(super) fn end_early(&mut self, band: Band, lasted: Ticks, waiting: usize) {
        *self = Self {
            band,
            left: waiting as u8,
            length: lasted,
            least: self.least(band),
            is_short: true,
        };
    }

    /// A vCPU of `band` gets the core, with this rest of a time slice of one `quantum`. Returns how long its turn may last.
    #[inline(always)]
    pub(super) fn begin(&mut self, band: Band, rest: Ticks, quantum: Ticks) -> Ticks {
        if self.band != band {
            return rest;
        }
        if self.left > 0 && rest > self.length {
            self.left -= 1;
            self.is_short = true;
            return self.length;
        }
        if rest >= quantum {
            self.is_short = false;
        }
        rest
    }

    /// The turn of a vCPU of `band` is over, after it has `lasted` so long.
    #[inline(always)]
    pub(super) fn end(&mut self, band: Band, lasted: Ticks) {
        if self.band == band {
            self.least = match self.is_short {
                true => Ticks(lasted.0.saturating_mul(2)),
                false => Ticks(0),
            };
        }
    }

    /// The same state, without what is of no consequence.
    #[cfg(test)]
    pub fn normalized(mut self) -> Self {
        if self.left == 0 {
            self.length = Ticks(0);
        }
        if self
            == (Self {
                band: self.band,
                ..Self::new()
            })
        {
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

    /// The turn of a vCPU that has a whole time slice.
    fn begin(turns: &mut ShortTurns) -> u64 {
        turns.begin(BAND, QUANTUM, QUANTUM).0
    }

    #[test]
    fn each_vcpu_that_waits_has_a_turn_as_short_as_the_one_that_was_ended_early() {
        let mut turns = ShortTurns::new();
        assert_eq!(begin(&mut turns), 2_000);
        turns.end_early(BAND, Ticks(100), 2);
        turns.end(BAND, Ticks(100));
        assert_eq!(begin(&mut turns), 100);
        // It is preempted by a higher band, and goes on.
        assert_eq!(turns.begin(Band::HIGHEST, QUANTUM, QUANTUM), QUANTUM);
        assert_eq!(turns.begin(BAND, Ticks(40), QUANTUM), Ticks(40));
        turns.end(BAND, Ticks(100));
        assert_eq!(begin(&mut turns), 100);
        turns.end(BAND, Ticks(100));
        assert_eq!(begin(&mut turns), 2_000);
    }

    #[test]
    fn a_turn_is_ended_early_only_if_it_has_lasted_twice_as_long_as_the_last_short_one() {
        let mut turns = ShortTurns::new();
        for lasted in [100, 400, 1_600] {
            let _ = begin(&mut turns);
            turns.end_early(BAND, Ticks(lasted), 1);
            turns.end(BAND, Ticks(lasted));
            let _ = begin(&mut turns);
            // The other vCPU is in its kernel, and has grace.
            turns.end(BAND, Ticks(lasted + 50));
            assert_eq!(turns.least(BAND), Ticks(2 * (lasted + 50)));
            assert_eq!(turns.least(Band::HIGHEST), Ticks(0));
        }
        let _ = begin(&mut turns);
        turns.end(BAND, QUANTUM);
        assert_eq!(turns.least(BAND), Ticks(0), "after a whole turn");
    }
}
