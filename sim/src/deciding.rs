// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policy, and all that the simulator knows of policies: a new policy in `spumone-core` needs changes in this file at
//! most.

use crate::random::Random;
use crate::setup::Decisions;
use crate::time::{FREQUENCY_HZ, us};
use spumone_config::packed;
use spumone_core::migration::{Candidate, Here, Policy, PolicyRules, Verdict};
use spumone_core::schedule::Ticks;

/// What decides about moves.
#[derive(Debug)]
pub enum Deciding {
    /// A policy of the hypervisor.
    Policy(Policy),
    /// Chance, for tests of the protocol.
    Chance(Random),
}

impl Deciding {
    /// The decisions that a setup asks for; chance uses this seed. Where cores cannot catch what a guest does, the hypervisor
    /// uses `steal` instead of `trap`.
    pub fn new(decisions: Decisions, seed: u64, catches: bool) -> Self {
        match decisions {
            Decisions::Policy(packed::Policy::Trap) if !catches => {
                Self::Policy(Policy::new(packed::Policy::Steal, FREQUENCY_HZ))
            }
            Decisions::Policy(policy) => Self::Policy(Policy::new(policy, FREQUENCY_HZ)),
            Decisions::Chance => Self::Chance(Random::new(seed, u64::MAX)),
        }
    }

    /// See [`Policy::rules`].
    pub fn rules(&self) -> PolicyRules {
        match self {
            Self::Policy(policy) => policy.rules(),
            Self::Chance(_) => PolicyRules {
                moves: true,
                park_delay: us(10),
                returns_home: true,
                max_stay: Some(us(50)),
                ..PolicyRules::default()
            },
        }
    }

    /// See [`Policy::verdict`].
    #[inline]
    pub fn verdict(&mut self, here: &Here, candidate: &Candidate) -> Verdict {
        match self {
            Self::Policy(policy) => policy.verdict(here, candidate),
            Self::Chance(random) => by_chance(random, here, candidate),
        }
    }
}

/// Any verdict that a policy may give for this candidate; most often the vCPU is taken.
fn by_chance(random: &mut Random, here: &Here, candidate: &Candidate) -> Verdict {
    if here.running.is_some_and(|it| it.band > candidate.band) {
        return Verdict::Leave;
    }
    if !candidate.parked.state.is_runnable() {
        return match candidate.is_cut_off {
            true => Verdict::Take,
            false => Verdict::Leave,
        };
    }
    let soon = Ticks(here.now.0 + 1 + random.below(us(5).0));
    match (random.below(8), here.running) {
        (0, _) => Verdict::Later(soon),
        (_, None) => Verdict::Take,
        (1, Some(_)) => Verdict::Take,
        (_, Some(_)) => Verdict::Swap,
    }
}
