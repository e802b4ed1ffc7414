// SPDX-License-Identifier: MIT OR Apache-2.0
//! Restarted guests find a machine as after power on.

use boot_tests::{Boot, probe};

/// Restarts a guest until it has had `lives` lives, then has it end.
fn boot(name: &str, lives: usize, homes: &[usize]) {
    let cores = homes.iter().max().map_or(1, |last| last + 1);
    let mut machine = Boot::new(name)
        .cores(cores)
        // Runs longer than all lives; it is stopped with the machine.
        .guest(probe("good", "suite=watch ms=1000 seed=4", &[0]).priority(100))
        .guest(
            probe("lives", "suite=lives", homes)
                .priority(90)
                .memory("8MiB"),
        )
        .start();
    machine.wait_until(&format!("{lives} lives"), |console| {
        console.expect_not("lives", "FAIL");
        console.count("lives", "life-ok") >= lives
    });
    // Typed keys may be lost when a life ends.
    machine.type_until("q", "spumone", "guest lives is off");
    let console = machine.finish();
    console
        .expect("lives", "PASS lives")
        .expect_not("lives", "FAIL")
        .demand(
            console.count("spumone", "guest lives restarts") >= lives - 1,
            "the hypervisor does not report all restarts",
        )
        .probe_is_well("good")
        .machine_ended();
}

#[test]
fn lives_hundred_one_vcpu() {
    boot("lives_hundred_one_vcpu", 100, &[0]);
}

#[test]
fn lives_hundred_four_vcpus() {
    boot("lives_hundred_four_vcpus", 100, &[0, 1, 2, 3]);
}

#[test]
fn lives_four_vcpus_on_one_core() {
    boot("lives_four_vcpus_on_one_core", 10, &[0, 0, 0, 0]);
}
