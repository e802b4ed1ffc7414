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
    /// A policy of the hypervisor, and its name.
    Policy(Policy, packed::Policy),
    /// Chance, for tests of the protocol.
    Chance(Random),
}

impl Deciding {
    /// The decisions that a setup asks for; chance uses this seed. Where cores cannot catch what a guest does, the hypervisor
    /// uses `steal` instead of `trap`.
    pub fn new(decisions: Decisions, seed: u64, catches: bool) -> Self {
        let policy = |policy| Self::Policy(Policy::new(policy, FREQUENCY_HZ), policy);
        match decisions {
            Decisions::Policy(packed::Policy::Trap) if !catches => policy(packed::Policy::Steal),
            Decisions::Policy(named) => policy(named),
            Decisions::Chance => Self::Chance(Random::new(seed, u64::MAX)),
        }
    }

    /// The policy by whose name roles are given. Chance moves vCPUs, as `random` does.
    pub const fn named(&self) -> packed::Policy {
        match self {
            Self::Policy(_, named) => *named,
            Self::Chance(_) => packed::Policy::Random,
        }
    }

    /// See [`Policy::rules`].
    pub fn rules(&self) -> PolicyRules {
        match self {
            Self::Policy(policy, _) => policy.rules(),
            Self::Chance(_) => PolicyRules {
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
            Self::Policy(policy, _) => policy.verdict(here, candidate),
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
