// SPDX-License-Identifier: MIT OR Apache-2.0
//! The policies against lock-holder preemption: when a vCPU migrates.
//!
//! Each policy is one module. Its [`PolicyRules`] say what cores do on their own. Its verdicts answer one question:
//! does a core of the guest that sees a parked vCPU take it? All that follows (claims, timers, notifications) is the
//! same for all policies.

mod balance;
mod cosched;
mod delay;
mod none;
mod ondemand;
mod random;
mod rules;
mod steal;
mod trap;
mod view;

use balance::Balance;
use cosched::Cosched;
use delay::Delay;
use none::Stay;
use ondemand::OnDemand;
use random::Random;
use rules::Decide;
pub use rules::PolicyRules;
use spumone_config::packed;
use steal::Steal;
use trap::Trap;
pub use view::{Candidate, Fetcher, Running, Verdict};

/// The policy of a system.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// See [`none`].
    None(Stay),
    /// See [`steal`].
    Steal(Steal),
    /// See [`ondemand`].
    OnDemand(OnDemand),
    /// See [`trap`].
    Trap(Trap),
    /// See [`delay`].
    Delay(Delay),
    /// See [`balance`].
    Balance(Balance),
    /// See [`cosched`].
    Cosched(Cosched),
    /// See [`random`].
    Random(Random),
}

/// The same for each policy. No trait object: a call through one could be trained by a guest (SECURITY.md).
macro_rules! of_each {
    ($of:expr, $policy:ident => $answer:expr) => {
        match $of {
            Self::None($policy) => $answer,
            Self::Steal($policy) => $answer,
            Self::OnDemand($policy) => $answer,
            Self::Trap($policy) => $answer,
            Self::Delay($policy) => $answer,
            Self::Balance($policy) => $answer,
            Self::Cosched($policy) => $answer,
            Self::Random($policy) => $answer,
        }
    };
}

impl Policy {
    /// The policy of a description, on a machine whose counter has this frequency.
    pub fn new(policy: packed::Policy, frequency_hz: u32) -> Self {
        match policy {
            packed::Policy::None => Self::None(Stay),
            packed::Policy::Steal => Self::Steal(Steal::new(frequency_hz)),
            packed::Policy::OnDemand => Self::OnDemand(OnDemand),
            packed::Policy::Trap => Self::Trap(Trap::new(frequency_hz)),
            packed::Policy::Delay => Self::Delay(Delay::new(frequency_hz)),
            packed::Policy::Balance => Self::Balance(Balance::new(frequency_hz)),
            packed::Policy::Cosched => Self::Cosched(Cosched),
            packed::Policy::Random => Self::Random(Random::new(frequency_hz)),
        }
    }

    /// What the policy has the cores do.
    pub fn rules(&self) -> PolicyRules {
        of_each!(self, policy => policy.rules())
    }

    /// Whether the core `fetcher` takes a parked vCPU of another one.
    pub fn verdict(&self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        of_each!(self, policy => policy.verdict(fetcher, candidate))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    pub mod samples;

    use super::*;

    #[test]
    fn policies_are_as_descriptions_are_checked_for() {
        for packed in packed::Policy::ALL {
            let rules = Policy::new(packed, 1_000_000).rules();
            assert_eq!(
                rules.excludes_kernels,
                packed.excludes_kernels(),
                "{packed:?}"
            );
            assert_eq!(
                rules.max_delay.is_some(),
                packed.defers_preemption(),
                "{packed:?}"
            );
            assert_eq!(rules.gang, packed.has_gang(), "{packed:?}");
            let has_park_delay = rules.park_delay > crate::schedule::Ticks(0);
            assert_eq!(has_park_delay, packed.has_park_delay(), "{packed:?}");
        }
    }
}
