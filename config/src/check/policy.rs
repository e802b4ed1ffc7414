//! Whether a policy against lock-holder preemption has what it needs: other cores, and options that are for it.

use super::resolve_priorities;
use crate::description::{Description, Guest};
use crate::packed::Policy;
use crate::problem::Problem;
use crate::types::Priority;

pub(super) fn check(description: &Description, problems: &mut Vec<Problem>) {
    delay_while(description, problems);
    let policy = description.scheduler.policy;
    let moves = match policy.value {
        Policy::None | Policy::Delay | Policy::Cosched => return,
        Policy::Steal | Policy::OnDemand | Policy::Trap | Policy::Balance | Policy::Random => {
            description.guests.iter().any(has_several_cores)
        }
    };
    if !moves {
        let message = "the policy lets vCPUs change cores, but each guest has one core only";
        let help = match description.board.cores.value {
            0 | 1 => "use `cores = 2` or more in [board], and list several home cores for a guest",
            _ => "list several home cores for a guest, as vcpus = [0, 1]",
        };
        problems.push(
            Problem::new("no-other-core", message)
                .at(policy.span, "needs a second core")
                .help(format!("{help}; or choose policy = \"none\"")),
        );
    } else if policy.value == Policy::Trap {
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
            Problem::new("delay-while", "only policy \"delay\" puts others off")
                .at(written.span, "of no use to this policy")
                .help("leave it out, or write policy = \"delay\""),
        );
    } else if let Some(span) = scheduler.reads_preempt_count()
        && !description.guests.iter().any(Guest::is_smp_linux)
    {
        let message = "there is no guest whose `preempt_count` could be read";
        problems.push(
            Problem::new("no-preempt-count", message)
                .at(span, "of guests of kind \"linux\" with several vCPUs")
                .help("write delay-while = \"in-kernel\", or give a guest of kind \"linux\" several vCPUs"),
        );
    }
}

fn has_several_cores(guest: &Guest) -> bool {
    let mut cores = guest.all_cores().map(|core| core.value);
    let first = cores.next();
    cores.any(|core| Some(core) != first)
}

/// Under `trap` a guest's kernel runs only where nobody is more urgent.
fn cores_for_kernels(description: &Description, problems: &mut Vec<Problem>) {
    let priorities = resolve_priorities(description);
    let vcpus = |of: usize| -> Vec<(u64, Priority)> {
        let homes = description.guests[of].vcpus.value.iter().map(|it| it.value);
        homes.zip(priorities[of].iter().copied()).collect()
    };
    let moving =
        (0..description.guests.len()).filter(|&of| has_several_cores(&description.guests[of]));
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
                        "each of these cores has a more urgent vCPU",
                    )
                    .help(
                        "give it a core that no more urgent guest uses, or choose another policy",
                    ),
            );
        }
    }
}
