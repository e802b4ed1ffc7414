// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the memory of a packed system is apart: that of the hypervisor, of each guest, and of links.
//!
//! `spm build` places it so. The hypervisor looks again before it writes to any of it, because this is what isolation rests on: an image
//! with a fault of the tool, or of another release, is refused at start. The tables of stage 2, which the tool makes from the same ranges, are
//! not walked.

use crate::packed::{Guest, LinkEnd, LinkKind, Mapping, MemoryRange, System};
use crate::types::{GuestId, PhysAddr};
use core::fmt;

/// Size of the pages of stage 2, of which all ranges consist.
const PAGE: u64 = 0x1000;

/// What a range is to its guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Its memory.
    Memory,
    /// Registers of a device.
    Device,
    /// The memory of its link with this number.
    Link(usize),
    /// The page with the stolen time of its vCPUs.
    StolenTime,
    /// The local memory from which it runs.
    Local,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Device => f.write_str("a device"),
            Self::Link(number) => write!(f, "the memory of link {number}"),
            Self::StolenTime => f.write_str("the page with its stolen time"),
            Self::Local => f.write_str("local memory"),
        }
    }
}

/// What is wrong with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<'a> {
    /// It is empty, not of whole pages, or ends beyond the last address.
    NoPages,
    /// It is not in the machine's memory.
    Outside(MemoryRange),
    /// Of a device: it is in the machine's memory.
    Inside(MemoryRange),
    /// It overlaps the hypervisor's memory.
    Hypervisor(MemoryRange),
    /// It overlaps this range of a guest with this name.
    Guest(&'a str, Use, MemoryRange),
    /// Of a link: the guest at the other end does not have the same memory.
    Peer,
    /// Of stolen time: it is not the page that the hypervisor keeps for it.
    NotKept,
    /// Of a link: it is not in the memory of links, which the hypervisor clears.
    NotShared,
    /// Of local memory: it is too small for the guest, or the guest has several vCPUs.
    Unfit,
}

/// Why the memory of a system is not apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap<'a> {
    /// The hypervisor is not where the system says, which is the second range.
    Misplaced(MemoryRange, MemoryRange),
    /// A range of the guest with this name.
    Range(&'a str, Use, MemoryRange, Fault<'a>),
    /// The memory of all links.
    Links(MemoryRange, Fault<'a>),
}

/// First and last address.
struct Shown(MemoryRange);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MemoryRange { start, size } = self.0;
        let last = start.0.wrapping_add(size).wrapping_sub(1);
        write!(f, "{start} to {last:#x}")
    }
}

impl fmt::Display for Fault<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NoPages => f.write_str("is not a number of pages"),
            Self::Outside(machine) => write!(f, "is outside the machine's, {}", Shown(machine)),
            Self::Inside(machine) => write!(f, "is in the machine's memory, {}", Shown(machine)),
            Self::Hypervisor(own) => write!(f, "overlaps the hypervisor's, {}", Shown(own)),
            Self::Guest(name, what, range) => {
                write!(f, "overlaps {what} of guest {name}, {}", Shown(range))
            }
            Self::Peer => f.write_str("is not what the guest at the other end has"),
            Self::NotKept => f.write_str("is not the page that the hypervisor keeps for it"),
            Self::NotShared => f.write_str("is outside the memory of links"),
            Self::Unfit => {
                f.write_str("is too small for the guest, or the guest has several vCPUs")
            }
        }
    }
}

impl fmt::Display for Overlap<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Misplaced(own, said) => write!(
                f,
                "the hypervisor is at {}, outside its memory, {}",
                Shown(own),
                Shown(said)
            ),
            Self::Range(name, what, range, fault) => {
                write!(f, "guest {name}: {what} at {} {fault}", Shown(range))
            }
            Self::Links(range, fault) => {
                write!(f, "the memory of links at {} {fault}", Shown(range))
            }
        }
    }
}

