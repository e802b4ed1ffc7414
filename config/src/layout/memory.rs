// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which memory of the machine each guest gets, and where it sees it.

use super::{links, uses_link_window};
use crate::board::Board;
use crate::check::windows;
use crate::description::{Description, Guest};
use crate::gic::{DISTRIBUTOR_SIZE, REDISTRIBUTOR_SIZE};
use crate::packed::{Mapping, MemoryRange};
use crate::problem::{Problem, Span};
use crate::types::{GuestAddr, PhysAddr};
use crate::units::{self, BLOCK, PAGE, align_up};

/// Where machine addresses end: EL2's own map has 39 bits.
const PA_END: u64 = 1 << 39;
/// Guest addresses end there too: guests with identity-mapped memory see machine addresses.
const IPA_END: u64 = PA_END;

/// Where everything lies.
pub(super) struct Places {
    pub machine: MemoryRange,
    pub hypervisor: MemoryRange,
    /// `None` for a guest whose memory was refused.
    pub guests: Vec<Option<Mapping>>,
    /// The memory of links, if there are any.
    pub link_memory: Option<MemoryRange>,
}

/// Memory that is taken: where, by which guest, and where the description says so.
#[derive(Clone, Copy)]
struct Taken {
    start: u64,
    size: u64,
    owner: usize,
    span: Span,
}

impl Taken {
    fn overlaps(&self, start: u64, size: u64) -> bool {
        start < self.start + self.size && self.start < start + size
    }
}

/// Places the hypervisor at the bottom, guests with a `pa` where they ask, and the others in
/// order into what is left.
pub(super) fn place(
    description: &Description,
    board: &Board,
    hypervisor_size: u64,
    bundle_room: u64,
    problems: &mut Vec<Problem>,
) -> Places {
    let machine = MemoryRange {
        start: PhysAddr(board.memory.base),
        size: description.board.memory.value.min(board.memory.max),
    };
    if machine.start.0.saturating_add(machine.size) > PA_END {
        let message = "the machine's memory ends beyond 512 GiB (2^39)";
        problems.push(
            Problem::new("machine-memory", message)
                .at(
                    description.board.memory.span,
                    units::range(machine.start.0, machine.size),
                )
                .help("lower `memory` in [board]: the hypervisor has no addresses beyond"),
        );
    }
    let used = board.memory.image_offset.saturating_add(hypervisor_size);
    let used = align_up(used.saturating_add(bundle_room), BLOCK).unwrap_or(u64::MAX);
    let hypervisor = MemoryRange {
        start: machine.start,
        size: used.min(machine.size),
    };
    let mut places = Places {
        machine,
        hypervisor,
        guests: vec![None; description.guests.len()],
        link_memory: None,
    };
    if used >= machine.size {
        if !machine.size.is_multiple_of(BLOCK) {
            // That has been said already, and this follows from it.
            return places;
        }
        let message = format!(
            "the hypervisor and the guests' images take {}, and the machine has {}",
            units::size(used),
            units::size(machine.size)
        );
        problems.push(
            Problem::new("machine-memory", message)
                .at(description.board.memory.span, "too little")
                .help("raise `memory` in [board]"),
        );
        return places;
    }

    let sound: Vec<bool> = description
        .guests
        .iter()
        .map(|guest| is_sound(guest, problems))
        .collect();
    let mut taken = Vec::new();
    for (owner, guest) in description
        .guests
        .iter()
        .enumerate()
        .filter(|(owner, _)| sound[*owner])
    {
        let Some(pa) = guest.pa else { continue };
        let new = Taken {
            start: pa.value,
            size: guest.memory.value,
            owner,
            span: pa.span,
        };
        if fixed_place_is_free(&new, guest, &places, &taken, description, problems) {
            taken.push(new);
        }
    }
    for (owner, guest) in description
        .guests
        .iter()
        .enumerate()
        .filter(|(owner, _)| sound[*owner])
    {
        if guest.pa.is_some() {
            continue;
        }
        let size = guest.memory.value;
        match first_fit(size, &places, &taken) {
            Some(start) => taken.push(Taken {
                start,
                size,
                owner,
                span: guest.memory.span,
            }),
            None => problems.push(does_not_fit(guest, &places, &taken)),
        }
    }
    places.link_memory = place_links(description, &places, &taken, problems);
    for place in taken {
        let guest = &description.guests[place.owner];
        let mapping = Mapping {
            ipa: GuestAddr(ipa(guest, place.start, board)),
            pa: PhysAddr(place.start),
            size: place.size,
        };
        if address_space_is_free(description, guest, mapping, board, problems) {
            places.guests[place.owner] = Some(mapping);
        }
    }
    places
}

