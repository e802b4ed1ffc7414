//! The policy, and all that the simulator knows of policies: whoever adds one to `spumone-core` changes this file at
//! most.

use crate::random::Random;
use crate::setup::Decisions;
use crate::time::{FREQUENCY_HZ, us};
use spumone_core::migration::{Candidate, Here, Policy, Verdict};
use spumone_core::schedule::Ticks;

/// Who decides about moves.
#[derive(Debug)]
pub enum Deciding {
    /// A policy of the hypervisor.
    Policy(Policy),
    /// Chance.
    Random(Random),
}

impl Deciding {
    /// As it was asked for; chance is the one of this seed.
    pub fn new(decisions: Decisions, seed: u64) -> Self {
        match decisions {
            Decisions::Policy(policy) => Self::Policy(Policy::new(policy, FREQUENCY_HZ)),
            Decisions::Random => Self::Random(Random::new(seed, u64::MAX)),
        }
    }

    /// See [`Policy::moves`].
    pub fn moves(&self) -> bool {
        match self {
            Self::Policy(policy) => policy.moves(),
            Self::Random(_) => true,
        }
    }

    /// See [`spumone_core::migration::Conduct`].
    pub fn patience(&self) -> Option<Ticks> {
        match self {
            Self::Policy(policy) => policy.conduct().patience,
            Self::Random(_) => Some(us(10)),
        }
    }

    /// See [`Policy::verdict`].
    #[inline]
    pub fn verdict(&mut self, here: &Here, candidate: &Candidate) -> Verdict {
        match self {
            Self::Policy(policy) => policy.verdict(here, candidate),
            Self::Random(random) => by_chance(random, here, candidate),
        }
    }
}

/// Anything that a policy may say of this candidate, most often that it is taken.
fn by_chance(random: &mut Random, here: &Here, candidate: &Candidate) -> Verdict {
    if here.running.is_some_and(|it| it.band > candidate.band) {
        return Verdict::Leave;
    }
    if !candidate.parked.rest.is_runnable() {
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
