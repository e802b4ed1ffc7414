// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading a guest: memory is cleared, images are copied and verified, random seeds are written, its SPIs are reset.
//!
//! That takes long, and EL2 is never preempted, so the work is divided into chunks, which are numbered ([`Work`]). A core
//! claims the next chunk ([`Claims`]), carries it out, looks for interrupts, and claims another one. A chunk that is hashed
//! takes several steps ([`Hashing`]), and the core looks for interrupts after each. The core of the guest's first
//! vCPU does so in the vCPU's turn; cores that idle help. A restart is the same as the first start: nothing of the guest's
//! memory is kept, and all is verified again.
//!
//! A payload is verified as it is copied, page by page: the description has the hash of a list, and the list the hash of each
//! page. So several cores can verify one payload. If a hash differs, the rest is loaded nevertheless, so that a loading has one end,
//! and then the guest does not run.

mod claims;
mod hashing;
mod help;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;

pub use claims::{Claim, Claims, Phases};
pub use hashing::{BLOCKS_A_STEP, Engine, Expected, Hashing, Subject};
pub use help::guests_to_help;

use spumone_config::packed::{Content, Guest, Hash, Local, LocalAreas, Mapping, SeedSlot, Segment};
use spumone_config::{GuestAddr, PhysAddr};

/// Bytes cleared at once: a page.
pub const CLEARED: u64 = 4096;
/// SPIs of the virtual GIC that are reset at once.
pub const RESET_SPIS: u16 = 2;
/// The largest number of random bytes of one seed.
pub const MAX_SEED: u32 = 64;

/// One chunk of work, on machine addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Hash the list of a payload's hashes, or a leaf of it, which is also copied.
    Hash(Subject),
    /// Clear [`CLEARED`] bytes, aligned to their number.
    Clear {
        /// The first byte.
        to: PhysAddr,
    },
    /// Write a random byte.
    Random {
        /// Where the byte is written.
        to: PhysAddr,
        /// Which of the guest's random bytes, counted from 0.
        number: u32,
    },
    /// Reset [`RESET_SPIS`] SPIs of the guest.
    Spis {
        /// The first of them, counted from INTID 32.
        first: u16,
    },
}

/// What a chunk that does not have its hash is about, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Which payload.
    pub content: Content,
    /// The first byte of the page's contents; `None`: the list of hashes itself.
    pub page: Option<GuestAddr>,
}

/// The work of loading a guest: the chunks that hash the lists and clear its memory, then those that copy and hash images, then random
/// bytes and SPIs.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    guest: &'a Guest,
    phases: Phases,
}

impl Phases {
    /// The phases of the work that loads this guest. They are computed once.
    pub fn of(guest: &Guest) -> Self {
        // At most 16 times: ranges of memory.
        let cleared: u64 = guest.memory.iter().map(pages).sum();
        // The lists come first, so that one core hashes a long list while others clear memory.
        let lists = guest.segments.len() as u64;
        let local = local(guest).map_or(0, |(_, areas)| {
            1 + areas.tables.size / CLEARED + areas.owners.size / CLEARED
        });
        let cleared = lists + cleared + local;
        // At most 16 times: segments.
        let copied: u64 = guest.segments.iter().map(Segment::leaves).sum();
        // At most 4 times: seeds.
        let drawn: u64 = guest.seeds.iter().map(random_bytes).sum();
        let reset = u64::from(guest.gic.spis / RESET_SPIS);
        // Memory of machines is far below the 16 TiB at which this would saturate.
        let number = |chunks| u32::try_from(chunks).unwrap_or(u32::MAX);
        Self {
            ends: [cleared, cleared + copied, cleared + copied + drawn + reset].map(number),
        }
    }
}

impl<'a> Work<'a> {
    /// What is to be done to load this guest, whose [`Phases::of`] are `phases`.
    pub const fn new(guest: &'a Guest, phases: Phases) -> Self {
        Self { guest, phases }
    }

    /// How many chunks there are, and which need others to be done.
    pub const fn phases(&self) -> Phases {
        self.phases
    }

