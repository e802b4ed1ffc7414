// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes to guest memory while no vCPU of the guest runs, with the cache maintenance they need: a guest starts with
//! its caches off.

use super::bundle_start;
use super::running_guest::copy;
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

/// Reads bytes of the bundle, from `offset` on, into `block`, and copies what was read to guest memory, if `to` says so. At most as many
/// as `block` has.
///
/// # Safety
///
/// As [`clear_memory`]; the source is in the bundle.
pub unsafe fn fetch_payload(offset: u64, to: Option<PhysAddr>, block: &mut [u8], bytes: u64) {
    let bytes = bytes.min(block.len() as u64) as u32;
    let place = PhysAddr(block.as_mut_ptr() as u64);
    // SAFETY: the source is in the bundle, as the caller promises; `block` is memory of EL2, and has as many bytes.
    unsafe {
        copy(
            PhysAddr(bundle_start().add(offset as usize) as u64),
            place,
            bytes,
        )
    };
    if let Some(to) = to {
        // SAFETY: guest memory, as in `clear_memory`, apart from EL2's.
        unsafe { copy(place, to, bytes) };
        clean(to.0, u64::from(bytes), cache_line());
    }
}

/// Copies bytes of a guest's memory, at most as many as `block` has, and leaves them in `block`. The guest may have its caches off.
///
/// # Safety
///
/// As [`clear_memory`], for both places.
pub unsafe fn fetch_memory(from: PhysAddr, to: PhysAddr, block: &mut [u8]) {
    let (place, bytes) = (PhysAddr(block.as_mut_ptr() as u64), block.len() as u32);
    let line = cache_line();
    clean(from.0, u64::from(bytes), line);
    // SAFETY: as the caller promises; `block` is memory of EL2, and has as many bytes.
    unsafe {
        copy(from, place, bytes);
        copy(place, to, bytes);
    }
    clean(to.0, u64::from(bytes), line);
}

/// The bytes at this offset of the bundle.
///
/// # Safety
///
/// They are in the bundle.
pub unsafe fn payload_bytes<const N: usize>(offset: u64) -> [u8; N] {
    // SAFETY: as the caller promises; any bytes are such an array.
    unsafe { bundle_start().add(offset as usize).cast::<[u8; N]>().read() }
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
pub fn wait_until_visible() {
    // SAFETY: a barrier.
    unsafe { asm!("dsb sy", options(nostack, preserves_flags)) };
}

/// Smallest data cache line of the core in bytes (`CTR_EL0.DminLine`).
pub(super) fn cache_line() -> u64 {
    4 << (mrs!(CTR_EL0) >> 16 & 0xF)
}

/// Cleans and invalidates the range to the point of coherency. A guest starts with its caches off: it
/// must read the data that was loaded, and no stale lines may remain for when it turns them on.
pub(super) fn clean(start: u64, bytes: u64, line: u64) {
    let mut at = start & !(line - 1);
    // At most 64 times: lines of 64 bytes in a page.
    while at < start + bytes {
        // SAFETY: cleaning and invalidating a line does not change what memory reads as.
        unsafe { asm!("dc civac, {}", in(reg) at, options(nostack, preserves_flags)) };
        at += line;
    }
}

/// Makes pages that were copied, and entries of tables, visible to the next accesses of the guest on this core.
pub fn publish_pages() {
    // SAFETY: barriers and an instruction cache invalidation.
    unsafe {
        asm!(
            "dsb sy",
            "ic iallu",
            "dsb nsh",
            "isb",
            options(nostack, preserves_flags)
        )
    };
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
