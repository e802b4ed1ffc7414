// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions at EL1: interrupts go to [`super::interrupts`]. A synchronous exception that a test
//! expects is skipped; any other one fails with its address.

use super::MAX_CPUS;
use super::interrupts;
use super::sysreg::{cpu, mrs};
use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// General registers, and the registers that the exception saved.
#[repr(C)]
pub struct Frame {
    x: [u64; 31],
    elr: u64,
    spsr: u64,
    _padding: u64,
}

const FRAME_SIZE: usize = size_of::<Frame>();

/// Bits 0 to 1: synchronous, IRQ, FIQ, SError; bits 2 to 3: SP0, SPx, lower AArch64, AArch32.
const KIND_IRQ: u64 = 1;
const KIND_FIQ: u64 = 2;
const FROM_SPX: u64 = 1;

/// One for each CPU: whether exceptions are expected, and the last one's `ESR_EL1` plus one.
static EXPECTED: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
static CAUGHT: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];

/// Exception classes (Arm ARM DDI 0487, `ESR_EL1.EC`).
pub mod class {
    /// An undefined instruction.
    pub const UNDEFINED: u64 = 0;
}

/// Runs `code`; returns the class of the last exception that it caused, if any. Instructions that cause one
/// are skipped.
pub fn catch(code: impl FnOnce()) -> Option<u64> {
    catch_syndrome(code).map(|esr| esr >> 26 & 0x3F)
}

/// As [`catch`]; returns the `ESR_EL1` of that exception.
pub fn catch_syndrome(code: impl FnOnce()) -> Option<u64> {
    let cpu = cpu();
    CAUGHT[cpu].store(0, Ordering::Relaxed);
    EXPECTED[cpu].store(1, Ordering::Relaxed);
    code();
    EXPECTED[cpu].store(0, Ordering::Relaxed);
    let caught = CAUGHT[cpu].load(Ordering::Relaxed);
    caught.checked_sub(1)
}

extern "C" fn exception(kind: u64, frame: &mut Frame) {
    let cpu = cpu();
    match (kind & 3, kind >> 2) {
        (KIND_IRQ, FROM_SPX) => interrupts::taken(interrupts::Line::Irq),
        (KIND_FIQ, FROM_SPX) => interrupts::taken(interrupts::Line::Fiq),
        (0, FROM_SPX) if EXPECTED[cpu].load(Ordering::Relaxed) != 0 => {
            CAUGHT[cpu].store(mrs!(ESR_EL1) + 1, Ordering::Relaxed);
            frame.elr += 4;
        }
        _ => panic!(
            "exception {kind} at pc {:#x}, ESR {:#x}, FAR {:#x}, x30 {:#x}",
            frame.elr,
            mrs!(ESR_EL1),
            mrs!(FAR_EL1),
            frame.x[30]
        ),
    }
}

global_asm!(
    ".pushsection .text, \"ax\"",
    ".macro vector kind",
    ".balign 128",
    "sub sp, sp, #{size}",
    "stp x0, x1, [sp]",
    "mov x0, #\\kind",
    "b exception_entry",
    ".endm",
    ".balign 2048",
    "vectors:",
    "vector 0",
    "vector 1",
    "vector 2",
    "vector 3",
    "vector 4",
    "vector 5",
    "vector 6",
    "vector 7",
    "vector 8",
    "vector 9",
    "vector 10",
    "vector 11",
    "vector 12",
    "vector 13",
    "vector 14",
    "vector 15",
    "exception_entry:",
    "stp x2, x3, [sp, #16]",
    "stp x4, x5, [sp, #32]",
    "stp x6, x7, [sp, #48]",
    "stp x8, x9, [sp, #64]",
    "stp x10, x11, [sp, #80]",
    "stp x12, x13, [sp, #96]",
    "stp x14, x15, [sp, #112]",
    "stp x16, x17, [sp, #128]",
    "stp x18, x19, [sp, #144]",
    "stp x20, x21, [sp, #160]",
    "stp x22, x23, [sp, #176]",
    "stp x24, x25, [sp, #192]",
    "stp x26, x27, [sp, #208]",
    "stp x28, x29, [sp, #224]",
    "mrs x1, elr_el1",
    "mrs x2, spsr_el1",
    "stp x30, x1, [sp, #240]",
    "str x2, [sp, #256]",
    "mov x1, sp",
    "bl {exception}",
    "ldr x2, [sp, #256]",
    "ldp x30, x1, [sp, #240]",
    "msr daifset, #15",
    "msr elr_el1, x1",
    "msr spsr_el1, x2",
    "ldp x2, x3, [sp, #16]",
    "ldp x4, x5, [sp, #32]",
    "ldp x6, x7, [sp, #48]",
    "ldp x8, x9, [sp, #64]",
    "ldp x10, x11, [sp, #80]",
    "ldp x12, x13, [sp, #96]",
    "ldp x14, x15, [sp, #112]",
    "ldp x16, x17, [sp, #128]",
    "ldp x18, x19, [sp, #144]",
    "ldp x20, x21, [sp, #160]",
    "ldp x22, x23, [sp, #176]",
    "ldp x24, x25, [sp, #192]",
    "ldp x26, x27, [sp, #208]",
    "ldp x28, x29, [sp, #224]",
    "ldp x0, x1, [sp], #{size}",
    "eret",
    ".popsection",
    size = const FRAME_SIZE,
    exception = sym exception,
);
