// SPDX-License-Identifier: MIT OR Apache-2.0
//! When each protected leaf of a guest is due, and which core checks it.
//!
//! A round goes over all leaves once, and no leaf may go unchecked for longer than the time that the description has for a round. So leaves
//! become due one by one, evenly over three quarters of that time; a core that idles claims the next leaf that is due. A leaf that no core
//! has claimed an eighth of the time after it was due is late: it is also claimed by cores that run vCPUs of lower bands than the guest's,
//! or of the lowest one. The last eighth is for such a core to look, and to check. The next round begins three quarters of the time after the
//! former one, even if a core notices that later.

use super::Progress;
use crate::load::{Claim, Claims, Phases};
use crate::psci::Generation;
use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spumone_config::PcpuId;

/// How fast the leaves of a guest are to be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    leaves: u32,
    round: Ticks,
    frequency_hz: u32,
}

/// In so many pieces of a round a core that idles looks for leaves that are due.
const LOOKS_A_ROUND: u64 = 32;
/// A core that does not idle looks no more often if the round allows it, since each look is an exit of its vCPU.
const LEAST_LATE_LOOK_US: u32 = 1_000;
/// In so many pieces of a round it looks in any case.
const LATE_LOOKS_A_ROUND: u64 = 16;

impl Pace {
    /// So many leaves in a round of so many microseconds.
    pub const fn new(leaves: u32, round_us: u32, frequency_hz: u32) -> Self {
        let round = Ticks::from_micros(round_us, frequency_hz);
        Self {
            leaves,
            round: Ticks(if round.0 == 0 { 1 } else { round.0 }),
            frequency_hz,
        }
    }

    /// How often a core that idles looks.
    pub const fn look(&self) -> Ticks {
        Ticks(self.round.0 / LOOKS_A_ROUND + 1)
    }

    /// How often a core that does not idle looks for leaves that are late.
    pub fn late_look(&self) -> Ticks {
        let least = Ticks::from_micros(LEAST_LATE_LOOK_US, self.frequency_hz);
        let most = Ticks(self.round.0 / LATE_LOOKS_A_ROUND + 1);
        self.look().max(least.min(most))
    }

    /// The time that a round may take.
    pub const fn round(&self) -> Ticks {
        self.round
    }

    /// From the begin of a round to that of the next one.
    const fn period(&self) -> Ticks {
        Ticks(self.round.0.div_ceil(4).saturating_mul(3))
    }

    /// How long after it was due a leaf is late.
    const fn late_after(&self) -> Ticks {
        Ticks(self.round.0 / 8)
    }

    /// How long after the begin of a round leaf `number` is due.
    fn due_after(&self, number: u32) -> Ticks {
        let leaves = u64::from(self.leaves.max(1));
        let due = u64::from(number).saturating_mul(self.period().0);
        Ticks(due.div_ceil(leaves))
    }

    /// How many leaves are due so long after the begin of a round: the first one at once.
    fn due(&self, elapsed: Ticks) -> u32 {
        let period = self.period().0;
        let due = u64::from(self.leaves).saturating_mul(elapsed.0.min(period)) / period;
        (due as u32).saturating_add(1).min(self.leaves)
    }

    fn millis(&self, ticks: Ticks) -> u32 {
        let millis = ticks.0.saturating_mul(1000) / u64::from(self.frequency_hz.max(1));
        u32::try_from(millis).unwrap_or(u32::MAX)
    }
}

/// The rounds over the protected leaves of a guest, which cores share.
#[derive(Debug)]
pub struct Rounds {
    /// When the round began, in ticks; [`BEGINS`]: a core is about to begin one. Acquire and release: with a time of a round come the
    /// claims of that round.
    began: AtomicU64,
    /// The leaves of the round. For claims it is a loading, whose life is the number of the round.
    claims: Claims,
    /// When a leaf was checked last, in ticks; of two cores that finish at once, either. Relaxed: it is written before the leaf counts as done,
    /// and read by a core that has seen that.
    checked: AtomicU64,
    /// How long the last round took, in milliseconds. Relaxed, as the next one: only for the operator.
    took_ms: AtomicU32,
    /// How many rounds have ended.
    ended: AtomicU32,
}

/// No time.
const BEGINS: u64 = u64::MAX;
/// The number of a round, which wraps before that of no loading.
const ROUND_MASK: u32 = u32::MAX >> 1;

impl Rounds {
    constructor! {
        /// No round yet.
        pub fn new() -> Self {
            Self {
                began: AtomicU64::new(0),
                checked: AtomicU64::new(0),
                claims: Claims::new(),
                took_ms: AtomicU32::new(0),
                ended: AtomicU32::new(0),
            }
        }
    }