/// Checks that the memory of each guest is in the machine's and outside that of the hypervisor and of all other guests; that the
/// same holds for the memory of links, except that both guests of a link have it; and that no device of a guest is in memory. `own`:
/// where the hypervisor and its bundle are.
///
/// # Errors
///
/// The first range that is wrong.
pub fn check(system: &System, own: MemoryRange) -> Result<(), Overlap<'_>> {
    let hypervisor = system.board.hypervisor_memory;
    if !contains(hypervisor, own) || !contains(system.board.memory, hypervisor) {
        return Err(Overlap::Misplaced(own, hypervisor));
    }
    if let Some(links) = system.link_memory {
        let fault = place(system, links).err();
        let fault = fault.or_else(|| meets(system, None, links));
        if let Some(fault) = fault {
            return Err(Overlap::Links(links, fault));
        }
    }
    for (index, guest) in system.guests.iter().enumerate() {
        let fail = |what, range, fault| Err(Overlap::Range(&guest.name, what, range, fault));
        for range in guest.memory.iter().map(machine_range) {
            let fault = place(system, range).err();
            if let Some(fault) = fault.or_else(|| meets(system, Some(index), range)) {
                return fail(Use::Memory, range, fault);
            }
        }
        for range in guest.devices.iter().map(machine_range) {
            if let Some(fault) = device_fault(system, range) {
                return fail(Use::Device, range, fault);
            }
        }
        if let Some(page) = guest.stolen_time.as_ref().map(machine_range) {
            let kept = MemoryRange {
                start: hypervisor.stolen_page(GuestId(index as u8)),
                size: PAGE,
            };
            if page != kept || !contains(hypervisor, kept) || overlap(own, kept) {
                return fail(Use::StolenTime, page, Fault::NotKept);
            }
        }
        if let Some(local) = local_memory(guest) {
            let fault = local_fault(system, index, local, own);
            if let Some(fault) = fault.or_else(|| (!fits(guest)).then_some(Fault::Unfit)) {
                return fail(Use::Local, local, fault);
            }
        }
        for (number, end) in guest.links.iter().enumerate() {
            let LinkKind::Memory { memory, .. } = &end.kind else {
                continue;
            };
            let range = machine_range(memory);
            if let Some(fault) = link_fault(system, (index, number), end, range) {
                return fail(Use::Link(number), range, fault);
            }
        }
    }
    Ok(())
}

fn machine_range(mapping: &Mapping) -> MemoryRange {
    MemoryRange {
        start: mapping.pa,
        size: mapping.size,
    }
}

/// The address behind a range; `None`: there is none.
fn end(range: MemoryRange) -> Option<PhysAddr> {
    range.start.checked_add(range.size)
}

fn is_pages(range: MemoryRange) -> bool {
    range.size > 0
        && range.start.is_aligned(PAGE)
        && PhysAddr(range.size).is_aligned(PAGE)
        && end(range).is_some()
}

/// Whether `outer` has all of `inner`. A range that ends beyond the last address neither contains one nor is contained.
fn contains(outer: MemoryRange, inner: MemoryRange) -> bool {
    match (end(outer), end(inner)) {
        (Some(outer_end), Some(inner_end)) => outer.start <= inner.start && inner_end <= outer_end,
        _ => false,
    }
}

/// Whether both ranges have a byte. One that ends beyond the last address goes on to that.
fn overlap(one: MemoryRange, other: MemoryRange) -> bool {
    let is_below = |range: MemoryRange, start| end(range).is_some_and(|end| end <= start);
    let is_empty = one.size == 0 || other.size == 0;
    !is_empty && !is_below(one, other.start) && !is_below(other, one.start)
}

/// Whether a range may be memory of a guest, or of links.
fn place(system: &System, range: MemoryRange) -> Result<(), Fault<'_>> {
    let board = &system.board;
    if !is_pages(range) {
        return Err(Fault::NoPages);
    }
    if !contains(board.memory, range) {
        return Err(Fault::Outside(board.memory));
    }
    match overlap(range, board.hypervisor_memory) {
        true => Err(Fault::Hypervisor(board.hypervisor_memory)),
        false => Ok(()),
    }
}

fn device_fault(system: &System, range: MemoryRange) -> Option<Fault<'_>> {
    if !is_pages(range) {
        return Some(Fault::NoPages);
    }
    let memory = system.board.memory;
    overlap(range, memory).then_some(Fault::Inside(memory))
}

/// The local memory from which a guest runs.
fn local_memory(guest: &Guest) -> Option<MemoryRange> {
    Some(guest.protect.as_ref()?.local?.memory)
}

