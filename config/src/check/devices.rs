// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules on devices passed through.
//!
//! Stage 2 maps pages, so two devices in one 4 KiB page must belong to one guest.

use crate::board::{Board, Device};
use crate::description::{By, Description, Guest};
use crate::packed::{MAX_GUEST_INTERRUPTS, MAX_RANGES};
use crate::problem::{Problem, Spanned};
use crate::reader::did_you_mean;
use crate::units::{PAGE, align_down, align_up};

/// A device of a guest, with the place in the description that gives it.
struct Given<'a> {
    guest: &'a Guest,
    name: &'a Spanned<String>,
    device: &'a Device,
}

/// The pages that hold the registers of `device`: first address and size.
fn pages(device: &Device) -> (u64, u64) {
    let start = align_down(device.base, PAGE);
    let end = device
        .base
        .checked_add(device.size)
        .and_then(|end| align_up(end, PAGE));
    (start, end.unwrap_or(u64::MAX) - start)
}

/// The register windows of a guest's devices: sorted, each page once, neighbours merged.
pub(crate) fn windows(guest: &Guest, board: &Board) -> Vec<(u64, u64)> {
    let devices = guest
        .devices
        .iter()
        .filter_map(|name| board.device(&name.value));
    let mut pages: Vec<_> = devices.map(pages).collect();
    pages.sort_unstable();
    let mut windows: Vec<(u64, u64)> = Vec::new();
    for (start, size) in pages {
        match windows.last_mut() {
            Some((first, length)) if start <= *first + *length => {
                *length = (*length).max(start + size - *first);
            }
            _ => windows.push((start, size)),
        }
    }
    windows
}

pub(super) fn check(description: &Description, board: &Board, problems: &mut Vec<Problem>) {
    let mut given: Vec<Given<'_>> = Vec::new();
    for guest in &description.guests {
        dma(guest, board, problems);
        for name in &guest.devices {
            match board.device(&name.value) {
                Some(device) => {
                    let new = Given {
                        guest,
                        name,
                        device,
                    };
                    conflicts(&given, &new, problems);
                    given.push(new);
                }
                None => unknown(name, board, problems),
            }
        }
        counts(guest, board, problems);
    }
}

fn unknown(name: &Spanned<String>, board: &Board, problems: &mut Vec<Problem>) {
    let names = || board.devices.iter().map(|device| device.name.as_str());
    let has = summary(names());
    let help = match did_you_mean(&name.value, names()) {
        Some(near) => format!("did you mean \"{near}\"? The board has: {has}"),
        None => format!("the board has: {has}"),
    };
    let message = format!("board \"{}\" has no device \"{}\"", board.name, name.value);
    problems.push(
        Problem::new("no-such-device", message)
            .at(name.span, "unknown")
            .help(help),
    );
}

/// Names as a short list; a numbered row is `first to last`.
fn summary<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let stem = |name: &str| {
        name.trim_end_matches(|c: char| c.is_ascii_digit())
            .to_owned()
    };
    let mut runs: Vec<(String, String, String)> = Vec::new();
    for name in names {
        match runs.last_mut() {
            Some((same, _, last)) if *same == stem(name) && name != stem(name) => {
                *last = name.to_owned();
            }
            _ => runs.push((stem(name), name.to_owned(), name.to_owned())),
        }
    }
    let runs: Vec<_> = runs
        .into_iter()
        .map(|(_, first, last)| match first == last {
            true => first,
            false => format!("{first} to {last}"),
        })
        .collect();
    if runs.is_empty() {
        "none".into()
    } else {
        runs.join(", ")
    }
}

/// A device that does DMA reaches all memory, at machine addresses: nothing confines it. The guest that has it must say so.
fn dma(guest: &Guest, board: &Board, problems: &mut Vec<Problem>) {
    let is_true = |key: Option<Spanned<bool>>| key.is_some_and(|it| it.value);
    let devices = guest.dma_devices(board);
    let Some((first, others)) = devices.split_first() else {
        let is_known = |name: &Spanned<String>| board.device(&name.value).is_some();
        // An unknown name is reported elsewhere. The device that is meant may do DMA.
        if guest.devices.iter().all(is_known) {
            needless_trust(guest, problems);
        }
        return;
    };
    // In local memory it can have none, whatever it says.
    if guest.protect.as_ref().is_some_and(|it| it.by == By::Local) {
        return;
    }
    let names: Vec<_> = devices
        .iter()
        .map(|name| format!("\"{}\"", name.value))
        .collect();
    let does = match others {
        [] => format!("device {} does", names.join(", ")),
        _ => format!("devices {} do", names.join(", ")),
    };
    let needs = |key: &str| {
        format!(
            "{does} DMA, so guest \"{}\" needs `{key} = true`",
            guest.name.value
        )
    };
    // One problem for all devices: they have one cure.
    let of_all = |problem: Problem, what: &str| {
        let first = problem.at(first.span, what);
        others
            .iter()
            .fold(first, |problem, name| problem.at(name.span, "so does this"))
    };
    if !is_true(guest.identity) {
        let problem = Problem::new("dma-without-identity", needs("identity"))
            .help("add `identity = true` to the guest, and remove `ipa` if it has one");
        let what = "reads and writes memory at machine addresses";
        problems.push(of_all(problem, what));
    }
    if !is_true(guest.trusted_dma) {
        let problem = Problem::new("dma-without-trust", needs("trusted-dma")).help(
            "add `trusted-dma = true` if this guest may be trusted with the memory of all others and of the hypervisor; else give the device to a guest that \
             may, and that shares it over a link (docs/sharing-devices.md)",
        );
        problems.push(of_all(problem, "reaches all memory of the machine"));
    }
}