/// Where a guest sees memory that lies at `pa`.
pub(super) fn ipa(guest: &Guest, pa: u64, board: &Board) -> u64 {
    match (guest.ipa, guest.identity) {
        (Some(ipa), _) => ipa.value,
        (None, Some(identity)) if identity.value => pa,
        _ => board.memory.base,
    }
}

/// Whether sizes and addresses are whole pages.
fn is_sound(guest: &Guest, problems: &mut Vec<Problem>) -> bool {
    let before = problems.len();
    let name = &guest.name.value;
    let memory = guest.memory;
    if memory.value == 0 || !memory.value.is_multiple_of(PAGE) {
        let message = format!("the memory of guest \"{name}\" must be a multiple of 4 KiB");
        problems.push(
            Problem::new("guest-memory", message)
                .at(
                    memory.span,
                    format!("{} is none", units::size(memory.value)),
                )
                .help("write for example \"16MiB\"; multiples of 2 MiB are mapped best"),
        );
    }
    for (key, address) in [("ipa", guest.ipa), ("pa", guest.pa)] {
        let Some(address) = address.filter(|address| !address.value.is_multiple_of(PAGE)) else {
            continue;
        };
        let message = format!("`{key}` of guest \"{name}\" must be a multiple of 4 KiB");
        problems.push(
            Problem::new("guest-memory", message)
                .at(address.span, "not the start of a page")
                .help(format!(
                    "write for example {key} = {:#x}",
                    address.value & !(BLOCK - 1)
                )),
        );
    }
    problems.len() == before
}

fn fixed_place_is_free(
    new: &Taken,
    guest: &Guest,
    places: &Places,
    taken: &[Taken],
    description: &Description,
    problems: &mut Vec<Problem>,
) -> bool {
    let name = &guest.name.value;
    let (machine, hypervisor) = (places.machine, places.hypervisor);
    let first_free = hypervisor.start.0 + hypervisor.size;
    let machine_end = machine.start.0 + machine.size;
    let end = new.start.checked_add(new.size);
    if new.start < machine.start.0 || end.is_none_or(|end| end > machine_end) {
        let message = format!(
            "memory of guest \"{name}\" at {} is not all in the machine's {}",
            units::range(new.start, new.size),
            units::range(machine.start.0, machine.size)
        );
        problems.push(
            Problem::new("fixed-memory", message)
                .at(new.span, "outside")
                .help(format!(
                    "choose `pa` from {first_free:#x} to {:#x}, or remove it",
                    machine_end.saturating_sub(new.size)
                )),
        );
        return false;
    }
    if new.start < first_free {
        let message = format!(
            "memory of guest \"{name}\" at {} overlaps the hypervisor and its images at {}",
            units::range(new.start, new.size),
            units::range(hypervisor.start.0, hypervisor.size)
        );
        problems.push(
            Problem::new("fixed-memory", message)
                .at(new.span, "taken")
                .help(format!(
                    "choose `pa` at {first_free:#x} or above, or remove it"
                )),
        );
        return false;
    }
    if let Some(old) = taken.iter().find(|old| old.overlaps(new.start, new.size)) {
        let message = format!(
            "memory of guest \"{name}\" at {} overlaps that of guest \"{}\" at {}",
            units::range(new.start, new.size),
            description.guests[old.owner].name.value,
            units::range(old.start, old.size)
        );
        problems.push(
            Problem::new("fixed-memory", message)
                .at(new.span, "taken")
                .at(old.span, "by this")
                .help("move one of them, or remove its `pa` to have a place chosen"),
        );
        return false;
    }
    true
}

