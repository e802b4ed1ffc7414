// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handler of exceptions taken from EL2 itself: saves the registers, and writes the epitaph on a separate stack, since
//! the core's own stack may be the cause.

use core::arch::global_asm;

global_asm!(
    ".pushsection .text, \"ax\"",
    // x0 = vector number; the old x0 and x1 are in TPIDR_EL2 and SP_EL0.
    ".global hypervisor_died",
    "hypervisor_died:",
    "adrp x1, {save}",
    "add x1, x1, :lo12:{save}",
    "stp x2, x3, [x1, #16]",
    "stp x4, x5, [x1, #32]",
    "stp x6, x7, [x1, #48]",
    "stp x8, x9, [x1, #64]",
    "stp x10, x11, [x1, #80]",
    "stp x12, x13, [x1, #96]",
    "stp x14, x15, [x1, #112]",
    "stp x16, x17, [x1, #128]",
    "stp x18, x19, [x1, #144]",
    "stp x20, x21, [x1, #160]",
    "stp x22, x23, [x1, #176]",
    "stp x24, x25, [x1, #192]",
    "stp x26, x27, [x1, #208]",
    "stp x28, x29, [x1, #224]",
    "str x30, [x1, #240]",
    "mrs x2, tpidr_el2",
    "mrs x3, sp_el0",
    "stp x2, x3, [x1]",
    "mov x2, sp",
    "adrp x3, {stack}",
    "add x3, x3, :lo12:{stack}",
    "add sp, x3, #{stack_size}",
    "b epitaph_of_exception",
    ".popsection",
    save = sym SAVED,
    stack = sym LAST_STACK,
    stack_size = const LAST_STACK_SIZE,
);

const LAST_STACK_SIZE: usize = 8192;

/// Registers at the time of death, written by the vector code.
static mut SAVED: [u64; 31] = [0; 31];

#[repr(C, align(16))]
struct LastStack([u8; LAST_STACK_SIZE]);

/// The stack on which the epitaph is written.
static mut LAST_STACK: LastStack = LastStack([0; LAST_STACK_SIZE]);
