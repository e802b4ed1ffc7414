// SPDX-License-Identifier: MIT OR Apache-2.0
//! `random`: vCPUs migrate all the time, without a reason. For tests: it makes faults in a migration show early.
//!
//! A running vCPU is sent away after a while even if no other vCPU wants its core, and a core swaps the running vCPU
//! for any parked one.

use super::rules::{Decide, PolicyRules};
use super::view::{Candidate, Fetcher, Verdict};
use crate::schedule::Ticks;

/// In microseconds.
const STAY_US: u32 = 100;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Random {
    stay: Ticks,
}

impl Random {
    /// On a machine with this counter.
    pub const fn new(frequency_hz: u32) -> Self {
        Self {
            stay: Ticks::from_micros(STAY_US, frequency_hz),
        }
    }
}

impl Decide for Random {
    fn rules(&self) -> PolicyRules {
        PolicyRules {
            max_stay: Some(self.stay),
            ..PolicyRules::default()
        }
    }

    fn verdict(&self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        if fetcher.runs_higher_band_than(candidate) {
            return Verdict::Leave;
        }
        let due = match fetcher.running {
            Some(running) if candidate.parked.state.is_runnable() => {
                // Each vCPU must make progress.
                running.since.saturating_add(self.stay)
            }
            _ => return Verdict::Take,
        };
        fetcher.swap_at(due)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::samples::{busy, candidate};
    use super::*;
    use crate::migration::slot::ParkedState;

    #[test]
    fn each_vcpu_makes_progress() {
        let policy = Random::new(1_000_000);
        let verdict = |now| policy.verdict(&busy(now, 0, 1_000), &candidate(ParkedState::Runnable));
        assert_eq!(verdict(99), Verdict::Later(Ticks(100)));
        assert_eq!(verdict(100), Verdict::Swap);
    }
}
