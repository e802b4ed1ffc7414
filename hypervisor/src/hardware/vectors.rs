// SPDX-License-Identifier: MIT OR Apache-2.0
//! Selection of EL2's vector table. The table itself is in `guest`, and that of `write_if_there` beside it.

use super::isb;
use core::arch::{asm, global_asm};

/// Makes the calling core use the vector table of `guest`. The first thing that a core does.
pub fn set_vectors() {
    unsafe extern "C" {
        static el2_vectors: u8;
    }
    // SAFETY: `el2_vectors` is a complete vector table, 2 KiB aligned by the linker script.
    unsafe {
        asm!("msr vbar_el2, {}", in(reg) &raw const el2_vectors, options(nostack, preserves_flags));
    }
    isb();
}

// Vectors for `write_if_there`: a synchronous exception of EL2 skips the instruction.
global_asm!(
    ".pushsection .text.vectors, \"ax\"",
    ".balign 2048",
    ".global forgiving_vectors",
    "forgiving_vectors:",
    ".rept 4",
    ".balign 128",
    "b .",
    ".endr",
    ".balign 128",
    "mrs x0, elr_el2",
    "add x0, x0, #4",
    "msr elr_el2, x0",
    "eret",
    ".rept 11",
    ".balign 128",
    "b .",
    ".endr",
    ".balign 128",
    ".popsection",
);
