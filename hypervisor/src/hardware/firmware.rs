// SPDX-License-Identifier: MIT OR Apache-2.0
//! PSCI calls to the firmware: start a core, turn the machine off.

use super::stacks::{STACK_PAGES, stack_of};
use crate::core_loop::CoreLoop;

/// Starts the core with this affinity and index, which calls `run` on its own stack. Once for each core.
pub fn start_core(
    index: usize,
    mpidr: u64,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), smccc::psci::Error> {
    let stack = stack_of(index);
    // SAFETY: the stack is the core's own, is never freed, and is mapped by the tables with which the
    // core starts.
    unsafe { aarch64_rt::start_core::<smccc::Smc, _, STACK_PAGES>(mpidr, stack, run) }
}

/// Runs the loop of a core. Not inlined, so that changes of its caller do not change how the loop is compiled.
#[inline(never)]
pub fn run_for_ever(mut it: impl CoreLoop) -> ! {
    it.prepare();
    // At most twice, counted apart: after a chore, or the start of a life, it decides, and then it looks for interrupts.
    loop {
        it.iterate();
    }
}

/// Turns the machine off; returns if the firmware does not.
pub fn system_off() {
    // The caller deals with a failed call: it halts.
    let _ = smccc::psci::system_off::<smccc::Smc>();
}
