// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux has the same initial file system on all systems that are compared.

use super::super::Plan;
use super::super::beside::{self, Load, Periods};
use crate::linux::Programs;
use crate::machine::{Machine, Run};

/// FreeRTOS beside a Linux, which has the initial file system that it has on all systems, since it unpacks that when it starts.
pub(super) fn run_beside(
    plan: &Plan,
    label: String,
    policy: &str,
    load: Load,
    periods: Periods,
) -> Run {
    let mut run = beside::run_beside(plan, label, policy, load, periods, None);
    if let Machine::Spumone(system) = &mut run.machine
        && let Some(linux) = &mut system.linux
    {
        linux.programs = Programs::Bench;
    }
    run
}
