// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests' stage 2 tables: how much room is kept for them, and what they hold.

use super::memory::ipa;
use super::{links, uses_link_window};
use crate::board::{Board, Links};
use crate::check::windows;
use crate::description::{Description, Guest};
use crate::packed::{
    LinkEnd, LinkKind, MAX_RANGES, Mapping, MemoryRange, PageRange, Policy, Stage2,
};
use crate::problem::Problem;
use crate::roles::Tables;
use crate::stage2::{
    self, Access, Attributes, MapError, PAGE_SIZE, Pages, ROOT_SIZE, Vmid, pages_needed,
};
use crate::types::{GuestAddr, GuestId, PhysAddr};
use crate::units::{self, BLOCK, GIB, MIB, align_down};

/// Most bytes of tables. All memory that a machine can have takes less if it is mapped in blocks of 2 MiB; a table of pages is needed for
/// each 2 MiB that are not.
const MOST: u64 = 4 * MIB;

/// Which tables a guest has beside those with which both its kernel and its programs may execute.
fn others(guest: &Guest, policy: Policy) -> Tables {
    Tables::needed(policy, guest.moves(policy), guest.vcpus.value.len())
}

/// The devices' registers, which a guest sees where they are.
pub(super) fn devices(guest: &Guest, board: &Board) -> impl Iterator<Item = Mapping> {
    let identity = |(start, size)| Mapping {
        ipa: GuestAddr(start),
        pa: PhysAddr(start),
        size,
    };
    windows(guest, board).into_iter().map(identity)
}

/// The largest size in bytes of the tables of all guests, wherever the guests are placed.
pub(super) fn room(description: &Description, board: &Board) -> u64 {
    let guests = description.guests.iter();
    let sizes = guests.map(|guest| of_guest(description, guest, board));
    sizes.fold(ROOT_SIZE, u64::saturating_add)
}

/// The largest size in bytes of the tables of a guest.
fn of_guest(description: &Description, guest: &Guest, board: &Board) -> u64 {
    let others = others(guest, description.scheduler.policy.value);
    let sets = 1 + u64::from(others.of_kernel) + u64::from(others.of_programs);
    let pages = most_pages(description, guest, board).next_multiple_of(ROOT_SIZE / PAGE_SIZE);
    sets.saturating_mul(pages).saturating_mul(PAGE_SIZE)
}

/// Refuses tables that would be larger than all else of an image.
pub(super) fn check(description: &Description, board: &Board) -> Option<Problem> {
    let room = room(description, board);
    let size = |guest: &&Guest| of_guest(description, guest, board);
    let largest = description.guests.iter().max_by_key(size)?;
    if room <= MOST {
        return None;
    }
    let message = format!(
        "the translation tables of the guests take {}, and may take {}: guest \"{}\" is mapped in pages of 4 KiB",
        units::size(room),
        units::size(MOST),
        largest.name.value
    );
    let place = largest.pa.or(largest.ipa).unwrap_or(largest.memory);
    let pa = largest.pa.map_or(0, |pa| pa.value);
    let seen = ipa(largest, pa, board);
    let wanted = align_down(pa, BLOCK) | seen & (BLOCK - 1);
    let help = match largest.pa {
        Some(_) => format!(
            "write a `pa` that differs from its guest address {seen:#x} by a multiple of 2 MiB, such as {wanted:#x}, or remove it"
        ),
        None => "write an `ipa` that is a multiple of 2 MiB, or give it less memory".to_owned(),
    };
    let problem = Problem::new("translation-tables", message);
    Some(problem.at(place.span, "not in blocks of 2 MiB").help(help))
}

/// The largest number of pages of one set of tables of a guest.
fn most_pages(description: &Description, guest: &Guest, board: &Board) -> u64 {
    let devices: Vec<_> = devices(guest, board).collect();
    // Places that are chosen are at multiples of a block.
    let pa = guest.pa.map_or(0, |pa| pa.value);
    let is_in_blocks = (ipa(guest, pa, board) ^ pa).is_multiple_of(BLOCK);
    // A table below each entry that a range touches, or where blocks can be used at the ends only.
    let touched = |entry_size: u64| guest.memory.value / entry_size + 2;
    let below_blocks = match is_in_blocks {
        true => 2,
        false => touched(BLOCK),
    };
    // The memory of links and the page with stolen time are mapped in pages, in one window.
    let of_links = match uses_link_window(description, guest) {
        true => links::memory(description) / BLOCK + 3,
        false => 0,
    };
    // At each end of a range that is mapped read-only, a block is mapped in pages.
    let of_protected = match guest.protect {
        Some(_) => 2 * MAX_RANGES as u64,
        None => 0,
    };
    pages_needed(devices.iter()) as u64 + touched(GIB) + below_blocks + of_links + of_protected
}

