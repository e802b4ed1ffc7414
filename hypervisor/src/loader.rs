// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading of a guest, in the chunks that `core/load` computes.

use crate::cpu;
use crate::guest::Guest;
use crate::hardware::{clear_memory, copy_payload, finish_loading, write_memory_byte};
use spumone_config::PhysAddr;
use spumone_config::packed::MemoryRange;
use spumone_core::load::{CLEARED, Chunk, Claim, Work};

/// The largest number of chunks between two iterations of the core's loop.
const MAX_CHUNKS: usize = 64;

/// What [`load_until_interrupted`] leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing: the guest is loaded, or it is not being loaded now.
    Nothing,
    /// There may be more to do.
    More,
}

/// Loads chunks of the guest, at most [`MAX_CHUNKS`], until an interrupt pends, which is looked for after each chunk: some hundred
/// instructions. No vCPU of the guest may run, unless nothing is left. Any core may call this at any time, together with others.
///
/// `random` returns the byte with this number of the guest's random seeds; `reset_spis` resets the SPIs from this one on.
pub fn load_until_interrupted(
    guest: &Guest,
    random: impl Fn(u32) -> u8,
    mut reset_spis: impl FnMut(u16),
) -> Left {
    let work = Work::new(&guest.config, guest.phases);
    for _ in 0..MAX_CHUNKS {
        match guest.loading.claim(work.phases()) {
            Claim::Done => return Left::Nothing,
            Claim::Wait => {}
            Claim::Chunk(number) => {
                if let Some(chunk) = work.chunk(number) {
                    carry_out(chunk, &random, &mut reset_spis);
                }
                guest.loading.finish();
            }
        }
        if cpu::interrupt_pending() {
            break;
        }
    }
    Left::More
}

/// Carries out a chunk. All cores see the result, and so does a guest with its caches off.
fn carry_out(chunk: Chunk, random: impl Fn(u32) -> u8, mut reset_spis: impl FnMut(u16)) {
    match chunk {
        // SAFETY: it is memory of the guest, and no vCPU of the guest runs; chunks are aligned to their size
        // (`core/load`).
        Chunk::Clear { to } => unsafe { clear_memory(to) },
        // SAFETY: as above; `spm` has checked that the source is in the bundle, and overlaps nothing else.
        Chunk::Copy { from, to, size } => unsafe { copy_payload(from, to, size) },
        // SAFETY: as above.
        Chunk::Random { to, number } => unsafe { write_memory_byte(to, random(number)) },
        Chunk::Spis { first } => reset_spis(first),
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
