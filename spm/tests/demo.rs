// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm demo` with the project's own description; a script stands in for the clock and QEMU.

// Tests may unwrap.
#![allow(clippy::unwrap_used)]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;
use support::{spm, stderr, stdout};

const RT: &str = "rt-result periods=5000 lost=0 late=0 max_ns=8000 load=30";

/// Makes a source tree, runs the demo in it with these lines of its real-time guest, and returns the output.
fn demo(rt: &str, exit_code: u8) -> Output {
    let folder = support::folder();
    let at = |name: &str| folder.path().join(name);
    for folder in [
        "build/guests/linux",
        "build/guests/rt",
        "build/testbed",
        "systems",
        "testbed",
    ] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    for (from, to) in [
        ("Image", "build/guests/linux/Image"),
        ("Image", "build/guests/linux/Image.map"),
        ("initrd.cpio", "build/guests/linux/initrd.cpio"),
        ("rt.elf", "build/guests/rt/freertos.elf"),
        ("rt.elf", "build/testbed/spumone-clock.so"),
    ] {
        fs::copy(at(from), at(to)).unwrap();
    }
    fs::write(
        at("systems/demo.toml"),
        include_str!("../../systems/demo.toml"),
    )
    .unwrap();
    script(&at("qemu"), "echo 'QEMU emulator version 10.0.2'");
    let clock = r#"{"virtual_ns":1,"hash":"0x1","outside_events":0,"disk_calls":0,"cores":[],"visits":[],"marks":[],"host":{"seconds":1}}"#;
    script(
        &at("testbed/run"),
        &format!(
            "linux='linux-result scenario=hackbench ok=1 seconds='
             for word; do
                 [ \"$before\" = --json ] && echo '{clock}' > \"$word\"
                 before=$word
             done
             case \"$*\" in
             *system.img*) echo \"linux | ${{linux}}1.1\r\"; echo 'rt | {rt}\r'; echo 'spumone-clock: 1 s' >&2; exit {exit_code};;
             *freertos.elf*) echo '{RT}';;
             *'-smp 4'*) echo \"${{linux}}1.0\";;
             *) echo \"${{linux}}1.333\";;
             esac"
        ),
    );
    spm(
        folder.path(),
        &["demo", "--hypervisor", "spumone", "--qemu", "./qemu"],
    )
}

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn the_demo_shows_the_console_and_ends_with_a_table() {
    let output = demo(RT, 0);
    let shown = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", stderr(&output));
    assert!(shown.contains("\nlinux   | linux-result"), "{shown}");
    assert!(!shown.contains("spumone-clock"), "{shown}");
    let table = "
                           together on Spumone           alone on the bare machine
  FreeRTOS, periods        5,000: 0 lost, 0 late         5,000: 0 lost, 0 late
  FreeRTOS, longest wait   8.0 µs (2,000 instructions)   8.0 µs (2,000 instructions)
  Linux, hackbench         1.100 s (ideal: 1.081 s)      1.000 s (on three cores: 1.333 s)
";
    assert!(shown.contains(table), "{shown}");
    assert!(shown.ends_with("All is well.\n"), "{shown}");
}

#[test]
fn a_lost_period_fails_the_demo() {
    let output = demo(&RT.replace("lost=0", "lost=1"), 0);
    assert_eq!(output.status.code(), Some(3));
    let shown = stdout(&output);
    assert!(
        shown.ends_with("FAILED: periods of FreeRTOS that are lost: 1\n"),
        "{shown}"
    );
}

#[test]
fn a_machine_that_fails_fails_the_demo() {
    for (rt, exit_code, reason) in [
        (RT, 1, "QEMU failed"),
        ("rt-fault: no timer", 0, "rt-fault: no timer"),
    ] {
        let output = demo(rt, exit_code);
        assert_eq!(output.status.code(), Some(3));
        let said = stderr(&output);
        assert!(
            said.contains("together: ") && said.contains(reason),
            "{said}"
        );
    }
}
