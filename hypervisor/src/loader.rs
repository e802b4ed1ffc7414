// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading of a guest, in the chunks that `core/load` computes.

use crate::hardware::{clear_memory, copy_payload, finish_loading, write_memory_byte};
use spumone_config::PhysAddr;
use spumone_config::packed::MemoryRange;
use spumone_core::load::{CLEARED, Chunk};

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

/// Clears memory that guests share. Before any guest runs.
pub fn clear(memory: MemoryRange) {
    for page in 0..memory.size / CLEARED {
        let to = PhysAddr(memory.start.0 + CLEARED * page);
        // SAFETY: it is memory of the machine that only guests use (`spm`), and none runs; a multiple of the page size.
        unsafe { clear_memory(to) };
    }
    finish_loading();
}
