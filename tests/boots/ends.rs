// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that end, and are reset, beside a real-time guest on the same core, on the exact clock. To stop a guest, and to report its
//! fault, takes thousands of instructions; the real-time guest waits for a short part of that.

use boot_tests::{Boot, probe, rt};

/// The longest wait of the real-time task, in instructions.
const LONGEST: u64 = 3_000;

fn resets_cause_no_delay(policy: &'static str, cores: &[usize]) {
    let name = format!("resets_cause_no_delay_{policy}_{}", cores.len());
    let console = Boot::new(&name)
        .policy(policy)
        .quantum("100us")
        .cores(4)
        .exact()
        .guest(rt("period=100us load=10% duration=600ms"))
        .guest(probe("resets", "suite=ends how=reset until_ms=700", cores).memory("4MiB"))
        .run();
    console.probe_is_well("resets");
    let lives = console.count("spumone", "guest resets restarts");
    console.demand(lives > 20, &format!("only {lives} lives"));
    let longest = console.longest_wait("rt");
    println!("{name}: {lives} lives, at most {longest} instructions");
    assert!(longest <= LONGEST, "{longest}");
}

#[test]
fn resets_of_a_guest_on_one_core_cause_no_delay() {
    resets_cause_no_delay("none", &[0]);
    resets_cause_no_delay("none", &[0; 8]);
}

#[test]
fn resets_of_a_guest_on_four_cores_cause_no_delay() {
    resets_cause_no_delay("steal", &[0, 0, 0, 0, 0, 1, 2, 3]);
}

/// Guests that touch what they do not own, shortly before or while the real-time task is due.
#[test]
fn faults_cause_no_delay() {
    let mut boot = Boot::new("faults_cause_no_delay")
        .policy("none")
        .cores(4)
        .exact()
        .guest(rt("period=100us load=10% duration=600ms"));
    let guests = 6;
    for guest in 0..guests {
        let name = format!("bad{guest}");
        let suite = format!("suite=ends how=fault until_ms={}", 100 + 40 * guest);
        boot = boot.guest(probe(&name, &suite, &[0, 0, 0, 0, 0]));
    }
    let console = boot.run();
    for guest in 0..guests {
        console
            .expect("spumone", &format!("guest bad{guest} stopped: vcpu "))
            .expect("spumone", "ipa=0x3fff0000")
            .expect("spumone", &format!("guest bad{guest} was stopped"));
    }
    let longest = console.longest_wait("rt");
    println!("faults: at most {longest} instructions");
    assert!(longest <= LONGEST, "{longest}");
}
