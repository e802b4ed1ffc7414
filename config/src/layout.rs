// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides every address: which memory of the machine each guest gets, where it sees it, and what
//! is loaded where. What does not fit is refused here.
//!
//! ```text
//! machine memory   | free | hypervisor, bundle | guest 0 | guest 1 | ...
//!                  base   base + image offset  2 MiB boundaries
//! ```

mod el2;
mod links;
mod load;
mod memory;
mod pack;
mod protect;
mod spis;
mod tables;

use crate::board::Board;
use crate::check;
use crate::description::Description;
use crate::image::GuestFiles;
use crate::packed::{
    DESCRIPTION_ROOM, Hash, LEAF, LinkEnd, Mapping, MemoryRange, VirtualGic, VirtualUart,
};
use crate::problem::Problem;
use crate::types::{GuestAddr, IntId, LINK_INTERRUPTS, PhysAddr};
use crate::units::{KIB, PAGE, align_up};

pub use pack::{DeviceTree, Packed, Payload, TablePages, pack};
pub use protect::Protected;

/// Bytes kept for header, system and seal at the start of the bundle.
pub const SYSTEM_ROOM: u64 = DESCRIPTION_ROOM;
/// Bytes kept for a generated device tree.
pub(crate) const DEVICE_TREE_ROOM: u64 = 64 * KIB;
/// Bytes by which a user's own device tree may grow: command line, initrd and seeds.
const DEVICE_TREE_GROWTH: u64 = 8 * KIB;

/// A whole system, every address decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The hypervisor's share of the memory.
    pub hypervisor: MemoryRange,
    /// Where the bundle begins.
    pub bundle: PhysAddr,
    /// All memory.
    pub machine: MemoryRange,
    /// The memory of all links, if there are any.
    pub link_memory: Option<MemoryRange>,
    /// The guests, in the description's order.
    pub guests: Vec<GuestPlan>,
}

/// One guest, every address decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestPlan {
    /// Its memory.
    pub memory: Mapping,
    /// What is copied into it.
    pub loads: Vec<Load>,
    /// Where it starts.
    pub entry: GuestAddr,
    /// Its initial ramdisk: address and size.
    pub initrd: Option<(GuestAddr, u64)>,
    /// Where its device tree goes.
    pub device_tree: GuestAddr,
    /// Bytes kept for its device tree.
    pub device_tree_room: u64,
    /// Its console.
    pub console: Option<VirtualUart>,
    /// Its interrupt controller.
    pub gic: VirtualGic,
    /// Its ends of links.
    pub links: Vec<LinkEnd>,
    /// See [`crate::packed::Guest::preempt_count`].
    pub preempt_count: Option<u32>,
    /// What of its memory must not change while it runs, if the description protects it.
    pub protected: Option<Protected>,
}

impl GuestPlan {
    /// Whether the guest runs from local memory.
    pub fn is_local(&self) -> bool {
        self.protected.as_ref().is_some_and(|it| it.local.is_some())
    }
}

/// Something copied into a guest's memory. The device tree is not among [`GuestPlan::loads`]: its
/// size is known only when it has been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The file it is taken from.
    pub source: Source,
    /// Where it stands in that file.
    pub file_offset: u64,
    /// How many bytes.
    pub size: u64,
    /// Where it goes.
    pub destination: GuestAddr,
}

/// A file of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Its image, unpacked.
    Image,
    /// Its initial ramdisk.
    Initrd,
    /// Its device tree, generated or completed.
    DeviceTree,
}

