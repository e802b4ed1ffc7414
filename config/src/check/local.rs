// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules on guests that run from local memory: what such a guest may have, and how much of the board's local memory each one gets.

use crate::board::Board;
use crate::description::{By, Description, Guest, Kind, LinkKind, Protect};
use crate::packed::{Local, MemoryRange, TABLE_SPAN};
use crate::problem::{Problem, Span};
use crate::types::PhysAddr;
use crate::units::{self, MIB, PAGE, align_down};

/// Most memory of a guest that runs from local memory, where a hash is kept of each page of it.
const MOST: u64 = 64 * MIB;

/// `protect` of a guest that runs from local memory.
fn local(guest: &Guest) -> Option<&Protect> {
    guest.protect.as_ref().filter(|it| it.by == By::Local)
}

pub(super) fn check(description: &Description, board: &Board, problems: &mut Vec<Problem>) {
    for guest in &description.guests {
        let Some(protect) = &guest.protect else {
            continue;
        };
        match protect.by {
            By::Hash => by_hash(guest, protect, problems),
            By::Local => {
                by_local(guest, protect, problems);
                devices(description, guest, board, problems);
            }
        }
    }
    parts(description, board, problems);
}

fn refused(guest: &Guest, span: Span, what: &str, label: &str, help: &str) -> Problem {
    let message = format!("guest \"{}\": {what}", guest.name.value);
    Problem::new("local-memory", message)
        .at(span, label)
        .help(help)
}

/// `memory` is for guests that run from local memory.
fn by_hash(guest: &Guest, protect: &Protect, problems: &mut Vec<Problem>) {
    if let Some(memory) = protect.memory {
        let what = "`memory` of `protect` is for guests that run from local memory";
        let help = "write `by = \"local\"`, or remove `memory`";
        problems.push(refused(guest, memory.span, what, "has no effect", help));
    }
}

/// What the guest is, and what its memory is.
fn by_local(guest: &Guest, protect: &Protect, problems: &mut Vec<Problem>) {
    let mut refuse = |span, what: &str, label: &str, help: &str| {
        problems.push(refused(guest, span, what, label, help));
    };
    for (key, span) in [
        ("ranges", protect.ranges.as_ref().map(|it| it.span)),
        ("round", protect.round.map(|it| it.span)),
    ] {
        if let Some(span) = span {
            let what = format!("`{key}` of `protect` is for `by = \"hash\"`");
            let help = "remove it: all memory of a guest that runs from local memory is protected";
            refuse(span, &what, "has no effect", help);
        }
    }
    if guest.kind.value == Kind::Linux {
        let what = "a guest of kind \"linux\" cannot run from local memory";
        let help = "use `by = \"hash\"`, with `ranges` that Linux never changes";
        refuse(guest.kind.span, what, "its kind", help);
    }
    if guest.has_several_cores() {
        let what = "a guest that runs from local memory has one vCPU, which stays on its core";
        let help = "give it one vCPU, and no `cores` beside that one's";
        refuse(guest.vcpus.span, what, "more than one core", help);
    } else if guest.vcpus.value.len() > 1 {
        let what = "a guest that runs from local memory has one vCPU";
        let help = "give it one vCPU: page tables in local memory are those of one core";
        refuse(guest.vcpus.span, what, "more than one", help);
    }
    if guest.memory.value > MOST {
        let what = format!(
            "a guest that runs from local memory has at most {}",
            units::size(MOST)
        );
        let help =
            "lower `memory` to what the guest uses: local memory has a hash of each page of it";
        refuse(guest.memory.span, &what, "more", help);
    }
    // Where the guest sees its memory.
    let identity = guest.identity.is_some_and(|it| it.value);
    for (key, address) in [("ipa", guest.ipa), ("pa", guest.pa.filter(|_| identity))] {
        if let Some(at) = address.filter(|it| !it.value.is_multiple_of(TABLE_SPAN)) {
            let what =
                "the memory of a guest that runs from local memory begins at a multiple of 2 MiB";
            let whole = align_down(at.value, TABLE_SPAN);
            let help = format!("write {key} = {whole:#x}, or remove it");
            refuse(at.span, what, "no such address", &help);
        }
    }
}

