// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that do all they can to disturb: no other guest is affected, and the hypervisor runs on.

use boot_tests::{Boot, Console, ESCAPE, environment, probe};

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

/// The words after which the test says how far it is.
const WORDS_PRINTED: u64 = 10_000_000;
/// The words from one report to the next of `suite=instructions`.
const WORDS_REPORTED: u64 = 1 << 16;

/// The guests that execute random words, each with the key that selects it on the console.
const EXECUTE: [(&str, &str); 2] = [("one", "1"), ("two", "2")];

/// How many words these guests have reported.
fn executed(console: &Console) -> u64 {
    let reports = EXECUTE.map(|(guest, _)| console.count(guest, "instructions executed"));
    reports.iter().sum::<usize>() as u64 * WORDS_REPORTED
}

/// How often each of them has turned itself off.
fn ends(console: &Console) -> [usize; 2] {
    EXECUTE.map(|(guest, _)| console.count("spumone", &format!("guest {guest} is off")))
}

/// Two guests execute random words as instructions, `words` in all, beside two that check their own results. They end their lives now and
/// then, and their watchdogs restart them; the operator restarts those that have turned themselves off. `machine` has `cores` cores;
/// `suite`, `watchdog`: the boot arguments of the two guests, and their watchdogs.
fn executes(machine: Boot, cores: usize, suite: &str, watchdog: &str, words: u64) {
    let attacker = |name: &str, core| {
        probe(name, suite, &[core])
            .memory("192MiB")
            .watched(watchdog)
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
        // With two CPUs, each would wake the other by the SGI of its check, and neither would ever sleep.
        .guest(probe("sleeper", "suite=watch ms=3600000 seed=6 sleep=1", &[0]).priority(200))
        .start();
    let mut ended = [0; 2];
    let mut reported = 0;
    let console = loop {
        let next = words.min(reported + WORDS_PRINTED);
        let what = format!("{words} random words");
        let console = machine.wait_until(&what, |console| {
            console.expect_not("sleeper", "FAIL");
            executed(console) >= next || ends(console) != ended
        });
        reported = executed(&console);
        if reported >= words {
            break console;
        }
        let now = ends(&console);
        for (place, (guest, key)) in EXECUTE.into_iter().enumerate() {
            if now[place] != ended[place] {
                println!("guest {guest} is off after {reported} words, and is started again");
                machine.type_keys(&format!("{ESCAPE}{key}{ESCAPE}r"));
            }
        }
        if reported >= next {
            println!("{reported} random words");
        }
        ended = now;
    };
    console.probe_is_well("good");
    machine.type_keys(&format!("{ESCAPE}xx"));
    machine.finish().expect("spumone", "the machine goes off");
}

#[test]
fn hostile_random_instructions() {
    let machine = Boot::new("hostile_random_instructions");
    executes(machine, 2, "suite=instructions", "10s", 1 << 19);
}

/// More of them: as many million as `SPUMONE_MILLIONS` says. On one core, with time counted in instructions, QEMU executes more than twice as many
/// in the same time. If each exception of an attacker causes the next one, QEMU executes few instructions in a second of the host. Time, which is counted in
/// instructions, passes slowly then, so minutes of the host may pass until the attacker's watchdog expires.
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
    executes(
        machine,
        1,
        "suite=instructions longest=100",
        "1s",
        millions * 1_000_000,
    );
}

/// Thirty seeds.
#[test]
#[ignore = "long"]
fn matrix_hostile_seeds() {
    for seed in 100..130 {
        boot(&format!("matrix_hostile_seed_{seed}"), seed, &[0, 1, 1]);
    }
}
