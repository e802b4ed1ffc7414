// SPDX-License-Identifier: MIT OR Apache-2.0
//! One terminal for all guests: whose lines are whose, who is typed to, the keys' commands.

use boot_tests::{Boot, ESCAPE, linux, probe, rt};

/// What the Linux guest's shell asks with.
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
fn typing_to_one_and_the_other() {
    let mut machine = Boot::new("typing_to_one_and_the_other")
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
    // The next guest, and round again.
    machine.type_keys(&format!("{ESCAPE}nnext is left\r"));
    machine.wait_for("left", "echo: next is left");
    machine.type_keys(&format!("{ESCAPE}\tnext is right\r"));
    machine.wait_for("right", "echo: next is right");
    machine.type_keys(&format!("{ESCAPE}?"));
    machine.wait_for("spumone", "restart the guest that is typed to");
    machine.type_keys(&format!("{ESCAPE}s"));
    machine.wait_for("spumone", "guest left: Running");
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

/// A terminal sends what is pasted at once, faster than a guest reads it.
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

/// The machine stops when asked twice, not when asked once.
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

/// Linux is typed to, and restarted from outside, while FreeRTOS runs on undisturbed.
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
        // The answer differs from what is typed, which is shown as well.
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
