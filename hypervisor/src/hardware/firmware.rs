// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the firmware does for EL2, by PSCI: it starts cores, and turns the machine off.

use super::stacks::{STACK_PAGES, stack_of};
use crate::turns::Turns;

/// Starts the core with this affinity and index, which enters `run` on a stack of its own. Once for each core.
pub fn start_core(
    index: usize,
    mpidr: u64,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), smccc::psci::Error> {
    let stack = stack_of(index);
    // SAFETY: the stack is the core's own, lives for ever, and is mapped by the tables that
    // the core enters with.
    unsafe { aarch64_rt::start_core::<smccc::Smc, _, STACK_PAGES>(mpidr, stack, run) }
}

/// Takes one turn after the other. Not part of its caller: how a loop is compiled depends on what surrounds it.
#[inline(never)]
pub fn run_for_ever(mut it: impl Turns) -> ! {
    it.prepare();
    loop {
        it.turn();
    }
}

/// Turns the machine off; returns if the firmware does not.
pub fn system_off() {
    // An error leaves nothing else to do.
    let _ = smccc::psci::system_off::<smccc::Smc>();
}
