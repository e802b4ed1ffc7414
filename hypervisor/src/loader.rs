// SPDX-License-Identifier: MIT OR Apache-2.0
//! Carries out what `core/load` says it takes to load a guest.

use crate::hardware::{clear_memory, copy_payload, write_memory_byte};
use spumone_core::load::Chunk;

/// Does one piece of work; about three hundred instructions. No vCPU of the guest may run.
///
/// `random` gives one of the guest's random bytes, by its number.
pub fn carry_out(chunk: Chunk, random: impl FnOnce(u32) -> u8) {
    match chunk {
        // SAFETY: memory of the guest, of which no vCPU runs; chunks are aligned to their size (`core/load`).
        Chunk::Clear { to } => unsafe { clear_memory(to) },
        // SAFETY: as above; `spm` has checked that the source lies in the bundle, and overlaps nothing else.
        Chunk::Copy { from, to, size } => unsafe { copy_payload(from, to, size) },
        // SAFETY: as above.
        Chunk::Random { to, number } => unsafe { write_memory_byte(to, random(number)) },
    }
}
