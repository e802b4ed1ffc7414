// SPDX-License-Identifier: MIT OR Apache-2.0
//! The systems: each is the usual one, changed.

use super::super::loads::CORES;
use crate::machine::{Machine, Run};
use crate::system::{LINUX_PRIORITY, RT_PRIORITY, Rt, rt_name};

/// Priority of the vCPU of Linux that comes before the real-time guest.
pub(super) const ABOVE_PRIORITY: u8 = 250;
const _: () = assert!(ABOVE_PRIORITY > RT_PRIORITY);

/// Policies that do not have the shape `above`. Under the first three the real-time guest would have to stay below the vCPU
/// that comes before it; `trap` wants one priority for all vCPUs that change cores.
const NOT_ABOVE: [&str; 4] = ["none", "delay", "cosched", "trap"];

/// A system of four cores, with one Linux.
#[derive(Debug, PartialEq)]
pub(super) struct Shape {
    /// The name in labels and on the page.
    pub(super) name: &'static str,
    /// What it is, in words.
    pub(super) what: &'static str,
    /// Number of Linux's vCPUs.
    vcpus: u32,
    /// Number of real-time guests, on cores 0, 1, …
    pub(super) guests: usize,
    /// Whether a vCPU of Linux on core 0 has a higher priority than the real-time guest, which may leave that core.
    above: bool,
}

/// The system of all other figures.
pub(super) const USUAL: Shape = Shape {
    name: "usual",
    what: "one real-time guest on core 0, a Linux of four vCPUs",
    vcpus: CORES,
    guests: 1,
    above: false,
};

/// All shapes, in the order of the page.
pub(super) const ALL: [Shape; 5] = [
    USUAL,
    Shape {
        name: "two-rt",
        what: "two real-time guests, on cores 0 and 1",
        guests: 2,
        ..USUAL
    },
    Shape {
        name: "six",
        what: "a Linux of six vCPUs",
        vcpus: 6,
        ..USUAL
    },
    Shape {
        name: "eight",
        what: "a Linux of eight vCPUs",
        vcpus: 8,
        ..USUAL
    },
    Shape {
        name: "above",
        what: "a vCPU of Linux on core 0 has a higher priority than the real-time guest, which may move to any core",
        above: true,
        ..USUAL
    },
];

impl Shape {
    /// The shapes of a policy.
    pub(super) fn of(policy: &str) -> impl Iterator<Item = &'static Self> {
        let has_above = !NOT_ABOVE.contains(&policy);
        ALL.iter().filter(move |it| has_above || !it.above)
    }

    /// Names of the real-time guests.
    pub(super) fn guest_names(&self) -> impl Iterator<Item = String> {
        (0..self.guests).map(rt_name)
    }

    /// A run of the usual system as one of this shape. Linux's CPU 0 is on core `first`, the others on the next ones in turn.
    pub(super) fn shaped(&self, mut run: Run, first: u32) -> Run {
        if let Machine::Spumone(system) = &mut run.machine {
            let usual = system.rt.first().cloned();
            system.rt = (0..)
                .zip(usual.into_iter().cycle())
                .take(self.guests)
                .map(|(core, usual)| Rt {
                    core,
                    cores: match self.above {
                        true => (0..CORES).collect(),
                        false => Vec::new(),
                    },
                    ..usual
                })
                .collect();
            if let Some(linux) = &mut system.linux {
                linux.cpus = self.vcpus;
                linux.homes = (first..first + self.vcpus).map(|it| it % CORES).collect();
                if self.above {
                    let priority = |&home: &u32| match home {
                        0 => ABOVE_PRIORITY,
                        _ => LINUX_PRIORITY,
                    };
                    linux.priorities = linux.homes.iter().map(priority).collect();
                }
            }
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::{loads, plan};
    use crate::linux::Linux;

    fn parts(name: &str, first: u32) -> (Vec<Rt>, Linux) {
        let shape = ALL.iter().find(|it| it.name == name).unwrap();
        let run = shape.shaped(loads().run(&plan(), "steal", 50), first);
        match run.machine {
            Machine::Spumone(system) => {
                assert_eq!(system.cores, 4);
                (system.rt, system.linux.unwrap())
            }
            _ => panic!("not a system"),
        }
    }

    #[test]
    fn the_usual_shape_is_that_of_the_other_figures() {
        let run = loads().run(&plan(), "steal", 50);
        assert_eq!(USUAL.shaped(run.clone(), 1), run);
    }

    #[test]
    fn two_real_time_guests_have_the_same_load_on_cores_of_their_own() {
        let (rt, linux) = parts("two-rt", 2);
        assert_eq!(rt.iter().map(|it| it.core).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(rt[0].bootargs, rt[1].bootargs);
        assert_eq!(linux.homes, [2, 3, 0, 1]);
    }

    #[test]
    fn vcpus_that_are_more_than_cores_go_round() {
        let (rt, linux) = parts("six", 1);
        assert_eq!((rt.len(), linux.cpus), (1, 6));
        assert_eq!(linux.homes, [1, 2, 3, 0, 1, 2]);
        assert!(linux.priorities.is_empty());
    }

    #[test]
    fn above_has_one_vcpu_that_comes_before_a_real_time_guest_that_may_leave() {
        let (rt, linux) = parts("above", 1);
        assert_eq!(rt[0].cores, [0, 1, 2, 3]);
        assert_eq!(linux.homes, [1, 2, 3, 0]);
        assert_eq!(linux.priorities, [100, 100, 100, 250]);
        let names = |policy| Shape::of(policy).map(|it| it.name).collect::<Vec<_>>();
        assert!(names("steal").contains(&"above"));
        assert_eq!(names("none"), ["usual", "two-rt", "six", "eight"]);
    }
}
