// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether the policy against lock-holder preemption has what it needs, and no option is given that has no effect on it.

use super::resolve_priorities;
use crate::description::{Description, Guest, Mechanism, POLICIES, Priorities};
use crate::packed::Policy;
use crate::problem::{Problem, Span};
use crate::types::Priority;
use std::cmp::Reverse;

pub(super) fn check(description: &Description, problems: &mut Vec<Problem>) {
    delay_while(description, problems);
    without(description, problems);
    let policy = description.scheduler.policy;
    if policy.value == Policy::Cosched {
        one_priority_for_gang(description, problems);
    }
    if !policy.value.moves_vcpus() {
        return;
    }
    let moves = |guest: &Guest| guest.moves(policy.value);
    if !description.guests.iter().any(moves) {
        let (message, label) = match policy.value.serves_one_core() {
            true => (
                "the policy is for guests with several vCPUs, but each guest has one vCPU on one core",
                "has no effect",
            ),
            false => (
                "the policy lets vCPUs change cores, but each guest has one core only",
                "needs a second core",
            ),
        };
        let help = match description.board.cores.value {
            0 | 1 => "use `cores = 2` or more in [board], and list several home cores for a guest",
            _ => "list several home cores for a guest, as vcpus = [0, 1]",
        };
        problems.push(
            Problem::new("no-other-core", message)
                .at(policy.span, label)
                .help(format!("{help}; or choose policy = \"none\"")),
        );
    } else if policy.value == Policy::Trap && one_priority_for_movers(description, problems) {
        cores_for_kernels(description, problems);
    }
}

fn delay_while(description: &Description, problems: &mut Vec<Problem>) {
    let scheduler = &description.scheduler;
    let Some(written) = scheduler.delay_while else {
        return;
    };
    if scheduler.policy.value != Policy::Delay {
        problems.push(
            Problem::new("delay-while", "only policy \"delay\" uses `delay-while`")
                .at(written.span, "has no effect on this policy")
                .help("leave it out, or write policy = \"delay\""),
        );
    } else if let Some(span) = scheduler.reads_preempt_count()
        && !description.guests.iter().any(Guest::is_smp_linux)
    {
        let message = "there is no guest whose `preempt_count` could be read";
        problems.push(
            Problem::new("no-preempt-count", message)
                .at(span, "is read of guests of kind \"linux\" with several vCPUs")
                .help("write delay-while = \"in-kernel\", or give a guest of kind \"linux\" several vCPUs"),
        );
    }
}

/// A mechanism that the policy does not have cannot be turned off: a measurement without it would show nothing.
fn without(description: &Description, problems: &mut Vec<Problem>) {
    let policy = description.scheduler.policy.value;
    let name = POLICIES.iter().find(|it| it.1 == policy);
    let name = name.map_or("", |it| it.0);
    for mechanism in &description.scheduler.without {
        let why = match (policy, mechanism.value) {
            _ if !policy.moves_vcpus() => {
                "is a mechanism for moving vCPUs, and this policy moves none"
            }
            (policy, Mechanism::Patience) if !policy.has_park_delay() => "this policy has none",
            (policy, Mechanism::ShortTurns) if policy != Policy::Steal => "this policy has none",
            _ => continue,
        };
        let message =
            format!("policy \"{name}\" does not have the mechanism that is to be turned off");
        problems.push(
            Problem::new("without", message)
                .at(mechanism.span, why)
                .help("leave it out, or write policy = \"steal\", which has all of them"),
        );
    }
}

