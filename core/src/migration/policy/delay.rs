// SPDX-License-Identifier: MIT OR Apache-2.0
//! `delay`: a more urgent vCPU waits, for a while at most, until the one that runs holds no lock.
//!
//! ```text
//!                      core 0
//!   v may hold a lock  rt is due: v runs on …
//!   v holds none, or the bound is reached: rt runs
//! ```
//!
//! As in *Solving the Lock Holder Preemption Problem* (2012), section 4.1, and *safe/unsafe* scheduling. vCPUs stay at home.
//! Latency has the tail that the guest's longest critical section gives it, up to the bound: unfit for most real-time
//! guests, and here to be compared with.

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
