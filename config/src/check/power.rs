// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether cores can go off as `[power]` says.

use crate::description::{CoresOn, Description};
use crate::packed::{Policy, PowerMode};
use crate::problem::Problem;
use crate::roles::{self, Member};
use crate::types::{Band, GuestId, MAX_PCPUS, PcpuId};

pub(super) fn check(description: &Description, problems: &mut Vec<Problem>) {
    check_setters(description, problems);
    let Some(power) = &description.power else {
        return;
    };
    let policy = description.scheduler.policy;
    let is_performance = power.mode.value == PowerMode::Performance;
    if policy.value != Policy::Steal && is_performance {
        if let Some(cores_on) = power.cores_on {
            problems.push(
                Problem::new(
                    "power-unused",
                    "`cores-on` has no effect: cores go off only under policy \"steal\", so all stay on in every mode",
                )
                .at(cores_on.span, "has no effect")
                .at(policy.span, "under this policy")
                .help("remove it, or write policy = \"steal\""),
            );
        }
        return;
    }
    if policy.value != Policy::Steal {
        let problem = Problem::new(
            "power-policy",
            "a core goes off only if its vCPUs can move to others, under policy \"steal\"",
        )
        .at(power.mode.span, "cores go off in this mode");
        problems.push(match description.scheduler.names_policy {
            true => problem
                .at(policy.span, "another policy")
                .help("write policy = \"steal\", or remove [power]"),
            false => {
                problem.help("give a guest several cores, as vcpus = [0, 1], or remove [power]")
            }
        });
        return;
    }
    let cores = description.board.cores.value;
    let stay = stay_on(description);
    let count = u64::from(stay.count_ones());
    if let Some(cores_on) = power.cores_on {
        let CoresOn { least, most } = cores_on.value;
        if u64::from(most) > cores {
            let message =
                format!("`cores-on` has up to {most} cores on, and the system uses {cores}");
            problems.push(
                Problem::new("cores-on", message)
                    .at(cores_on.span, "more than there are")
                    .at(description.board.cores.span, "so many are used")
                    .help(format!(
                        "write cores-on = \"{}..{cores}\", or raise `cores` in [board]",
                        u64::from(least).min(cores)
                    )),
            );
            return;
        }
        if count > u64::from(most) {
            let message = format!(
                "`cores-on` has at most {most} on, and {count} cores must stay on for vCPUs that cannot move to another one"
            );
            let mut problem =
                Problem::new("cores-on", message).at(cores_on.span, "fewer than must stay on");
            for guest in description
                .guests
                .iter()
                .filter(|it| !it.moves(Policy::Steal))
            {
                problem = problem.at(guest.vcpus.span, "its vCPUs stay on these cores");
            }
            problems.push(problem.help(format!(
                "write cores-on = \"{}..{}\"; or give these guests a common core, or `cores` to move to",
                least.max(u8::try_from(count).unwrap_or(u8::MAX)),
                cores
            )));
            return;
        }
    }
    let least = power.cores_on.map_or(1, |it| u64::from(it.value.least));
    if cores > 0 && count.max(least) >= cores && !is_performance {
        let problem = Problem::new("no-core-off", "no core can go off in this system")
            .at(power.mode.span, "has no effect");
        problems.push(match count >= cores {
            true => problem.help(
                "each core has vCPUs that cannot move to another one: give such guests a common core, or `cores` to move to; or remove [power]",
            ),
            false => problem.help("allow fewer cores in `cores-on`, or remove [power]"),
        });
    }
}

/// A guest may set the mode only where cores go off in some mode.
fn check_setters(description: &Description, problems: &mut Vec<Problem>) {
    let goes_off = description.power.is_some() && can_go_off(description);
    for guest in &description.guests {
        if let Some(key) = guest.sets_power.filter(|it| it.value && !goes_off) {
            let message = format!(
                "guest \"{}\" may set the mode of [power], and all cores stay on in every mode",
                guest.name.value
            );
            let problem = Problem::new("sets-power", message).at(key.span, "has no effect");
            problems.push(match description.power.is_some() {
                false => problem.help("add [power] with a `mode`, or remove `sets-power`"),
                true => problem.help(
                    "cores go off only under policy \"steal\", and only those without vCPUs that cannot move: change that, or remove `sets-power`",
                ),
            });
        }
    }
}

/// Whether cores can go off in some mode, whatever `cores-on` says.
fn can_go_off(description: &Description) -> bool {
    description.scheduler.policy.value == Policy::Steal
        && u64::from(stay_on(description).count_ones()) < description.board.cores.value
}

/// The cores that stay on.
fn stay_on(description: &Description) -> u32 {
    let guests = || (0..).map(GuestId).zip(&description.guests);
    let home = |core: u64| {
        u8::try_from(core)
            .ok()
            .filter(|it| usize::from(*it) < MAX_PCPUS)
    };
    let members: Vec<_> = guests()
        .flat_map(|(id, guest)| {
            let homes = guest
                .vcpus
                .value
                .iter()
                .filter_map(move |it| home(it.value));
            homes.map(move |home| Member {
                guest: id,
                moves: guest.moves(Policy::Steal),
                // It does not matter here.
                band: Band::LOWEST,
                home: PcpuId(home),
            })
        })
        .collect();
    let moving = guests().filter(|(_, guest)| guest.moves(Policy::Steal));
    roles::stay_on(&members, moving.map(|(_, guest)| guest.core_set()))
}
