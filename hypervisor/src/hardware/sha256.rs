// SPDX-License-Identifier: MIT OR Apache-2.0
//! SHA-256 with the core's own instructions (FEAT_SHA256).
//!
//! They work on vector registers, which at EL2 have the values of the vCPU that is loaded. So those that are used here are stored
//! first, and loaded again at the end. Guests cannot see that.

use super::cache::{cache_line, clean};
use super::{bundle_start, registers::isb};
use crate::sysreg::{mrs, msr_own};
use core::arch::asm;
use spumone_config::PhysAddr;
use spumone_core::sha256::{BLOCK, CONSTANTS, State};

/// Whether the core has the instructions (`ID_AA64ISAR0_EL1.SHA2`).
#[inline(always)]
pub fn has_sha256() -> bool {
    mrs!(ID_AA64ISAR0_EL1) >> 12 & 0xF != 0
}

/// Lets EL2 use vector registers before the core is set up for guests: the firmware may have left the trap on.
pub fn enable_vectors() {
    /// The bits of `CPTR_EL2` that are RES1, with `TZ`: SVE traps. `TFP`, which would trap vector registers, is clear.
    const RES1_AND_TZ: u64 = 0x33FF;
    // SAFETY: no guest runs yet. `cpu::set_up` writes the register again.
    unsafe { msr_own!(CPTR_EL2, RES1_AND_TZ) };
    isb();
}

/// Hashes blocks in memory of EL2.
pub fn compress(state: &mut State, blocks: &[[u8; BLOCK]]) {
    // SAFETY: as many blocks are there, and nothing is copied.
    unsafe { compress_at(state, blocks.as_ptr().cast(), None, blocks.len() as u64) }
}

/// Hashes blocks of the bundle, from offset `from` on, and copies them to guest memory at `to`, if it says so.
///
/// # Safety
///
/// The source is in the bundle. The destination is memory of a guest of which no vCPU runs.
#[inline(always)]
pub unsafe fn copy_and_hash(state: &mut State, from: u64, to: Option<PhysAddr>, blocks: u64) {
    // SAFETY: as the caller promises.
    unsafe { compress_at(state, bundle_start().add(from as usize), to, blocks) };
    if let Some(to) = to {
        clean(to.0, blocks * BLOCK as u64, cache_line());
    }
}

/// Copies and hashes blocks of a guest's memory. The guest may have its caches off.
///
/// # Safety
///
/// Both places are memory of a guest of which no vCPU runs. A device may write there meanwhile.
#[inline(always)]
pub unsafe fn copy_and_hash_memory(state: &mut State, from: PhysAddr, to: PhysAddr, blocks: u64) {
    let (bytes, line) = (blocks * BLOCK as u64, cache_line());
    clean(from.0, bytes, line);
    // SAFETY: as the caller promises; it is read in assembly only, so it may change.
    unsafe { compress_at(state, from.0 as *const u8, Some(to), blocks) };
    clean(to.0, bytes, line);
}

/// Hashes blocks of guest memory, which may change meanwhile.
///
/// # Safety
///
/// They are memory of a guest.
#[inline(always)]
pub unsafe fn hash_memory(state: &mut State, from: PhysAddr, blocks: u64) {
    // SAFETY: as the caller promises; it is read in assembly only, so it may change.
    unsafe { compress_at(state, from.0 as *const u8, None, blocks) }
}

/// Four rounds. `$m0`: the register with their words of the message schedule.
macro_rules! rounds {
    ($k:literal, $m0:literal) => {
        concat!(
            "add v21.4s, v",
            $m0,
            ".4s, v",
            $k,
            ".4s\n",
            "mov v20.16b, v0.16b\n",
            "sha256h q0, q1, v21.4s\n",
            "sha256h2 q1, q20, v21.4s\n",
        )
    };
}

/// The same, and computes the words for the rounds sixteen later.
macro_rules! rounds_and_schedule {
    ($k:literal, $m0:literal, $m1:literal, $m2:literal, $m3:literal) => {
        concat!(
            rounds!($k, $m0),
            "sha256su0 v",
            $m0,
            ".4s, v",
            $m1,
            ".4s\n",
            "sha256su1 v",
            $m0,
            ".4s, v",
            $m2,
            ".4s, v",
            $m3,
            ".4s\n",
        )
    };
}

