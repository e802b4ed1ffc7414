// SPDX-License-Identifier: MIT OR Apache-2.0
//! An instruction without effect that the exact clock recognizes.

/// Executes the instruction with this number as its immediate.
macro_rules! pass_step {
    ($number:expr) => {
        // SAFETY: MOVZ to XZR changes nothing (Arm Architecture Reference Manual, C1.2.5).
        unsafe {
            core::arch::asm!(
                "movz xzr, #{}",
                const $number,
                options(nomem, nostack, preserves_flags)
            );
        }
    };
}

pub(crate) use pass_step;
