// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stolen time: how long a vCPU had to wait for a core.
//!
//! A vCPU waits from the moment at which it is preempted, or its timer expires while it sleeps, or it is started, until a core runs it. While
//! it runs, sleeps or is off, nothing is stolen.

use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The stolen time of a vCPU. Only the core that has the vCPU's token changes it. It is shared because the core that looks after watchdogs reads
/// it.
#[derive(Debug)]
pub struct Stolen {
    /// From when on it waits, which may be in the future; [`Ticks::NEVER`]: it runs, or nothing is known that will wake it.
    waits_from: AtomicU64,
    /// The time that it has waited before, in ticks.
    sum: AtomicU64,
}

impl Stolen {
    constructor! {
        /// Nothing is stolen, and the vCPU does not wait.
        pub fn new() -> Self {
            Self {
                waits_from: AtomicU64::new(Ticks::NEVER.0),
                sum: AtomicU64::new(0),
            }
        }
    }

    /// The vCPU does not run any more, and waits from this time on; [`Ticks::NEVER`]: it sleeps without a timer, or is off.
    #[inline(always)]
    pub fn waits(&self, from: Ticks) {
        // Release: a reader that sees this wait sees the sum of those before it. One that does not see it yet misses only the time since.
        self.waits_from.store(from.0, Ordering::Release);
    }

    /// The vCPU runs from `now` on. Returns the sum of all stolen time, if it has grown.
    #[inline(always)]
    pub fn runs(&self, now: Ticks) -> Option<Ticks> {
        let waits_from = Ticks(self.waits_from.load(Ordering::Relaxed));
        let waited = now.saturating_sub(waits_from);
        let sum = Ticks(self.sum.load(Ordering::Relaxed)).saturating_add(waited);
        self.sum.store(sum.0, Ordering::Relaxed);
        // Release: a reader that sees the end of the wait sees the sum with it. One that does not may count the wait twice, and never not at
        // all: to a watchdog that looks too little time, and it looks again.
        self.waits_from.store(Ticks::NEVER.0, Ordering::Release);
        (waited > Ticks(0)).then_some(sum)
    }

    /// The time stolen up to `now`, with that of a wait that has not ended.
    pub fn at(&self, now: Ticks) -> Ticks {
        // Acquire: see `runs`.
        let waits_from = Ticks(self.waits_from.load(Ordering::Acquire));
        let sum = Ticks(self.sum.load(Ordering::Relaxed));
        sum.saturating_add(now.saturating_sub(waits_from))
    }

    /// Begins a new life: nothing is stolen. Only while no core has a vCPU of the guest that is on.
    pub fn reset(&self) {
        self.waits(Ticks::NEVER);
        self.sum.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_vcpu_that_is_preempted_waits_until_it_runs() {
        let stolen = Stolen::new();
        assert_eq!(stolen.runs(Ticks(5)), None);
        assert_eq!(stolen.at(Ticks(10)), Ticks(0));
        stolen.waits(Ticks(10));
        assert_eq!(stolen.at(Ticks(14)), Ticks(4));
        assert_eq!(stolen.runs(Ticks(20)), Some(Ticks(10)));
        assert_eq!(stolen.at(Ticks(25)), Ticks(10));
        stolen.reset();
        assert_eq!(stolen.at(Ticks(30)), Ticks(0));
    }

    #[test]
    fn a_sleeping_vcpu_waits_from_the_end_of_its_timer_on() {
        let stolen = Stolen::new();
        stolen.waits(Ticks(50));
        assert_eq!(stolen.at(Ticks(40)), Ticks(0));
        assert_eq!(stolen.at(Ticks(57)), Ticks(7));
        // Woken before.
        assert_eq!(stolen.runs(Ticks(45)), None);
        stolen.waits(Ticks::NEVER);
        assert_eq!(stolen.at(Ticks(1000)), Ticks(0));
    }

    proptest! {
        /// The sum is that of all waits, whenever they are looked at.
        #[test]
        fn the_sum_is_that_of_all_waits(steps in prop::collection::vec((0_u64..50, 0_u64..50, any::<bool>()), 0..50)) {
            let (stolen, mut now, mut expected) = (Stolen::new(), 0, 0);
            for (runs, waits, preempted) in steps {
                now += runs;
                stolen.waits(if preempted { Ticks(now) } else { Ticks::NEVER });
                now += waits;
                expected += if preempted { waits } else { 0 };
                prop_assert_eq!(stolen.at(Ticks(now)), Ticks(expected));
                stolen.runs(Ticks(now));
                prop_assert_eq!(stolen.at(Ticks(now)), Ticks(expected));
            }
        }
    }
}

#[cfg(test)]
#[cfg(loom)]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    #[test]
    fn a_reader_never_misses_a_wait_that_ends() {
        loom::model(|| {
            let stolen = Arc::new(Stolen::new());
            stolen.waits(Ticks(10));
            let reader = Arc::clone(&stolen);
            let reader = thread::spawn(move || reader.at(Ticks(30)));
            stolen.runs(Ticks(30));
            assert!(reader.join().unwrap() >= Ticks(20));
            assert_eq!(stolen.at(Ticks(30)), Ticks(20));
        });
    }
}
