// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loading a guest: memory is cleared, images are copied, random seeds are written, its SPIs are reset.
//!
//! That takes long, and EL2 is never preempted, so the work is divided into chunks, which are numbered ([`Work`]). A core
//! claims the next chunk ([`Claims`]), carries it out, looks for interrupts, and claims another one. The core of the guest's first
//! vCPU does so in the vCPU's turn; cores that idle help. A restart is the same as the first start: nothing of the guest's
//! memory is kept.

mod claims;
mod help;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;

pub use claims::{Claim, Claims, Phases};
pub use help::guests_to_help;

use spumone_config::packed::{Guest, Mapping, SeedSlot, Segment};
use spumone_config::{GuestAddr, PhysAddr};

/// The largest number of bytes copied at once: a power of two that divides a page, so that a chunk that ends at a
/// multiple of it is in one range of memory.
pub const COPIED: u64 = 1024;
/// Bytes cleared at once: a page. More than [`COPIED`], because clearing is faster.
pub const CLEARED: u64 = 4096;
/// SPIs of the virtual GIC that are reset at once.
pub const RESET_SPIS: u16 = 2;
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
    /// Reset [`RESET_SPIS`] SPIs of the guest.
    Spis {
        /// The first of them, counted from INTID 32.
        first: u16,
    },
}

/// The work of loading a guest: the chunks that clear its memory, then those that copy images, then random bytes and SPIs.
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
        // At most 16 times: segments.
        let copied: u64 = guest.segments.iter().map(pieces).sum();
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
        let mut left = u64::from(number);
        if number < cleared {
            let range = find(&guest.memory, &mut left, pages)?;
            return Some(Chunk::Clear {
                to: PhysAddr(range.pa.0 + CLEARED * left),
            });
        }
        left -= u64::from(cleared);
        if number < copied {
            let segment = find(&guest.segments, &mut left, pieces)?;
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

/// The chunks of a segment, which end at multiples of [`COPIED`] and at its end.
fn pieces(segment: &Segment) -> u64 {
    match segment.size {
        0 => 0,
        size => (segment.destination.0 % COPIED + size).div_ceil(COPIED),
    }
}

fn random_bytes(seed: &SeedSlot) -> u64 {
    u64::from(seed.size.min(MAX_SEED))
}

/// Piece `number` of a segment.
fn copy(segment: &Segment, number: u64, memory: &[Mapping]) -> Option<Chunk> {
    let skew = segment.destination.0 % COPIED;
    let start = (COPIED * number).saturating_sub(skew);
    let end = segment.size.min(COPIED * (number + 1) - skew);
    Some(Chunk::Copy {
        from: segment.offset + start,
        to: physical(memory, GuestAddr(segment.destination.0 + start))?,
        size: end - start,
    })
}

/// The machine address of a byte of guest memory.
fn physical(memory: &[Mapping], ipa: GuestAddr) -> Option<PhysAddr> {
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
    use proptest::prelude::*;
    use spumone_config::Band;
    use spumone_config::packed::{OnFault, OnStop, SeedSlot, Stage2, VirtualGic};
    use std::collections::BTreeMap;
    use std::vec::Vec;

    const PAGE: u64 = 4096;
    /// An offset larger than all memory of the tests.
    const FAR: u64 = 1 << 20;

    fn guest(memory: &[Mapping], segments: &[Segment], seeds: &[SeedSlot]) -> Guest {
        Guest {
            moves: false,
            wake_early_us: 0,
            on_fault: OnFault::Stop,
            on_stop: OnStop::Stop,
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
        let work = Work::new(guest, Phases::of(guest));
        let (mut drawn, mut reset) = (None, 0);
        let total = work.phases().total();
        for chunk in (0..total).filter_map(|number| work.chunk(number)) {
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
                    assert!(drawn < Some(number), "no random byte is used twice");
                    drawn = Some(number);
                    memory.insert(to.0, Byte::Random);
                }
                Chunk::Spis { first } => {
                    assert_eq!(first, reset, "each SPI is reset once");
                    reset += RESET_SPIS;
                }
            }
        }
        assert_eq!(reset, guest.gic.spis);
        assert_eq!(work.chunk(total), None, "no chunk comes after the end");
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