/// What of a guest is mapped, beside its devices.
#[derive(Clone, Copy)]
pub(super) struct Mapped<'a> {
    pub memory: Mapping,
    pub links: &'a [LinkEnd],
    /// What of the memory the guest cannot write, by rising address.
    pub read_only: &'a [PageRange],
    /// The local memory from which it runs, if it does.
    pub local: Option<MemoryRange>,
}

impl Mapped<'_> {
    /// The pieces of the memory, and whether the guest can write each.
    fn pieces(&self) -> Vec<(Mapping, Access)> {
        let Mapping { ipa, pa, size } = self.memory;
        let piece = |start: u64, end: u64, access| {
            let offset = start - ipa.0;
            let mapping = Mapping {
                ipa: GuestAddr(start),
                pa: PhysAddr(pa.0 + offset),
                size: end - start,
            };
            (mapping, access)
        };
        let mut pieces = Vec::new();
        let mut at = ipa.0;
        for range in self.read_only {
            let (start, end) = (range.start.0, range.start.0 + range.size);
            pieces.push(piece(at, start, Access::ReadWrite));
            pieces.push(piece(start, end, Access::ReadOnly));
            at = end;
        }
        pieces.push(piece(at, ipa.0 + size, Access::ReadWrite));
        pieces.retain(|(mapping, _)| mapping.size > 0);
        pieces
    }
}

/// Where a guest reads the stolen time of its vCPUs, if it does. `hypervisor`: the hypervisor's memory.
pub(super) fn stolen_time(
    guest: &Guest,
    board: &Board,
    hypervisor: MemoryRange,
    id: GuestId,
) -> Option<Mapping> {
    // A board without such addresses was refused.
    let window = board.links.filter(|_| guest.reads_stolen_time())?;
    Some(Mapping {
        ipa: GuestAddr(window.base + Links::STOLEN_TIME_OFFSET),
        pa: hypervisor.stolen_page(id),
        size: PAGE_SIZE,
    })
}

