// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that attacks through all that it owns, beside a real-time guest on the same core, on the exact clock. The figure `hostile`
//! (`spm bench hostile`) measures more attacks, beside a Linux.

use boot_tests::{Boot, Console, probe, rt};

/// The longest wait of the real-time task, in instructions.
const LONGEST: u64 = 3_000;

fn attack(kind: &str) -> String {
    format!("suite=attack kind={kind} ms=500")
}

fn beside_rt(kind: &str) -> Boot {
    Boot::new(&format!("attack_{kind}_causes_no_delay"))
        .policy("steal")
        .cores(2)
        .exact()
        .guest(rt("period=100us load=10% duration=400ms"))
        .guest(probe("hostile", &attack(kind), &[0, 0, 1]))
}

fn causes_no_delay(kind: &str) {
    bounds_the_wait(kind, &beside_rt(kind).run());
}

fn bounds_the_wait(kind: &str, console: &Console) {
    console.probe_is_well("hostile");
    let longest = console.longest_wait("rt");
    println!("{kind}: at most {longest} instructions");
    assert!(longest <= LONGEST, "{kind}: {longest}");
}

#[test]
fn attacks_with_timers_and_sgis_cause_no_delay() {
    for kind in ["timers-past", "sgi-all", "gicr-pend", "end-anything"] {
        causes_no_delay(kind);
    }
}

#[test]
fn attacks_with_calls_and_instructions_cause_no_delay() {
    for kind in [
        "cpu-on-off",
        "powerdown",
        "smccc-anything",
        "random-instructions",
    ] {
        causes_no_delay(kind);
    }
}

/// Over a memory link, a network link and a vsock link to another guest that does the same.
#[test]
fn attacks_over_links_cause_no_delay() {
    for kind in ["link-registers", "frames", "packets", "broken-chains"] {
        let console = beside_rt(kind)
            .guest(probe("peer", &attack(kind), &[0, 1]))
            .memory_link("hostile", "peer")
            .network_link("hostile", "peer")
            .vsock_link("hostile", "peer")
            .run();
        console.probe_is_well("peer");
        bounds_the_wait(kind, &console);
    }
}

/// How often a guest of the same priority on core 0 computes its loop, while another guest does this on both cores.
fn loops_beside(kind: &str) -> u64 {
    let attack = format!("suite=attack kind={kind} ms=400");
    let console = Boot::new(&format!("attack_{kind}_beside_an_equal"))
        .policy("none")
        .cores(4)
        .exact()
        .guest(probe("equal", "suite=spin ms=300", &[0]))
        .guest(probe("hostile", &attack, &[0, 1, 1, 2, 2, 3, 3, 3]))
        .run();
    console.probe_is_well("equal").probe_is_well("hostile");
    console.number("equal", "spin-result", "loops")
}

#[test]
fn a_storm_leaves_an_equal_guest_its_turns() {
    let fair = loops_beside("spin");
    for kind in ["sgi-all", "sgi-group-0"] {
        let loops = loops_beside(kind);
        println!("{kind}: {loops} of {fair} loops");
        assert!(loops >= fair / 2, "{kind}: {loops} of {fair} loops");
    }
}

/// A guest of a higher priority that sleeps, with many pending SPIs that it masks, is not woken for them again and again: a guest of a
/// lower priority is done long before.
#[test]
fn a_sleeping_guest_with_masked_interrupts_leaves_the_core_to_a_lower_one() {
    let sleeper = probe("sleeper", "suite=words attack=sleep ms=9000", &[0]);
    let console = Boot::new("a_sleeping_guest_with_masked_interrupts")
        .policy("none")
        .cores(1)
        .exact_until_us(1_000_000)
        .guest(probe("lower", "suite=spin ms=300", &[0]))
        .guest(sleeper.priority(150))
        .run();
    let loops = console.number("lower", "spin-result", "loops");
    println!("{loops} loops");
    assert!(loops > 1_000_000, "{loops} loops");
}
