// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fills all registers with a pattern and waits while another guest has the core.

use super::buffers::{Buffers, publish};
use core::arch::global_asm;

/// The data of the assembly code.
#[repr(C)]
pub struct Hold {
    fill_list: u64,
    read_list: u64,
    restore_list: u64,
    restore_values: u64,
    before: u64,
    after: u64,
    /// The pattern.
    pub pattern: u64,
    /// How often the counter must jump: another guest had the core.
    pub jumps: u64,
    /// Least ticks of a jump.
    pub jump: u64,
    /// Most ticks to wait.
    pub most: u64,
    /// The firmware call with which it ends, by HVC; 0: it returns.
    pub ends_with: u64,
    _reserved: u64,
}

impl Hold {
    /// Uses the lists of `buffers`. `buffers.values` has the values to restore.
    pub fn new(buffers: &mut Buffers, pattern: u64) -> Self {
        Self {
            fill_list: buffers.fill_list.as_ptr() as u64,
            read_list: buffers.read_list.as_ptr() as u64,
            restore_list: buffers.restore_list.as_ptr() as u64,
            restore_values: buffers.values.as_ptr() as u64,
            before: buffers.before.as_mut_ptr() as u64,
            after: buffers.after.as_mut_ptr() as u64,
            pattern,
            jumps: 0,
            jump: 0,
            most: 0,
            ends_with: 0,
            _reserved: 0,
        }
    }

    /// Fills the registers, reads them into `before`, waits for the jumps, reads them into `after` and restores
    /// them. Returns the number of jumps of the counter.
    pub fn run(&self, buffers: &mut Buffers) -> u64 {
        let publish_all = || {
            publish(buffers.values);
            publish(buffers.before);
            publish(buffers.after);
            publish(buffers.fill_list);
            publish(buffers.read_list);
            publish(buffers.restore_list);
        };
        publish_all();
        // SAFETY: the lists name accessible registers only, and all are restored.
        let jumps = unsafe { registers_hold(self) };
        publish_all();
        jumps
    }
}

unsafe extern "C" {
    fn registers_hold(hold: *const Hold) -> u64;
}

/// `SCTLR_EL1` bits: MMU, data cache, instruction cache.
const MMU_AND_CACHES: u64 = 1 << 0 | 1 << 2 | 1 << 12;

// With a pattern in `VBAR_EL1`, this code must not cause an exception that is taken to EL1.
global_asm!(
    ".pushsection .text, \"ax\"",
    ".global registers_hold",
    "registers_hold:",
    "stp x29, x30, [sp, #-96]!",
    "stp x19, x20, [sp, #16]",
    "stp x21, x22, [sp, #32]",
    "stp x23, x24, [sp, #48]",
    "stp x25, x26, [sp, #64]",
    "stp x27, x28, [sp, #80]",
    "ldp x19, x20, [x0]",
    "ldp x21, x22, [x0, #16]",
    "ldp x23, x24, [x0, #32]",
    "ldp x3, x25, [x0, #48]",
    "ldp x26, x27, [x0, #64]",
    "ldr x28, [x0, #80]",
    "mrs x29, sctlr_el1",
    "ldr x1, ={mmu}",
    "bic x1, x29, x1",
    "msr daifset, #15",
    "dsb sy",
    "msr sctlr_el1, x1",
    "isb",
    "blr x19",
    "isb",
    "mov x1, x23",
    "blr x20",
    // x9: the last reading, x10: the first, x13: jumps so far.
    "mov x13, #0",
    "mrs x9, cntvct_el0",
    "mov x10, x9",
    "1: isb",
    "mrs x11, cntvct_el0",
    "sub x12, x11, x9",
    "mov x9, x11",
    "cmp x12, x26",
    "cinc x13, x13, hs",
    "sub x12, x11, x10",
    "cmp x12, x27",
    "b.hs 2f",
    "cmp x13, x25",
    "b.lo 1b",
    "2: cbz x28, 3f",
    "mov x0, x28",
    "hvc #0",
    "3: mov x1, x24",
    "blr x20",
    "ldr x1, ={mmu}",
    "bic x1, x29, x1",
    "msr sctlr_el1, x1",
    "isb",
    "mov x1, x22",
    "blr x21",
    "dsb sy",
    "tlbi vmalle1",
    "dsb sy",
    "isb",
    "msr sctlr_el1, x29",
    "isb",
    "mov x0, x13",
    "ldp x19, x20, [sp, #16]",
    "ldp x21, x22, [sp, #32]",
    "ldp x23, x24, [sp, #48]",
    "ldp x25, x26, [sp, #64]",
    "ldp x27, x28, [sp, #80]",
    "ldp x29, x30, [sp], #96",
    "ret",
    ".popsection",
    mmu = const MMU_AND_CACHES,
);
