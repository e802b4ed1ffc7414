// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out what `core/load` says it takes to load a guest.

use crate::memory::bundle_start;
use crate::sysreg::mrs;
use core::arch::asm;
use spumone_config::PhysAddr;
use spumone_core::load::{CLEARED, Chunk};

/// Does one piece of work; about three hundred instructions. No vCPU of the guest may run.
///
/// `random` gives one of the guest's random bytes, by its number.
pub fn carry_out(chunk: Chunk, random: impl FnOnce(u32) -> u8) {
    match chunk {
        Chunk::Clear { to } => clear(to),
        Chunk::Copy { from, to, size } => copy(from, to, size),
        Chunk::Random { to, number } => write_byte(to, random(number)),
    }
}

/// Executes an instruction for eight steps from `$at` on, and gives where the ninth begins. Guests
/// have much memory to clear: twice as fast as a loop of single ones.
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
fn clear(start: PhysAddr) {
    /// `DCZID_EL0`: `DC ZVA` is prohibited; log2 of its block size in words.
    const PROHIBITED: u64 = 1 << 4;
    const SIZE: u64 = 0xF;
    let zva = mrs!(DCZID_EL0);
    let block = 4 << (zva & SIZE);
    // SAFETY: guest memory lies outside the hypervisor's (`spm` checks) and is mapped writable
    // and cacheable; no vCPU of the guest runs. Eight blocks of `DC ZVA`, a power of two, are no
    // larger than a chunk, and chunks are aligned to their size.
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

fn copy(offset: u64, to: PhysAddr, bytes: u64) {
    // SAFETY: the source lies in the bundle, read-only and checked by `spm`; the destination is
    // guest memory, as in `clear`. They do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(
            bundle_start().add(offset as usize),
            to.0 as *mut u8,
            bytes as usize,
        );
    }
    clean(to.0, bytes, cache_line());
}

fn write_byte(to: PhysAddr, value: u8) {
    // SAFETY: as in `clear`.
    unsafe { (to.0 as *mut u8).write_volatile(value) };
    clean(to.0, 1, cache_line());
}

/// Smallest data cache line of the core in bytes (`CTR_EL0.DminLine`).
fn cache_line() -> u64 {
    4 << (mrs!(CTR_EL0) >> 16 & 0xF)
}

/// Writes what was stored through to memory and drops it from the caches: a guest starts with its
/// caches off, and must find what it wrote itself when it turns them on.
fn clean(start: u64, bytes: u64, line: u64) {
    let mut at = start & !(line - 1);
    while at < start + bytes {
        // SAFETY: a line that is cleaned and dropped leaves memory as it reads.
        unsafe { asm!("dc civac, {}", in(reg) at, options(nostack, preserves_flags)) };
        at += line;
    }
}

/// Makes all that was loaded visible to the guest's data and instruction accesses.
pub fn finish() {
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
