// SPDX-License-Identifier: MIT OR Apache-2.0
//! One terminal for all guests: the guest that wrote each line, the guest that gets the typed keys, the commands.

use boot_tests::{Boot, ESCAPE, linux, probe, rt};

/// The prompt of the Linux guest's shell.
const PROMPT: &str = "linux:/root#";

/// Two guests print at the same time; every line of both is whole, and belongs to its guest.
#[test]
fn lines_of_two_guests() {
    let console = Boot::new("lines_of_two_guests")
        .cores(2)
        .guest(probe("left", "suite=gic", &[0]))
        .guest(probe("right", "suite=timer repeat=3", &[1]))
        .run();
    console
        .probe_is_well("left")
        .probe_is_well("right")
        .machine_ended();
}

#[test]
fn the_keyboard_goes_to_the_selected_guest() {
    let mut machine = Boot::new("the_keyboard_goes_to_the_selected_guest")
        .cores(2)
        .guest(probe("left", "suite=echo", &[0]))
        .guest(probe("right", "suite=echo", &[0, 1]))
        .start();
    machine.wait_for("left", "echo begins");
    machine.wait_for("right", "echo begins");
    for round in 0..3 {
        machine.type_keys(&format!("{ESCAPE}1to the left {round}\r"));
        machine.wait_for("left", &format!("echo: to the left {round}"));
        machine.type_keys(&format!("{ESCAPE}2to the right {round}\r"));
        machine.wait_for("right", &format!("echo: to the right {round}"));
    }
    // `n` and Tab select the next guest; after the last one the first.
    machine.type_keys(&format!("{ESCAPE}nnext is left\r"));
    machine.wait_for("left", "echo: next is left");
    machine.type_keys(&format!("{ESCAPE}\tnext is right\r"));
    machine.wait_for("right", "echo: next is right");
    machine.type_keys(&format!("{ESCAPE}?"));
    machine.wait_for("spumone", "restart the guest that has the keyboard");
    machine.type_keys(&format!("{ESCAPE}s"));
    machine.wait_for("spumone", "guest left: running");
    machine.type_keys(&format!("{ESCAPE}1quit\r"));
    machine.wait_for("spumone", "guest left is off");
    machine.type_keys(&format!("{ESCAPE}2quit\r"));
    let console = machine.finish();
    console
        .probe_is_well("left")
        .probe_is_well("right")
        .expect_not("left", "to the right")
        .expect_not("right", "to the left")
        .machine_ended();
}

/// A terminal sends pasted text at once, faster than a guest reads it.
#[test]
fn pasted_text_arrives_whole() {
    let mut machine = Boot::new("pasted_text_arrives_whole")
        .cores(1)
        .memory_mib(1024)
        .guest(linux("shell", "", &[0]))
        .start();
    machine.wait_for("linux", PROMPT);
    let lines: String = (1..=40)
        .map(|n| format!("line {n:02} of the text that is pasted, {n:02}\n"))
        .collect();
    machine.type_keys(&format!(
        "cat > /tmp/text <<'END'\n{lines}END\nwc /tmp/text; exit\n"
    ));
    let console = machine.finish();
    console
        .expect(
            "linux",
            &format!(" 40       360      {} /tmp/text", lines.len()),
        )
        .machine_ended();
}

/// The machine stops when the key is typed twice, not when it is typed once.
#[test]
fn stopping_the_machine() {
    let mut machine = Boot::new("stopping_the_machine")
        .guest(probe("left", "suite=echo", &[0]))
        .start();
    machine.wait_for("left", "echo begins");
    machine.type_keys(&format!("{ESCAPE}xy"));
    machine.wait_for("spumone", "the machine goes on");
    machine.type_keys("still here\r");
    machine.wait_for("left", "echo: still here");
    machine.type_keys(&format!("{ESCAPE}xx"));
    machine.finish().expect("spumone", "the machine goes off");
}

/// The keyboard goes to Linux, and Linux is restarted from the keyboard, while FreeRTOS runs on undisturbed.
#[test]
fn linux_shell_and_restart_beside_rt() {
    let mut machine = Boot::new("linux_shell_and_restart_beside_rt")
        .cores(2)
        .guest(rt("period=1ms load=20% duration=20s"))
        .guest(linux("shell", "", &[0, 1]))
        .start();
    let mut prompts = 0;
    for life in 0..2 {
        machine.wait_until("a prompt", |console| {
            console.count("linux", PROMPT) > prompts
        });
        // The answer differs from the typed line, which is also shown.
        machine.type_keys(&format!("echo life-$(({life} + 100))\n"));
        let console = machine.wait_for("linux", &format!("life-{}", life + 100));
        if life == 0 {
            machine.type_keys(&format!("{ESCAPE}r"));
            let console = machine.wait_for("spumone", "guest linux restarts");
            prompts = console.count("linux", PROMPT);
        }
        console.expect_not("linux", "Kernel panic");
    }
    machine.type_keys("exit\n");
    let console = machine.finish();
    console
        .rt_is_well("rt")
        .expect("spumone", "guest linux is off")
        .machine_ended();
}