/// Makes the tables of all guests. Their first page is at `start`. `hypervisor`: the hypervisor's memory.
///
/// # Errors
///
/// What cannot be mapped.
pub(super) fn build(
    description: &Description,
    board: &Board,
    guests: &[Mapped<'_>],
    start: PhysAddr,
    hypervisor: MemoryRange,
) -> Result<(Vec<Stage2>, Pages), Box<Problem>> {
    let policy = description.scheduler.policy.value;
    let mut pages = Pages::new(start);
    let mut tables = Vec::new();
    for (index, (guest, mapped)) in description.guests.iter().zip(guests).enumerate() {
        let id = GuestId(u8::try_from(index).unwrap_or(u8::MAX));
        let others = others(guest, policy);
        let stolen_time = stolen_time(guest, board, hypervisor, id);
        let mut make = |ram| {
            let place = (mapped, stolen_time.as_ref());
            one(&mut pages, guest, board, place, ram, id).map_err(|error| unmapped(guest, &error))
        };
        tables.push(Stage2 {
            all: make(Attributes::RAM)?,
            of_kernel: match others.of_kernel {
                true => Some(make(Attributes::RAM_OF_KERNEL)?),
                false => None,
            },
            of_programs: match others.of_programs {
                true => Some(make(Attributes::RAM_OF_PROGRAMS)?),
                false => None,
            },
        });
    }
    Ok((tables, pages))
}

/// Makes one set of tables of a guest; returns the value of `VTTBR_EL2`.
fn one(
    pages: &mut Pages,
    guest: &Guest,
    board: &Board,
    (mapped, stolen_time): (&Mapped<'_>, Option<&Mapping>),
    ram: Attributes,
    id: GuestId,
) -> Result<u64, MapError> {
    let mut tables = stage2::Stage2::new(pages);
    match mapped.local {
        // The hypervisor writes the tables, which are first in local memory (`LocalAreas`).
        Some(local) => tables.map_by_tables(mapped.memory.ipa, mapped.memory.size, local.start)?,
        None => {
            for (memory, access) in mapped.pieces() {
                tables.map(&memory, Attributes { access, ..ram })?;
            }
        }
    }
    for device in devices(guest, board) {
        tables.map(&device, Attributes::DEVICE)?;
    }
    for link in mapped.links {
        let LinkKind::Memory { memory, writes } = &link.kind else {
            continue;
        };
        let attributes = match writes {
            true => Attributes::SHARED,
            false => Attributes::SHARED_READ_ONLY,
        };
        tables.map(memory, attributes)?;
    }
    if let Some(page) = stolen_time {
        tables.map(page, Attributes::STOLEN_TIME)?;
    }
    Ok(tables.vttbr(Vmid::of(id)))
}

fn unmapped(guest: &Guest, error: &MapError) -> Box<Problem> {
    let message = format!("guest \"{}\" cannot be mapped: {error}", guest.name.value);
    Box::new(Problem::new("stage-2", message).at(guest.memory.span, "memory and devices"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the tables of two guests with these keys and this memory, and the room that is kept for them.
    fn taken_of_room(
        policy: &str,
        keys: [&str; 2],
        memory: &[Mapping],
        read_only: &[PageRange],
    ) -> (u64, u64) {
        let head = format!(
            "[board]\nname = \"qemu-virt\"\ncores = 4\nmemory = \"8GiB\"\n[scheduler]\npolicy = \"{policy}\"\n"
        );
        let guest = |(index, keys): (usize, &str)| {
            format!(
                "[[guest]]\nname = \"g{index}\"\nkind = \"elf\"\nimage = \"i\"\nvcpus = [0, 1]\npriority = 1\n{keys}\n"
            )
        };
        let guests: Vec<_> = keys.into_iter().enumerate().map(guest).collect();
        let (description, problems) = Description::parse(&(head + &guests.concat()));
        assert_eq!(problems, []);
        let description = description.unwrap();
        let board = Board::parse(include_str!("../../../boards/qemu-virt.toml")).unwrap();
        // The worst alignment of a root.
        let start = PhysAddr(0x4040_1000);
        let mapped = |memory: &Mapping| Mapped {
            memory: *memory,
            links: &[],
            read_only,
            local: None,
        };
        let memory: Vec<_> = memory.iter().map(mapped).collect();
        let hypervisor = MemoryRange {
            start: PhysAddr(0x4000_0000),
            size: 4 * MIB,
        };
        let (guests, pages) = build(&description, &board, &memory, start, hypervisor).unwrap();
        assert_eq!(guests.len(), 2);
        let end = pages.base().0 + pages.to_bytes().len() as u64;
        (end - start.0, room(&description, &board))
    }

    #[test]
    fn the_room_suffices_wherever_guests_are_placed() {
        let memory = |ipa, pa, size| Mapping {
            ipa: GuestAddr(ipa),
            pa: PhysAddr(pa),
            size,
        };
        let small = memory(0x4000_0000, 0x4080_0000, 16 * MIB);
        for policy in ["none", "steal", "trap"] {
            // Across gigabytes, in blocks.
            let large = memory(0x4000_0000, 0x5020_0000, 3 * 1024 * MIB + 0x1000);
            let keys = ["memory = \"16MiB\"", "memory = \"3145732KiB\""];
            let (taken, room) = taken_of_room(policy, keys, &[small, large], &[]);
            assert!(taken <= room, "{policy}: {taken} of {room}");
            // In pages, since its addresses never meet in a block; and with devices in two places.
            let odd = memory(0x4000_1000, 0x5000_0000, 600 * MIB);
            let keys = [
                "memory = \"16MiB\"\nstolen-time = true\ndevices = [\"virtio0\", \"virtio8\", \"uart1\"]",
                "memory = \"600MiB\"\nipa = 0x40001000\npa = 0x50000000",
            ];
            let (taken, room) = taken_of_room(policy, keys, &[small, odd], &[]);
            assert!(taken > 300 * PAGE_SIZE);
            assert!(taken <= room, "{policy}: {taken} of {room}");
            // As many ranges that the guest cannot write as there may be, each in two blocks.
            let ranges: Vec<_> = (0..MAX_RANGES as u64)
                .map(|n| PageRange {
                    start: GuestAddr(0x4000_1000 + 6 * MIB * n),
                    size: 3 * MIB,
                })
                .collect();
            let large = memory(0x4000_0000, 0x5020_0000, 256 * MIB);
            let keys = ["memory = \"256MiB\"\nprotect = \"hash\""; 2];
            let (taken, room) = taken_of_room(policy, keys, &[large, large], &ranges);
            assert!(taken > 2 * MAX_RANGES as u64 * PAGE_SIZE);
            assert!(taken <= room, "{policy}: {taken} of {room}");
        }
    }
}
