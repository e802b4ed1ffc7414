// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cosched`: all vCPUs of a guest run, or none.
//!
//! ```text
//!                    core 0                        cores 1, 2, 3
//!   rt wakes         v waits; kicks the others     w, x, y wait too: none spins for a lock that v holds
//!   rt sleeps        v runs; kicks the others      they run
//! ```
//!
//! Gang scheduling, as in earlier virtual machine monitors: for comparison. No vCPU spins, and three cores idle.

use super::rules::{Decide, PolicyRules};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Cosched;

impl Decide for Cosched {
    fn rules(&self) -> PolicyRules {
        PolicyRules {
            gang: true,
            ..PolicyRules::default()
        }
    }
}