/// The lowest free place of that size on a 2 MiB boundary.
fn first_fit(size: u64, places: &Places, taken: &[Taken]) -> Option<u64> {
    let machine_end = places.machine.start.0 + places.machine.size;
    let mut ends: Vec<u64> = taken.iter().map(|old| old.start + old.size).collect();
    ends.push(places.hypervisor.start.0 + places.hypervisor.size);
    ends.sort_unstable();
    ends.into_iter()
        .filter_map(|end| align_up(end, BLOCK))
        .find(|start| {
            start
                .checked_add(size)
                .is_some_and(|end| end <= machine_end)
                && !taken.iter().any(|old| old.overlaps(*start, size))
        })
}

fn does_not_fit(guest: &Guest, places: &Places, taken: &[Taken]) -> Problem {
    let others: u64 = taken.iter().map(|old| old.size).sum();
    let (machine, hypervisor) = (places.machine.size, places.hypervisor.size);
    let left = machine - hypervisor - others;
    let message = format!(
        "guest \"{}\" wants {}, but {} are left",
        guest.name.value,
        units::size(guest.memory.value),
        units::size(left)
    );
    let pieces = if guest.memory.value <= left {
        " (not in one piece)"
    } else {
        ""
    };
    Problem::new("machine-memory", message)
        .at(guest.memory.span, format!("does not fit{pieces}"))
        .help(format!(
            "the machine has {}: hypervisor and images take {}, guests placed before this one {}; \
             raise `memory` in [board] or lower it here",
            units::size(machine),
            units::size(hypervisor),
            units::size(others)
        ))
}

/// The memory of all links, in one piece behind that of the guests.
fn place_links(
    description: &Description,
    places: &Places,
    taken: &[Taken],
    problems: &mut Vec<Problem>,
) -> Option<MemoryRange> {
    let size = links::memory(description);
    let first = description.links.iter().find(|link| link.size() > 0)?;
    let start = first_fit(size, places, taken);
    if start.is_none() {
        let message = format!("the links want {} of memory", units::size(size));
        problems.push(
            Problem::new("link-memory", message)
                .at(first.span, "this link and those behind it do not fit")
                .help("raise `memory` in [board], or lower it in a guest or `size` in a link"),
        );
    }
    start.map(|start| MemoryRange {
        start: PhysAddr(start),
        size,
    })
}

/// Whether the memory collides with nothing else in the guest's address space.
fn address_space_is_free(
    description: &Description,
    guest: &Guest,
    memory: Mapping,
    board: &Board,
    problems: &mut Vec<Problem>,
) -> bool {
    let name = &guest.name.value;
    let span = guest.ipa.map_or(guest.memory.span, |ipa| ipa.span);
    let start = memory.ipa.0;
    let Some(end) = start.checked_add(memory.size).filter(|end| *end <= IPA_END) else {
        let message = format!("the memory of guest \"{name}\" ends beyond 512 GiB (2^39)");
        problems.push(
            Problem::new("guest-address", message)
                .at(span, "too high")
                .help("choose a lower `ipa`, or remove it"),
        );
        return false;
    };
    let redistributors = REDISTRIBUTOR_SIZE * guest.vcpus.value.len() as u64;
    let mut others = vec![
        (
            board.gic.distributor,
            DISTRIBUTOR_SIZE,
            "interrupt distributor",
        ),
        (
            board.gic.redistributor,
            redistributors,
            "interrupt redistributors",
        ),
    ];
    if guest.console.uart {
        others.push((board.uart.base, PAGE, "console"));
    }
    if let Some(links) = board.links.filter(|_| uses_link_window(description, guest)) {
        others.push((links.base, links.size, "links"));
    }
    others.extend(
        windows(guest, board)
            .into_iter()
            .map(|(at, size)| (at, size, "devices")),
    );
    for (at, size, what) in others {
        if start < at + size && at < end {
            let message = format!(
                "the memory of guest \"{name}\" at {} covers its {what} at {}",
                units::range(start, memory.size),
                units::range(at, size)
            );
            problems.push(
                Problem::new("guest-address", message)
                    .at(span, "overlaps")
                    .help(format!(
                        "choose another `ipa` such as {:#x}, or less memory",
                        board.memory.base
                    )),
            );
            return false;
        }
    }
    true
}