/// What reaches the guest's main memory while pages of it are elsewhere.
fn devices(description: &Description, guest: &Guest, board: &Board, problems: &mut Vec<Problem>) {
    if let Some(device) = guest.dma_devices(board).first() {
        let what = format!(
            "it runs from local memory, which its device \"{}\" does not reach",
            device.value
        );
        let help = "remove the device, or use `by = \"hash\"`";
        problems.push(refused(guest, device.span, &what, "does DMA", help));
    }
    let mut links = description.links.iter();
    let queued = links.find(|link| {
        let mut ends = link.between.value.iter();
        link.kind.value != LinkKind::Memory && ends.any(|it| it.value == guest.name.value)
    });
    if let Some(link) = queued {
        let what = "it runs from local memory, where a virtio device does not find its queues";
        let help = "use a link of kind \"memory\", or `by = \"hash\"`";
        problems.push(refused(guest, link.span, what, "a virtio device", help));
    }
}

/// Whether the parts fit into the board's local memory.
fn parts(description: &Description, board: &Board, problems: &mut Vec<Problem>) {
    let guests = || {
        description
            .guests
            .iter()
            .filter_map(|it| Some((it, local(it)?)))
    };
    let Some((first, protect)) = guests().next() else {
        return;
    };
    let Some(memory) = board.local_memory else {
        let what = format!("board \"{}\" has no local memory", board.name);
        let help = "use `by = \"hash\"`, or add [local-memory] to the board file, if the machine has memory on its chip";
        problems.push(refused(first, protect.span, &what, "needs some", help));
        return;
    };
    for (guest, protect) in guests() {
        let least = Local::least(guest.memory.value);
        let part = part(protect, description, memory.size);
        let span = protect.memory.map_or(protect.span, |it| it.span);
        if !part.is_multiple_of(PAGE) {
            let help = "write for example memory = \"256KiB\"";
            problems.push(refused(
                guest,
                span,
                "local memory is given in pages of 4 KiB",
                "no whole pages",
                help,
            ));
        } else if part < least {
            let what = format!(
                "with {} of memory it needs {} of local memory or more",
                units::size(guest.memory.value),
                units::size(least)
            );
            let label = units::size(part);
            let help = "lower `memory` of the guest, of which each page has a hash there, or raise `memory` of `protect` if the board has more";
            problems.push(refused(guest, span, &what, &label, help));
        }
    }
    let named = guests().filter_map(|(_, protect)| protect.memory);
    let sum = named.fold(0, |sum: u64, it| sum.saturating_add(it.value));
    if sum > memory.size
        && let Some((guest, protect)) = guests().rfind(|(_, it)| it.memory.is_some())
    {
        let what = format!(
            "the guests want {} of local memory, and board \"{}\" has {}",
            units::size(sum),
            board.name,
            units::size(memory.size)
        );
        let span = protect.memory.map_or(protect.span, |it| it.span);
        problems.push(refused(
            guest,
            span,
            &what,
            "too much",
            "lower `memory` of `protect`",
        ));
    }
}

/// How many bytes of local memory the guest gets, of `all`: as many as it asks for, or, if it does not ask, an equal share of what the
/// others leave.
fn part(protect: &Protect, description: &Description, all: u64) -> u64 {
    if let Some(memory) = protect.memory {
        return memory.value;
    }
    let others = || description.guests.iter().filter_map(local);
    let taken = others().filter_map(|it| it.memory);
    let taken = taken.fold(0, |sum: u64, it| sum.saturating_add(it.value));
    let sharing = others().filter(|it| it.memory.is_none()).count() as u64;
    align_down(all.saturating_sub(taken) / sharing.max(1), PAGE)
}

/// The part of local memory of each guest that runs from there, of a description that was checked.
pub(crate) fn parts_of(description: &Description, board: &Board) -> Vec<Option<MemoryRange>> {
    let mut at = board.local_memory.map_or(0, |it| it.base);
    let all = board.local_memory.map_or(0, |it| it.size);
    let place = |guest: &Guest| {
        let size = part(local(guest)?, description, all);
        let start = PhysAddr(at);
        at = at.saturating_add(size);
        Some(MemoryRange { start, size })
    };
    description.guests.iter().map(place).collect()
}
