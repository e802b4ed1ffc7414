// SPDX-License-Identifier: MIT OR Apache-2.0
//! What decides in a simulation whether a vCPU migrates: a policy of the hypervisor, or chance.
//!
//! A new policy in `spumone-core` can be simulated without a change here. Only [`invariants`](crate::invariants) knows
//! what each policy promises.

use crate::random::Random;
use crate::setup::Decisions;
use crate::time::{FREQUENCY_HZ, us};
use spumone_config::packed;
use spumone_core::migration::{Candidate, Fetcher, Policy, PolicyRules, Verdict};
use spumone_core::schedule::Ticks;

/// What decides whether a vCPU migrates.
#[derive(Debug)]
pub enum Deciding {
    /// A policy of the hypervisor, and its name.
    Policy(Policy, packed::Policy),
    /// Chance, for tests of the protocol.
    Chance(Random),
}

impl Deciding {
    /// What a setup names. `seed` is for chance. If `catches` is false, cores cannot catch a guest that enters or leaves
    /// its kernel, and `steal` takes the place of `trap`, as in the hypervisor.
    pub fn new(decisions: Decisions, seed: u64, catches: bool) -> Self {
        let policy = |policy| Self::Policy(Policy::new(policy, FREQUENCY_HZ), policy);
        match decisions {
            Decisions::Policy(packed::Policy::Trap) if !catches => policy(packed::Policy::Steal),
            Decisions::Policy(named) => policy(named),
            Decisions::Chance => Self::Chance(Random::new(seed, u64::MAX)),
        }
    }

    /// The policy for which the [roles](spumone_config::roles) of cores and vCPUs are computed. Chance has the roles of
    /// `random`: vCPUs move.
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
    pub fn verdict(&mut self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        match self {
            Self::Policy(policy, _) => policy.verdict(fetcher, candidate),
            Self::Chance(random) => by_chance(random, fetcher, candidate),
        }
    }
}

/// Chooses at random one of the verdicts that a policy may give for this candidate; in most cases the core takes the vCPU.
fn by_chance(random: &mut Random, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
    if fetcher.running.is_some_and(|it| it.band > candidate.band) {
        return Verdict::Leave;
    }
    if !candidate.parked.state.is_runnable() {
        return match candidate.is_cut_off {
            true => Verdict::Take,
            false => Verdict::Leave,
        };
    }
    let soon = Ticks(fetcher.now.0 + 1 + random.below(us(5).0));
    match (random.below(8), fetcher.running) {
        (0, _) => Verdict::Later(soon),
        (_, None) => Verdict::Take,
        (1, Some(_)) => Verdict::Take,
        (_, Some(_)) => Verdict::Swap,
    }
}
