// SPDX-License-Identifier: MIT OR Apache-2.0
//! The firmware's workarounds for speculation: which of them a core needs, what EL2 does with them itself, and what guests are told.
//!
//! Source: SMC Calling Convention (DEN0028), "Arm Architecture Calls". The firmware answers on each core for that core. What a guest is told
//! holds on each core that it may run on, since its vCPUs may migrate.

use crate::sync::atomic::{AtomicU32, Ordering};

/// A call of the firmware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workaround {
    /// `SMCCC_ARCH_WORKAROUND_1`: invalidates the branch predictors (CVE-2017-5715).
    One,
    /// `SMCCC_ARCH_WORKAROUND_2`: loads do not bypass stores by speculation, from now on, or may again (CVE-2018-3639).
    Two,
    /// `SMCCC_ARCH_WORKAROUND_3`: as 1, and forgets the history of branches (CVE-2022-23960).
    Three,
}

/// What `SMCCC_ARCH_FEATURES` answers about a workaround, on one core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The core needs it, and any core can call it.
    Needed,
    /// Any core can call it; this one does not need it.
    NotNeeded,
    /// No core needs it, and none can call it. The firmware says so of workaround 2 only.
    NeverNeeded,
    /// No core can call it. Whether one needs it is not known.
    Absent,
}

impl Answer {
    /// The meaning of w0.
    pub const fn of(w0: i32) -> Self {
        match w0 {
            0 => Self::Needed,
            1 => Self::NotNeeded,
            -2 => Self::NeverNeeded,
            _ => Self::Absent,
        }
    }

    /// The value for x0.
    pub const fn to_register(self) -> u64 {
        let value: i64 = match self {
            Self::Needed => 0,
            Self::NotNeeded => 1,
            Self::NeverNeeded => -2,
            Self::Absent => -1,
        };
        value as u64
    }
}

/// What a core needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    /// By workaround: 1, 2, 3.
    answers: [Answer; 3],
    /// Whether no guest can train the core's branch predictors for another guest: FEAT_CSV2.
    has_separate_predictors: bool,
}

impl Needs {
    /// Of a core with this `ID_AA64PFR0_EL1`. `ask`: what its firmware answers about a workaround.
    pub fn new(id_aa64pfr0: u64, ask: impl Fn(Workaround) -> Answer) -> Self {
        /// `ID_AA64PFR0_EL1.CSV2`.
        const CSV2: u64 = 0xF << 56;
        Self {
            answers: [Workaround::One, Workaround::Two, Workaround::Three].map(ask),
            has_separate_predictors: id_aa64pfr0 & CSV2 != 0,
        }
    }

    const fn answer(self, workaround: Workaround) -> Answer {
        let [one, two, three] = self.answers;
        match workaround {
            Workaround::One => one,
            Workaround::Two => two,
            Workaround::Three => three,
        }
    }

    /// What the core calls when it switches to a vCPU of another guest, so that the former guest has not trained its branch predictors.
    pub fn at_switch(self) -> Option<Workaround> {
        let needed = |it| self.answer(it) == Answer::Needed;
        match self.has_separate_predictors {
            true => None,
            // It includes workaround 1.
            false if needed(Workaround::Three) => Some(Workaround::Three),
            false => needed(Workaround::One).then_some(Workaround::One),
        }
    }

    /// Whether the core calls workaround 2 once, at start, and leaves it on: so there is no state to be switched with vCPUs.
    pub fn at_start(self) -> bool {
        self.answer(Workaround::Two) == Answer::Needed
    }

    /// Whether the core passes a guest's call of this workaround on to the firmware.
    pub fn passes_on(self, workaround: Workaround) -> bool {
        workaround != Workaround::Two && self.answer(workaround) == Answer::Needed
    }
}

/// What a guest is told about a workaround that may run on cores with these needs. [`Answer::Needed`] and [`Answer::NotNeeded`] also mean that it
/// can call the workaround.
pub fn offer(workaround: Workaround, cores: impl Iterator<Item = Needs>) -> Answer {
    let mut offered = match workaround {
        // EL2 has turned it on where it is needed.
        Workaround::Two => Answer::NeverNeeded,
        Workaround::One | Workaround::Three => Answer::NotNeeded,
    };
    // At most 8 times: cores.
    for needs in cores {
        offered = match (workaround, needs.answer(workaround)) {
            (_, Answer::Absent) => return Answer::Absent,
            (Workaround::Two, _) => offered,
            (_, Answer::NeverNeeded) => return Answer::Absent,
            (_, Answer::Needed) => Answer::Needed,
            (_, Answer::NotNeeded) => offered,
        };
    }
    offered
}

/// What a core needs, for the others: it says so before it runs a vCPU, and they may run theirs before that.
#[derive(Debug)]
pub struct SharedNeeds {
    /// [`UNKNOWN`], or what [`Self::publish`] packs. Relaxed: one word, which is written once, and says all by itself.
    packed: AtomicU32,
}