/// Checks a description and decides the addresses of its system.
///
/// `files` holds what is known of each guest's files, in order; `None` where they could not be
/// read, which the caller has reported: such a guest's memory is still checked.
/// `hypervisor_size` counts the bytes from the hypervisor's first to its bundle.
///
/// # Errors
///
/// All problems found, in the order of the description. A plan where a guest had no files is
/// never returned: the list of problems may then be empty.
pub fn plan(
    description: &Description,
    board: &Board,
    files: &[Option<GuestFiles>],
    hypervisor_size: u64,
) -> Result<Plan, Vec<Problem>> {
    let mut problems = check::check(description, board);
    let gics: Vec<_> = description
        .guests
        .iter()
        .map(|guest| gic(description, guest, board))
        .collect();
    let locals = check::local_parts(description, board);
    let lists = description.guests.iter().zip(&locals);
    let lists = lists.filter(|(_, local)| local.is_some());
    let lists = lists.map(|(guest, _)| pack::local_list(guest.memory.value));
    let bundle = bundle_room(files)
        .saturating_add(lists.fold(0, u64::saturating_add))
        .saturating_add(tables::room(description, board))
        .saturating_add(el2::ROOM);
    let places = memory::place(description, board, hypervisor_size, bundle, &mut problems);
    if problems.is_empty() {
        problems.extend(tables::check(description, board));
    }
    // Only what was checked has a bounded number of links, of a bounded size.
    let mut links = match problems.is_empty() {
        true => links::ends(description, board, places.link_memory),
        false => vec![Vec::new(); description.guests.len()],
    };
    let mut guests = Vec::new();
    for (index, guest) in description.guests.iter().enumerate() {
        let Some(memory) = places.guests.get(index).copied().flatten() else {
            continue;
        };
        let Some(files) = files.get(index).and_then(Option::as_ref) else {
            continue;
        };
        let Some(loaded) = load::load(guest, files, memory, &mut problems) else {
            continue;
        };
        let image = &files.image;
        let local = locals.get(index).copied().flatten();
        let Some(protected) = protect::of(guest, image, &loaded.loads, local, &mut problems) else {
            continue;
        };
        guests.push(GuestPlan {
            protected,
            memory,
            loads: loaded.loads,
            entry: loaded.entry,
            initrd: loaded.initrd,
            device_tree: loaded.device_tree,
            device_tree_room: loaded.device_tree_room,
            console: guest.console.uart.then(|| VirtualUart {
                base: GuestAddr(board.uart.base),
                interrupt: intid(board.uart.interrupt),
            }),
            gic: gics[index],
            links: std::mem::take(&mut links[index]),
            preempt_count: files.preempt_count,
        });
    }
    if problems.is_empty() && guests.len() == description.guests.len() {
        return Ok(Plan {
            hypervisor: places.hypervisor,
            bundle: PhysAddr(board.memory.base + board.memory.image_offset + hypervisor_size),
            machine: places.machine,
            link_memory: places.link_memory,
            guests,
        });
    }
    problems.sort_by_key(|problem| problem.labels.first().map(|label| label.span));
    Err(problems)
}

/// Bytes kept for the device tree of a guest with these files.
fn device_tree_room(files: &GuestFiles) -> u64 {
    match files.dtb_size {
        Some(size) => align_up(size, PAGE).map_or(size, |size| size + DEVICE_TREE_GROWTH),
        None => DEVICE_TREE_ROOM,
    }
}

/// Most bytes that the bundle of guests with these files can take, without their stage 2 tables.
fn bundle_room(files: &[Option<GuestFiles>]) -> u64 {
    // With the hashes of its leaves, which begin at the next page of guest memory, wherever the payload begins; and the space
    // up to the next list.
    let listed = |size: u64| (size / LEAF + 4).saturating_mul(Hash::SIZE as u64);
    let paged = |size: u64| {
        let payload = align_up(size, PAGE).unwrap_or(u64::MAX);
        payload.saturating_add(listed(size))
    };
    let mut room = SYSTEM_ROOM;
    for files in files.iter().flatten() {
        let image = match &files.image {
            crate::image::Image::Flat { size, .. } => paged(*size),
            crate::image::Image::Elf { segments, .. } => {
                segments.iter().fold(0, |sum: u64, segment| {
                    sum.saturating_add(paged(segment.file_size))
                })
            }
        };
        room = room
            .saturating_add(image)
            .saturating_add(paged(files.initrd_size.unwrap_or(0)))
            .saturating_add(paged(device_tree_room(files)));
    }
    // The lists end at a page.
    room.saturating_add(PAGE)
}

/// The interrupt controller of a guest: where the board has its own, with as many SPIs as the
/// guest uses, since each costs the hypervisor work.
fn gic(description: &Description, guest: &crate::description::Guest, board: &Board) -> VirtualGic {
    let devices = guest
        .devices
        .iter()
        .filter_map(|name| board.device(&name.value));
    let of_links = board.links.filter(|_| has_links(description, guest));
    let highest = devices
        .flat_map(|device| device.interrupts.iter().copied())
        .chain([board.uart.interrupt])
        .chain(of_links.map(|it| it.first_interrupt + LINK_INTERRUPTS - 1))
        .max()
        .unwrap_or(0);
    let spis = (highest + 1)
        .saturating_sub(u64::from(IntId::FIRST_SPI.0))
        .next_multiple_of(32);
    VirtualGic {
        distributor: GuestAddr(board.gic.distributor),
        redistributor: GuestAddr(board.gic.redistributor),
        // The board file's check keeps this below 256.
        spis: u16::try_from(spis).unwrap_or(u16::MAX),
    }
}

/// Whether a guest is at an end of a link.
fn has_links(description: &Description, guest: &crate::description::Guest) -> bool {
    let mut names = description.links.iter().flat_map(|it| &it.between.value);
    names.any(|name| name.value == guest.name.value)
}

/// Whether a guest sees something at the addresses of links.
fn uses_link_window(description: &Description, guest: &crate::description::Guest) -> bool {
    guest.reads_stolen_time() || has_links(description, guest)
}

/// An INTID of the board file, whose check keeps it within range.
fn intid(number: u64) -> IntId {
    IntId(u16::try_from(number).unwrap_or(u16::MAX))
}
