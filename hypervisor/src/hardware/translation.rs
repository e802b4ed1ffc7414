// SPDX-License-Identifier: MIT OR Apache-2.0
//! TLB maintenance, and translation of a guest's addresses.

use super::isb;
use core::arch::asm;

/// Invalidates what this core has cached of the current guest's stage 1.
#[inline(always)]
pub fn forget_guest_translations() {
    isb();
    // SAFETY: invalidating TLB entries costs time only; stage 2 stays in force.
    unsafe {
        asm!(
            "tlbi vmalle1",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        )
    };
}

/// Invalidates what this core has cached of both stages of the current guest.
#[inline(always)]
pub fn forget_both_stages() {
    isb();
    // SAFETY: invalidating TLB entries costs time only.
    unsafe {
        asm!(
            "tlbi vmalls12e1",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        )
    };
}

/// Translates an address of the loaded vCPU, for a read by its kernel. The result is in `PAR_EL1`.
#[inline(always)]
pub fn translate_for_kernel_read(address: u64) {
    // SAFETY: an address translation changes `PAR_EL1` only.
    unsafe {
        asm!("at s12e1r, {}", "isb", in(reg) address, options(nostack, preserves_flags));
    }
}