/// The core has not asked its firmware yet.
const UNKNOWN: u32 = u32::MAX;
/// Bits of an answer.
const WIDTH: u32 = 2;
const SEPARATE: u32 = 1 << 31;

impl SharedNeeds {
    constructor! {
        /// Not known yet.
        pub fn new() -> Self {
            Self {
                packed: AtomicU32::new(UNKNOWN),
            }
        }
    }

    /// What this core needs.
    pub fn publish(&self, needs: Needs) {
        let answers = needs.answers.iter().rev();
        // At most 3 times: workarounds.
        let packed = answers.fold(0, |all, &answer| all << WIDTH | answer as u32);
        let separate = match needs.has_separate_predictors {
            true => SEPARATE,
            false => 0,
        };
        self.packed.store(packed | separate, Ordering::Relaxed);
    }

    /// What it needs; `None`: the core has not said so yet.
    pub fn get(&self) -> Option<Needs> {
        const ANSWERS: [Answer; 4] = [
            Answer::Needed,
            Answer::NotNeeded,
            Answer::NeverNeeded,
            Answer::Absent,
        ];
        let packed = self.packed.load(Ordering::Relaxed);
        let answer = |number: u32| {
            let index = packed >> (number * WIDTH) & 0b11;
            ANSWERS
                .get(index as usize)
                .copied()
                .unwrap_or(Answer::Absent)
        };
        (packed != UNKNOWN).then_some(Needs {
            answers: [answer(0), answer(1), answer(2)],
            has_separate_predictors: packed & SEPARATE != 0,
        })
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    const CSV2: u64 = 1 << 56;
    const VALUES: [i32; 6] = [0, 1, -1, -2, -3, 7];

    fn needs(pfr0: u64, answers: [i32; 3]) -> Needs {
        Needs::new(pfr0, |it| Answer::of(answers[it as usize]))
    }

    /// What a guest is told that may run on these cores.
    fn told(workaround: Workaround, cores: &[[i32; 3]]) -> i64 {
        let cores = cores.iter().map(|&it| needs(0, it));
        offer(workaround, cores).to_register() as i64
    }

    #[test]
    fn a_guest_is_told_what_holds_on_all_of_its_cores() {
        for (place, workaround) in [(0, Workaround::One), (2, Workaround::Three)] {
            let cores = |answers: &[i32]| {
                let of = |&answer| core::array::from_fn(|it| if it == place { answer } else { -1 });
                told(workaround, &answers.iter().map(of).collect::<Vec<_>>())
            };
            assert_eq!(cores(&[0, 0]), 0);
            assert_eq!(cores(&[1, 0]), 0, "it may run where it is needed");
            assert_eq!(cores(&[1, 1]), 1);
            for absent in [-1, -2, -3, 7] {
                assert_eq!(cores(&[0, absent, 1]), -1, "{absent}");
            }
        }
    }

    /// EL2 turns it on for good, so that no guest has to.
    #[test]
    fn no_guest_calls_workaround_2() {
        let cores = |answers: &[i32]| {
            let of = |&answer| [-1, answer, -1];
            told(Workaround::Two, &answers.iter().map(of).collect::<Vec<_>>())
        };
        assert_eq!(cores(&[0, 1, -2]), -2);
        assert_eq!(cores(&[-2]), -2);
        assert_eq!(cores(&[0, -1]), -1, "nothing is known of that core");
        for answer in VALUES {
            let needs = needs(0, [0, answer, 0]);
            assert_eq!(needs.at_start(), answer == 0);
            assert!(!needs.passes_on(Workaround::Two));
        }
    }

    #[test]
    fn a_core_without_csv2_invalidates_its_predictors_if_its_firmware_says_so() {
        let at_switch = |pfr0, one, three| needs(pfr0, [one, 0, three]).at_switch();
        assert_eq!(at_switch(0, 0, -1), Some(Workaround::One));
        assert_eq!(at_switch(0, 0, 0), Some(Workaround::Three));
        assert_eq!(at_switch(0, -1, 0), Some(Workaround::Three));
        assert_eq!(at_switch(0, 0, 1), Some(Workaround::One));
        assert_eq!(at_switch(0, 1, 1), None);
        assert_eq!(at_switch(0, -1, -1), None);
        assert_eq!(at_switch(CSV2, 0, 0), None);
    }

    #[test]
    fn only_a_core_that_needs_it_calls_the_firmware_for_a_guest() {
        for workaround in [Workaround::One, Workaround::Three] {
            for answer in VALUES {
                let passes_on = needs(CSV2, [answer; 3]).passes_on(workaround);
                assert_eq!(passes_on, answer == 0, "{answer}");
            }
        }
    }

    #[test]
    fn the_other_cores_are_told_the_same() {
        let shared = SharedNeeds::new();
        assert_eq!(shared.get(), None);
        for pfr0 in [0, CSV2] {
            for one in VALUES {
                for two in VALUES {
                    for three in VALUES {
                        let needs = needs(pfr0, [one, two, three]);
                        shared.publish(needs);
                        assert_eq!(shared.get(), Some(needs));
                    }
                }
            }
        }
    }
}
