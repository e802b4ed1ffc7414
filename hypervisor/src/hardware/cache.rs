// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes to guest memory while no vCPU of the guest runs, with the cache maintenance they need: a guest starts with
//! its caches off.

use super::bundle_start;
use crate::sysreg::mrs;
use core::arch::asm;
use spumone_config::PhysAddr;
use spumone_core::load::CLEARED;

/// Clears one chunk of guest memory.
///
/// # Safety
///
/// The chunk is memory of a guest of which no vCPU runs, aligned to its size.
#[inline(always)]
pub unsafe fn clear_memory(start: PhysAddr) {
    /// `DCZID_EL0`: log2 of the block size of `DC ZVA` in words. At EL2 the instruction is never prohibited.
    const SIZE: u64 = 0xF;
    let block = 4 << (mrs!(DCZID_EL0) & SIZE);
    let line = cache_line();
    let end = start.0 + CLEARED;
    let mut at = start.0;
    // As the caller promises, no vCPU of the guest runs; guest memory is outside the hypervisor's (`spm` checks), and mapped
    // writable and cacheable. A block is a power of two and no larger than a chunk, and chunks are aligned to their size.
    if block == line && 8 * line <= CLEARED {
        // At most 8 times: 512 bytes each, with lines of 64 bytes.
        while at < end {
            // SAFETY: see above.
            at = unsafe { clear_eight_lines(at, line) };
        }
    } else {
        // At most 64 times: blocks of 64 bytes.
        while at < end {
            // SAFETY: see above.
            unsafe { asm!("dc zva, {}", in(reg) at, options(nostack, preserves_flags)) };
            at += block;
        }
        clean(start.0, CLEARED, line);
    }
    wait_until_visible();
}

/// Clears eight cache lines from `at` on, each of which is one block of `DC ZVA`, and returns the address after them.
/// Unrolled, and without a second pass for `DC CIVAC`, because guests have much memory to clear.
///
/// # Safety
///
/// As [`clear_memory`].
#[inline(always)]
unsafe fn clear_eight_lines(at: u64, line: u64) -> u64 {
    let next: u64;
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {line}",
            "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {line}",
            "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {line}",
            "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {line}",
            "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {line}",
            "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {line}",
            "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {line}",
            "dc zva, {at}", "dc civac, {at}", "add {at}, {at}, {line}",
            at = inout(reg) at => next,
            line = in(reg) line,
            options(nostack, preserves_flags)
        );
    }
    next
}

/// Copies a piece of the bundle, from `offset` on, to guest memory.
///
/// # Safety
///
/// As [`clear_memory`]; the source is in the bundle.
#[inline(always)]
pub unsafe fn copy_payload(offset: u64, to: PhysAddr, bytes: u64) {
    // SAFETY: the source is in the bundle.
    let from = unsafe { bundle_start().add(offset as usize) };
    let line = cache_line();
    // Pieces begin at multiples of their size at the destination; the source may have any address.
    let (mut done, end) = match line.is_multiple_of(PIECE) {
        true => {
            let head = bytes.min(to.0.next_multiple_of(PIECE) - to.0);
            (head, bytes - (bytes - head) % PIECE)
        }
        false => (bytes, bytes),
    };
    // SAFETY: as the caller promises; the two are parts of the source and of the destination.
    unsafe { copy_bytes(from as u64, to.0, done, line) };
    // At most 16 times: pieces of 64 bytes.
    while done < end {
        // SAFETY: as above.
        unsafe { copy_piece(from as u64 + done, to.0 + done) };
        done += PIECE;
    }
    // SAFETY: as above.
    unsafe { copy_bytes(from as u64 + done, to.0 + done, bytes - done, line) };
    wait_until_visible();
}

/// Copies less than a piece, or whatever a core with uncommon cache lines copies, and cleans the cache lines.
///
/// # Safety
///
/// As [`copy_payload`].
unsafe fn copy_bytes(from: u64, to: u64, bytes: u64, line: u64) {
    if bytes > 0 {
        // SAFETY: the source is in the bundle, read-only and checked by `spm`; the destination is
        // guest memory, as in `clear_memory`. They do not overlap.
        unsafe { core::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes as usize) };
        clean(to, bytes, line);
    }
}

/// The bytes that [`copy_piece`] copies: the usual length of a cache line.
const PIECE: u64 = 64;

/// Copies [`PIECE`] bytes, and cleans the cache line that they are in. The `memcpy` of the compiler's library takes three
/// times as long.
///
/// # Safety
///
/// As [`copy_payload`]. The destination is a multiple of [`PIECE`].
#[inline(always)]
unsafe fn copy_piece(from: u64, to: u64) {
    // SAFETY: as the caller promises.
    unsafe {
        asm!(
            "ldp {a}, {b}, [{from}]",
            "ldp {c}, {d}, [{from}, #16]",
            "ldp {e}, {f}, [{from}, #32]",
            "ldp {g}, {h}, [{from}, #48]",
            "stp {a}, {b}, [{to}]",
            "stp {c}, {d}, [{to}, #16]",
            "stp {e}, {f}, [{to}, #32]",
            "stp {g}, {h}, [{to}, #48]",
            "dc civac, {to}",
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            e = out(reg) _,
            f = out(reg) _,
            g = out(reg) _,
            h = out(reg) _,
            from = in(reg) from,
            to = in(reg) to,
            options(nostack, preserves_flags)
        );
    }
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
    wait_until_visible();
}

/// Waits until the cache lines that this core has cleaned are in memory, because another core may start the guest.
fn wait_until_visible() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Smallest data cache line of the core in bytes (`CTR_EL0.DminLine`).
fn cache_line() -> u64 {
    4 << (mrs!(CTR_EL0) >> 16 & 0xF)
}

/// Cleans and invalidates the range to the point of coherency. A guest starts with its caches off: it
/// must read the data that was loaded, and no stale lines may remain for when it turns them on.
fn clean(start: u64, bytes: u64, line: u64) {
    let mut at = start & !(line - 1);
    // At most 64 times: lines of 64 bytes.
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