    /// Chunk `number`. `None` for work outside the guest's memory, which a checked description does not have; and behind the last
    /// chunk.
    pub fn chunk(&self, number: u32) -> Option<Chunk> {
        let guest = self.guest;
        let [cleared, copied, _] = self.phases.ends;
        if let Some(segment) = guest.segments.get(number as usize) {
            let size = segment.leaves() * Hash::SIZE as u64;
            let expected = Expected::Known(segment.list_hash);
            return Some(Chunk::Hash(Subject {
                from: segment.list,
                to: None,
                size,
                expected,
            }));
        }
        let mut left = u64::from(number);
        if number < cleared {
            left -= guest.segments.len() as u64;
            return match find(&guest.memory, &mut left, pages) {
                Some(range) => Some(Chunk::Clear {
                    to: PhysAddr(range.pa.0 + CLEARED * left),
                }),
                None => local_chunk(guest, left),
            };
        }
        left -= u64::from(cleared);
        if number < copied {
            let segment = find(&guest.segments, &mut left, Segment::leaves)?;
            return copy(segment, left, &guest.memory);
        }
        left -= u64::from(copied - cleared);
        let drawn = left as u32;
        if let Some(seed) = find(&guest.seeds, &mut left, random_bytes) {
            let to = physical(&guest.memory, GuestAddr(seed.destination.0 + left))?;
            return Some(Chunk::Random { to, number: drawn });
        }
        let first = u16::try_from(left).ok()?.checked_mul(RESET_SPIS)?;
        (first < guest.gic.spis).then_some(Chunk::Spis { first })
    }

    /// What a chunk that is hashed is about.
    pub fn wrong(&self, number: u32) -> Option<Wrong> {
        let segments = &self.guest.segments;
        if let Some(segment) = segments.get(number as usize) {
            return Some(Wrong {
                content: segment.content,
                page: None,
            });
        }
        let [cleared, _, _] = self.phases.ends;
        if number < cleared {
            // Of the memory that is cleared nothing is hashed.
            return local(self.guest).map(|_| Wrong {
                content: Content::Image,
                page: None,
            });
        }
        let mut left = u64::from(number.checked_sub(cleared)?);
        let segment = find(segments, &mut left, Segment::leaves)?;
        Some(Wrong {
            content: segment.content,
            page: Some(GuestAddr(segment.destination.0 + segment.leaf(left).start)),
        })
    }
}

/// The item in which chunk `left` is, counted over all items; `left` becomes the number of the chunk in the item.
fn find<'a, T>(items: &'a [T], left: &mut u64, chunks: impl Fn(&T) -> u64) -> Option<&'a T> {
    // At most 16 times: ranges of memory, or segments.
    items.iter().find(|item| {
        let count = chunks(item);
        let is_here = *left < count;
        if !is_here {
            *left -= count;
        }
        is_here
    })
}

fn pages(range: &Mapping) -> u64 {
    range.size / CLEARED
}

fn random_bytes(seed: &SeedSlot) -> u64 {
    u64::from(seed.size.min(MAX_SEED))
}

/// A leaf of a segment.
fn copy(segment: &Segment, number: u64, memory: &[Mapping]) -> Option<Chunk> {
    let leaf = segment.leaf(number);
    // A leaf goes into one page, so into one range of memory.
    let to = physical(memory, GuestAddr(segment.destination.0 + leaf.start))?;
    let expected = Expected::Listed(segment.list + number * Hash::SIZE as u64);
    Some(Chunk::Hash(Subject {
        from: segment.offset + leaf.start,
        to: Some(to),
        size: leaf.size,
        expected,
    }))
}

/// The local memory of a guest that runs from there, and what is in it.
fn local(guest: &Guest) -> Option<(&Local, LocalAreas)> {
    let local = guest.protect.as_ref()?.local.as_ref()?;
    let areas = local.areas(guest.memory.first()?.size)?;
    Some((local, areas))
}

/// Of a guest that runs from local memory: clears its tables, which then map nothing, and the owners of its frames, which then are free; and, as
/// the last one, copies the hashes of its pages there.
fn local_chunk(guest: &Guest, number: u64) -> Option<Chunk> {
    let (local, areas) = local(guest)?;
    let mut left = number;
    if let Some(area) = find(&[areas.tables, areas.owners], &mut left, |it| {
        it.size / CLEARED
    }) {
        return Some(Chunk::Clear {
            to: PhysAddr(area.start.0 + CLEARED * left),
        });
    }
    Some(Chunk::Hash(Subject {
        from: local.list,
        to: Some(areas.hashes.start),
        size: guest.memory.first()?.size / CLEARED * Hash::SIZE as u64,
        expected: Expected::Known(local.list_hash),
    }))
}

