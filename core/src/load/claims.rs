// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which chunks of a guest have been claimed by a core, and how many chunks are done.

use crate::psci::Generation;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The chunks of a loading, in three phases. Chunks of one phase may be carried out at the same time; a chunk of the next one needs all
/// of them to be done. So two chunks of a phase must not write the same byte: images and seeds do not overlap (`spm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// The number of the first chunk after each phase.
    pub ends: [u32; 3],
}

impl Phases {
    /// The number of chunks.
    pub const fn total(self) -> u32 {
        self.ends[2]
    }

    /// How many chunks must be done before chunk `number` may begin.
    fn needed_by(self, number: u32) -> u32 {
        let [first, second, _] = self.ends;
        match number {
            n if n < first => 0,
            n if n < second => first,
            _ => second,
        }
    }
}

/// What a core finds when it asks for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Claim {
    /// The chunk with this number is to be carried out by this core, which then calls [`Claims::finish`].
    Chunk(u32),
    /// Another core carries out the chunks that the next one needs, or has claimed one at the same time: ask again. It takes as
    /// long as a chunk.
    Wait,
    /// All chunks are done, or the guest is not being loaded.
    Done,
}

/// The claims of a guest, which cores share. A core that has claimed a chunk carries it out at once, at EL2, where nothing preempts
/// it; so no core waits for another one for longer than a chunk takes.
#[derive(Debug)]
pub struct Claims {
    /// The number of the next chunk, below that of the guest's last life, so that the claim of a core that read it in an earlier
    /// loading fails. Acquire and release: with the number of a life come the `done` of this loading and what the core that began it has
    /// seen, such as that no core copies frames to the guest.
    next: AtomicU64,
    /// The chunks that are done. Release and acquire: what they have written comes before what the next phase writes, and before
    /// the guest runs.
    done: AtomicU32,
}

impl Claims {
    constructor! {
        /// Nothing is to be loaded.
        pub fn new() -> Self {
            Self {
                next: AtomicU64::new(u64::MAX),
                done: AtomicU32::new(0),
            }
        }
    }

    /// Whether the loading after life `life` has begun; 0: the first one.
    pub fn has_begun(&self, life: Generation) -> bool {
        let (of, _) = unpack(self.next.load(Ordering::Relaxed));
        of == life
    }

    /// Begins the loading after life `life`. No vCPU of the guest runs, and its former loading is done.
    pub fn begin(&self, life: Generation) {
        self.done.store(0, Ordering::Relaxed);
        self.next.store(pack(life, 0), Ordering::Release);
    }

    /// Claims the next chunk.
    pub fn claim(&self, phases: Phases) -> Claim {
        let next = self.next.load(Ordering::Acquire);
        let (life, number) = unpack(next);
        let done = self.done.load(Ordering::Acquire);
        if number >= phases.total() {
            return match done < phases.total() && life != NONE {
                true => Claim::Wait,
                false => Claim::Done,
            };
        }
        if done < phases.needed_by(number) {
            return Claim::Wait;
        }
        let claimed = pack(life, number + 1);
        // Acquire and release are done above: a claim passes nothing on.
        match self
            .next
            .compare_exchange(next, claimed, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => Claim::Chunk(number),
            Err(_) => Claim::Wait,
        }
    }

    /// A chunk that this core has claimed is done, and what it has written is visible to all.
    pub fn finish(&self) {
        self.done.fetch_add(1, Ordering::Release);
    }
}

/// No life: nothing was loaded yet.
const NONE: Generation = Generation(u32::MAX);

const fn pack(life: Generation, number: u32) -> u64 {
    (life.0 as u64) << 32 | number as u64
}

const fn unpack(word: u64) -> (Generation, u32) {
    (Generation((word >> 32) as u32), word as u32)
}