/// Whether the guest can run from its local memory: without room for its tables they would not be cleared.
fn fits(guest: &Guest) -> bool {
    let local = guest.protect.as_ref().and_then(|it| it.local);
    let memory = match guest.memory.as_slice() {
        [memory] => memory.size,
        _ => return false,
    };
    local.is_some_and(|it| it.areas(memory).is_some()) && guest.vcpus.len() == 1
}

/// What is wrong with the local memory of guest `index`: it is not in the machine's memory, or in the part of it that is the hypervisor's and
/// has nothing else; and no other guest has it, and no device.
fn local_fault(
    system: &System,
    index: usize,
    range: MemoryRange,
    own: MemoryRange,
) -> Option<Fault<'_>> {
    if !is_pages(range) {
        return Some(Fault::NoPages);
    }
    let board = &system.board;
    let hypervisor = board.hypervisor_memory;
    // Pages of the hypervisor's come first: those of the epitaph and of stolen times.
    let kept = MemoryRange {
        start: hypervisor.start,
        size: MemoryRange::KEPT,
    };
    if overlap(range, board.memory) {
        if !contains(hypervisor, range) {
            return Some(Fault::Outside(hypervisor));
        }
        if let Some(met) = [own, kept].into_iter().find(|it| overlap(*it, range)) {
            return Some(Fault::Hypervisor(met));
        }
    }
    let guests = system.guests.iter().enumerate();
    let mut met = guests.flat_map(|(other, guest)| {
        let devices = guest.devices.iter().map(machine_range);
        let devices = devices.map(|it| (Use::Device, it));
        let local = local_memory(guest).filter(|_| other != index);
        let all = devices.chain(local.map(|it| (Use::Local, it)));
        all.map(move |(what, it)| (guest, what, it))
    });
    let (guest, what, it) = met.find(|(_, _, it)| overlap(*it, range))?;
    Some(Fault::Guest(&guest.name, what, it))
}

/// Which memory of a guest other than `own` a range overlaps.
fn meets(system: &System, own: Option<usize>, range: MemoryRange) -> Option<Fault<'_>> {
    let guests = system.guests.iter().enumerate();
    let mut others = guests.filter(|&(index, _)| own != Some(index));
    others.find_map(|(_, guest)| {
        let mut memory = guest.memory.iter().map(machine_range);
        let met = memory.find(|&it| overlap(it, range));
        met.map(|it| Fault::Guest(&guest.name, Use::Memory, it))
    })
}

/// The memory of the links of a guest, with their numbers.
fn link_memory(guest: &Guest) -> impl Iterator<Item = (usize, MemoryRange)> {
    let links = guest.links.iter().enumerate();
    links.filter_map(|(number, end)| match &end.kind {
        LinkKind::Memory { memory, .. } => Some((number, machine_range(memory))),
        _ => None,
    })
}

/// What is wrong with the memory of a guest's link: `place` has the numbers of both.
fn link_fault<'a>(
    system: &'a System,
    place: (usize, usize),
    end: &LinkEnd,
    range: MemoryRange,
) -> Option<Fault<'a>> {
    if !is_pages(range) {
        return Some(Fault::NoPages);
    }
    // Which is apart from the hypervisor and all guests: it was checked before.
    if !system.link_memory.is_some_and(|all| contains(all, range)) {
        return Some(Fault::NotShared);
    }
    let peer = (end.peer.index(), usize::from(end.peer_link));
    let peers = system.guests.get(peer.0);
    let peers = peers.and_then(|guest| guest.links.get(peer.1));
    let is_same = peers.is_some_and(|it| {
        let LinkKind::Memory { memory, .. } = &it.kind else {
            return false;
        };
        let back = (it.peer.index(), usize::from(it.peer_link));
        peer.0 != place.0 && back == place && machine_range(memory) == range
    });
    if !is_same {
        return Some(Fault::Peer);
    }
    let mut guests = system.guests.iter().enumerate();
    guests.find_map(|(index, guest)| {
        let is_other = |number| ![place, peer].contains(&(index, number));
        let met = link_memory(guest).find(|&(number, it)| is_other(number) && overlap(it, range));
        met.map(|(number, it)| Fault::Guest(&guest.name, Use::Link(number), it))
    })
}
