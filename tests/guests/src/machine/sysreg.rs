// SPDX-License-Identifier: MIT OR Apache-2.0
//! System registers, and instructions for interrupts and barriers.

use core::arch::asm;

/// Reads a system register.
macro_rules! mrs {
    ($register:ident) => {{
        let value: u64;
        // SAFETY: the CPU belongs to this program, and reading a register changes no memory.
        unsafe {
            core::arch::asm!(
                concat!("mrs {}, ", stringify!($register)),
                out(reg) value,
                options(nostack, preserves_flags)
            )
        };
        value
    }};
}
pub(crate) use mrs;

/// Writes a system register, and waits until the write has taken effect.
macro_rules! msr {
    ($register:ident, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: the CPU belongs to this program; no test writes what its own code depends on.
        unsafe {
            core::arch::asm!(
                concat!("msr ", stringify!($register), ", {}"),
                "isb",
                in(reg) value,
                options(nostack, preserves_flags)
            )
        };
    }};
}
pub(crate) use msr;

/// Unmasks interrupts.
pub fn unmask() {
    // SAFETY: the vectors are in place.
    unsafe { asm!("msr daifclr, #3", options(nostack)) };
}

/// Masks interrupts.
pub fn mask() {
    // SAFETY: interrupts may be masked at any time.
    unsafe { asm!("msr daifset, #3", options(nostack)) };
}

/// Waits for an interrupt, whether masked or not.
pub fn wfi() {
    // SAFETY: WFI changes no state.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
}

/// Completes all memory accesses before the next instruction.
pub fn barrier() {
    // SAFETY: barriers change no state.
    unsafe { asm!("dsb sy", "isb", options(nostack, preserves_flags)) };
}

/// The number of the CPU that runs this.
pub fn cpu() -> usize {
    (mrs!(MPIDR_EL1) & 0xFF) as usize
}
