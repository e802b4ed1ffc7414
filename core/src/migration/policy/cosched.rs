// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cosched`: all vCPUs of a guest run, or none.
//!
//! ```text
//!                    core 0                        cores 1, 2, 3
//!   rt wakes         v waits, tells the others     w, x, y wait too: nobody spins for a lock that v holds
//!   rt sleeps        v runs, tells the others      run
//! ```
//!
//! Gang scheduling, as virtual machine monitors had it: a peer to compare with. Nothing spins, and nothing else runs either.

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
