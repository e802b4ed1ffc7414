// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a core sleeps.

use core::arch::asm;

/// Sleeps until an interrupt is pending. Interrupts stay masked: it is taken by reading the GIC.
#[inline(always)]
pub fn wait_for_interrupt() {
    // SAFETY: waiting changes nothing.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
}

/// Sleeps for ever.
pub fn halt() -> ! {
    loop {
        // SAFETY: waiting changes nothing.
        unsafe { asm!("wfi", options(nostack, preserves_flags)) };
    }
}
