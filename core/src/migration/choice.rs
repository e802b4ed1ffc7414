// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which one of the runnable parked vCPUs a core claims, and for which other one it notifies another core.

use super::policy::{Candidate, Verdict};
use super::slot::Parked;
use crate::schedule::{Band, Ticks};
use core::cmp::Reverse;
use spumone_config::types::VcpuId;

/// A runnable parked vCPU that the core may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its id.
    pub vcpu: VcpuId,
    /// What its parking slot showed.
    pub parked: Parked,
    /// Its band.
    pub band: Band,
    /// Whether the running vCPU gives up its time slice for it.
    pub swap: bool,
    since: Ticks,
}

impl Found {
    /// The highest band comes first; of one band, the vCPU that has been parked longest.
    fn rank(&self) -> (Band, Reverse<Ticks>) {
        (self.band, Reverse(self.since))
    }
}

/// What a core has found so far.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The runnable vCPU to claim.
    pub best: Option<Found>,
    /// Another vCPU, for which another core is to be notified.
    pub left_over: Option<VcpuId>,
    /// When to look again at vCPUs that other cores have parked: the earliest time that a verdict has named.
    pub fetch_at: Ticks,
}

impl Choice {
    /// Nothing yet.
    pub const NOTHING: Self = Self {
        best: None,
        left_over: None,
        fetch_at: Ticks::NEVER,
    };

    /// Enters a verdict. Returns whether the core is to become the vCPU's host core at once, because the vCPU sleeps or
    /// is off: such a vCPU does not compete for the core.
    pub fn note(&mut self, vcpu: VcpuId, candidate: &Candidate, verdict: Verdict) -> bool {
        let Candidate {
            parked,
            band,
            since,
            ..
        } = *candidate;
        match verdict {
            Verdict::Leave => return false,
            Verdict::Later(at) => {
                self.fetch_at = self.fetch_at.min(at);
                return false;
            }
            Verdict::Take if !parked.state.is_runnable() => return true,
            Verdict::Take | Verdict::Swap => {}
        }
        let found = Found {
            vcpu,
            parked,
            band,
            swap: verdict == Verdict::Swap,
            since,
        };
        match self.best {
            Some(best) if best.rank() >= found.rank() => self.left_over = Some(vcpu),
            _ => {
                let former = self.best.replace(found).map(|best| best.vcpu);
                self.left_over = former.or(self.left_over);
            }
        }
        false
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::migration::ParkedState;
    use spumone_config::types::PcpuId;

    fn candidate(state: ParkedState, since: u64) -> Candidate {
        Candidate {
            parked: Parked {
                host: PcpuId(0),
                state,
            },
            band: Band::LOWEST,
            home: PcpuId(0),
            since: Ticks(since),
            is_cut_off: true,
        }
    }

    #[test]
    fn the_longest_parked_is_best_and_another_is_left_over() {
        for order in [[(1, 10), (2, 20), (3, 30)], [(3, 30), (2, 20), (1, 10)]] {
            let mut choice = Choice::NOTHING;
            for (vcpu, since) in order {
                let candidate = candidate(ParkedState::Runnable, since);
                assert!(!choice.note(VcpuId(vcpu), &candidate, Verdict::Swap));
            }
            assert_eq!(
                choice.best.map(|it| (it.vcpu, it.swap)),
                Some((VcpuId(1), true))
            );
            assert!(choice.left_over.is_some_and(|it| it != VcpuId(1)));
        }
    }

    #[test]
    fn the_highest_band_is_best_however_short_it_has_been_parked() {
        let highest = Candidate {
            band: Band::HIGHEST,
            ..candidate(ParkedState::Runnable, 30)
        };
        let lowest = candidate(ParkedState::Runnable, 10);
        for order in [[(1, lowest), (2, highest)], [(2, highest), (1, lowest)]] {
            let mut choice = Choice::NOTHING;
            for (vcpu, candidate) in order {
                choice.note(VcpuId(vcpu), &candidate, Verdict::Take);
            }
            assert_eq!(choice.best.map(|it| it.vcpu), Some(VcpuId(2)));
            assert_eq!(choice.left_over, Some(VcpuId(1)));
        }
    }

    #[test]
    fn a_sleeping_vcpu_is_taken_beside_all_others_and_the_earliest_look_counts() {
        let mut choice = Choice::NOTHING;
        let asleep = candidate(ParkedState::Asleep, 0);
        assert!(choice.note(VcpuId(1), &asleep, Verdict::Take));
        for at in [30, 20, 40] {
            let runnable = candidate(ParkedState::Runnable, 0);
            assert!(!choice.note(VcpuId(2), &runnable, Verdict::Later(Ticks(at))));
        }
        assert!(!choice.note(VcpuId(3), &asleep, Verdict::Leave));
        assert_eq!(choice.fetch_at, Ticks(20));
        assert!(choice.best.is_none() && choice.left_over.is_none());
    }
}
