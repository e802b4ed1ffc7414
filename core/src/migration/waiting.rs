// SPDX-License-Identifier: MIT OR Apache-2.0
//! When cores are called for vCPUs that wait for their turn while another core is off ([`call_cores`](super::call_cores)).

use crate::schedule::Ticks;
use crate::sets::VcpuSet;
use spumone_config::types::VcpuId;

/// In microseconds: for how long vCPUs have had to wait for their turn without a break before a core is called for the first. Longer than what an idle
/// guest does when a timer expires; if a core takes longer to come on, it is still worth its cost.
const LONGEST_TURN_US: u32 = 500;
/// In microseconds: after how long a core is called for the next one. A core that comes on at once has taken one by then.
const NEXT_CALL_US: u32 = 50;
/// In microseconds: after how long the core looks again, while as many cores are called as vCPUs wait.
const LOOK_AGAIN_US: u32 = 200;
/// In microseconds: the least time between two calls, if other cores take the waiting vCPUs and other vCPUs wait then. The core that was called may be on by then.
const NEXT_CALL_FOR_ALL_US: u32 = 400;
/// In microseconds: after how long a core that was called should have come on. After that, others are called.
const CALL_AGAIN_US: u32 = 2_000;

/// vCPUs that wait for their turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// When the core looks at them next; [`Ticks::NEVER`]: none waits, or no core can come on.
    pub(super) look_at: Ticks,
    /// Since when a vCPU has waited after each decision. After different decisions, that may be different vCPUs.
    since: Ticks,
    /// The vCPUs that waited after the last decision.
    before: VcpuSet,
    /// How many waited at the last look.
    waited: u32,
    /// For how many of those a core was called.
    called: u32,
    /// When the last one was called.
    called_at: Ticks,
    /// [`LONGEST_TURN_US`], and the others below.
    pub(super) longest_turn: Ticks,
    next_call: Ticks,
    look_again: Ticks,
    next_call_for_all: Ticks,
    call_again: Ticks,
}

impl Waiting {
    /// None wait. For a counter of this frequency.
    pub(super) const fn new(frequency_hz: u32) -> Self {
        Self {
            look_at: Ticks::NEVER,
            since: Ticks(0),
            before: VcpuSet::EMPTY,
            waited: 0,
            called: 0,
            called_at: Ticks(0),
            longest_turn: Ticks::from_micros(LONGEST_TURN_US, frequency_hz),
            next_call: Ticks::from_micros(NEXT_CALL_US, frequency_hz),
            look_again: Ticks::from_micros(LOOK_AGAIN_US, frequency_hz),
            next_call_for_all: Ticks::from_micros(NEXT_CALL_FOR_ALL_US, frequency_hz),
            call_again: Ticks::from_micros(CALL_AGAIN_US, frequency_hz),
        }
    }

    /// After a decision at `now`: these vCPUs wait, and `runs` runs. Returns whether the core is to call another one for one of them.
    pub(super) fn calls(&mut self, waiting: VcpuSet, runs: Option<VcpuId>, now: Ticks) -> bool {
        let mut on = waiting;
        if let Some(id) = runs {
            on.insert(id);
        }
        // Otherwise, those that waited have all been taken by other cores meanwhile.
        let is_first = self.look_at == Ticks::NEVER;
        let goes_on = !is_first && !(self.before & on).is_empty();
        self.before = waiting;
        let count = waiting.count();
        if is_first || count == 0 {
            self.since = now;
        }
        if !goes_on {
            (self.waited, self.called) = (count, 0);
            self.look_at = match count {
                0 => Ticks::NEVER,
                _ => self.first_look(now),
            };
        }
        if now < self.look_at {
            return false;
        }
        // Cores that have come on have taken those that do not wait any more.
        let taken = self.waited.saturating_sub(count);
        self.called = self.called.saturating_sub(taken);
        self.waited = count;
        if self.called_at.saturating_add(self.call_again) <= now {
            self.called = 0;
        }
        let calls = self.called < count;
        if calls {
            self.called += 1;
            self.called_at = now;
        }
        let next = match calls {
            true => self.next_call,
            false => self.look_again,
        };
        self.look_at = now.saturating_add(next);
        calls
    }

