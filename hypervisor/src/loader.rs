// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading of a guest, in the chunks that `core/load` computes.

use crate::cpu;
use crate::guest::Guest;
use crate::hardware::{clear_memory, finish_loading, wait_until_visible, write_memory_byte};
use crate::hash::PayloadEngine;
use spumone_config::packed::MemoryRange;
use spumone_config::{PcpuId, PhysAddr};
use spumone_core::load::{CLEARED, Chunk, Claim, Hashing, Work};

/// The largest number of chunks, or steps of one, between two iterations of the core's loop.
pub const MAX_STEPS: usize = 64;

/// What [`load_until_interrupted`] leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing: the guest is loaded, or it is not being loaded now.
    Nothing,
    /// There may be more to do.
    More,
}

/// Loads chunks of the guest, at most [`MAX_STEPS`], until an interrupt pends, which is looked for after each chunk, and after each step of
/// one that is hashed: some hundred instructions. No vCPU of the guest may run, unless nothing is left. Any core may call this at any
/// time, together with others.
///
/// `held`: the chunk of this guest that this core, `core`, has begun to hash. `random` returns the byte with this number of the
/// guest's random seeds; `reset_spis` resets the SPIs from this one on.
pub fn load_until_interrupted(
    guest: &Guest,
    core: PcpuId,
    held: &mut Option<Hashing>,
    random: impl Fn(u32) -> u8,
    mut reset_spis: impl FnMut(u16),
) -> Left {
    // To find the guest has taken a while.
    if cpu::interrupt_pending() {
        return Left::More;
    }
    let work = Work::new(&guest.config, guest.phases);
    for _ in 0..MAX_STEPS {
        if let Some(hashing) = held {
            if hash_step(guest, hashing) {
                *held = None;
            }
        } else {
            match guest.loading.claim(core, work.phases()) {
                Claim::Done => return Left::Nothing,
                Claim::Wait => {}
                Claim::Chunk(number) => match work.chunk(number) {
                    Some(Chunk::Hash(subject)) => *held = Some(Hashing::new(number, subject)),
                    chunk => {
                        if let Some(chunk) = chunk {
                            carry_out(chunk, &random, &mut reset_spis);
                        }
                        guest.loading.finish();
                    }
                },
            }
        }
        if cpu::interrupt_pending() {
            break;
        }
    }
    Left::More
}

/// A step of a chunk that is hashed. Returns whether the chunk is done.
fn hash_step(guest: &Guest, hashing: &mut Hashing) -> bool {
    // SAFETY: the chunk is of this guest, of which no vCPU runs.
    let mut engine = unsafe { PayloadEngine::new() };
    let Some(is_right) = hashing.step(&mut engine) else {
        return false;
    };
    if !is_right {
        guest.loading.is_wrong(hashing.chunk());
    }
    wait_until_visible();
    guest.loading.finish();
    true
}

/// Carries out a chunk. All cores see the result, and so does a guest with its caches off.
fn carry_out(chunk: Chunk, random: impl Fn(u32) -> u8, mut reset_spis: impl FnMut(u16)) {
    match chunk {
        // SAFETY: it is memory of the guest, and no vCPU of the guest runs; chunks are aligned to their size
        // (`core/load`).
        Chunk::Clear { to } => unsafe { clear_memory(to) },
        // It takes several steps: `hash_step`.
        Chunk::Hash(_) => {}
        // SAFETY: as above.
        Chunk::Random { to, number } => unsafe { write_memory_byte(to, random(number)) },
        Chunk::Spis { first } => reset_spis(first),
    }
}

/// Clears memory that guests share, or read. Before any guest runs.
pub fn clear(memory: MemoryRange) {
    for page in 0..memory.size / CLEARED {
        let to = PhysAddr(memory.start.0 + CLEARED * page);
        // SAFETY: it is memory of the machine that only guests use, or pages of which the hypervisor uses nothing yet (`isolation::check`), and none
        // runs; a multiple of the page size.
        unsafe { clear_memory(to) };
    }
    finish_loading();
}
