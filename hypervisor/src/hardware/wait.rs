// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sleep of a core.

use core::arch::asm;

/// Sleeps until an interrupt is pending. Interrupts stay masked: the caller takes it by reading the GIC.
#[inline(always)]
pub fn wait_for_interrupt() {
    // SAFETY: WFI changes no state.
    unsafe { asm!("dsb sy", "wfi", options(nostack, preserves_flags)) };
}

/// Sleeps for ever.
pub fn halt() -> ! {
    loop {
        // SAFETY: WFI changes no state.
        unsafe { asm!("wfi", options(nostack, preserves_flags)) };
    }
}