    /// Claims a leaf that is due at `now` for core `core`, which has no other one of this guest; it is to be
    /// [finished](Self::finish) or [given back](Self::give_back). `None` if none is due, or others check those that are.
    pub fn claim(&self, core: PcpuId, now: Ticks, pace: &Pace) -> Option<u32> {
        self.claim_later(core, now, pace, Ticks(0))
    }

    /// As [`Self::claim`], a leaf that is late: no core has idled for an eighth of a round since it was due.
    pub fn claim_late(&self, core: PcpuId, now: Ticks, pace: &Pace) -> Option<u32> {
        self.claim_later(core, now, pace, pace.late_after())
    }

    /// When the next leaf that no core has claimed is late; `now` if that cannot be told, since a core checks a leaf or has given one back.
    pub fn next_late(&self, now: Ticks, pace: &Pace) -> Ticks {
        let began = self.began.load(Ordering::Acquire);
        if began == BEGINS {
            return now;
        }
        let Some(number) = self.claims.unclaimed() else {
            return now;
        };
        // Behind the last leaf is the first one of the next round.
        let due = match number < pace.leaves {
            true => Ticks(began).saturating_add(pace.due_after(number)),
            false => self.next_begin(Ticks(began), pace),
        };
        due.saturating_add(pace.late_after()).max(now)
    }

    /// Claims a leaf that was due so long ago.
    fn claim_later(&self, core: PcpuId, now: Ticks, pace: &Pace, delay: Ticks) -> Option<u32> {
        let began = self.began.load(Ordering::Acquire);
        if began == BEGINS {
            return None;
        }
        let start = match self.claims.last(pace.leaves) {
            None => self.begin(began, now, 0)?,
            Some((round, true)) => {
                let next = self.next_begin(Ticks(began), pace);
                if now < next.saturating_add(delay) {
                    return None;
                }
                self.begin(began, next, (round.0 + 1) & ROUND_MASK)?
            }
            Some(_) => Ticks(began),
        };
        let since_due = now.saturating_sub(start).0.checked_sub(delay.0)?;
        let since_due = Ticks(since_due);
        match self.claims.claim(core, Phases::one(pace.due(since_due))) {
            Claim::Chunk(number) => Some(number),
            Claim::Wait | Claim::Done => None,
        }
    }

    /// When the next round begins, after one that began at `began` and in which all leaves have been checked. No core needs to look just then.
    /// A round that ended in time does not delay it: else leaves that were late would be late again.
    fn next_begin(&self, began: Ticks, pace: &Pace) -> Ticks {
        let ended = Ticks(self.checked.load(Ordering::Relaxed));
        let spare = pace.round.saturating_sub(pace.period());
        let planned = began.saturating_add(pace.period());
        planned.max(ended.saturating_sub(spare))
    }

    /// Has a round begin at `start`, unless another core does. Returns `start`.
    fn begin(&self, before: u64, start: Ticks, round: u32) -> Option<Ticks> {
        // Acquire: as the load. No other core begins a round until the store.
        self.began
            .compare_exchange(before, BEGINS, Ordering::Acquire, Ordering::Relaxed)
            .ok()?;
        self.claims.begin(Generation(round));
        self.began.store(start.0, Ordering::Release);
        Some(start)
    }

    /// A claimed leaf was checked, at `now`. Returns whether it was the last one of the round.
    pub fn finish(&self, now: Ticks, pace: &Pace) -> bool {
        // Before the leaf is done: then the next round may begin.
        let began = Ticks(self.began.load(Ordering::Relaxed));
        self.checked.store(now.0, Ordering::Relaxed);
        let is_last = self.claims.finish() == pace.leaves;
        if is_last {
            let took = pace.millis(now.saturating_sub(began));
            self.took_ms.store(took, Ordering::Relaxed);
            self.ended.fetch_add(1, Ordering::Relaxed);
        }
        is_last
    }

    /// Core `core` does not check the leaf that it has claimed, and another core begins it again.
    pub fn give_back(&self, core: PcpuId, number: u32) {
        self.claims.give_back(core, number);
    }