/// The machine address of a byte of guest memory.
pub(crate) fn physical(memory: &[Mapping], ipa: GuestAddr) -> Option<PhysAddr> {
    // At most 16 times: ranges of memory.
    memory.iter().find_map(|range| {
        let offset = ipa.0.checked_sub(range.ipa.0)?;
        (offset < range.size).then_some(PhysAddr(range.pa.0 + offset))
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::sha256::{self, State};
    use proptest::prelude::*;
    use spumone_config::Band;
    use spumone_config::packed::{OnFault, OnStop, SeedSlot, Stage2, VirtualGic, WakeEarly};
    use std::collections::BTreeMap;
    use std::vec::Vec;

    const PAGE: u64 = 4096;
    /// An offset larger than all memory of the tests.
    const FAR: u64 = 1 << 20;

    fn guest(memory: &[Mapping], segments: &[Segment], seeds: &[SeedSlot]) -> Guest {
        Guest {
            moves: false,
            wake_early: WakeEarly::Off,
            on_fault: OnFault::Stop,
            on_stop: OnStop::Stop,
            protect: None,
            watchdog_s: 0,
            sets_power: false,
            stolen_time: None,
            band: Band::LOWEST,
            stage2: Stage2 {
                all: 0,
                of_kernel: None,
                of_programs: None,
            },
            name: "test".try_into().unwrap(),
            cores: 1,
            vcpus: heapless_vec(&[]),
            memory: heapless_vec(memory),
            devices: heapless_vec(&[]),
            interrupts: heapless_vec(&[]),
            quiesce: heapless_vec(&[]),
            segments: heapless_vec(segments),
            entry: GuestAddr(0),
            boot_argument: 0,
            seeds: heapless_vec(seeds),
            console: None,
            gic: VirtualGic {
                distributor: GuestAddr(0),
                redistributor: GuestAddr(0),
                spis: 32,
            },
            links: heapless::Vec::new(),
            preempt_count: None,
        }
    }

    fn heapless_vec<T: Clone, const N: usize>(items: &[T]) -> heapless::Vec<T, N> {
        heapless::Vec::from_slice(items).unwrap()
    }

    /// The origin of a byte of machine memory.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Byte {
        Zero,
        Bundle(u64),
        Random,
    }

    /// A bundle in which the byte at `n` depends on `n`; with the lists of all segments behind it, each at its `list`.
    struct Bundle<'a> {
        guest: &'a Guest,
        has_instructions: bool,
        memory: BTreeMap<u64, Byte>,
        most_blocks: u64,
    }

    fn byte(at: u64) -> u8 {
        (at ^ at >> 8) as u8
    }

    fn leaf_hash(segment: &Segment, number: u64) -> Hash {
        let leaf = segment.leaf(number);
        let from = segment.offset + leaf.start;
        let bytes: Vec<u8> = (from..from + leaf.size).map(byte).collect();
        sha256::hash(&bytes, sha256::compress)
    }

    fn list_of(segment: &Segment) -> Vec<u8> {
        (0..segment.leaves())
            .flat_map(|number| leaf_hash(segment, number).0)
            .collect()
    }

    impl Bundle<'_> {
        fn byte(&self, at: u64) -> u8 {
            for segment in &self.guest.segments {
                let end = segment.list + segment.leaves() * Hash::SIZE as u64;
                if (segment.list..end).contains(&at) {
                    return list_of(segment)[(at - segment.list) as usize];
                }
            }
            byte(at)
        }
    }

    impl Engine for Bundle<'_> {
        fn has_instructions(&self) -> bool {
            self.has_instructions
        }

        fn copy_and_hash(
            &mut self,
            state: &mut State,
            from: u64,
            to: Option<PhysAddr>,
            blocks: u64,
        ) {
            assert!(self.has_instructions);
            self.most_blocks = self.most_blocks.max(blocks);
            for number in 0..blocks {
                let offset = sha256::BLOCK as u64 * number;
                let mut block = [0; sha256::BLOCK];
                let to = to.map(|to| PhysAddr(to.0 + offset));
                self.fetch(&mut block, from + offset, to, sha256::BLOCK as u64);
                sha256::compress(state, &[block]);
            }
        }

        fn hash(&mut self, state: &mut State, block: &[u8; sha256::BLOCK]) {
            assert!(self.has_instructions);
            sha256::compress(state, &[*block]);
        }

        fn fetch(
            &mut self,
            block: &mut [u8; sha256::BLOCK],
            from: u64,
            to: Option<PhysAddr>,
            bytes: u64,
        ) {
            for n in 0..bytes {
                block[n as usize] = self.byte(from + n);
                if let Some(to) = to {
                    self.memory.insert(to.0 + n, Byte::Bundle(from + n));
                }
            }
        }

        fn hash_at(&self, offset: u64) -> Hash {
            Hash(std::array::from_fn(|n| self.byte(offset + n as u64)))
        }
    }

    /// Carries all chunks out, and checks their sizes and addresses.
    fn load(guest: &Guest) -> BTreeMap<u64, Byte> {
        load_with(guest, true)
    }

    fn load_with(guest: &Guest, has_instructions: bool) -> BTreeMap<u64, Byte> {
        let mut bundle = Bundle {
            guest,
            has_instructions,
            memory: BTreeMap::new(),
            most_blocks: 0,
        };
        let work = Work::new(guest, Phases::of(guest));
        let (mut drawn, mut reset) = (None, 0);
        let total = work.phases().total();
        let chunks = (0..total).filter_map(|number| Some((number, work.chunk(number)?)));
        for (number, chunk) in chunks {
            match chunk {
                Chunk::Clear { to } => {
                    assert!(to.is_aligned(CLEARED));
                    let page = to.0..to.0 + CLEARED;
                    bundle.memory.extend(page.map(|at| (at, Byte::Zero)));
                }
                Chunk::Hash(subject) => {
                    let mut hashing = Hashing::new(number, subject);
                    let is_right = (0..10_000).find_map(|_| hashing.step(&mut bundle));
                    assert_eq!(is_right, Some(true), "{:?}", work.wrong(number));
                }
                Chunk::Random { to, number } => {
                    assert!(drawn < Some(number), "no random byte is used twice");
                    drawn = Some(number);
                    bundle.memory.insert(to.0, Byte::Random);
                }
                Chunk::Spis { first } => {
                    assert_eq!(first, reset, "each SPI is reset once");
                    reset += RESET_SPIS;
                }
            }
        }
        assert_eq!(reset, guest.gic.spis);
        assert_eq!(work.chunk(total), None, "no chunk comes after the end");
        assert!(bundle.most_blocks <= BLOCKS_A_STEP);
        bundle.memory
    }

    /// Two ranges: consecutive for the guest, apart and in another order on the machine.
    fn two_ranges() -> [Mapping; 2] {
        [
            Mapping {
                ipa: GuestAddr(0),
                pa: PhysAddr(16 * PAGE),
                size: 2 * PAGE,
            },
            Mapping {
                ipa: GuestAddr(2 * PAGE),
                pa: PhysAddr(4 * PAGE),
                size: PAGE,
            },
        ]
    }

    /// The same, byte by byte.
    fn model(guest: &Guest) -> BTreeMap<u64, Byte> {
        let mut memory = BTreeMap::new();
        for range in &guest.memory {
            memory.extend((0..range.size).map(|n| (range.pa.0 + n, Byte::Zero)));
        }
        let mut write = |ipa: u64, byte: Byte| {
            if let Some(to) = physical(&guest.memory, GuestAddr(ipa)) {
                memory.insert(to.0, byte);
            }
        };
        for segment in &guest.segments {
            for n in 0..segment.size {
                write(segment.destination.0 + n, Byte::Bundle(segment.offset + n));
            }
        }
        for seed in &guest.seeds {
            for n in 0..u64::from(seed.size.min(MAX_SEED)) {
                write(seed.destination.0 + n, Byte::Random);
            }
        }
        memory
    }

    #[test]
    fn a_guest_without_memory_is_loaded_at_once() {
        let seed = SeedSlot {
            destination: GuestAddr(0),
            size: 8,
        };
        assert!(load(&guest(&[], &[], &[seed])).is_empty());
    }

    #[test]
    fn a_seed_of_no_bytes_writes_none() {
        let seed = SeedSlot {
            destination: GuestAddr(0),
            size: 0,
        };
        let memory = load(&guest(&two_ranges(), &[], &[seed]));
        assert!(memory.values().all(|&byte| byte == Byte::Zero));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn loading_in_chunks_equals_loading_by_bytes(
            segments in proptest::collection::vec((0..FAR / 2, 0..3 * PAGE, 0..4 * PAGE), 0..3),
            seeds in proptest::collection::vec((0..4 * PAGE, 0..100_u32), 0..4),
        ) {
            let segments: Vec<_> = segments
                .into_iter()
                .map(|(offset, size, destination)| Segment {
                    offset,
                    size,
                    destination: GuestAddr(destination),
                    content: Content::Image,
                    list: 0,
                    list_hash: Hash::default(),
                })
                .zip(1..)
                .map(|(mut segment, number)| {
                    segment.list = number * FAR;
                    segment.list_hash = sha256::hash(&list_of(&segment), sha256::compress);
                    segment
                })
                .collect();
            let seeds: Vec<_> = seeds
                .into_iter()
                .map(|(destination, size)| SeedSlot {
                    destination: GuestAddr(destination),
                    size,
                })
                .collect();
            let guest = guest(&two_ranges(), &segments, &seeds);
            prop_assert_eq!(load(&guest), model(&guest));
            prop_assert_eq!(load_with(&guest, false), model(&guest));
        }
    }
}
