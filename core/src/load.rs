// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading a guest: memory is cleared, images are copied, random seeds are written.
//!
//! That takes long, and EL2 is never preempted, so the work is divided into chunks. The hypervisor carries out one
//! chunk, looks for interrupts, and asks for the next one. A restart is the same as the first start: nothing of the
//! guest's memory is kept.

use spumone_config::packed::{Guest, Mapping, Segment};
use spumone_config::{GuestAddr, PhysAddr};

/// The largest number of bytes copied at once: a power of two that divides a page, so that a chunk that ends at a
/// multiple of it is in one range of memory.
pub const COPIED: u64 = 512;
/// Bytes cleared at once: a page. More than [`COPIED`], because clearing is faster.
pub const CLEARED: u64 = 4096;
/// The largest number of random bytes of one seed.
pub const MAX_SEED: u32 = 64;

/// One chunk of work, on machine addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    /// Clear [`CLEARED`] bytes, aligned to their number.
    Clear {
        /// The first byte.
        to: PhysAddr,
    },
    /// Copy a part of the bundle.
    Copy {
        /// Offset of the first byte in the bundle.
        from: u64,
        /// Where the first byte is copied to.
        to: PhysAddr,
        /// Number of bytes, at most [`COPIED`].
        size: u64,
    },
    /// Write a random byte.
    Random {
        /// Where the byte is written.
        to: PhysAddr,
        /// Which of the guest's random bytes, counted from 0.
        number: u32,
    },
}

/// The progress of loading a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    step: Step,
    /// The present range, segment or seed.
    index: usize,
    /// Bytes of it that are done.
    done: u64,
    /// Random bytes written.
    drawn: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Clear,
    Copy,
    Seed,
}

impl Progress {
    /// Nothing is done yet.
    pub const fn start() -> Self {
        Self {
            step: Step::Clear,
            index: 0,
            done: 0,
            drawn: 0,
        }
    }

    /// The next chunk; `None` when the guest is loaded. Work outside the guest's memory, which a checked description
    /// does not have, is skipped.
    pub fn next(&mut self, guest: &Guest) -> Option<Chunk> {
        if self.step == Step::Clear {
            if let Some(range) = guest.memory.get(self.index) {
                let to = PhysAddr(range.pa.0 + self.done);
                self.proceed(CLEARED, range.size);
                return Some(Chunk::Clear { to });
            }
            self.begin(Step::Copy);
        }
        if self.step == Step::Copy {
            // Empty or misplaced segments need no work, so this skips them. There are few.
            while let Some(segment) = guest.segments.get(self.index) {
                let chunk = self.copy(segment, &guest.memory);
                if chunk.is_some() {
                    return chunk;
                }
            }
            self.begin(Step::Seed);
        }
        while let Some(seed) = guest.seeds.get(self.index) {
            let at = GuestAddr(seed.destination.0 + self.done);
            let is_inside = self.done < u64::from(seed.size);
            self.proceed(1, u64::from(seed.size.min(MAX_SEED)));
            if let (true, Some(to)) = (is_inside, physical(&guest.memory, at)) {
                let number = self.drawn;
                self.drawn += 1;
                return Some(Chunk::Random { to, number });
            }
        }
        None
    }

    fn copy(&mut self, segment: &Segment, memory: &[Mapping]) -> Option<Chunk> {
        let destination = GuestAddr(segment.destination.0 + self.done);
        let size = (segment.size - self.done).min(COPIED - destination.0 % COPIED);
        let from = segment.offset + self.done;
        match physical(memory, destination) {
            Some(to) if size > 0 => {
                self.proceed(size, segment.size);
                Some(Chunk::Copy { from, to, size })
            }
            _ => {
                self.proceed(segment.size, segment.size);
                None
            }
        }
    }

    fn proceed(&mut self, bytes: u64, total: u64) {
        self.done += bytes;
        if self.done >= total {
            self.index += 1;
            self.done = 0;
        }
    }

    fn begin(&mut self, step: Step) {
        self.step = step;
        self.index = 0;
        self.done = 0;
    }
}

/// The machine address of a byte of guest memory.
fn physical(memory: &[Mapping], ipa: GuestAddr) -> Option<PhysAddr> {
    memory.iter().find_map(|range| {
        let offset = ipa.0.checked_sub(range.ipa.0)?;
        (offset < range.size).then_some(PhysAddr(range.pa.0 + offset))
    })
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use spumone_config::Band;
    use spumone_config::packed::{SeedSlot, Stage2, VirtualGic};
    use std::collections::BTreeMap;
    use std::vec::Vec;

    const PAGE: u64 = 4096;
    /// An offset larger than all memory of the tests.
    const FAR: u64 = 1 << 20;

    fn guest(memory: &[Mapping], segments: &[Segment], seeds: &[SeedSlot]) -> Guest {
        Guest {
            moves: false,
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

    /// Carries all chunks out, and checks their sizes and addresses.
    fn load(guest: &Guest) -> BTreeMap<u64, Byte> {
        let mut memory = BTreeMap::new();
        let mut progress = Progress::start();
        let mut drawn = 0;
        while let Some(chunk) = progress.next(guest) {
            match chunk {
                Chunk::Clear { to } => {
                    assert!(to.is_aligned(CLEARED));
                    memory.extend((to.0..to.0 + CLEARED).map(|at| (at, Byte::Zero)));
                }
                Chunk::Copy { from, to, size } => {
                    assert!((1..=COPIED).contains(&size));
                    memory.extend((0..size).map(|n| (to.0 + n, Byte::Bundle(from + n))));
                }
                Chunk::Random { to, number } => {
                    assert_eq!(number, drawn, "no random byte is used twice");
                    drawn += 1;
                    memory.insert(to.0, Byte::Random);
                }
            }
        }
        assert_eq!(progress.next(guest), None, "no chunk comes after the end");
        memory
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
            // A segment is skipped from its first misplaced byte on.
            for n in 0..segment.size {
                if physical(&guest.memory, GuestAddr(segment.destination.0 + n)).is_none() {
                    break;
                }
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
            segments in proptest::collection::vec((0..FAR, 0..3 * PAGE, 0..4 * PAGE), 0..3),
            seeds in proptest::collection::vec((0..4 * PAGE, 0..100_u32), 0..4),
        ) {
            let segments: Vec<_> = segments
                .into_iter()
                .map(|(offset, size, destination)| Segment {
                    offset,
                    size,
                    destination: GuestAddr(destination),
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
        }
    }
}