/// Sixteen rounds that also compute the words for the next sixteen.
macro_rules! sixteen_rounds {
    () => {
        concat!(
            "ld1 {{v16.4s, v17.4s, v18.4s, v19.4s}}, [{k}], #64\n",
            rounds_and_schedule!("16", "4", "5", "6", "7"),
            rounds_and_schedule!("17", "5", "6", "7", "4"),
            rounds_and_schedule!("18", "6", "7", "4", "5"),
            rounds_and_schedule!("19", "7", "4", "5", "6"),
        )
    };
}

/// Hashes blocks, and copies them if `to` says so: each is read once, and what was read is both hashed and copied.
///
/// # Safety
///
/// As many blocks can be read from `from` on, and written at `to`; nothing else uses those bytes of `to`.
unsafe fn compress_at(state: &mut State, from: *const u8, to: Option<PhysAddr>, blocks: u64) {
    if blocks == 0 {
        return;
    }
    /// The registers that are used: V0 to V7 and V16 to V21.
    #[repr(C, align(16))]
    struct Saved([u128; 14]);
    let mut saved = Saved([0; 14]);
    // SAFETY: as the caller promises. The vector registers that are changed are stored in `saved` and loaded again; none of
    // them has a value of EL2's own (target aarch64-unknown-none-softfloat). CPTR_EL2 does not trap them, and the caller
    // has seen that the core has the instructions.
    unsafe {
        // At most 2 times: `BLOCKS_A_STEP`. At start, when all of a part is hashed, no guest runs.
        asm!(
            ".arch_extension fp",
            ".arch_extension simd",
            ".arch_extension sha2",
            "stp q0, q1, [{saved}]",
            "stp q2, q3, [{saved}, #32]",
            "stp q4, q5, [{saved}, #64]",
            "stp q6, q7, [{saved}, #96]",
            "stp q16, q17, [{saved}, #128]",
            "stp q18, q19, [{saved}, #160]",
            "stp q20, q21, [{saved}, #192]",
            "ldp q0, q1, [{state}]",
            "2:",
            "ld1 {{v4.16b, v5.16b, v6.16b, v7.16b}}, [{from}], #64",
            "cbz {to}, 3f",
            "st1 {{v4.16b, v5.16b, v6.16b, v7.16b}}, [{to}], #64",
            "3:",
            "rev32 v4.16b, v4.16b",
            "rev32 v5.16b, v5.16b",
            "rev32 v6.16b, v6.16b",
            "rev32 v7.16b, v7.16b",
            "mov v2.16b, v0.16b",
            "mov v3.16b, v1.16b",
            sixteen_rounds!(),
            sixteen_rounds!(),
            sixteen_rounds!(),
            "ld1 {{v16.4s, v17.4s, v18.4s, v19.4s}}, [{k}]",
            "sub {k}, {k}, #192",
            rounds!("16", "4"),
            rounds!("17", "5"),
            rounds!("18", "6"),
            rounds!("19", "7"),
            "add v0.4s, v0.4s, v2.4s",
            "add v1.4s, v1.4s, v3.4s",
            "subs {blocks}, {blocks}, #1",
            "b.ne 2b",
            "stp q0, q1, [{state}]",
            "ldp q0, q1, [{saved}]",
            "ldp q2, q3, [{saved}, #32]",
            "ldp q4, q5, [{saved}, #64]",
            "ldp q6, q7, [{saved}, #96]",
            "ldp q16, q17, [{saved}, #128]",
            "ldp q18, q19, [{saved}, #160]",
            "ldp q20, q21, [{saved}, #192]",
            saved = in(reg) saved.0.as_mut_ptr(),
            state = in(reg) state.as_mut_ptr(),
            from = inout(reg) from => _,
            to = inout(reg) to.map_or(0, |to| to.0) => _,
            blocks = inout(reg) blocks => _,
            k = inout(reg) CONSTANTS.as_ptr() => _,
            options(nostack)
        );
    }
}
