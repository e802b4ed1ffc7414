// SPDX-License-Identifier: MIT OR Apache-2.0
//! `balance`: a core takes a vCPU only while it idles, so a preempted vCPU goes to a core that idles. If a vCPU of that core then
//! wakes, both share the core.
//!
//! ```text
//!                    core 0                        core 1
//!   rt wakes         keeps v
//!                    … for a while: parks v        w runs: v waits
//!                       ⋮                          w sleeps: fetches v
//!                       ⋮                          w wakes, and waits for its time slice or for another core
//! ```
//!
//! After *Is Co-scheduling Too Expensive for SMP VMs?* (Sukwong and Kim, 2011): for comparison. While all
//! vCPUs are busy, it does nothing for a preempted lock holder.

use super::rules::{Decide, PolicyRules};
use super::view::{Candidate, Fetcher, Verdict};
use crate::schedule::Ticks;

/// In microseconds.
const PARK_DELAY_US: u32 = 100;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Balance {
    park_delay: Ticks,
}

impl Balance {
    /// On a machine with this counter.
    pub const fn new(frequency_hz: u32) -> Self {
        Self {
            park_delay: Ticks::from_micros(PARK_DELAY_US, frequency_hz),
        }
    }
}

impl Decide for Balance {
    fn rules(&self) -> PolicyRules {
        PolicyRules {
            park_delay: self.park_delay,
            ..PolicyRules::default()
        }
    }

    fn verdict(&self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        let concerns = candidate.parked.state.is_runnable() || candidate.is_cut_off;
        match fetcher.running {
            None if concerns => Verdict::Take,
            _ => Verdict::Leave,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::samples::{busy, candidate, idle};
    use super::*;
    use crate::migration::slot::ParkedState;

    #[test]
    fn only_an_idle_core_takes_a_vcpu() {
        let policy = Balance::new(1_000_000);
        for state in [
            ParkedState::Runnable,
            ParkedState::Wanted,
            ParkedState::Asleep,
        ] {
            let candidate = candidate(state);
            assert_eq!(policy.verdict(&idle(0), &candidate), Verdict::Take);
            assert_eq!(policy.verdict(&busy(9, 0, 5), &candidate), Verdict::Leave);
        }
    }
}
