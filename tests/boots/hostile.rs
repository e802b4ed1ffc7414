// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that do all they can to disturb: no other guest is affected, and the hypervisor runs on.

use boot_tests::{Boot, ESCAPE, environment, probe};

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

/// The words from one report to the next of `suite=instructions`.
const WORDS_REPORTED: u64 = 1 << 16;

/// Two guests execute random words as instructions, `words` in all, beside two that check their own results. They end their lives now and
/// then, and their watchdogs restart them. `machine`: with `cores` cores.
fn executes(machine: Boot, cores: usize, words: u64) {
    let attacker = |name: &str, core| {
        probe(name, "suite=instructions", &[core])
            .memory("192MiB")
            .watched("10s")
            .takes_aborts()
    };
    let last = cores - 1;
    let homes = [0, last];
    let mut machine = machine
        .cores(cores)
        .memory_mib(512)
        .limit(120 + words / 10_000)
        .guest(attacker("one", 0))
        .guest(attacker("two", last))
        .guest(probe("good", "suite=watch ms=3000 seed=5", &homes))
        .guest(probe("sleeper", "suite=watch ms=3600000 seed=6 sleep=1", &homes).priority(200))
        .start();
    let console = machine.wait_until(&format!("{words} random words"), |console| {
        console.expect_not("sleeper", "FAIL");
        let reports: usize = ["one", "two"]
            .map(|guest| console.count(guest, "instructions executed"))
            .iter()
            .sum();
        reports as u64 * WORDS_REPORTED >= words
    });
    console.probe_is_well("good");
    machine.type_keys(&format!("{ESCAPE}xx"));
    machine.finish().expect("spumone", "the machine goes off");
}

#[test]
fn hostile_random_instructions() {
    executes(Boot::new("hostile_random_instructions"), 2, 1 << 19);
}

/// More of them: as many million as `SPUMONE_MILLIONS` says. On one core, with time counted in instructions, QEMU executes more than twice as many
/// in the same time.
#[test]
#[ignore = "long"]
fn matrix_hostile_random_instructions() {
    let millions = environment::number("SPUMONE_MILLIONS", 20);
    let machine = Boot::new("matrix_hostile_random_instructions").qemu([
        "-icount",
        "shift=2,sleep=off",
        "-accel",
        "tcg,tb-size=128",
    ]);
    executes(machine, 1, millions * 1_000_000);
}

/// Thirty seeds.
#[test]
#[ignore = "long"]
fn matrix_hostile_seeds() {
    for seed in 100..130 {
        boot(&format!("matrix_hostile_seed_{seed}"), seed, &[0, 1, 1]);
    }
}
