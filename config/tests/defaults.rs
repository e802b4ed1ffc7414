// SPDX-License-Identifier: MIT OR Apache-2.0
//! The defaults of a description.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

use spumone_config::description::{Description, POLICIES, Scheduler};
use spumone_config::packed::Policy;

/// The scheduler of a system with this `[scheduler]` table, and these cores in its only guest.
fn scheduler(table: &str, cores: &str) -> Scheduler {
    let text = format!(
        "[board]\nname = \"qemu-virt\"\ncores = 2\nmemory = \"1GiB\"\n{table}\n\
         [[guest]]\nname = \"a\"\nkind = \"elf\"\nimage = \"a\"\nmemory = \"16MiB\"\n{cores}\n"
    );
    let (description, problems) = Description::parse(&text);
    assert!(problems.is_empty(), "{problems:?}");
    description.unwrap().scheduler
}

#[test]
fn the_default_policy_is_steal_where_a_guest_gains_from_it() {
    for table in ["", "[scheduler]\nquantum = \"1ms\""] {
        for (cores, expected) in [
            ("vcpus = [0, 1]", Policy::Steal),
            ("vcpus = [0]\ncores = [1]", Policy::Steal),
            ("vcpus = [1]", Policy::None),
            ("vcpus = [0, 0]", Policy::Steal),
            ("vcpus = [1]\ncores = [1]", Policy::None),
        ] {
            let scheduler = scheduler(table, cores);
            assert_eq!(scheduler.policy.value, expected, "{table} {cores}");
            assert!(!scheduler.names_policy);
        }
    }
}

#[test]
fn each_policy_has_a_name() {
    let named: Vec<_> = POLICIES.iter().map(|&(_, policy)| policy).collect();
    assert_eq!(named, Policy::ALL);
}

#[test]
fn a_named_policy_is_used() {
    let scheduler = scheduler("[scheduler]\npolicy = \"none\"", "vcpus = [0, 1]");
    assert_eq!(scheduler.policy.value, Policy::None);
    assert!(scheduler.names_policy);
}
