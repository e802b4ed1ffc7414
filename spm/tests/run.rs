// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `spm run` lets a description do, and how it ends a machine (a script stands in for QEMU).

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use support::{RUN, SYSTEM, qemu, spm, stderr, stdout};

/// The part behind the comma would be an option of QEMU: a file outside the folder.
#[test]
fn the_name_of_a_folder_adds_no_option() {
    let folder = support::folder();
    qemu(folder.path(), "10.0.2", "echo \"$@\"");
    let own = folder.path().join("c,file=victim");
    fs::create_dir(&own).unwrap();
    for file in ["rt.elf", "Image", "initrd.cpio"] {
        fs::copy(folder.path().join(file), own.join(file)).unwrap();
    }
    fs::write(own.join("d.img"), "inside").unwrap();
    let run = "[run]\nqemu-args = [\"-drive\", \"format=raw,file={dir}/d.img\"]\n";
    fs::write(own.join("system.toml"), format!("{SYSTEM}\n{run}")).unwrap();
    let mut arguments = RUN.to_vec();
    arguments[1] = "c,file=victim/system.toml";
    let output = spm(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    let drive = "-drive format=raw,file=c,,file=victim/d.img\n";
    assert!(said.ends_with(drive), "{said}");
}

#[test]
fn a_name_without_a_hyphen_is_no_option() {
    let folder = support::folder();
    qemu(folder.path(), "10.0.2", "echo \"$@\"");
    let run = "[run]\nqemu-args = [\"device\", \"virtio-x\"]\n";
    fs::write(
        folder.path().join("system.toml"),
        format!("{SYSTEM}\n{run}"),
    )
    .unwrap();
    let output = spm(folder.path(), RUN);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("`device` has no hyphen"), "{said}");
}

/// No clock has that time.
#[test]
fn a_timeout_is_at_most_a_number_of_32_bits() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    let mark = folder.path().join("started");
    qemu(folder.path(), "10.0.2", "touch started");
    let output = spm(
        folder.path(),
        &[RUN, &["--timeout", "18446744073709551615"]].concat(),
    );
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(!mark.exists());
    let longest = u32::MAX.to_string();
    let output = spm(folder.path(), &[RUN, &["--timeout", &longest]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
}

#[test]
fn a_log_is_written_over_nothing_that_is_used() {
    let folder = support::folder();
    let folder = folder.path();
    fs::write(folder.join("system.toml"), SYSTEM).unwrap();
    qemu(folder, "10.0.2", "exit 0");
    assert!(spm(folder, &["key", "new", "a"]).status.success());
    let image = "build/systems/system.img";
    let run = [RUN, &["--sign", "a.key", "--log"]].concat();
    let refused = |log: &str, why: &str| {
        let before = fs::read(folder.join(log)).ok();
        let output = spm(folder, &[&run, &[log][..]].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{log}: {said}");
        assert!(said.contains(why), "{said}");
        assert!(said.contains("name another file after --log"), "{said}");
        assert!(before == fs::read(folder.join(log)).ok(), "{log}");
    };
    for log in ["system.toml", "rt.elf", "Image", "spumone", "a.key"] {
        refused(log, "is read to make the image");
    }
    refused("a.pub", "is the public key of the signature");
    refused("qemu", "is the QEMU that is started");
    // Not there yet, and there.
    fs::create_dir_all(folder.join("build/systems")).unwrap();
    refused(image, "is the image that is started");
    assert!(!folder.join(image).exists());
    let output = spm(folder, &[&run, &["run.log"][..]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    refused(image, "is the image that is started");
}

#[test]
fn nothing_is_written_for_a_run_that_is_refused() {
    let folder = support::folder();
    qemu(folder.path(), "10.0.2", "exit 0");
    let run = "\n[run]\nqemu-args = [\"-plugin\", \"evil.so\"]\n";
    fs::write(folder.path().join("system.toml"), SYSTEM.to_owned() + run).unwrap();
    let output = spm(folder.path(), RUN);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(!folder.path().join("build").exists());
}
