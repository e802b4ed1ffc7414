// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls to the firmware: start a core, turn the machine off, what it knows of the core's speculation.

use super::stacks::{STACK_PAGES, stack_of};
use crate::core_loop::CoreLoop;
use smccc::Call;
use smccc::arch::{arch_workaround_1, arch_workaround_2, arch_workaround_3};
use spumone_core::mitigation::Workaround;
use spumone_core::smccc::FunctionId;

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
    let mut enters_again = false;
    // At most twice, counted apart: after a chore, or the start of a life, it decides, and then it looks for interrupts.
    loop {
        enters_again = it.iterate(enters_again);
    }
}

/// Turns the machine off; returns if the firmware does not.
pub fn system_off() {
    // The caller deals with a failed call: it halts.
    let _ = smccc::psci::system_off::<smccc::Smc>();
}

/// Asks the firmware something about the calling core, about `subject`: one of `PSCI_VERSION`, `PSCI_FEATURES`, `SMCCC_VERSION` and
/// `SMCCC_ARCH_FEATURES`. Returns w0.
pub fn ask_firmware(question: FunctionId, subject: u32) -> i32 {
    let [answer, ..] = smccc::Smc::call32(question.0, [subject, 0, 0, 0, 0, 0, 0]);
    answer as i32
}

/// Calls a workaround on the calling core, which needs it; workaround 2 turns its mitigation on.
pub fn mitigate(workaround: Workaround) {
    // They return nothing.
    let _ = match workaround {
        Workaround::One => arch_workaround_1::<smccc::Smc>(),
        Workaround::Two => arch_workaround_2::<smccc::Smc>(true),
        Workaround::Three => arch_workaround_3::<smccc::Smc>(),
    };
}
