// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks which returns at EL2 a guest can mislead. A core predicts where a return goes from the last calls, and a guest makes calls, too. So a return
//! can be misled if EL2 made its call before the guest ran. The function that enters the guest returns so, and has a barrier for it
//! (`hypervisor/src/hardware/guest.rs`). No other function may: exactly one function calls it, and that caller never returns.

use crate::instruction::{Flow, SIZE, flow};
use crate::problem::Problem;
use crate::program::{FunctionId, Program};
use std::collections::BTreeSet;

/// What is wrong with the callers of the functions that contain ERET. A vector of exceptions that contains one has no callers.
pub fn check(program: &Program) -> Vec<Problem> {
    let all = 0..program.functions.len();
    let enter: BTreeSet<_> = all
        .clone()
        .filter(|&id| flows(program, id).any(|(_, it)| it == Flow::EnterGuest))
        .collect();
    let Some(&first) = enter.first() else {
        return Vec::new();
    };
    let calls = |id: FunctionId| {
        let mut targets = flows(program, id).filter_map(|it| target(it.1));
        targets.any(|to| {
            let callee = program.function_at(to).filter(|&it| it != id);
            callee.is_some_and(|it| enter.contains(&it))
        })
    };
    let callers: Vec<_> = all.filter(|&it| calls(it)).collect();
    let mut problems = Vec::new();
    if callers.len() != 1 {
        let names = callers.iter().map(|&it| &*program.functions[it].name);
        let what = match callers[..] {
            [] => "no function calls what enters a guest (ERET)".into(),
            _ => format!(
                "{} call what enters a guest (ERET)",
                names.collect::<Vec<_>>().join(", ")
            ),
        };
        problems.push(problem(program.functions[first].name.clone(), &what));
    }
    for caller in callers {
        let range = &program.functions[caller].range;
        let leaves = |it: Flow| match it {
            Flow::Return | Flow::BranchRegister => true,
            Flow::Branch(to) | Flow::Conditional(to) => !range.contains(&to),
            _ => false,
        };
        if let Some((at, _)) = flows(program, caller).find(|it| leaves(it.1)) {
            let what = "it returns, and it calls what enters a guest (ERET)";
            problems.push(problem(program.place(caller, at), what));
        }
    }
    problems
}

fn problem(place: String, what: &str) -> Problem {
    let why = "one function has to do that, and never return: a guest can train the core's prediction of returns at EL2, and only the first \
               return after a guest has a barrier (hypervisor/src/hardware/guest.rs)";
    let cure = "enter guests from run_for_ever only, with all that is between inlined there (#[inline(always)])";
    Problem::new(place, format!("{what}; {why}"), cure)
}

/// The instructions of a function, by address.
fn flows(program: &Program, id: FunctionId) -> impl Iterator<Item = (u64, Flow)> {
    let range = program.functions[id].range.clone();
    range.step_by(SIZE as usize).filter_map(|at| {
        let word = program.instruction(at)?;
        Some((at, flow(word, at)))
    })
}

fn target(flow: Flow) -> Option<u64> {
    match flow {
        Flow::Branch(to) | Flow::Conditional(to) | Flow::Call(to) => Some(to),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;
    const ERET: u32 = 0xd69f_03e0;

    fn problems(functions: &[(&str, &str, &[u32])]) -> Vec<String> {
        let program = Program::for_tests(functions);
        check(&program).iter().map(ToString::to_string).collect()
    }

    const WHY: &str = "one function has to do that, and never return: a guest can train the core's prediction of returns at EL2, and only the \
                       first return after a guest has a barrier (hypervisor/src/hardware/guest.rs); enter guests from run_for_ever only, with \
                       all that is between inlined there (#[inline(always)])";

    #[test]
    fn the_function_that_enters_guests_has_one_caller_which_never_returns() {
        // cbz x0, .+4, into itself
        let enter: (&str, &str, &[u32]) = ("enter", "", &[0xb400_0020, ERET]);
        // A vector returns to what it has interrupted.
        let vector: (&str, &str, &[u32]) = ("vector", "", &[ERET]);
        // bl .-8; b .-4
        let run: (&str, &str, &[u32]) = ("run", "", &[0x97ff_fffe, 0x17ff_ffff]);
        assert_eq!(problems(&[("f", "", &[RET])]), Vec::<String>::new());
        assert_eq!(problems(&[vector, enter, run]), Vec::<String>::new());
        // bl .-16; b .-4
        let other: (&str, &str, &[u32]) = ("other", "", &[0x97ff_fffc, 0x17ff_ffff]);
        assert_eq!(
            problems(&[enter, run, other]),
            [format!(
                "enter: run, other call what enters a guest (ERET); {WHY}"
            )]
        );
        assert_eq!(
            problems(&[enter]),
            [format!(
                "enter: no function calls what enters a guest (ERET); {WHY}"
            )]
        );
    }

    #[test]
    fn a_caller_that_leaves_is_refused() {
        let enter: (&str, &str, &[u32]) = ("enter", "", &[NOP, ERET]);
        // ret; b .+4 and cbz x0, .+4, behind the end; br x8
        for leave in [RET, 0x1400_0001, 0xb400_0020, 0xd61f_0100] {
            // bl .-8
            let run = [0x97ff_fffe, leave];
            assert_eq!(
                problems(&[enter, ("run", "", &run), ("f", "", &[RET])]),
                [format!(
                    "run at 0x4020000c: it returns, and it calls what enters a guest (ERET); {WHY}"
                )]
            );
        }
    }
}
