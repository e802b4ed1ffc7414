// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storms of interrupts that a guest sends to its own vCPUs, and of accesses to its distributor, on the exact clock. They delay a
//! real-time guest of a higher priority on the same core by a bounded time, also where vCPUs change cores.

use boot_tests::{Boot, probe, rt};

/// How many instructions later than under `none` the real-time task may begin. The longest wait that one run finds depends on where
/// in a path the 600 periods fall.
const MORE_THAN_NONE: u64 = 600;
/// The longest wait: the switch, and what EL2 does for a storm before it looks for interrupts. A search of 256 pending SPIs without a
/// look takes 18,000.
const LONGEST: u64 = 3_000;
/// The virtual distributor has as many SPIs as the highest SPI of the guest needs.
const MOST_SPIS: u64 = 256;

/// A device whose interrupt is the last SPI, so that the guest that owns it has all 256.
const LAST_SPI: &str = r#"
[[device]]
name = "last-spi"
node = "device"
compatible = ["test,last-spi"]
base = 0x0903_0000
size = "4KiB"
interrupts = [287]
trigger = "level"
"#;

/// The longest time from the moment when a period is due to the first instruction of its task, in instructions, beside a guest that
/// runs this suite, with so many SPIs. The suite takes longer than the real-time guest runs: to stop a guest is another long path.
fn longest_dispatch(boot: Boot, suite: &str, cores: &[usize], spis: u64) -> u64 {
    let mut boot = boot.cores(4).exact();
    let mut guest = probe("hostile", suite, cores);
    if spis == MOST_SPIS {
        boot = boot.board(LAST_SPI);
        guest = guest.devices(&["last-spi"]);
    }
    let console = boot
        .guest(rt("period=1ms load=10% duration=600ms"))
        .guest(guest)
        .run();
    console.probe_is_well("hostile").longest_wait("rt")
}

fn causes_no_delay(name: &str, quantum: &str, pending: u64) {
    let storm = format!("suite=storm ms=700 pending={pending}");
    let longest = |policy| {
        let boot = Boot::new(&format!("{name}_{policy}"))
            .policy(policy)
            .quantum(quantum);
        longest_dispatch(boot, &storm, &[0, 0, 1, 2, 3], pending)
    };
    let (without_moves, with_moves) = (longest("none"), longest("steal"));
    println!("{name}: at most {without_moves} instructions under none, {with_moves} under steal");
    assert!(
        with_moves <= without_moves + MORE_THAN_NONE,
        "at most {without_moves} instructions under none, {with_moves} under steal"
    );
    assert!(
        without_moves.max(with_moves) <= LONGEST,
        "{without_moves}, {with_moves}"
    );
}

#[test]
fn a_storm_of_sgis_causes_no_delay() {
    causes_no_delay("a_storm_of_sgis_causes_no_delay", "2ms", 32);
}

#[test]
fn a_storm_beside_256_pending_spis_causes_no_delay() {
    causes_no_delay(
        "a_storm_beside_256_pending_spis_causes_no_delay",
        "2ms",
        MOST_SPIS,
    );
}

#[test]
fn a_storm_beside_256_pending_spis_causes_no_delay_with_short_turns() {
    causes_no_delay(
        "a_storm_beside_256_pending_spis_causes_no_delay_with_short_turns",
        "100us",
        MOST_SPIS,
    );
}

/// One access to a register of the distributor concerns 32 SPIs, all of which are pending.
fn accesses_cause_no_delay(attack: &str) {
    let words = format!("suite=words ms=700 spis={MOST_SPIS} attack={attack}");
    let boot = Boot::new(&format!("accesses_to_256_spis_cause_no_delay_{attack}")).policy("none");
    let longest = longest_dispatch(boot, &words, &[0, 0, 1, 2], MOST_SPIS);
    println!("{attack}: at most {longest} instructions");
    assert!(longest <= LONGEST, "{attack}: {longest}");
}

#[test]
fn accesses_to_256_spis_cause_no_delay() {
    for attack in ["pend", "sleep", "stay-active"] {
        accesses_cause_no_delay(attack);
    }
}

#[test]
#[ignore = "long"]
fn matrix_accesses_to_256_spis_cause_no_delay() {
    let attacks = [
        "clear", "enable", "activate", "group", "route", "edge", "priority", "read",
    ];
    attacks.into_iter().for_each(accesses_cause_no_delay);
}
