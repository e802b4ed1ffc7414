// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which chunks of a guest have been claimed by a core, how many chunks are done, and whether one was not what it should be.

use crate::psci::Generation;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spumone_config::PcpuId;
use spumone_config::types::MAX_PCPUS;

/// The chunks of a loading, in three phases. Chunks of one phase may be carried out at the same time; a chunk of the next one needs all
/// of them to be done. So two chunks of a phase must not write the same byte: images and seeds do not overlap (`spm`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phases {
    /// The number of the first chunk after each phase.
    pub ends: [u32; 3],
}

impl Phases {
    /// So many chunks, which do not depend on each other.
    pub const fn one(total: u32) -> Self {
        Self { ends: [total; 3] }
    }

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
    /// long as a chunk, or until that core gives it back.
    Wait,
    /// All chunks are done, or the guest is not being loaded.
    Done,
}

/// The claims of a guest, which cores share.
///
/// A core that has claimed a chunk carries it out as long as it has nothing better to do. The core of the guest's first vCPU keeps it
/// also while it runs vCPUs of higher bands, since the guest needs that core in any case; another core gives it back before
/// it enters a vCPU, unless it checks late memory. So no core waits for one that does something else.
#[derive(Debug)]
pub struct Claims {
    /// The number of the next chunk, below that of the guest's last life, so that the claim of a core that read it in an earlier
    /// loading fails. Acquire and release: with the number of a life come the `done` of this loading and what the core that began it has
    /// seen, such as that no core copies frames to the guest.
    next: AtomicU64,
    /// The chunks that are done. Release and acquire: what they have written comes before what the next phase writes, and before
    /// the guest runs.
    done: AtomicU32,
    /// The first chunk whose hash was not the one that the description has; [`NO_CHUNK`]: none. Relaxed: `done` passes it on.
    wrong: AtomicU32,
    /// How many chunks were given back and not claimed again, modulo 2^32: only a hint whether to look for them.
    given_back: AtomicU32,
    /// The chunk that each core has given back; [`NO_CHUNK`]: none. A core takes its own one back before it claims another, so one
    /// place is enough. Release and acquire: what the core has written comes before what the next one writes.
    places: [AtomicU32; MAX_PCPUS],
}

/// The number of no chunk.
const NO_CHUNK: u32 = u32::MAX;

impl Claims {
    constructor! {
        /// Nothing is to be loaded.
        pub fn new() -> Self {
            Self {
                next: AtomicU64::new(u64::MAX),
                done: AtomicU32::new(0),
                wrong: AtomicU32::new(NO_CHUNK),
                given_back: AtomicU32::new(0),
                places: atomics!(AtomicU32::new(NO_CHUNK)),
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
        self.wrong.store(NO_CHUNK, Ordering::Relaxed);
        self.next.store(pack(life, 0), Ordering::Release);
    }

    /// Claims the next chunk for core `core`, which has no other one of this guest.
    pub fn claim(&self, core: PcpuId, phases: Phases) -> Claim {
        if let Some(number) = self.claim_given_back(core) {
            return Claim::Chunk(number);
        }
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

    /// Claims a chunk that was given back, first of all one by this core: its place must be empty when it has a chunk. Such a chunk is
    /// one of the present loading, which does not end before it is done.
    fn claim_given_back(&self, core: PcpuId) -> Option<u32> {
        let own = self.places.get(core.index())?;
        if let Some(number) = self.take(own) {
            return Some(number);
        }
        // Relaxed: a core that looks too early looks again.
        if self.given_back.load(Ordering::Relaxed) == 0 {
            return None;
        }
        // At most 8 times: cores.
        self.places.iter().find_map(|place| self.take(place))
    }

    fn take(&self, place: &AtomicU32) -> Option<u32> {
        if place.load(Ordering::Relaxed) == NO_CHUNK {
            return None;
        }
        let number = place.swap(NO_CHUNK, Ordering::Acquire);
        if number == NO_CHUNK {
            return None;
        }
        self.given_back.fetch_sub(1, Ordering::Relaxed);
        Some(number)
    }

    /// Core `core` does not carry out the chunk that it has claimed, and another core begins it again.
    pub fn give_back(&self, core: PcpuId, number: u32) {
        if let Some(place) = self.places.get(core.index()) {
            place.store(number, Ordering::Release);
            self.given_back.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A chunk that this core has claimed is done, and what it has written is visible to all. Returns how many are done.
    pub fn finish(&self) -> u32 {
        self.done.fetch_add(1, Ordering::Release).wrapping_add(1)
    }

    /// Which loading was begun last, and whether all its chunks are done, of which there are `total`; `None`: none was begun.
    pub fn last(&self, total: u32) -> Option<(Generation, bool)> {
        let (life, _) = unpack(self.next.load(Ordering::Acquire));
        let are_done = self.done.load(Ordering::Acquire) >= total;
        (life != NONE).then_some((life, are_done))
    }

    /// The number of the next chunk, if all those before it are done. `None`: a core carries one out or has given one back, or no loading was
    /// begun.
    pub fn unclaimed(&self) -> Option<u32> {
        let (life, number) = unpack(self.next.load(Ordering::Acquire));
        // A chunk that is claimed after the load above is done before its core finishes it, so more may be done than were claimed.
        let are_done = self.done.load(Ordering::Acquire) == number;
        (life != NONE && are_done).then_some(number)
    }

    /// A chunk that this core has claimed does not have its hash. Before [`finish`](Self::finish).
    pub fn is_wrong(&self, number: u32) {
        self.wrong.fetch_min(number, Ordering::Relaxed);
    }

    /// The first chunk that did not have its hash, when all are done.
    pub fn wrong(&self) -> Option<u32> {
        let number = self.wrong.load(Ordering::Relaxed);
        (number != NO_CHUNK).then_some(number)
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