    /// How far it is, for the operator.
    pub fn progress(&self, pace: &Pace) -> Progress {
        Progress {
            pages: pace.leaves,
            took_ms: self.took_ms.load(Ordering::Relaxed),
            rounds: self.ended.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec;
    use std::vec::Vec;

    const CORE: PcpuId = PcpuId(0);
    /// A tick is a microsecond.
    const FREQUENCY: u32 = 1_000_000;

    fn pace(leaves: u32, round_us: u32) -> Pace {
        Pace::new(leaves, round_us, FREQUENCY)
    }

    /// All leaves that one core checks at `now`.
    fn checked(rounds: &Rounds, pace: &Pace, now: u64) -> Vec<u32> {
        let claim = || rounds.claim(CORE, Ticks(now), pace);
        std::iter::from_fn(|| {
            let leaf = claim()?;
            rounds.finish(Ticks(now), pace);
            Some(leaf)
        })
        .take(1000)
        .collect()
    }

    #[test]
    fn leaves_are_due_one_by_one_and_a_round_begins_when_three_quarters_of_its_time_are_over() {
        let (rounds, pace) = (Rounds::new(), pace(4, 4000));
        assert_eq!(checked(&rounds, &pace, 5000), [0]);
        assert_eq!(checked(&rounds, &pace, 5749), []);
        assert_eq!(checked(&rounds, &pace, 5750), [1]);
        // It was due before.
        assert_eq!(checked(&rounds, &pace, 7500), [2, 3]);
        assert_eq!(checked(&rounds, &pace, 7999), []);
        let progress = |took_ms, rounds| Progress {
            pages: 4,
            took_ms,
            rounds,
        };
        assert_eq!(rounds.progress(&pace), progress(2, 1));
        assert_eq!(checked(&rounds, &pace, 8000), [0]);
        // No round is left out, although this one takes longer than it should. The next one has begun a quarter of its time ago.
        assert_eq!(checked(&rounds, &pace, 29_000), [1, 2, 3, 0, 1]);
        assert_eq!(rounds.progress(&pace), progress(21, 2));
        assert_eq!(checked(&rounds, &pace, 29_499), []);
        assert_eq!(checked(&rounds, &pace, 29_500), [2]);
    }

    #[test]
    fn a_leaf_is_late_an_eighth_of_a_round_after_it_was_due() {
        let (rounds, pace) = (Rounds::new(), pace(4, 4000));
        let late = |now: u64| rounds.claim_late(CORE, Ticks(now), &pace);
        // The round begins.
        assert_eq!(late(1000), None);
        assert_eq!(late(1499), None);
        assert_eq!(late(1500), Some(0));
        rounds.finish(Ticks(1500), &pace);
        assert_eq!(late(2249), None);
        assert_eq!(late(2250), Some(1));
        rounds.finish(Ticks(2250), &pace);
        // A core that idles does not wait for that.
        assert_eq!(checked(&rounds, &pace, 3250), [2, 3]);
        // The next round begins at 4000.
        assert_eq!(late(4499), None);
        assert_eq!(late(4500), Some(0));
        rounds.finish(Ticks(4500), &pace);
        assert_eq!(late(5249), None);
        assert_eq!(late(5250), Some(1));
    }

    #[test]
    fn the_next_late_leaf_is_the_first_that_no_core_has_claimed() {
        let (rounds, pace) = (Rounds::new(), pace(3, 4000));
        let next = |now: u64| rounds.next_late(Ticks(now), &pace);
        assert_eq!(next(500), Ticks(500), "no round has begun");
        assert_eq!(checked(&rounds, &pace, 1000), [0]);
        // It is due after 1,000 ticks of the round.
        assert_eq!(next(1000), Ticks(2500));
        assert_eq!(rounds.claim(CORE, Ticks(2400), &pace), Some(1));
        assert_eq!(next(2400), Ticks(2400), "it may be given back");
        rounds.finish(Ticks(2400), &pace);
        assert_eq!(checked(&rounds, &pace, 3000), [2]);
        // The next round begins at 4000.
        assert_eq!(next(3000), Ticks(4500));
        assert_eq!(next(9500), Ticks(9500));
    }

    #[test]
    fn a_leaf_that_is_given_back_is_claimed_again_before_the_next_round() {
        let (rounds, pace) = (Rounds::new(), pace(2, 1000));
        assert_eq!(rounds.claim(CORE, Ticks(0), &pace), Some(0));
        assert_eq!(rounds.claim(PcpuId(1), Ticks(900), &pace), Some(1));
        rounds.finish(Ticks(900), &pace);
        rounds.give_back(CORE, 0);
        assert_eq!(rounds.claim(PcpuId(2), Ticks(5000), &pace), Some(0));
        assert_eq!(rounds.claim(CORE, Ticks(5000), &pace), None);
        rounds.finish(Ticks(5000), &pace);
        assert_eq!(rounds.claim(CORE, Ticks(5000), &pace), Some(0));
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Claim(u8),
        Finish(u8),
        GiveBack(u8),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => (0..3_u8).prop_map(Step::Claim),
            3 => (0..3_u8).prop_map(Step::Finish),
            1 => (0..3_u8).prop_map(Step::GiveBack),
            2 => (0..3000_u64).prop_map(Step::Wait),
        ]
    }

    proptest! {
        /// Nothing is late before the time that was named, whatever cores do before and meanwhile, unless one gives a leaf back.
        #[test]
        fn no_leaf_is_late_before_that(
            leaves in 1..6_u32,
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let (rounds, pace) = (Rounds::new(), pace(leaves, 5000));
            let mut held = BTreeMap::new();
            let (mut now, mut named) = (0, Ticks(0));
            for step in steps {
                match step {
                    Step::Wait(time) => {
                        named = named.max(rounds.next_late(Ticks(now), &pace));
                        now += time;
                    }
                    // Core 0 has no time before a leaf is late.
                    Step::Claim(core) if !held.contains_key(&core) => {
                        let claim = match core {
                            0 => rounds.claim_late(PcpuId(core), Ticks(now), &pace),
                            _ => rounds.claim(PcpuId(core), Ticks(now), &pace),
                        };
                        prop_assert!(core > 0 || claim.is_none() || Ticks(now) >= named);
                        held.extend(claim.map(|leaf| (core, leaf)));
                    }
                    Step::Finish(core) => {
                        if held.remove(&core).is_some() {
                            rounds.finish(Ticks(now), &pace);
                        }
                    }
                    Step::GiveBack(core) => {
                        if let Some(leaf) = held.remove(&core) {
                            rounds.give_back(PcpuId(core), leaf);
                            named = Ticks(0);
                        }
                    }
                    Step::Claim(_) => {}
                }
            }
        }

        /// Cores idle from time to time; when a leaf is late, a core that does not idle looks, and checks at once what is late.
        #[test]
        fn no_leaf_is_unchecked_for_longer_than_the_time_of_a_round(
            leaves in 1..40_u32,
            idles in proptest::collection::vec(0..20_000_u64, 1..100),
        ) {
            let (rounds, pace) = (Rounds::new(), pace(leaves, 16_000));
            let mut last = vec![0; leaves as usize];
            let (mut now, mut look) = (0, Ticks(0));
            for idle in idles.into_iter().scan(0, |time, gap| { *time += gap; Some(*time) }) {
                while now < idle {
                    now = idle.min(look.0);
                    let claim = || match now == idle {
                        true => rounds.claim(CORE, Ticks(now), &pace),
                        false => rounds.claim_late(CORE, Ticks(now), &pace),
                    };
                    while let Some(leaf) = claim() {
                        rounds.finish(Ticks(now), &pace);
                        last[leaf as usize] = now;
                    }
                    if let Some(oldest) = last.iter().min() {
                        prop_assert!(now - oldest <= 16_000, "{last:?} at {now}");
                    }
                    let late = rounds.next_late(Ticks(now), &pace);
                    look = late.max(Ticks(now).saturating_add(pace.late_look()));
                }
            }
        }

        /// Whatever cores do: each leaf is checked once in each round, by one core at a time, and none before it is due.
        #[test]
        fn each_leaf_is_checked_once_a_round(
            leaves in 1..6_u32,
            steps in proptest::collection::vec(step(), 1..200),
        ) {
            let (rounds, pace) = (Rounds::new(), pace(leaves, 5000));
            let (mut now, mut began, mut begun, mut last) = (0_u64, 0, 0, 0_u64);
            let mut held = BTreeMap::new();
            let mut done = Vec::new();
            for step in steps {
                match step {
                    Step::Wait(time) => now += time,
                    Step::Claim(core) if !held.contains_key(&core) => {
                        let Some(leaf) = rounds.claim(PcpuId(core), Ticks(now), &pace) else {
                            continue;
                        };
                        if begun == 0 || done.len() == leaves as usize {
                            began = if begun == 0 { now } else { (began + 3750).max(last.saturating_sub(1250)) };
                            prop_assert!(now >= began);
                            begun += 1;
                            done.clear();
                        }
                        prop_assert!(!done.contains(&leaf), "it was checked in this round");
                        prop_assert!(held.values().all(|it| *it != leaf), "another core checks it");
                        prop_assert!(u64::from(leaf) * 3750 <= (now - began) * u64::from(leaves));
                        held.insert(core, leaf);
                    }
                    Step::Finish(core) => {
                        if let Some(leaf) = held.remove(&core) {
                            rounds.finish(Ticks(now), &pace);
                            last = now;
                            done.push(leaf);
                        }
                    }
                    Step::GiveBack(core) => {
                        if let Some(leaf) = held.remove(&core) {
                            rounds.give_back(PcpuId(core), leaf);
                        }
                    }
                    Step::Claim(_) => {}
                }
            }
            // A core that is never interrupted checks the rest.
            for (core, leaf) in held {
                rounds.give_back(PcpuId(core), leaf);
            }
            let _ = checked(&rounds, &pace, now + 5000);
            let ended = rounds.progress(&pace).rounds;
            prop_assert!(ended >= begun, "{ended} of {begun}");
        }
    }
}
