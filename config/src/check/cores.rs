// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules on vCPUs and their home cores.

use crate::board::Board;
use crate::description::{Description, Guest};
use crate::problem::Problem;
use crate::types::{MAX_VCPUS, MAX_VCPUS_PER_GUEST};

pub(super) fn check(description: &Description, board: &Board, problems: &mut Vec<Problem>) {
    // If the number of cores is itself wrong, the homes are compared with the board's.
    let has = board.mpidrs.len() as u64;
    let cores = match description.board.cores.value {
        0 => has,
        cores => cores.min(has),
    };
    let mut total = 0;
    for guest in &description.guests {
        count(guest, problems);
        homes(guest, cores, problems);
        let before = total;
        total += guest.vcpus.value.len();
        if before <= MAX_VCPUS && total > MAX_VCPUS {
            let message = format!("{total} vCPUs up to here, but at most {MAX_VCPUS} in a system");
            problems.push(
                Problem::new("too-many-vcpus", message)
                    .at(guest.vcpus.span, "too many with these")
                    .help("give the guests fewer vCPUs"),
            );
        }
    }
}

fn count(guest: &Guest, problems: &mut Vec<Problem>) {
    let count = guest.vcpus.value.len();
    let name = &guest.name.value;
    if count == 0 {
        problems.push(
            Problem::new("no-vcpu", format!("guest \"{name}\" has no vCPU"))
                .at(guest.vcpus.span, "an empty list")
                .help("list the home core of each vCPU: vcpus = [0] is one vCPU on core 0"),
        );
    } else if count > MAX_VCPUS_PER_GUEST {
        let message =
            format!("guest \"{name}\" has {count} vCPUs, but at most {MAX_VCPUS_PER_GUEST}");
        problems.push(
            Problem::new("too-many-vcpus", message)
                .at(guest.vcpus.span, "too many")
                .help(format!("list at most {MAX_VCPUS_PER_GUEST} home cores")),
        );
    }
}

fn homes(guest: &Guest, cores: u64, problems: &mut Vec<Problem>) {
    let homes = guest.vcpus.value.len();
    for (index, home) in guest.all_cores().enumerate() {
        if home.value >= cores {
            let what = if index < homes {
                "is on"
            } else {
                "may move to"
            };
            let message = format!(
                "a vCPU of guest \"{}\" {what} core {}, which does not exist",
                guest.name.value, home.value
            );
            let help = match cores {
                1 => "the system has core 0 only".to_owned(),
                _ => format!("the system has cores 0 to {}", cores - 1),
            };
            problems.push(
                Problem::new("no-such-core", message)
                    .at(home.span, "no such core")
                    .help(format!(
                        "{help}; raise `cores` in [board] or choose another"
                    )),
            );
        }
    }
}
