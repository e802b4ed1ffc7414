// SPDX-License-Identifier: MIT OR Apache-2.0
//! Start, sleep and halt of cores. Functions that do not return to the hypervisor's code unwind its stack.

use super::{Machine, with};
use crate::core_loop::CoreLoop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Why the code on a core has unwound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The core's loop is in [`Machine::running`]: the test runs its iterations from now on.
    Started,
    /// The core has halted: the machine is off, or the hypervisor has died.
    Halted,
}

/// Runs code of the hypervisor on `core` until it ends; `None` if it returns.
pub fn until_it_ends<R>(core: usize, run: impl FnOnce() -> R) -> Result<R, Ended> {
    let before = with(|machine| std::mem::replace(&mut machine.current, core));
    let result = catch_unwind(AssertUnwindSafe(run));
    with(|machine| machine.current = before);
    result.map_err(|payload| match payload.downcast::<Ended>() {
        Ok(ended) => *ended,
        // A test has failed.
        Err(payload) => resume_unwind(payload),
    })
}

/// Starts the core with this affinity and index.
pub fn start_core(
    index: usize,
    mpidr: u64,
    run: impl FnOnce() + Send + 'static,
) -> Result<(), &'static str> {
    let is_it = |machine: &mut Machine| {
        let core = machine.cores.get(index);
        core.is_some_and(|core| core.get(super::Register::MPIDR_EL1) == mpidr)
    };
    if !with(is_it) {
        return Err("there is no such core");
    }
    match until_it_ends(index, run) {
        Err(Ended::Started) => Ok(()),
        Err(Ended::Halted) => resume_unwind(Box::new(Ended::Halted)),
        Ok(()) => Err("it has come back"),
    }
}

/// Hands the loop over to the test, which runs its iterations.
pub fn run_for_ever(mut it: impl CoreLoop) -> ! {
    it.prepare();
    with(|machine| {
        let core = machine.current;
        machine.running[core] = Some(Box::new(it));
    });
    resume_unwind(Box::new(Ended::Started))
}

/// Turns the machine off.
pub fn system_off() {
    with(|machine| machine.is_off = true);
}

/// Halts the core.
pub fn halt() -> ! {
    resume_unwind(Box::new(Ended::Halted))
}

/// Sleeps until an interrupt is pending, or for a limited time: a WFI may end at any time.
pub fn wait_for_interrupt() {
    /// The longest sleep in ticks.
    const NAP: u64 = 1_000;
    with(|machine| {
        let current = machine.current;
        machine.core().sleeps += 1;
        if machine.signalled(current).is_none() {
            machine.clock += NAP;
        }
    });
}
