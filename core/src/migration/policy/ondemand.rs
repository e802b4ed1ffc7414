// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ondemand`: a vCPU leaves its core when a vCPU of a higher band preempts it, and returns when that one sleeps.
//!
//! ```text
//!                    core 0                        core 1
//!   rt wakes         parks v, notifies core 1
//!                    runs rt                       fetches v, which shares the core with w in time slices
//!                       ⋮                             ⋮
//!   rt sleeps        calls v home                  sends v away
//!                    fetches v
//! ```
//!
//! As in *Solving the Lock Holder Preemption Problem* (2012), section 4.3: two moves for each activation of the
//! vCPU of the higher band, however short.

use super::rules::{Decide, PolicyRules};
use super::view::{Candidate, Fetcher, Verdict};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct OnDemand;

impl Decide for OnDemand {
    fn rules(&self) -> PolicyRules {
        PolicyRules {
            returns_home: true,
            ..PolicyRules::default()
        }
    }

    fn verdict(&self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        if fetcher.runs_higher_band_than(candidate) {
            return Verdict::Leave;
        }
        if candidate.is_cut_off || candidate.home == fetcher.core {
            Verdict::Take
        } else {
            Verdict::Leave
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::samples::{HIGH, HOME, OTHER, busy, candidate, idle};
    use super::*;
    use crate::migration::slot::ParkedState;

    #[test]
    fn a_preempted_vcpu_leaves_its_core() {
        for fetcher in [idle(0), busy(0, 0, 10)] {
            let verdict = OnDemand.verdict(&fetcher, &candidate(ParkedState::Wanted));
            assert_eq!(verdict, Verdict::Take);
        }
    }

    #[test]
    fn a_vcpu_returns_home_and_goes_nowhere_else() {
        let mut away = candidate(ParkedState::Sent);
        away.parked.host = OTHER;
        away.is_cut_off = false;
        assert_eq!(OnDemand.verdict(&idle(0), &away), Verdict::Leave);
        let mut home = Fetcher {
            core: HOME,
            ..idle(0)
        };
        assert_eq!(OnDemand.verdict(&home, &away), Verdict::Take);
        home.running = busy(0, 0, 10).running.map(|mut it| {
            it.band = HIGH;
            it
        });
        assert_eq!(OnDemand.verdict(&home, &away), Verdict::Leave);
    }
}
