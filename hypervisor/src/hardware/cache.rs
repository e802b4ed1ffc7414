// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes to guest memory while no vCPU of the guest runs, with the cache maintenance they need: a guest starts with
//! its caches off.

use super::bundle_start;
use crate::sysreg::mrs;
use core::arch::asm;
use spumone_config::PhysAddr;
use spumone_core::load::CLEARED;

/// Executes an instruction for eight blocks of size `$step` from `$at` on, and returns the address
/// after them. Unrolled because it is twice as fast, and guests have much memory to clear.
macro_rules! eight_times {
    ($instruction:literal, $at:expr, $step:expr) => {{
        let next: u64;
        asm!(
            $instruction, "add {at}, {at}, {step}",
            $instruction, "add {at}, {at}, {step}",
            $instruction, "add {at}, {at}, {step}",
            $instruction, "add {at}, {at}, {step}",
            $instruction, "add {at}, {at}, {step}",
            $instruction, "add {at}, {at}, {step}",
            $instruction, "add {at}, {at}, {step}",
            $instruction, "add {at}, {at}, {step}",
            at = inout(reg) $at => next,
            step = in(reg) $step,
            options(nostack, preserves_flags)
        );
        next
    }};
}

/// Clears one chunk of guest memory.
///
/// # Safety
///
/// The chunk is memory of a guest of which no vCPU runs, aligned to its size.
#[inline(always)]
pub unsafe fn clear_memory(start: PhysAddr) {
    /// `DCZID_EL0`: `DC ZVA` is prohibited; log2 of its block size in words.
    const PROHIBITED: u64 = 1 << 4;
    const SIZE: u64 = 0xF;
    let zva = mrs!(DCZID_EL0);
    let block = 4 << (zva & SIZE);
    // SAFETY: as the caller promises, no vCPU of the guest runs; guest memory is outside the hypervisor's (`spm`
    // checks), and mapped writable and cacheable. Eight blocks of `DC ZVA`, a power of two, are no larger than a chunk,
    // and chunks are aligned to their size.
    unsafe {
        if zva & PROHIBITED == 0 && 8 * block <= CLEARED {
            let mut at = start.0;
            while at < start.0 + CLEARED {
                at = eight_times!("dc zva, {at}", at, block);
            }
        } else {
            core::ptr::write_bytes(start.0 as *mut u8, 0, CLEARED as usize);
        }
    }
    let line = cache_line();
    if 8 * line > CLEARED {
        clean(start.0, CLEARED, line);
        return;
    }
    let mut at = start.0;
    while at < start.0 + CLEARED {
        // SAFETY: as in `clean`; eight lines are no larger than a chunk.
        at = unsafe { eight_times!("dc civac, {at}", at, line) };
    }
}

/// Copies a piece of the bundle, from `offset` on, to guest memory.
///
/// # Safety
///
/// As [`clear_memory`]; the source is in the bundle.
#[inline(always)]
pub unsafe fn copy_payload(offset: u64, to: PhysAddr, bytes: u64) {
    // SAFETY: the source is in the bundle, read-only and checked by `spm`; the destination is
    // guest memory, as in `clear_memory`. They do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(
            bundle_start().add(offset as usize),
            to.0 as *mut u8,
            bytes as usize,
        );
    }
    clean(to.0, bytes, cache_line());
}

/// Writes one byte of guest memory.
///
/// # Safety
///
/// As [`clear_memory`].
#[inline(always)]
pub unsafe fn write_memory_byte(to: PhysAddr, value: u8) {
    // SAFETY: as in `clear_memory`.
    unsafe { (to.0 as *mut u8).write_volatile(value) };
    clean(to.0, 1, cache_line());
}

/// Smallest data cache line of the core in bytes (`CTR_EL0.DminLine`).
fn cache_line() -> u64 {
    4 << (mrs!(CTR_EL0) >> 16 & 0xF)
}

/// Cleans and invalidates the range to the point of coherency. A guest starts with its caches off: it
/// must read the data that was loaded, and no stale lines may remain for when it turns them on.
fn clean(start: u64, bytes: u64, line: u64) {
    let mut at = start & !(line - 1);
    while at < start + bytes {
        // SAFETY: cleaning and invalidating a line does not change what memory reads as.
        unsafe { asm!("dc civac, {}", in(reg) at, options(nostack, preserves_flags)) };
        at += line;
    }
}

/// Makes the loaded memory visible to the guest's data and instruction accesses.
pub fn finish_loading() {
    // SAFETY: barriers and an instruction cache invalidation.
    unsafe {
        asm!(
            "dsb sy",
            "ic ialluis",
            "dsb ish",
            "isb",
            options(nostack, preserves_flags)
        )
    };
}
