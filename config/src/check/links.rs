// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules on links between guests.

use crate::board::{Board, Links};
use crate::description::{Description, Guest, Link, LinkKind};
use crate::problem::{Problem, Spanned};
use crate::reader::did_you_mean;
use crate::types::MAX_LINKS_PER_GUEST;
use crate::units::{self, MIB, PAGE};

/// Most memory of all links together: EL2 clears it at start, before any guest runs.
const MAX_LINK_MEMORY: u64 = 16 * MIB;

/// The two guests of a link; `None` if that is not what the description names.
pub(crate) fn ends(description: &Description, link: &Link) -> Option<[usize; 2]> {
    let find = |name: &Spanned<String>| {
        let mut guests = description.guests.iter();
        guests.position(|guest| guest.name.value == name.value)
    };
    match link.between.value.as_slice() {
        [one, other] => match (find(one)?, find(other)?) {
            (one, other) if one != other => Some([one, other]),
            _ => None,
        },
        _ => None,
    }
}

pub(super) fn check(description: &Description, board: &Board, problems: &mut Vec<Problem>) {
    for link in &description.links {
        between(description, link, problems);
        match link.kind.value {
            LinkKind::Memory => {
                size(link, problems);
                read_only(link, problems);
                network_keys(link, problems);
            }
            LinkKind::Network => memory_keys(link, problems),
            LinkKind::Socket => {
                memory_keys(link, problems);
                network_keys(link, problems);
            }
        }
    }
    if let Some(first) = description.links.first()
        && board.links.is_none()
    {
        problems.push(no_window(board, "links").at(first.span, "this link"));
    }
    for guest in &description.guests {
        stolen_time(guest, board, problems);
        count(description, guest, problems);
        sockets(description, guest, problems);
        window(description, guest, board, problems);
    }
    total(description, problems);
}

/// The page with stolen time is among the addresses of links.
fn stolen_time(guest: &Guest, board: &Board, problems: &mut Vec<Problem>) {
    let Some(key) = guest.stolen_time.filter(|it| it.value) else {
        return;
    };
    if board.links.is_none() {
        problems.push(no_window(board, "stolen time").at(key.span, "this page"));
    }
}

/// The board file names no addresses for this.
fn no_window(board: &Board, what: &str) -> Problem {
    let message = format!("board \"{}\" has no place for {what}", board.name);
    Problem::new("link-window", message)
        .help("add [links] to the board file, with addresses where the machine has nothing")
}

fn between(description: &Description, link: &Link, problems: &mut Vec<Problem>) {
    let names = &link.between;
    let [one, other] = names.value.as_slice() else {
        let message = format!("a link is between two guests, not {}", names.value.len());
        problems.push(
            Problem::new("link-ends", message)
                .at(names.span, "must have two names")
                .help("write a [[link]] for each pair of guests"),
        );
        return;
    };
    if one.value == other.value {
        let message = format!("a link of guest \"{}\" with itself", one.value);
        problems.push(
            Problem::new("link-ends", message)
                .at(names.span, "the same guest twice")
                .help("name the guest at the other end"),
        );
        return;
    }
    for name in [one, other] {
        let guests = || description.guests.iter().map(|it| it.name.value.as_str());
        if guests().any(|guest| guest == name.value) {
            continue;
        }
        let has = guests().collect::<Vec<_>>().join(", ");
        let help = match did_you_mean(&name.value, guests()) {
            Some(near) => format!("did you mean \"{near}\"? The guests are: {has}"),
            None => format!("the guests are: {has}"),
        };
        let message = format!("there is no guest \"{}\"", name.value);
        problems.push(
            Problem::new("link-ends", message)
                .at(name.span, "unknown")
                .help(help),
        );
    }
}

/// Keys of memory links on one of another kind.
fn memory_keys(link: &Link, problems: &mut Vec<Problem>) {
    let size = link.size.map(|it| ("size", it.span));
    let read_only = link.read_only.as_ref().map(|it| ("read-only", it.span));
    for (key, span) in [size, read_only].into_iter().flatten() {
        let message = format!("`{key}` is for memory links only");
        problems.push(
            Problem::new("link-memory", message)
                .at(span, "has no meaning here")
                .help("remove it, or write kind = \"memory\""),
        );
    }
}