/// Under `cosched` the vCPUs of the largest guest run at the same time or not at all, so they need one priority.
fn one_priority_for_gang(description: &Description, problems: &mut Vec<Problem>) {
    let priorities = resolve_priorities(description);
    let guests = description.guests.iter().zip(&priorities);
    // As `crate::roles` chooses: the guest of lowest priority among the largest.
    let gang = guests.max_by_key(|(guest, priorities)| {
        (
            guest.vcpus.value.len(),
            Reverse(priorities.first().copied()),
        )
    });
    let Some((guest, priorities)) = gang else {
        return;
    };
    if priorities.iter().any(|it| Some(it) != priorities.first()) {
        let message = format!(
            "under policy \"cosched\", the vCPUs of guest \"{}\" run at the same time, so they need one priority",
            guest.name.value
        );
        problems.push(
            Problem::new("gang-priorities", message)
                .at(priority_span(guest), "different priorities")
                .help("write one number for all of its vCPUs, or choose another policy"),
        );
    }
}

/// Under `trap` kernels do not run on cores that have a vCPU of a higher band. Where a vCPU that changes cores will be is
/// not known when the system starts, so all vCPUs that change cores need one priority. Returns whether they have.
fn one_priority_for_movers(description: &Description, problems: &mut Vec<Problem>) -> bool {
    let priorities = resolve_priorities(description);
    let movers = || {
        let guests = description.guests.iter().zip(&priorities);
        guests
            .filter(|(guest, _)| guest.has_several_cores())
            .flat_map(|(guest, list)| list.iter().map(move |&priority| (priority, guest)))
    };
    let most = movers().max_by_key(|it| it.0);
    let least = movers().min_by_key(|it| it.0);
    let Some(((most, higher), (least, other))) = most.zip(least).filter(|(a, b)| a.0 != b.0) else {
        return true;
    };
    let message = format!(
        "under policy \"trap\", vCPUs that change cores must have one priority, not {} and {}",
        least.0, most.0
    );
    let problem = Problem::new("trap-priorities", message);
    problems.push(match higher.name.span == other.name.span {
        true => problem
            .at(priority_span(higher), "different priorities")
            .help("write one number for all of its vCPUs, or choose policy = \"steal\""),
        false => problem
            .at(
                priority_span(higher),
                "has the higher priority, and its core is not known in advance",
            )
            .at(priority_span(other), "its kernel would be preempted there")
            .help(
                "keep the one with the higher priority on one core (one home, no `cores`), or choose policy = \"steal\"",
            ),
    });
    false
}

/// The span of its priority; if it has none, that of its vCPUs.
fn priority_span(guest: &Guest) -> Span {
    match &guest.priority {
        Some(Priorities::All(priority)) => priority.span,
        Some(Priorities::PerVcpu(list)) => list.span,
        None => guest.vcpus.span,
    }
}

/// Under `trap` a guest's kernel runs only on cores without a vCPU of a higher band.
fn cores_for_kernels(description: &Description, problems: &mut Vec<Problem>) {
    let priorities = resolve_priorities(description);
    let vcpus = |of: usize| -> Vec<(u64, Priority)> {
        let homes = description.guests[of].vcpus.value.iter().map(|it| it.value);
        homes.zip(priorities[of].iter().copied()).collect()
    };
    let moving =
        (0..description.guests.len()).filter(|&of| description.guests[of].has_several_cores());
    let Some(most_urgent) = moving
        .clone()
        .flat_map(vcpus)
        .map(|(_, priority)| priority)
        .max()
    else {
        return;
    };
    let is_shared = |core: u64| {
        (0..description.guests.len())
            .flat_map(vcpus)
            .any(|(home, priority)| home == core && priority > most_urgent)
    };
    for guest in moving {
        let guest = &description.guests[guest];
        if guest.all_cores().all(|core| is_shared(core.value)) {
            let message = format!(
                "under policy \"trap\", no core is left for the kernel of guest \"{}\"",
                guest.name.value
            );
            problems.push(
                Problem::new("no-core-for-kernel", message)
                    .at(
                        guest.vcpus.span,
                        "each of these cores has a vCPU of higher priority",
                    )
                    .help(
                        "give it a core that no guest of higher priority uses, or choose another policy",
                    ),
            );
        }
    }
}
