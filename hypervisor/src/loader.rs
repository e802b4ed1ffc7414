// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading of a guest, in the chunks that `core/load` computes.

use crate::hardware::{clear_memory, copy_payload, write_memory_byte};
use spumone_core::load::Chunk;

/// Loads one chunk, in about three hundred instructions. No vCPU of the guest may run.
///
/// `random` returns the byte with this number of the guest's random seed.
pub fn carry_out(chunk: Chunk, random: impl FnOnce(u32) -> u8) {
    match chunk {
        // SAFETY: it is memory of the guest, and no vCPU of the guest runs; chunks are aligned to their size
        // (`core/load`).
        Chunk::Clear { to } => unsafe { clear_memory(to) },
        // SAFETY: as above; `spm` has checked that the source is in the bundle, and overlaps nothing else.
        Chunk::Copy { from, to, size } => unsafe { copy_payload(from, to, size) },
        // SAFETY: as above.
        Chunk::Random { to, number } => unsafe { write_memory_byte(to, random(number)) },
    }
}
