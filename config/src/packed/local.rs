// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the machine's local memory from which a guest runs.
//!
//! Local memory is on the chip, and the firmware keeps devices from it. The guest's own memory, in main memory, is larger: pages are brought from
//! there when the guest uses them, and written back when others need their place.

use super::{Hash, MemoryRange};
use crate::types::PhysAddr;
use serde::{Deserialize, Serialize};

const PAGE: u64 = 4096;
/// Bytes of an entry of a translation table, and of what is known of a frame.
const WORD: u64 = 8;
/// Guest memory that one table of level 3 maps.
pub const TABLE_SPAN: u64 = 512 * PAGE;

/// The part of local memory from which a guest runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// The part, of whole pages.
    pub memory: MemoryRange,
    /// Offset in the bundle of the hashes of all pages of the guest's memory, as they are when it starts.
    pub list: u64,
    /// The hash of that list.
    pub list_hash: Hash,
}

/// What is where in the part. Each area consists of whole pages; the frames are last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalAreas {
    /// The tables of level 3 that map the guest's memory.
    pub tables: MemoryRange,
    /// The hash of each page of the guest's memory that is not in a frame.
    pub hashes: MemoryRange,
    /// Which page is in each frame, a word each.
    pub owners: MemoryRange,
    /// The frames: room for pages.
    pub frames: MemoryRange,
}

impl Local {
    /// Fewest frames from which a guest may run: an instruction needs its own page, two pages of data, and, in the worst case, the tables with
    /// which the guest translates each.
    pub const LEAST_FRAMES: u64 = 16;

    /// What is where, for a guest with so many bytes of memory. `None` if there is no room for [`Self::LEAST_FRAMES`].
    pub fn areas(&self, guest_memory: u64) -> Option<LocalAreas> {
        let room = Room::of(guest_memory);
        let frames = room.frames(self.memory.size)?;
        let mut at = self.memory.start.0;
        let mut area = |pages: u64| {
            let start = PhysAddr(at);
            at += pages * PAGE;
            MemoryRange {
                start,
                size: pages * PAGE,
            }
        };
        Some(LocalAreas {
            tables: area(room.tables),
            hashes: area(room.hashes),
            owners: area(pages_of(frames * WORD)),
            frames: area(frames),
        })
    }

    /// The least size in bytes of a part, for a guest with so many bytes of memory.
    pub const fn least(guest_memory: u64) -> u64 {
        let room = Room::of(guest_memory);
        (room.tables + room.hashes + pages_of(Self::LEAST_FRAMES * WORD) + Self::LEAST_FRAMES)
            * PAGE
    }
}

/// The pages for what is known of a guest's memory.
struct Room {
    tables: u64,
    hashes: u64,
}

impl Room {
    const fn of(guest_memory: u64) -> Self {
        Self {
            tables: guest_memory.div_ceil(TABLE_SPAN),
            hashes: pages_of(guest_memory / PAGE * Hash::SIZE as u64),
        }
    }

    /// How many frames there are in a part of `size` bytes.
    fn frames(&self, size: u64) -> Option<u64> {
        let left = (size / PAGE).checked_sub(self.tables + self.hashes)?;
        // A page has the owners of 512 frames.
        let owners = pages_of(left * WORD);
        let frames = left.checked_sub(owners)?;
        (frames >= Local::LEAST_FRAMES).then_some(frames)
    }
}

const fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE)
}

#[cfg(test)]
// Tests may unwrap.
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn local(size: u64) -> Local {
        Local {
            memory: MemoryRange {
                start: PhysAddr(0x4010_0000),
                size,
            },
            list: 0,
            list_hash: Hash::default(),
        }
    }

    #[test]
    fn areas_follow_each_other_and_fill_the_part() {
        for (size, memory, frames) in [(0x4_0000, 0x20_0000, 58), (0x10_0000, 0x40_0000, 245)] {
            let areas = local(size).areas(memory).unwrap();
            let LocalAreas {
                tables,
                hashes,
                owners,
                frames: pages,
            } = areas;
            assert_eq!(tables.start.0, 0x4010_0000);
            let all = [tables, hashes, owners, pages];
            for pair in all.windows(2) {
                assert_eq!(pair[0].start.0 + pair[0].size, pair[1].start.0);
            }
            assert_eq!(pages.start.0 + pages.size, 0x4010_0000 + size);
            assert_eq!(pages.size / PAGE, frames);
            assert_eq!(tables.size, memory / 512);
            assert_eq!(hashes.size, memory / PAGE * 32);
        }
    }

    #[test]
    fn the_least_part_has_the_least_frames() {
        for memory in [PAGE, 0x1_0000, 0x20_0000, 0x20_1000, 0x100_0000] {
            let least = Local::least(memory);
            let areas = local(least).areas(memory).unwrap();
            assert_eq!(areas.frames.size / PAGE, Local::LEAST_FRAMES);
            assert_eq!(local(least - PAGE).areas(memory), None);
        }
        assert_eq!(local(0).areas(PAGE), None);
    }
}
