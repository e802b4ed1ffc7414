// SPDX-License-Identifier: MIT OR Apache-2.0
//! More vCPUs than cores: vCPUs of one priority share cores in time slices, higher priorities come first, no timer is lost.

use boot_tests::{Boot, linux, probe, rt};

/// Three guests that never pause share one core in time slices.
#[test]
fn three_guests_of_one_priority_on_one_core() {
    let names = ["one", "two", "three"];
    let mut boot = Boot::new("three_guests_of_one_priority_on_one_core");
    for name in names {
        boot = boot.guest(probe(name, "suite=spin ms=3000", &[0]));
    }
    let console = boot.run();
    console.machine_ended();
    let loops = names.map(|name| console.number(name, "spin-result", "loops"));
    let most = loops.into_iter().max().unwrap_or(0);
    for (name, loops) in names.into_iter().zip(loops) {
        console.probe_is_well(name);
        // With time slices they get about as far as each other; a guest that had to wait for the others would not.
        console.demand(
            loops >= most / 4,
            &format!("{name} had too little of the core"),
        );
    }
}

/// A guest that checks its own state while others of the same priority always want the core.
#[test]
fn watcher_among_guests_of_its_priority() {
    let console = Boot::new("watcher_among_guests_of_its_priority")
        .guest(probe("spin", "suite=spin ms=4000", &[0]))
        .guest(probe("busy", "suite=watch ms=2000 seed=1", &[0]))
        .guest(probe(
            "sleeper",
            "suite=watch ms=2000 seed=2 sleep=1",
            &[0, 0],
        ))
        .run();
    console
        .probe_is_well("spin")
        .probe_is_well("busy")
        .probe_is_well("sleeper")
        .machine_ended();
}

/// A timer wakes a guest of a higher priority that is switched out while another guest always wants the core.
#[test]
fn sleeper_above_a_spinner() {
    let console = Boot::new("sleeper_above_a_spinner")
        .guest(probe("sleeper", "suite=watch ms=1500 sleep=1", &[0]).priority(200))
        .guest(probe("spin", "suite=spin ms=3000", &[0]).priority(100))
        .run();
    console
        .probe_is_well("sleeper")
        .probe_is_well("spin")
        .machine_ended();
}

/// A guest whose timers expire while a guest of a higher priority has the core gets them all later.
#[test]
fn sleeper_below_a_spinner() {
    let console = Boot::new("sleeper_below_a_spinner")
        .guest(probe("spin", "suite=spin ms=1500", &[0]).priority(200))
        .guest(probe("sleeper", "suite=watch ms=3000 sleep=1", &[0, 0]).priority(100))
        .run();
    console
        .probe_is_well("spin")
        .probe_is_well("sleeper")
        .machine_ended();
}

/// The timer and interrupt suites, while a guest of a higher priority takes the core again and again.
#[test]
fn suites_below_rt() {
    let console = Boot::new("suites_below_rt")
        .cores(2)
        .guest(rt("period=1ms load=40% burst=10ms duration=8s"))
        .guest(probe("timer", "suite=timer", &[0, 1]))
        .guest(probe("gic", "suite=gic", &[0, 1]))
        .run();
    console
        .rt_is_well("rt")
        .probe_is_well("timer")
        .probe_is_well("gic")
        .machine_ended();
}

#[test]
fn linux_four_cpus_on_one_core() {
    let console = Boot::new("linux_four_cpus_on_one_core")
        .guest(rt("period=1ms load=30% duration=5s"))
        .guest(linux("selfcheck", "expects=4", &[0, 0, 0, 0]))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "selfcheck")
        .machine_ended();
}

#[test]
fn linux_eight_cpus_on_two_cores() {
    let console = Boot::new("linux_eight_cpus_on_two_cores")
        .cores(2)
        .memory_mib(1024)
        .guest(rt("period=1ms load=30% duration=5s"))
        .guest(linux("selfcheck", "expects=8", &[0, 1, 0, 1, 0, 1, 0, 1]))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "selfcheck")
        .machine_ended();
}
