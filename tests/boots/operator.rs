// SPDX-License-Identifier: MIT OR Apache-2.0
//! The operator's keys are answered whatever guests do: guests that keep all cores, flood the console, or storm
//! with interrupts.

use boot_tests::{Boot, ESCAPE, Guest, probe};

/// Longer than any of these boots.
const SPIN: &str = "suite=spin all=1 ms=3600000";

/// Every key is answered, and the machine ends when that is asked for. The first guest spins.
fn every_key_is_answered(name: &str, policy: &'static str, guests: &[Guest]) {
    let mut boot = Boot::new(name).cores(2).policy(policy).limit(120);
    for guest in guests {
        boot = boot.guest(guest.clone());
    }
    let mut machine = boot.start();
    machine.type_until(
        &format!("{ESCAPE}s"),
        "spumone",
        "guest spin: running, life 1, 2 of 2 vCPUs on",
    );
    machine.wait_for("spumone", "core 1: spin ");
    machine.type_keys(&format!("{ESCAPE}?"));
    machine.wait_for("spumone", "?, h    this text");
    machine.type_keys(&format!("{ESCAPE}1"));
    machine.type_keys(&format!("{ESCAPE}r"));
    machine.wait_for("spumone", "guest spin: restart requested");
    machine.wait_for("spumone", "guest spin restarts");
    machine.type_until(
        &format!("{ESCAPE}s"),
        "spumone",
        "guest spin: running, life 2",
    );
    machine.type_keys(&format!("{ESCAPE}xx"));
    machine.finish().expect("spumone", "the machine goes off");
}

#[test]
fn keys_while_one_guest_spins() {
    let guests = [probe("spin", SPIN, &[0, 1])];
    every_key_is_answered("keys_while_one_guest_spins", "none", &guests);
}

#[test]
fn keys_while_a_guest_above_others_spins() {
    let guests = [
        probe("spin", SPIN, &[0, 1]).priority(200),
        probe("echo", "suite=echo", &[0, 1]),
    ];
    every_key_is_answered("keys_while_a_guest_above_others_spins", "none", &guests);
}

#[test]
fn keys_while_a_guest_that_moves_spins() {
    let guests = [
        probe("spin", SPIN, &[0, 1]).priority(200),
        probe("mid", SPIN, &[0, 1]).priority(150),
        probe("echo", "suite=echo", &[0, 1]),
    ];
    every_key_is_answered("keys_while_a_guest_that_moves_spins", "steal", &guests);
}

#[test]
fn keys_while_guests_flood_the_console() {
    let guests = [
        probe("spin", SPIN, &[0, 1]),
        probe("flood", "suite=flood ms=3600000", &[0, 1]),
        probe("wait", "suite=flood ms=3600000 wait=1", &[0, 1]),
    ];
    every_key_is_answered("keys_while_guests_flood_the_console", "none", &guests);
}

#[test]
fn keys_while_guests_above_others_flood_the_console() {
    let guests = [
        probe("spin", SPIN, &[0, 1]).priority(200),
        probe("flood", "suite=flood ms=3600000", &[0, 1]).priority(200),
        probe("echo", "suite=echo", &[0, 1]),
    ];
    let name = "keys_while_guests_above_others_flood_the_console";
    every_key_is_answered(name, "none", &guests);
}

#[test]
fn keys_while_a_guest_storms() {
    let guests = [
        probe("spin", SPIN, &[0, 1]),
        probe("storm", "suite=flood storm=1 ms=3600000", &[0, 1]),
    ];
    every_key_is_answered("keys_while_a_guest_storms", "none", &guests);
}

#[test]
fn keys_while_a_guest_above_others_storms() {
    let guests = [
        probe("spin", SPIN, &[0, 1]).priority(150),
        probe("storm", "suite=flood storm=1 ms=3600000", &[0, 1]).priority(150),
        probe("echo", "suite=echo", &[0, 1]),
    ];
    let name = "keys_while_a_guest_above_others_storms";
    every_key_is_answered(name, "none", &guests);
}

/// The restart of a guest below one that keeps the cores is confirmed at once, and done when the cores are free.
#[test]
fn restart_beneath_a_spinning_guest() {
    let mut machine = Boot::new("restart_beneath_a_spinning_guest")
        .cores(2)
        .limit(120)
        .guest(probe("spin", "suite=spin all=1 after=3000 ms=8000", &[0, 1]).priority(200))
        .guest(probe("echo", "suite=echo", &[0, 1]))
        .start();
    machine.wait_for("echo", "echo begins");
    machine.type_until(
        &format!("{ESCAPE}s"),
        "spumone",
        "guest spin: running, life 1, 2 of 2 vCPUs on",
    );
    machine.type_keys(&format!("{ESCAPE}r"));
    machine.wait_for("spumone", "guest echo: restart requested");
    machine.type_keys(&format!("{ESCAPE}s"));
    machine
        .wait_for("spumone", "guest echo: stopping (operator)")
        .expect_not("spumone", "guest echo restarts");
    machine.wait_for("spumone", "guest echo restarts");
    machine.wait_until("the second life", |console| {
        console.count("echo", "echo begins") > 1
    });
    machine.type_keys("quit\r");
    machine.finish().probe_is_well("spin").machine_ended();
}

/// Microseconds of virtual time within which each key is answered.
const ANSWERED_US: u64 = 100_000;

/// Types keys from power on; from then on guests keep its cores.
fn in_time(name: &str, keys: &str, last: &str) {
    let keys = format!("{}{ESCAPE}{keys}", "text for a guest ".repeat(12));
    Boot::new(name)
        .cores(2)
        .typed(&keys)
        .exact_until_us(ANSWERED_US)
        .guest(probe("spin", SPIN, &[0]).priority(200))
        .guest(probe("flood", "suite=flood ms=3600000", &[1, 0]).priority(200))
        .guest(probe("echo", "suite=echo", &[0]))
        .run()
        .expect("spumone", last);
}

#[test]
fn state_in_time() {
    in_time("state_in_time", "s", "guest echo: loading");
}

#[test]
fn help_in_time() {
    in_time("help_in_time", "?", "?, h    this text");
}

#[test]
fn restart_in_time() {
    in_time(
        "restart_in_time",
        "r",
        "guest echo: no restart, it is being loaded",
    );
}

#[test]
fn stop_in_time() {
    in_time("stop_in_time", "xx", "the machine goes off");
}
