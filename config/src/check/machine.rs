// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules on the machine as a whole: `[board]`, `[scheduler]`, the number and names of guests.

use crate::board::Board;
use crate::description::{Description, Guest};
use crate::packed::WakeEarly;
use crate::problem::Problem;
use crate::types::{HYPERVISOR_NAME, MAX_GUESTS, MAX_PCPUS};
use crate::units::{self, BLOCK};

/// Shortest quantum: switches must take a small part of it.
const MIN_QUANTUM_US: u64 = 100;
/// Longest quantum: with a longer one, vCPUs of one priority do not usefully share a core.
const MAX_QUANTUM_US: u64 = 1_000_000;
/// Longest time by which a guest is woken early: the core does nothing else in it.
const MAX_WAKE_EARLY_US: u32 = 1_000;
/// Longest name: what fits into [`crate::packed::Guest::name`].
const MAX_NAME: usize = 15;

pub(super) fn check(description: &Description, board: &Board, problems: &mut Vec<Problem>) {
    cores(description, board, problems);
    memory(description, board, problems);
    quantum(description, problems);
    if let Some(guest) = description.guests.get(MAX_GUESTS) {
        let message = format!(
            "{} guests, but at most {MAX_GUESTS}",
            description.guests.len()
        );
        problems.push(
            Problem::new("too-many-guests", message)
                .at(guest.name.span, "one too many")
                .help("remove guests, or start a second system on another machine"),
        );
    }
    for (index, guest) in description.guests.iter().enumerate() {
        name(guest, problems);
        wake_early(guest, problems);
        let same = |other: &&Guest| other.name.value == guest.name.value;
        if let Some(first) = description.guests[..index].iter().find(same) {
            let message = format!("two guests have the name \"{}\"", guest.name.value);
            problems.push(
                Problem::new("duplicate-guest", message)
                    .at(guest.name.span, "the second")
                    .at(first.name.span, "the first")
                    .help("give each guest a name of its own: the console tags them by it"),
            );
        }
    }
}

fn cores(description: &Description, board: &Board, problems: &mut Vec<Problem>) {
    let cores = description.board.cores;
    let most = board.mpidrs.len().min(MAX_PCPUS);
    if cores.value == 0 {
        problems.push(
            Problem::new("no-core", "the system uses no core")
                .at(cores.span, "0 cores")
                .help(format!("write a number from 1 to {most}")),
        );
    } else if cores.value > most as u64 {
        let message = match board.mpidrs.len() {
            has if has > MAX_PCPUS => {
                format!(
                    "{} cores, but the hypervisor supports at most {MAX_PCPUS}",
                    cores.value
                )
            }
            has => format!(
                "{} cores, but board \"{}\" has {has}",
                cores.value, board.name
            ),
        };
        problems.push(
            Problem::new("too-many-cores", message)
                .at(cores.span, "more than there are")
                .help(format!("write a number from 1 to {most}")),
        );
    }
}

fn memory(description: &Description, board: &Board, problems: &mut Vec<Problem>) {
    let memory = description.board.memory;
    let max = board.memory.max;
    let name = &board.name;
    if memory.value > max {
        let message = format!(
            "{} of memory, but board \"{name}\" has at most {}",
            units::size(memory.value),
            units::size(max)
        );
        problems.push(
            Problem::new("machine-memory", message)
                .at(memory.span, "more than there is")
                .help(format!(
                    "write at most \"{}\"",
                    units::size(max).replace(' ', "")
                )),
        );
    } else if !memory.value.is_multiple_of(BLOCK) || memory.value == 0 {
        problems.push(
            Problem::new(
                "machine-memory",
                "the machine's memory must be a multiple of 2 MiB",
            )
            .at(
                memory.span,
                format!("{} is none", units::size(memory.value)),
            )
            .help("write for example \"2GiB\""),
        );
    }
}

fn quantum(description: &Description, problems: &mut Vec<Problem>) {
    let quantum = description.scheduler.quantum_us;
    if !(MIN_QUANTUM_US..=MAX_QUANTUM_US).contains(&quantum.value) {
        problems.push(
            Problem::new("quantum", "the quantum must be from 100us to 1s")
                .at(quantum.span, format!("{} microseconds", quantum.value))
                .help("write for example quantum = \"2ms\""),
        );
    }
}

fn wake_early(guest: &Guest, problems: &mut Vec<Problem>) {
    let Some(early) = &guest.wake_early else {
        return;
    };
    let WakeEarly::Microseconds(time) = early.value else {
        return;
    };
    if !(1..=MAX_WAKE_EARLY_US).contains(&time) {
        problems.push(
            Problem::new("wake-early", "a guest can be woken 1us to 1ms early")
                .at(early.span, format!("{time} microseconds"))
                .help("write for example wake-early = \"8us\", or leave it out"),
        );
    }
}

fn name(guest: &Guest, problems: &mut Vec<Problem>) {
    let name = &guest.name.value;
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name == HYPERVISOR_NAME {
        problems.push(
            Problem::new("guest-name", format!("\"{name}\" cannot be a guest's name"))
                .at(guest.name.span, "the hypervisor's own")
                .help("give it another name: the console tags lines by it"),
        );
        return;
    }
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(allowed) {
        return;
    }
    let cure: String = name
        .to_lowercase()
        .chars()
        .map(|c| if allowed(c) { c } else { '-' })
        .collect();
    let cure: String = cure.chars().take(MAX_NAME).collect();
    let problem = Problem::new("guest-name", format!("\"{name}\" cannot be a guest's name"))
        .at(guest.name.span, "1 to 15 of the characters a-z, 0-9 and -");
    problems.push(match cure.is_empty() {
        true => problem.help("write for example \"linux\""),
        false => problem.help(format!("write for example \"{cure}\"")),
    });
}
