// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rules that need no images: cores, priorities, names, devices.
//!
//! Each rule is a function that appends the problems that it finds; no rule relies on another one.

mod cores;
mod devices;
mod links;
mod local;
mod machine;
mod options;
mod policy;
mod power;
mod priorities;

use crate::board::Board;
use crate::description::Description;
use crate::problem::Problem;

pub(crate) use devices::windows;
pub(crate) use links::ends as link_ends;
pub(crate) use local::parts_of as local_parts;
pub(crate) use priorities::resolve as resolve_priorities;

/// Checks a description against its board. Memory and images are for [`crate::layout`].
pub fn check(description: &Description, board: &Board) -> Vec<Problem> {
    let mut problems = Vec::new();
    machine::check(description, board, &mut problems);
    options::check(description, &mut problems);
    cores::check(description, board, &mut problems);
    priorities::check(description, &mut problems);
    policy::check(description, &mut problems);
    power::check(description, &mut problems);
    devices::check(description, board, &mut problems);
    links::check(description, board, &mut problems);
    local::check(description, board, &mut problems);
    problems
}
