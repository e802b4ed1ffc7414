// SPDX-License-Identifier: MIT OR Apache-2.0
//! Entry and exit of guests: the only code that runs with a guest's general registers.
//!
//! To the run loop a guest is a function call: [`enter`] loads the registers of a vCPU, leaves
//! EL2, and returns at the guest's next exit. One stack per core is enough for all vCPUs, since no
//! state of a vCPU is kept on it.

use crate::guest_registers::{Exit, GuestRegisters};
use core::arch::{asm, global_asm};
use core::mem::offset_of;

/// Exit kinds as the vectors report them.
const KIND_SYNCHRONOUS: u64 = 0;
const KIND_INTERRUPT: u64 = 1;
const KIND_SYSTEM_ERROR: u64 = 2;

/// Runs the vCPU with these registers until its next exit.
///
/// The caller has loaded the rest of the vCPU's state: stage 2, system registers, timers and the
/// virtual interface of the GIC.
#[inline(always)]
pub fn enter(registers: &mut GuestRegisters) -> Exit {
    let kind: u64;
    // Called by `bl`, not as a function of the C ABI: the loop of a core has few values that outlive an exit, so `enter_guest` does not preserve x20 to x28.
    // An `asm!` cannot name x19 and x29.
    // SAFETY: `registers` is exclusively borrowed for as long as the guest runs. The guest is confined to its stage 2 and to EL1/EL0. All registers that
    // `enter_guest` changes are named; it preserves x19, x29 and SP.
    unsafe {
        asm!(
            "bl enter_guest",
            inlateout("x0") registers => kind,
            lateout("x20") _, lateout("x21") _, lateout("x22") _, lateout("x23") _, lateout("x24") _,
            lateout("x25") _, lateout("x26") _, lateout("x27") _, lateout("x28") _,
            clobber_abi("C"),
        );
    }
    match kind {
        KIND_SYNCHRONOUS => Exit::Synchronous,
        KIND_INTERRUPT => Exit::Interrupt,
        _ => Exit::SystemError,
    }
}

global_asm!(
    ".pushsection .text, \"ax\"",
    ".global enter_guest",
    "enter_guest:",
    "stp x29, x30, [sp, #-32]!",
    "str x19, [sp, #16]",
    "msr tpidr_el2, x0",
    "ldp x1, x2, [x0, #{pc}]",
    "msr elr_el2, x1",
    "msr spsr_el2, x2",
    "ldp x2, x3, [x0, #16]",
    "ldp x4, x5, [x0, #32]",
    "ldp x6, x7, [x0, #48]",
    "ldp x8, x9, [x0, #64]",
    "ldp x10, x11, [x0, #80]",
    "ldp x12, x13, [x0, #96]",
    "ldp x14, x15, [x0, #112]",
    "ldp x16, x17, [x0, #128]",
    "ldp x18, x19, [x0, #144]",
    "ldp x20, x21, [x0, #160]",
    "ldp x22, x23, [x0, #176]",
    "ldp x24, x25, [x0, #192]",
    "ldp x26, x27, [x0, #208]",
    "ldp x28, x29, [x0, #224]",
    "ldr x30, [x0, #240]",
    "ldp x0, x1, [x0]",
    "eret",
    // A speculation barrier after the ERET.
    "dsb nsh",
    "isb",
    //
    // x1 = kind; the guest's x0 and x1 are on the stack.
    "guest_exit:",
    "mrs x0, tpidr_el2",
    "stp x2, x3, [x0, #16]",
    "stp x4, x5, [x0, #32]",
    "stp x6, x7, [x0, #48]",
    "stp x8, x9, [x0, #64]",
    "stp x10, x11, [x0, #80]",
    "stp x12, x13, [x0, #96]",
    "stp x14, x15, [x0, #112]",
    "stp x16, x17, [x0, #128]",
    "stp x18, x19, [x0, #144]",
    "stp x20, x21, [x0, #160]",
    "stp x22, x23, [x0, #176]",
    "stp x24, x25, [x0, #192]",
    "stp x26, x27, [x0, #208]",
    "stp x28, x29, [x0, #224]",
    "str x30, [x0, #240]",
    "ldp x2, x3, [sp], #16",
    "stp x2, x3, [x0]",
    "mrs x2, elr_el2",
    "mrs x3, spsr_el2",
    "stp x2, x3, [x0, #{pc}]",
    "mov x0, x1",
    "ldr x19, [sp, #16]",
    // The core predicts where a return goes from the last calls, and those are the guest's. It would mispredict the return below, since EL2 made its
    // call before the guest ran. After this `bl` the core predicts that the return goes to the barrier. All later returns at EL2 follow their calls,
    // since the caller, `run_for_ever`, never returns (`scripts/stretches` checks that).
    "bl 1f",
    "dsb nsh",
    "isb",
    "1:",
    "ldp x29, x30, [sp], #32",
    "ret",
    ".popsection",
    //
    // Exception vectors of EL2 (Arm ARM DDI 0487, D1.3.1.5).
    ".pushsection .text.vectors, \"ax\"",
    ".balign 2048",
    ".global el2_vectors",
    "el2_vectors:",
    // From EL2 itself: interrupts are masked there, so any exception is fatal. The stack may be the
    // cause, so x0 and x1 are saved in two system registers that are not needed any more.
    ".macro hypervisor_exception kind",
    ".balign 128",
    "msr tpidr_el2, x0",
    "msr sp_el0, x1",
    "mov x0, #\\kind",
    "b hypervisor_died",
    ".endm",
    ".macro guest_exception kind",
    ".balign 128",
    "stp x0, x1, [sp, #-16]!",
    "mov x1, #\\kind",
    "b guest_exit",
    ".endm",
    "hypervisor_exception 0",
    "hypervisor_exception 1",
    "hypervisor_exception 2",
    "hypervisor_exception 3",
    "hypervisor_exception 4",
    "hypervisor_exception 5",
    "hypervisor_exception 6",
    "hypervisor_exception 7",
    // From AArch64 guests: synchronous, IRQ, FIQ, SError.
    "guest_exception {synchronous}",
    "guest_exception {interrupt}",
    "guest_exception {interrupt}",
    "guest_exception {system_error}",
    // From AArch32 at EL0.
    "guest_exception {synchronous}",
    "guest_exception {interrupt}",
    "guest_exception {interrupt}",
    "guest_exception {system_error}",
    ".popsection",
    pc = const offset_of!(GuestRegisters, pc),
    synchronous = const KIND_SYNCHRONOUS,
    interrupt = const KIND_INTERRUPT,
    system_error = const KIND_SYSTEM_ERROR,
);
