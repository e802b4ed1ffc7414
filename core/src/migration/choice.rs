//! What a core makes of all that it finds: which one it takes, and whom it tells of one that it leaves.

use super::{Candidate, Level, Parked, Verdict};
use crate::schedule::{Band, Ticks};
use core::cmp::Reverse;
use spumone_config::types::{PcpuId, VcpuId};

/// A parked vCPU that the core may run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Which.
    pub vcpu: VcpuId,
    /// As it was seen.
    pub parked: Parked,
    /// Its band.
    pub band: Band,
    /// The vCPU that runs lets go for it.
    pub swap: bool,
    since: Ticks,
}

impl Found {
    /// The most urgent comes first; of equals the one that has been parked longest.
    fn rank(&self) -> (Band, Reverse<Ticks>) {
        (self.band, Reverse(self.since))
    }
}

/// What a core has found so far.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Of the most urgent, the one that has been parked longest.
    pub best: Option<Found>,
    /// Another one: for another core.
    pub left_over: Option<VcpuId>,
    /// When to look again.
    pub look_at: Ticks,
}

impl Choice {
    /// Nothing yet.
    pub const NOTHING: Self = Self {
        best: None,
        left_over: None,
        look_at: Ticks::NEVER,
    };

    /// Takes note of a verdict. Returns whether the core is to become the vCPU's host at once: it waits for something,
    /// so it competes with nobody.
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
                self.look_at = self.look_at.min(at);
                return false;
            }
            Verdict::Take if !parked.rest.is_runnable() => return true,
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

/// Which of other cores, in the order in which they are to be asked, is told that a vCPU of `band` is parked: one that
/// idles; else, if it may be a busy one, the first that runs nobody more urgent.
pub fn whom_to_tell(
    others: impl Iterator<Item = (PcpuId, Level)>,
    band: Band,
    busy: bool,
) -> Option<PcpuId> {
    let mut first = None;
    for (core, level) in others {
        if level == Level::IDLE {
            return Some(core);
        }
        if busy && first.is_none() && level <= Level::of(Some(band)) {
            first = Some(core);
        }
    }
    first
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::migration::Rest;

    fn candidate(rest: Rest, since: u64) -> Candidate {
        Candidate {
            parked: Parked {
                host: PcpuId(0),
                rest,
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
                let candidate = candidate(Rest::Runnable, since);
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
    fn the_most_urgent_is_best_however_short_it_has_been_parked() {
        let urgent = Candidate {
            band: Band::HIGHEST,
            ..candidate(Rest::Runnable, 30)
        };
        let lowest = candidate(Rest::Runnable, 10);
        for order in [[(1, lowest), (2, urgent)], [(2, urgent), (1, lowest)]] {
            let mut choice = Choice::NOTHING;
            for (vcpu, candidate) in order {
                choice.note(VcpuId(vcpu), &candidate, Verdict::Take);
            }
            assert_eq!(choice.best.map(|it| it.vcpu), Some(VcpuId(2)));
            assert_eq!(choice.left_over, Some(VcpuId(1)));
        }
    }

    #[test]
    fn a_sleeper_is_taken_beside_all_others_and_the_earliest_look_counts() {
        let mut choice = Choice::NOTHING;
        let asleep = candidate(Rest::Asleep, 0);
        assert!(choice.note(VcpuId(1), &asleep, Verdict::Take));
        for at in [30, 20, 40] {
            let runnable = candidate(Rest::Runnable, 0);
            assert!(!choice.note(VcpuId(2), &runnable, Verdict::Later(Ticks(at))));
        }
        assert!(!choice.note(VcpuId(3), &asleep, Verdict::Leave));
        assert_eq!(choice.look_at, Ticks(20));
        assert!(choice.best.is_none() && choice.left_over.is_none());
    }

    #[test]
    fn an_idle_core_is_told_before_a_busy_one_and_no_deaf_one() {
        let level = |rank| Level::of(Band::new(rank));
        let others = [(1, level(1)), (2, level(0)), (3, Level::IDLE)];
        let tell = |count: usize, busy| {
            let others = others[..count]
                .iter()
                .map(|&(core, level)| (PcpuId(core), level));
            whom_to_tell(others, Band::LOWEST, busy)
        };
        assert_eq!(tell(3, true), Some(PcpuId(3)));
        assert_eq!(tell(3, false), Some(PcpuId(3)));
        assert_eq!(tell(2, true), Some(PcpuId(2)));
        assert_eq!(tell(2, false), None);
        assert_eq!(tell(1, true), None);
    }
}
