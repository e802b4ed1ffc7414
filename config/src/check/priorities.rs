// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules on priorities, and the priorities of guests that name none.

use crate::description::{Description, Guest, Priorities};
use crate::problem::{Problem, Spanned};
use crate::types::{MAX_PRIORITIES, Priority};
use std::collections::BTreeSet;

/// The priority of guests that name none, if no guest of the system names one.
const DEFAULT_PRIORITY: u8 = 100;

pub(super) fn check(description: &Description, problems: &mut Vec<Problem>) {
    for guest in &description.guests {
        match &guest.priority {
            None => omitted(guest, description, problems),
            Some(Priorities::All(priority)) => range(guest, *priority, problems),
            Some(Priorities::PerVcpu(list)) => {
                for priority in &list.value {
                    range(guest, *priority, problems);
                }
                per_vcpu(guest, list, problems);
            }
        }
    }
    distinct(description, problems);
}

/// The priority of each vCPU of each guest. A guest that names none shares no core (this is
/// checked), so any priority does: the lowest in use, since another one would need a band of its own.
pub(crate) fn resolve(description: &Description) -> Vec<Vec<Priority>> {
    let written = |guest: &Guest| -> Vec<u8> {
        written(guest)
            .filter_map(|priority| u8::try_from(priority.value).ok())
            .collect()
    };
    let lowest = description
        .guests
        .iter()
        .flat_map(written)
        .min()
        .unwrap_or(DEFAULT_PRIORITY)
        .max(1);
    let of_guest = |guest: &Guest| {
        let vcpus = guest.vcpus.value.len();
        let list = match &guest.priority {
            None => vec![lowest; vcpus],
            Some(Priorities::All(_)) => {
                vec![written(guest).first().copied().unwrap_or(lowest); vcpus]
            }
            Some(Priorities::PerVcpu(_)) => written(guest),
        };
        list.into_iter().map(Priority).collect()
    };
    description.guests.iter().map(of_guest).collect()
}

/// The priorities as written, in order.
fn written(guest: &Guest) -> impl Iterator<Item = Spanned<u64>> {
    match &guest.priority {
        None => Vec::new(),
        Some(Priorities::All(priority)) => vec![*priority],
        Some(Priorities::PerVcpu(list)) => list.value.clone(),
    }
    .into_iter()
}

fn omitted(guest: &Guest, description: &Description, problems: &mut Vec<Problem>) {
    let mine: BTreeSet<u64> = guest.all_cores().map(|core| core.value).collect();
    let shares = |other: &&Guest| other.name.span != guest.name.span;
    for other in description.guests.iter().filter(shares) {
        let shared = other.all_cores().find(|core| mine.contains(&core.value));
        let Some(home) = shared else { continue };
        let message = format!(
            "guest \"{}\" has no priority, but shares core {} with guest \"{}\"",
            guest.name.value, home.value, other.name.value
        );
        problems.push(
            Problem::new("no-priority", message)
                .at(guest.vcpus.span, format!("on core {} too", home.value))
                .at(home.span, "shared with this")
                .help(choice(guest, other)),
        );
        return;
    }
}

/// What to write for a guest that shares a core with `other`: a number that settles which of the two comes first.
fn choice(guest: &Guest, other: &Guest) -> String {
    let (own, theirs) = (&guest.name.value, &other.name.value);
    let priorities: BTreeSet<u64> = written(other).map(|it| it.value).collect();
    let mut priorities = priorities.into_iter();
    match (priorities.next(), priorities.next()) {
        (Some(only @ 1..=255), None) => format!(
            "add `priority`, from 1 to 255: if it is higher than {only}, \"{own}\" preempts \"{theirs}\"; if it is \
             lower, \"{theirs}\" preempts \"{own}\"; with {only} they share the core in time slices"
        ),
        _ => "add `priority`, from 1 to 255, to each: for example 200 to the guest that preempts the other, and 100 to \
              the other; guests of one priority share the core in time slices"
            .into(),
    }
}

fn range(guest: &Guest, priority: Spanned<u64>, problems: &mut Vec<Problem>) {
    if !(1..=255).contains(&priority.value) {
        let message = format!(
            "guest \"{}\" has priority {}",
            guest.name.value, priority.value
        );
        problems.push(
            Problem::new("priority-range", message)
                .at(priority.span, "not from 1 to 255")
                .help("write a number from 1 to 255; the higher number wins"),
        );
    }
}

fn per_vcpu(guest: &Guest, list: &Spanned<Vec<Spanned<u64>>>, problems: &mut Vec<Problem>) {
    let (priorities, vcpus) = (list.value.len(), guest.vcpus.value.len());
    if priorities != vcpus {
        let message = format!(
            "guest \"{}\" has {vcpus} vCPUs, but {priorities} priorities",
            guest.name.value
        );
        problems.push(
            Problem::new("priority-count", message)
                .at(list.span, format!("{priorities} priorities"))
                .at(guest.vcpus.span, format!("{vcpus} vCPUs"))
                .help("write one priority for each vCPU, or one number for all"),
        );
    }
}

fn distinct(description: &Description, problems: &mut Vec<Problem>) {
    let mut seen = BTreeSet::new();
    for priority in description.guests.iter().flat_map(written) {
        seen.insert(priority.value);
        if seen.len() > MAX_PRIORITIES {
            let message = format!("more than {MAX_PRIORITIES} different priorities");
            problems.push(
                Problem::new("too-many-priorities", message)
                    .at(priority.span, "the first one too many")
                    .help(
                        "let some vCPUs share a priority: each has a band of its own in the \
                         interrupt controller",
                    ),
            );
            return;
        }
    }
}
