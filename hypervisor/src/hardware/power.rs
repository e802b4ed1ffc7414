// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core turns itself off by a call of the firmware, and goes on where it was when another core has it turned on.
//!
//! Source: Arm DEN0022 (PSCI), 5.5 and 5.6.

use aarch64_rt::{SuspendContext, warm_boot_entry};
use core::arch::naked_asm;
use core::mem::offset_of;
use core::ptr::null_mut;
use smccc::psci::{self, Error};
use spumone_config::types::MAX_PCPUS;

/// What the firmware says to `CPU_ON`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOn {
    /// The core starts.
    Begins,
    /// The core is still on, or starts already.
    IsOn,
    /// It cannot be turned on.
    Fails,
}

/// Where each core goes on. A core writes its own before it turns itself off, and reads it when it is on again.
static mut CONTEXTS: [SuspendContext; MAX_PCPUS] = [const {
    SuspendContext {
        stack_ptr: null_mut(),
        entry: go_on,
        // What `cpu_off` returns then.
        arg: 0,
    }
}; MAX_PCPUS];

/// The context of this core.
fn context_of(core: usize) -> *mut SuspendContext {
    // SAFETY: only an address is taken.
    unsafe { &raw mut CONTEXTS[core] }
}

/// Turns the calling core off, whose index this is. When it is on again, this returns `Ok`. The MMU is on then, with the initial tables, and the stack and the
/// general registers are as before. All other registers have the values of a reset.
///
/// # Errors
///
/// The answer of a firmware that does not turn it off. Nothing has changed then.
pub fn turn_off(core: usize) -> Result<(), i32> {
    // SAFETY: the context is the calling core's.
    match unsafe { cpu_off(context_of(core)) } {
        0 => Ok(()),
        error => Err(error as i32),
    }
}

/// Has the firmware turn a core on, which has turned itself off, or is about to.
pub fn turn_on(core: usize, mpidr: u64) -> TurnOn {
    let context = context_of(core);
    match psci::cpu_on::<smccc::Smc>(mpidr, warm_boot_entry as *const () as u64, context as u64) {
        Ok(()) => TurnOn::Begins,
        Err(Error::AlreadyOn | Error::OnPending) => TurnOn::IsOn,
        Err(_) => TurnOn::Fails,
    }
}

/// Calls `CPU_OFF`. Returns the firmware's answer, or 0 after [`go_on`]. The stack keeps the registers that a function must preserve.
///
/// # Safety
///
/// `context` is the calling core's.
#[unsafe(naked)]
unsafe extern "C" fn cpu_off(context: *mut SuspendContext) -> i64 {
    naked_asm!(
        "stp x19, x20, [sp, #-96]!",
        "stp x21, x22, [sp, #16]",
        "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]",
        "stp x27, x28, [sp, #64]",
        "stp x29, x30, [sp, #80]",
        "mov x9, sp",
        "str x9, [x0, #{stack_ptr}]",
        "dsb sy",
        // CPU_OFF
        "mov w0, #2",
        "movk w0, #0x8400, lsl #16",
        "smc #0",
        "sxtw x0, w0",
        "b {go_on}",
        go_on = sym go_on,
        stack_ptr = const offset_of!(SuspendContext, stack_ptr),
    )
}

/// Returns from [`cpu_off`] with this value, on the stack that it has left.
#[unsafe(naked)]
extern "C" fn go_on(_: u64) -> ! {
    naked_asm!(
        "ldp x29, x30, [sp, #80]",
        "ldp x27, x28, [sp, #64]",
        "ldp x25, x26, [sp, #48]",
        "ldp x23, x24, [sp, #32]",
        "ldp x21, x22, [sp, #16]",
        "ldp x19, x20, [sp], #96",
        "ret",
    )
}
