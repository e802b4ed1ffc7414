// SPDX-License-Identifier: MIT OR Apache-2.0
//! `none`: plain fixed priority. vCPUs stay on their home cores. The baseline, which suffers from lock-holder preemption.

use super::rules::{Decide, PolicyRules};

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Stay;

impl Decide for Stay {
    fn rules(&self) -> PolicyRules {
        PolicyRules::default()
    }
}