/// A key of network links on one of another kind.
fn network_keys(link: &Link, problems: &mut Vec<Problem>) {
    let Some(offloads) = &link.offloads else {
        return;
    };
    problems.push(
        Problem::new("link-network", "`offloads` is for network links only")
            .at(offloads.span, "has no meaning here")
            .help("remove it, or write kind = \"network\""),
    );
}

fn size(link: &Link, problems: &mut Vec<Problem>) {
    let Some(size) = link.size else { return };
    if size.value > 0 && size.value.is_multiple_of(PAGE) && size.value <= MAX_LINK_MEMORY {
        return;
    }
    let message = "the memory of a link must be a multiple of 4 KiB, at most 16 MiB";
    problems.push(
        Problem::new("link-memory", message)
            .at(size.span, units::size(size.value))
            .help("write for example \"64KiB\""),
    );
}

fn read_only(link: &Link, problems: &mut Vec<Problem>) {
    let Some(name) = &link.read_only else { return };
    let ends = &link.between.value;
    if ends.iter().any(|end| end.value == name.value) {
        return;
    }
    let message = format!("guest \"{}\" is not at an end of this link", name.value);
    problems.push(
        Problem::new("link-ends", message)
            .at(name.span, "may not write to the memory")
            .at(link.between.span, "the link is between these")
            .help("name one of the two, or remove `read-only`"),
    );
}

/// A guest has a fixed number of places for links.
fn count(description: &Description, guest: &Guest, problems: &mut Vec<Problem>) {
    let is_end = |link: &&Link| {
        let mut ends = link.between.value.iter();
        ends.any(|end| end.value == guest.name.value)
    };
    let mut beyond = description.links.iter().filter(is_end);
    let Some(link) = beyond.nth(MAX_LINKS_PER_GUEST) else {
        return;
    };
    let message = format!(
        "guest \"{}\" has more than {MAX_LINKS_PER_GUEST} links",
        guest.name.value
    );
    problems.push(
        Problem::new("too-many-links", message)
            .at(link.span, "too many from here on")
            .help("a guest can pass data on between others: make a star of links"),
    );
}

/// A guest has one socket device at most: Linux's driver refuses a second one.
fn sockets(description: &Description, guest: &Guest, problems: &mut Vec<Problem>) {
    let mut links = description.links.iter().filter(|link| {
        let mut ends = link.between.value.iter();
        link.kind.value == LinkKind::Socket && ends.any(|end| end.value == guest.name.value)
    });
    let (Some(first), Some(second)) = (links.next(), links.next()) else {
        return;
    };
    let message = format!(
        "guest \"{}\" has more than one vsock link",
        guest.name.value
    );
    problems.push(
        Problem::new("too-many-links", message)
            .at(first.span, "the first one")
            .at(second.span, "Linux drives one socket device only")
            .help("write kind = \"network\" for the others"),
    );
}

/// The board's window for links has room for those of each guest.
fn window(description: &Description, guest: &Guest, board: &Board, problems: &mut Vec<Problem>) {
    let Some(window) = board.links else { return };
    let mut needed = Links::MEMORY_OFFSET;
    for link in &description.links {
        if !link
            .between
            .value
            .iter()
            .any(|it| it.value == guest.name.value)
        {
            continue;
        }
        needed = needed.saturating_add(link.room());
        if needed > window.size && link.size() <= MAX_LINK_MEMORY {
            let message = format!(
                "the links of guest \"{}\" up to this one need {} of addresses, and board \"{}\" has {} for links",
                guest.name.value,
                units::size(needed),
                board.name,
                units::size(window.size)
            );
            problems.push(
                Problem::new("link-window", message)
                    .at(link.span, "too much up to here")
                    .help("lower the `size` of some, or raise that of [links] in the board file"),
            );
            return;
        }
    }
}

fn total(description: &Description, problems: &mut Vec<Problem>) {
    let mut sum = 0_u64;
    for link in &description.links {
        sum = sum.saturating_add(link.size());
        if sum > MAX_LINK_MEMORY && link.size() <= MAX_LINK_MEMORY {
            let message = format!(
                "the links up to this one have {} of memory, and all may have {}",
                units::size(sum),
                units::size(MAX_LINK_MEMORY)
            );
            problems.push(
                Problem::new("link-memory", message)
                    .at(link.span, "too much up to here")
                    .help("lower the `size` of some"),
            );
            return;
        }
    }
}
