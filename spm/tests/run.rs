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
