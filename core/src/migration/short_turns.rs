// SPDX-License-Identifier: MIT OR Apache-2.0
//! Short turns, on a core that several vCPUs of a band share.
//!
//! ```text
//!   w is wanted: it was in its kernel when it lost the core, so it may hold a lock, or be the next to get one
//!
//!   w (whole time slice) │ v (short) │ w (short) │ v (whole) │ w (whole) │ v (short) …
//!                        └ v gives w its turn sooner, and gets that back
//! ```
//!
//! A vCPU that always is in its kernel does not get more of the core by that than the time of one short turn for each of its whole ones.

use crate::schedule::{Ticks, TimeSlice};
use crate::sets::VcpuSet;
use spumone_config::types::VcpuId;

/// Whose turns are short on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShortTurns {
    /// How long a short turn is at least; `None`: there are none.
    length: Option<Ticks>,
    /// The vCPU that other vCPUs have given its turn sooner, until that turn ends.
    hurries: Option<VcpuId>,
    /// The vCPUs for which that was done since their last whole turn here.
    hurried: VcpuSet,
}

impl ShortTurns {
    /// No vCPU has had a turn yet.
    pub(super) const fn new(length: Option<Ticks>) -> Self {
        Self {
            length,
            hurries: None,
            hurried: VcpuSet::EMPTY,
        }
    }

    /// Whether there are any.
    #[inline(always)]
    pub(super) const fn exist(&self) -> bool {
        self.length.is_some()
    }

    /// When the turn ends of a vCPU that runs with this time slice while others of its band wait on the core, of which these are wanted.
    #[inline(always)]
    pub(super) fn end(&self, slice: &TimeSlice, runs: VcpuId, wanted: VcpuSet) -> Ticks {
        match self.length {
            Some(length) if self.is_short(runs, wanted) => {
                slice.since.saturating_add(length).min(slice.end)
            }
            _ => slice.end,
        }
    }

    #[inline(always)]
    fn is_short(&self, runs: VcpuId, wanted: VcpuSet) -> bool {
        self.hurries == Some(runs) || self.next(wanted).is_some()
    }

    /// The vCPU for which others have short turns, if these are wanted.
    #[inline(always)]
    fn next(&self, wanted: VcpuSet) -> Option<VcpuId> {
        match self.hurries.filter(|it| wanted.contains(*it)) {
            None => (wanted - self.hurried).iter().next(),
            hurries => hurries,
        }
    }

    /// The turn of this vCPU is over while these are wanted. `was_whole`: its time slice is over.
    pub(super) fn ended(&mut self, ran: VcpuId, wanted: VcpuSet, was_whole: bool) {
        if self.hurries == Some(ran) {
            self.hurries = None;
        } else if was_whole {
            self.hurried.remove(ran);
        } else if let Some(next) = self.next(wanted) {
            self.hurries = Some(next);
            self.hurried.insert(next);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::schedule::Band;
    use std::vec::Vec;

    const SHORT: Ticks = Ticks(100);
    const WHOLE: Ticks = Ticks(2_000);
    const V: VcpuId = VcpuId(0);
    const W: VcpuId = VcpuId(1);
    const X: VcpuId = VcpuId(2);

    /// The lengths of the turns of vCPUs that take turns, if these are wanted whenever they wait.
    fn turns(length: Option<Ticks>, order: &[VcpuId], wanted: &[VcpuId], count: usize) -> Vec<u64> {
        let mut it = ShortTurns::new(length);
        let mut turns = Vec::new();
        for &runs in order.iter().cycle().take(count) {
            let waits = wanted.iter().copied().filter(|id| *id != runs);
            let waits: VcpuSet = waits.collect();
            let slice = TimeSlice {
                band: Band::LOWEST,
                since: Ticks(0),
                end: WHOLE,
                same_band_waits: true,
            };
            let end = it.end(&slice, runs, waits);
            it.ended(runs, waits, end == WHOLE);
            turns.push(end.0);
        }
        turns
    }

    #[test]
    fn a_wanted_vcpu_gets_one_turn_sooner_and_gives_it_back() {
        let all = turns(Some(SHORT), &[W, V], &[W], 8);
        assert_eq!(all, [2_000, 100, 100, 2_000, 2_000, 100, 100, 2_000]);
    }

    #[test]
    fn of_more_vcpus_each_that_comes_before_has_a_short_turn() {
        let all = turns(Some(SHORT), &[W, V, X], &[W], 6);
        assert_eq!(all, [2_000, 100, 100, 100, 2_000, 2_000]);
    }

    #[test]
    fn without_them_or_with_none_wanted_all_turns_are_whole() {
        assert_eq!(turns(None, &[W, V], &[W], 4), [2_000; 4]);
        assert_eq!(turns(Some(SHORT), &[W, V], &[], 4), [2_000; 4]);
    }

    /// Two that always are in their kernels, beside one that never is: over a long time each has about as much of the core.
    #[test]
    fn no_vcpu_gets_much_more_than_another() {
        let order = [W, V, X];
        let all = turns(Some(SHORT), &order, &[W, X], 300);
        let sum = |of: usize| -> u64 { all.iter().skip(of).step_by(3).sum() };
        let (least, most) = (
            sum(1).min(sum(2)).min(sum(0)),
            sum(0).max(sum(1)).max(sum(2)),
        );
        assert!(most * 2 < least * 3, "{least} {most}");
    }
}
