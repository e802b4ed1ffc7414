// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of guests that run: they may read and write it at any time, with their caches on.

use core::arch::asm;
use core::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use spumone_config::PhysAddr;

/// Reads 16 bits; later reads come after this one.
///
/// # Safety
///
/// Aligned memory of a guest, or of EL2 that is never borrowed.
#[inline(always)]
pub unsafe fn load16(at: PhysAddr) -> u16 {
    // SAFETY: as the caller promises; an atomic may be accessed by others at any time.
    unsafe { AtomicU16::from_ptr(at.0 as *mut u16) }.load(Ordering::Acquire)
}

/// Reads 64 bits.
///
/// # Safety
///
/// As [`load16`].
#[inline(always)]
pub unsafe fn load64(at: PhysAddr) -> u64 {
    // SAFETY: as in `load16`.
    unsafe { AtomicU64::from_ptr(at.0 as *mut u64) }.load(Ordering::Relaxed)
}

/// Writes 16 bits; earlier writes come before this one.
///
/// # Safety
///
/// As [`load16`].
#[inline(always)]
pub unsafe fn store16(at: PhysAddr, value: u16) {
    // SAFETY: as in `load16`.
    unsafe { AtomicU16::from_ptr(at.0 as *mut u16) }.store(value, Ordering::Release);
}

/// Writes 32 bits.
///
/// # Safety
///
/// As [`load16`].
#[inline(always)]
pub unsafe fn store32(at: PhysAddr, value: u32) {
    // SAFETY: as in `load16`.
    unsafe { AtomicU32::from_ptr(at.0 as *mut u32) }.store(value, Ordering::Relaxed);
}

/// Copies bytes, in about one instruction for seven bytes, and 33 more at most. In assembly, since guests may write either place
/// meanwhile, which no reference and no `memcpy` of Rust allows. If they overlap, any bytes may be there afterwards.
///
/// # Safety
///
/// Both are memory as in [`load16`], of any alignment.
pub unsafe fn copy(from: PhysAddr, to: PhysAddr, bytes: u32) {
    // SAFETY: as the caller promises: only these bytes are read and written.
    unsafe {
        // At most 4 times: a stretch has 512 bytes.
        asm!(
            "subs {left}, {left}, #128",
            "b.lo 3f",
            "2:",
            "ldp {a}, {b}, [{from}], #128",
            "ldp {c}, {d}, [{from}, #-112]",
            "ldp {e}, {f}, [{from}, #-96]",
            "ldp {g}, {h}, [{from}, #-80]",
            "stp {a}, {b}, [{to}], #128",
            "stp {c}, {d}, [{to}, #-112]",
            "stp {e}, {f}, [{to}, #-96]",
            "stp {g}, {h}, [{to}, #-80]",
            "ldp {a}, {b}, [{from}, #-64]",
            "ldp {c}, {d}, [{from}, #-48]",
            "ldp {e}, {f}, [{from}, #-32]",
            "ldp {g}, {h}, [{from}, #-16]",
            "subs {left}, {left}, #128",
            "stp {a}, {b}, [{to}, #-64]",
            "stp {c}, {d}, [{to}, #-48]",
            "stp {e}, {f}, [{to}, #-32]",
            "stp {g}, {h}, [{to}, #-16]",
            "b.hs 2b",
            // The lowest seven bits of `left` say what is left.
            "3:",
            "tbz {left}, #6, 4f",
            "ldp {a}, {b}, [{from}], #64",
            "ldp {c}, {d}, [{from}, #-48]",
            "ldp {e}, {f}, [{from}, #-32]",
            "ldp {g}, {h}, [{from}, #-16]",
            "stp {a}, {b}, [{to}], #64",
            "stp {c}, {d}, [{to}, #-48]",
            "stp {e}, {f}, [{to}, #-32]",
            "stp {g}, {h}, [{to}, #-16]",
            "4:",
            "tbz {left}, #5, 5f",
            "ldp {a}, {b}, [{from}], #32",
            "ldp {c}, {d}, [{from}, #-16]",
            "stp {a}, {b}, [{to}], #32",
            "stp {c}, {d}, [{to}, #-16]",
            "5:",
            "tst {left}, #31",
            "b.eq 10f",
            "tbz {left}, #4, 6f",
            "ldp {a}, {b}, [{from}], #16",
            "stp {a}, {b}, [{to}], #16",
            "6:",
            "tbz {left}, #3, 7f",
            "ldr {a}, [{from}], #8",
            "str {a}, [{to}], #8",
            "7:",
            "tbz {left}, #2, 8f",
            "ldr {a:w}, [{from}], #4",
            "str {a:w}, [{to}], #4",
            "8:",
            "tbz {left}, #1, 9f",
            "ldrh {a:w}, [{from}], #2",
            "strh {a:w}, [{to}], #2",
            "9:",
            "tbz {left}, #0, 10f",
            "ldrb {a:w}, [{from}]",
            "strb {a:w}, [{to}]",
            "10:",
            from = inout(reg) from.0 => _,
            to = inout(reg) to.0 => _,
            left = inout(reg) u64::from(bytes) => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            e = out(reg) _,
            f = out(reg) _,
            g = out(reg) _,
            h = out(reg) _,
            options(nostack)
        );
    }
}

/// Reads bytes, as [`copy`].
///
/// # Safety
///
/// Memory as in [`load16`], of any alignment.
pub unsafe fn read(from: PhysAddr, into: &mut [u8]) {
    // SAFETY: as the caller promises, and the slice is of EL2, whose addresses are physical ones.
    unsafe { copy(from, PhysAddr(into.as_mut_ptr() as u64), into.len() as u32) }
}

/// Writes bytes, as [`copy`].
///
/// # Safety
///
/// Memory as in [`load16`], of any alignment.
pub unsafe fn write(to: PhysAddr, bytes: &[u8]) {
    // SAFETY: as in `read`.
    unsafe { copy(PhysAddr(bytes.as_ptr() as u64), to, bytes.len() as u32) }
}
