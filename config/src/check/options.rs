// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules on one guest's options: which of them exclude each other, and which are for which kind.

use crate::description::{By, Description, Ended, Guest, Kind, Tampered};
use crate::problem::{Problem, Span};
use crate::units::SECOND_US;

/// Longest command line an arm64 Linux takes: `COMMAND_LINE_SIZE` without its terminator
/// (Linux, arch/arm64/include/uapi/asm/setup.h).
const MAX_BOOTARGS: usize = 2047;
/// Longest timeout of a watchdog, in seconds: an hour.
const MAX_WATCHDOG_S: u64 = 3600;

pub(super) fn check(description: &Description, problems: &mut Vec<Problem>) {
    for guest in &description.guests {
        placement(guest, problems);
        kind(guest, problems);
        bootargs(guest, problems);
        restarts(guest, problems);
        protect(guest, problems);
        watchdog(guest, problems);
    }
}

fn placement(guest: &Guest, problems: &mut Vec<Problem>) {
    let (Some(identity), Some(ipa)) = (&guest.identity, &guest.ipa) else {
        return;
    };
    if identity.value {
        let message = format!(
            "guest \"{}\" has both `identity = true` and `ipa`: with identity its IPA is its PA",
            guest.name.value
        );
        problems.push(
            Problem::new("identity-and-ipa", message)
                .at(ipa.span, "this address")
                .at(identity.span, "contradicts this")
                .help("remove one; to choose the place of identity memory, write `pa` for `ipa`"),
        );
    }
}

fn kind(guest: &Guest, problems: &mut Vec<Problem>) {
    let word = guest.kind.value.word();
    let mut only_for = |key: &str, span: Span, owner: Kind, help: &str| {
        if guest.kind.value != owner {
            let message = format!(
                "guest \"{}\" is of kind \"{word}\", but `{key}` is for kind \"{}\"",
                guest.name.value,
                owner.word()
            );
            problems.push(
                Problem::new("wrong-kind", message)
                    .at(span, "not used by this kind")
                    .at(guest.kind.span, "its kind")
                    .help(help),
            );
        }
    };
    if let Some(initrd) = &guest.initrd {
        only_for(
            "initrd",
            initrd.span,
            Kind::Linux,
            "remove it, or set kind = \"linux\"",
        );
    }
    let help = match guest.kind.value {
        Kind::Linux => "remove it: a Linux image has its own load offset",
        _ => "remove it: an ELF file has its own addresses and entry point",
    };
    if let Some(load) = &guest.load {
        only_for("load", load.span, Kind::Raw, help);
    }
    if let Some(entry) = &guest.entry {
        only_for("entry", entry.span, Kind::Raw, help);
    }
}

/// `restarts` has an effect only where the guest starts again.
fn restarts(guest: &Guest, problems: &mut Vec<Problem>) {
    let Some(limit) = guest.restarts else {
        return;
    };
    let after_faults = guest.on_stop.is_some_and(|it| it.value == Ended::Restart);
    if !after_faults && !is_healed(guest) {
        let message = format!(
            "guest \"{}\" has `restarts`, which only `on-stop = \"restart\"` and `on-tamper = \"restart\"` obey",
            guest.name.value
        );
        problems.push(
            Problem::new("restarts-unused", message)
                .at(limit.span, "limits nothing")
                .help("add `on-stop = \"restart\"` to the guest, or remove `restarts`"),
        );
    }
}

/// Whether the guest starts again when its protected memory has changed.
fn is_healed(guest: &Guest) -> bool {
    let stays = guest.on_tamper.is_some_and(|it| it.value == Tampered::Stop);
    guest.protect.is_some() && !stays
}

