// SPDX-License-Identifier: MIT OR Apache-2.0
//! The yardsticks by which Linux is measured: scenarios of `guests/linux/scenarios/` that print `seconds=`, with an amount
//! of work for a given time on four bare cores.

use super::Plan;
use crate::linux::{Linux, Programs};

/// A yardstick.
pub struct Yardstick {
    /// Its scenario.
    pub name: &'static str,
    /// A short description.
    pub what: &'static str,
    /// Arguments with `{}` for the amount of work.
    arguments: &'static str,
    /// Amount of work that takes four bare cores about one second at the reference speed.
    per_second: f64,
    /// The initial file system that has it.
    programs: Programs,
}

/// All yardsticks.
pub const ALL: &[Yardstick] = &[
    Yardstick {
        name: "hackbench",
        what: "40 processes that send messages: scheduler, wake-ups, kernel locks",
        arguments: "-g 1 -l {}",
        per_second: 400.0,
        programs: Programs::Few,
    },
    Yardstick {
        name: "build",
        what: "a parallel compilation",
        arguments: "copies={}",
        per_second: 2.0,
        programs: Programs::Bench,
    },
    Yardstick {
        name: "forkexec",
        what: "processes and files come and go",
        arguments: "rounds={}",
        per_second: 950.0,
        programs: Programs::Bench,
    },
    Yardstick {
        name: "loopback",
        what: "TCP within the machine",
        arguments: "mib={}",
        per_second: 360.0,
        programs: Programs::Bench,
    },
    Yardstick {
        name: "dhrystone",
        what: "computing only",
        arguments: "loops={}",
        per_second: 3_750_000.0,
        programs: Programs::Bench,
    },
];

/// The yardstick with this name.
///
/// # Errors
///
/// There is none: which there are.
pub fn find(name: &str) -> Result<&'static Yardstick, String> {
    ALL.iter().find(|it| it.name == name).ok_or_else(|| {
        let names: Vec<_> = ALL.iter().map(|it| it.name).collect();
        format!(
            "there is no yardstick \"{name}\"; there are {}",
            names.join(", ")
        )
    })
}

impl Yardstick {
    /// A Linux that measures itself with it: `repeats` times `seconds` on four bare cores.
    pub fn linux(&self, plan: &Plan, cpus: u32, seconds: f64, repeats: u32) -> Linux {
        let work = (self.per_second * seconds * plan.speed()).round().max(1.0);
        let arguments = self.arguments.replace("{}", &format!("{work}"));
        let mut linux = Linux::new(cpus, self.name, &[&arguments, &format!("runs={repeats}")]);
        linux.programs = self.programs;
        linux
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;

    #[test]
    fn work_is_a_whole_number() {
        let linux = find("build").unwrap().linux(&plan(), 4, 0.1, 3);
        assert!(linux.bootargs().ends_with("spumone.args=copies=1,runs=3"));
        let linux = find("hackbench").unwrap().linux(&plan(), 4, 2.5, 1);
        assert!(
            linux
                .bootargs()
                .ends_with("spumone.args=-g,1,-l,1000,runs=1")
        );
    }

    #[test]
    fn an_unknown_yardstick_is_answered_with_the_known() {
        assert!(find("foo").err().unwrap().contains("hackbench"));
    }
}