    /// When the core looks for the first time at vCPUs that wait from now on. If other cores take the waiting vCPUs and other vCPUs wait then, each vCPU waits
    /// for a short time only, but a vCPU always waits. For that the core looks after twice the time.
    fn first_look(&self, now: Ticks) -> Ticks {
        let after = |from: Ticks, time: Ticks| from.saturating_add(time);
        let for_all = after(self.since, after(self.longest_turn, self.longest_turn));
        let after_call = after(self.called_at, self.next_call_for_all);
        after(now, self.longest_turn).min(for_all.max(after_call))
    }

    /// No core has come on for the one for which a core was called.
    pub(super) fn put_off(&mut self, now: Ticks) {
        self.look_at = now.saturating_add(self.call_again);
        self.since = self.look_at;
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// One tick is a microsecond.
    fn waiting() -> Waiting {
        Waiting::new(1_000_000)
    }

    /// The first so many vCPUs.
    fn first(count: u32) -> VcpuSet {
        VcpuSet::from_bits((1 << count) - 1)
    }

    /// The times of the calls, up to `until`, if `count` says how many wait after so many calls at a time.
    fn calls(until: u64, count: impl Fn(usize, u64) -> u32) -> std::vec::Vec<u64> {
        let mut it = waiting();
        let (mut now, mut calls) = (1_000_000, std::vec::Vec::new());
        let start = now;
        while now < start + until {
            let waiting = first(count(calls.len(), now - start));
            if it.calls(waiting, None, Ticks(now)) {
                calls.push(now - start);
            }
            now = it.look_at.0;
        }
        calls
    }

    #[test]
    fn a_core_is_called_for_each_that_waits() {
        // Cores take them at once.
        assert_eq!(
            calls(2_000, |called, _| 3 - called.min(3) as u32),
            [500, 550, 600]
        );
        // They take a millisecond.
        let slow = |_: usize, now: u64| if now < 1_500 { 3 } else { 0 };
        assert_eq!(calls(4_000, slow), [500, 550, 600]);
        assert_eq!(calls(2_000, |_, _| 1), [500]);
    }

    #[test]
    fn if_those_that_were_called_do_not_come_others_are_called() {
        assert_eq!(calls(5_000, |_, _| 1), [500, 2_550, 4_600]);
    }

    /// vCPUs that take turns wait without a break. If all that waited have been taken by other cores, the next wait is a new one, but for
    /// [`first_look`](Waiting::first_look).
    #[test]
    fn a_wait_lasts_while_one_of_those_that_waited_waits_or_runs() {
        let set = |ids: &[u8]| ids.iter().copied().map(VcpuId).collect::<VcpuSet>();
        let mut it = waiting();
        let mut calls = |ids: &[u8], runs, now| it.calls(set(ids), Some(VcpuId(runs)), Ticks(now));
        assert!(!calls(&[1], 0, 0));
        assert!(!calls(&[0], 1, 300));
        assert!(!calls(&[0, 2], 1, 400));
        assert!(calls(&[2], 0, 500));
        // Another core has taken 2, and 3 has come.
        assert!(!calls(&[3], 0, 600));
        assert!(!calls(&[3], 0, 999));
        assert!(calls(&[3], 0, 1_000));
    }

    /// Every 100 µs, another core takes the vCPU that waits, and another vCPU waits from then on.
    #[test]
    fn a_core_is_called_although_each_vcpu_waits_for_a_short_time_only() {
        let mut it = waiting();
        let mut calls = |now: u64, waits: bool| {
            let id = VcpuId((now / 100 % 8) as u8);
            let waiting = waits.then_some(id).into_iter().collect();
            it.calls(waiting, Some(VcpuId(9)), Ticks(now))
        };
        let called: std::vec::Vec<_> = (0..24).filter(|n| calls(n * 100, true)).collect();
        assert_eq!(called, [10, 14, 18, 22]);
        // After one decision no vCPU waits, so the next wait is a new one.
        assert!(!calls(2_400, false));
        assert_eq!((25..37).find(|n| calls(n * 100, true)), Some(35));
    }

    #[test]
    fn a_core_that_does_not_come_on_is_not_called_again_at_once() {
        let mut it = waiting();
        let mut now = 0;
        let mut set = |it: &mut Waiting| {
            now += 100;
            let id = VcpuId((now / 100 % 8) as u8);
            let calls = it.calls([id].into_iter().collect(), None, Ticks(now));
            calls.then_some(now)
        };
        let first = (0..20).find_map(|_| set(&mut it));
        assert_eq!(first, Some(1_100));
        it.put_off(Ticks(1_100));
        assert_eq!((0..100).find_map(|_| set(&mut it)), Some(4_100));
    }
}