/// `on-tamper` has an effect only with `protect`; only an ELF file says what its program does not write.
fn protect(guest: &Guest, problems: &mut Vec<Problem>) {
    let name = &guest.name.value;
    let Some(protect) = &guest.protect else {
        if let Some(on_tamper) = guest.on_tamper {
            let message = format!("guest \"{name}\" has `on-tamper`, and nothing is protected");
            problems.push(
                Problem::new("on-tamper-unused", message)
                    .at(on_tamper.span, "has no effect")
                    .help("add `protect = \"hash\"` to the guest, or remove `on-tamper`"),
            );
        }
        return;
    };
    let Some(ranges) = &protect.ranges else {
        if protect.by == By::Hash && guest.kind.value != Kind::Elf {
            problems.push(no_segments(guest, protect.span));
        }
        return;
    };
    if ranges.value.is_empty() {
        let message = format!("guest \"{name}\": `protect` has an empty list of ranges");
        problems.push(
            Problem::new("protect", message)
                .at(ranges.span, "protects nothing")
                .help("name ranges such as \"0x4008_0000+64KiB\", or remove `protect`"),
        );
    }
    let mut sorted: Vec<_> = ranges.value.iter().collect();
    sorted.sort_by_key(|it| it.value.start);
    for pair in sorted.windows(2) {
        if pair[0].value.start + pair[0].value.size > pair[1].value.start {
            let message = format!("guest \"{name}\": two ranges of `protect` overlap");
            problems.push(
                Problem::new("protect", message)
                    .at(pair[0].span, "overlaps")
                    .at(pair[1].span, "with this one")
                    .help("name each page once"),
            );
        }
    }
}

/// The image is no ELF file, and the description does not say what in it never changes.
fn no_segments(guest: &Guest, span: Span) -> Problem {
    let word = guest.kind.value.word();
    let message = format!(
        "guest \"{}\" is of kind \"{word}\", whose image does not say what in it never changes",
        guest.name.value
    );
    let help = match guest.kind.value {
        Kind::Linux => {
            "Linux changes its own code while it starts and runs; name ranges that it never changes, such as \
             protect = { by = \"hash\", ranges = [\"0x4200_0000+64KiB\"] }, or remove `protect`"
        }
        _ => "name the ranges: protect = { by = \"hash\", ranges = [\"0x4008_0000+64KiB\"] }",
    };
    Problem::new("protect", message)
        .at(span, "protects nothing")
        .at(guest.kind.span, "its kind")
        .help(help)
}

/// The calls of a watchdog count whole seconds.
fn watchdog(guest: &Guest, problems: &mut Vec<Problem>) {
    let Some(longest) = guest.watchdog_us else {
        return;
    };
    let is_whole = longest.value.is_multiple_of(SECOND_US);
    if !is_whole || !(1..=MAX_WATCHDOG_S).contains(&(longest.value / SECOND_US)) {
        problems.push(
            Problem::new(
                "watchdog",
                format!(
                    "guest \"{}\": the longest timeout of a watchdog must be whole seconds, from 1s to 3600s",
                    guest.name.value
                ),
            )
            .at(longest.span, format!("{} s", longest.value as f64 / SECOND_US as f64))
            .help("write for example watchdog = \"10s\", or leave it out"),
        );
    }
}

fn bootargs(guest: &Guest, problems: &mut Vec<Problem>) {
    let Some(bootargs) = &guest.bootargs else {
        return;
    };
    let length = bootargs.value.len();
    if length > MAX_BOOTARGS {
        let message = format!(
            "the bootargs of guest \"{}\" are {length} bytes long",
            guest.name.value
        );
        problems.push(
            Problem::new("bootargs", message)
                .at(bootargs.span, format!("at most {MAX_BOOTARGS} bytes"))
                .help("shorten them: Linux silently ignores the rest"),
        );
    }
    if bootargs.value.chars().any(char::is_control) {
        let message = format!(
            "the bootargs of guest \"{}\" have a control character",
            guest.name.value
        );
        problems.push(
            Problem::new("bootargs", message)
                .at(bootargs.span, "in here")
                .help("write them on one line, without tabs or \\0"),
        );
    }
}