/// A guest without a device that does DMA must not be called trusted.
fn needless_trust(guest: &Guest, problems: &mut Vec<Problem>) {
    let Some(trusted) = guest.trusted_dma.filter(|it| it.value) else {
        return;
    };
    let message = format!("no device of guest \"{}\" does DMA", guest.name.value);
    problems.push(
        Problem::new("needless-trust", message)
            .at(trusted.span, "trusts it with all memory of the machine")
            .help("remove it"),
    );
}

fn conflicts(given: &[Given<'_>], new: &Given<'_>, problems: &mut Vec<Problem>) {
    let name = &new.device.name;
    if let Some(old) = given.iter().find(|old| old.device.name == *name) {
        let owner = &old.guest.name.value;
        let message = match old.guest.name.span == new.guest.name.span {
            true => format!("guest \"{owner}\" is given device \"{name}\" twice"),
            false => format!(
                "device \"{name}\" is given to guest \"{owner}\" and guest \"{}\"",
                new.guest.name.value
            ),
        };
        problems.push(
            Problem::new("device-twice", message)
                .at(new.name.span, "here again")
                .at(old.name.span, "given here")
                .help("a device belongs to one guest: remove it from one of the lists"),
        );
        return;
    }
    let other_guest = |old: &&Given<'_>| old.guest.name.span != new.guest.name.span;
    let (start, size) = pages(new.device);
    for old in given.iter().filter(other_guest) {
        let (other_start, other_size) = pages(old.device);
        if start < other_start + other_size && other_start < start + size {
            let message = format!(
                "devices \"{}\" of guest \"{}\" and \"{name}\" of guest \"{}\" are in one \
                 4 KiB page, at {:#x}",
                old.device.name,
                old.guest.name.value,
                new.guest.name.value,
                start.max(other_start)
            );
            problems.push(
                Problem::new("shared-page", message)
                    .at(new.name.span, "shares a page")
                    .at(old.name.span, "with this")
                    .help(
                        "memory protection works on 4 KiB pages: give both to one guest, or take \
                         a device from another page",
                    ),
            );
            // One pair is enough; others would report the same page.
            return;
        }
    }
    for old in given {
        let shared = new
            .device
            .interrupts
            .iter()
            .find(|id| old.device.interrupts.contains(id));
        let Some(id) = shared else { continue };
        let message = format!(
            "devices \"{}\" and \"{name}\" share interrupt {id}",
            old.device.name
        );
        problems.push(
            Problem::new("interrupt-twice", message)
                .at(new.name.span, "shares an interrupt")
                .at(old.name.span, "with this")
                .help("an interrupt can be given once: leave out one of the two"),
        );
        return;
    }
}

/// The packed form's tables have a fixed size.
fn counts(guest: &Guest, board: &Board, problems: &mut Vec<Problem>) {
    let devices = || {
        guest
            .devices
            .iter()
            .filter_map(|name| board.device(&name.value))
    };
    let interrupts: usize = devices().map(|device| device.interrupts.len()).sum();
    let quiesce: usize = devices().map(|device| device.quiesce.len()).sum();
    let counts = [
        (
            windows(guest, board).len(),
            MAX_RANGES,
            "separate register windows",
        ),
        (interrupts, MAX_GUEST_INTERRUPTS, "interrupts"),
        (quiesce, MAX_RANGES, "register writes that stop them"),
    ];
    for (count, most, what) in counts {
        let Some(last) = guest.devices.last().filter(|_| count > most) else {
            continue;
        };
        let message = format!(
            "the devices of guest \"{}\" have {count} {what}, but at most {most}",
            guest.name.value
        );
        problems.push(
            Problem::new("too-many-devices", message)
                .at(last.span, "too many up to here")
                .help("give the guest fewer devices"),
        );
    }
}
