// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that do all they can to disturb: no other guest is affected, and the hypervisor runs on.

use boot_tests::{Boot, ESCAPE, probe};

fn boot(name: &str, seed: u64, homes: &[usize]) {
    let hostile = format!("suite=hostile seed={seed} ops=8000");
    let console = Boot::new(name)
        .cores(2)
        .guest(probe("hostile", &hostile, homes))
        .guest(probe("good", "suite=watch ms=3000 seed=5", &[0, 1]))
        .guest(probe("sleeper", "suite=watch ms=3000 seed=6 sleep=1", &[0, 1]).priority(200))
        .run();
    console
        .probe_is_well("good")
        .probe_is_well("sleeper")
        .expect("hostile", "PASS hostile")
        .machine_ended();
}

#[test]
fn hostile_one_vcpu() {
    boot("hostile_one_vcpu", 1, &[0]);
}

#[test]
fn hostile_four_vcpus() {
    boot("hostile_four_vcpus", 2, &[0, 1, 0, 1]);
}

/// It also resets itself at random times, as long as the other guest runs.
#[test]
fn hostile_resets() {
    let mut machine = Boot::new("hostile_resets")
        .cores(2)
        .guest(probe(
            "hostile",
            "suite=hostile reset=1 ops=1000000000",
            &[0, 1],
        ))
        .guest(probe("good", "suite=watch ms=5000 seed=7", &[0, 1]))
        .start();
    let console = machine.wait_for("spumone", "guest good is off");
    console.probe_is_well("good").demand(
        console.count("hostile", "hostile begins") > 3,
        "it was not reset",
    );
    machine.type_keys(&format!("{ESCAPE}xx"));
    machine.finish().expect("spumone", "the machine goes off");
}

/// Thirty seeds.
#[test]
#[ignore = "long"]
fn matrix_hostile_seeds() {
    for seed in 100..130 {
        boot(&format!("matrix_hostile_seed_{seed}"), seed, &[0, 1, 1]);
    }
}
