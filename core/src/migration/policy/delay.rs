// SPDX-License-Identifier: MIT OR Apache-2.0
//! `delay`: a vCPU of a higher band waits, with a bound, until the running one holds no lock.
//!
//! ```text
//!                      core 0
//!   v may hold a lock  rt is due: v goes on …
//!   v holds none, or the bound is reached: rt runs
//! ```
//!
//! After *Solving the Lock Holder Preemption Problem* (2012), section 4.1 (safe/unsafe scheduling). vCPUs stay at home.
//! Latency has a tail as long as the guest's longest critical section, up to the bound. That is unfit for most real-time
//! guests; the policy is here for comparison.

use super::rules::{Decide, PolicyRules};
use crate::schedule::Ticks;

/// In microseconds.
const BOUND_US: u32 = 500;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Delay {
    bound: Ticks,
}

impl Delay {
    /// On a machine with this counter.
    pub const fn new(frequency_hz: u32) -> Self {
        Self {
            bound: Ticks::from_micros(BOUND_US, frequency_hz),
        }
    }
}

impl Decide for Delay {
    fn rules(&self) -> PolicyRules {
        PolicyRules {
            max_delay: Some(self.bound),
            ..PolicyRules::default()
        }
    }
}
