// SPDX-License-Identifier: MIT OR Apache-2.0
//! What test programs share: files that are made here, and `spm` itself, called as a user calls it.

// Each test program uses a part of this.
#![allow(dead_code)]

pub mod btf;
mod images;
pub mod user_files;

pub use images::*;

use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A folder with the files that descriptions of tests name.
pub fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
    write("spumone", &hypervisor().write());
    write("Image", &linux_image(KERNEL_SIZE, 0xa));
    write("initrd.cpio", &vec![0x30; 1 << 20]);
    write("rt.elf", &Elf::at(0x4008_0000).write());
    write("payload.bin", &[0; 0x3000]);
    folder
}

/// Runs `spm` in `folder`.
pub fn spm(folder: &Path, args: &[&str]) -> Output {
    run(env!("CARGO_BIN_EXE_spm").as_ref(), folder, args)
}

/// The same with a copy of `spm` in that folder, far from the sources and the hypervisor.
pub fn spm_alone(folder: &Path, args: &[&str]) -> Output {
    let copy = folder.join("installed-spm");
    // Copied by another process: if this one had the file open for writing, children of other tests would inherit the descriptor,
    // and a program that is open for writing cannot be started.
    let mut cp = Command::new("cp");
    cp.arg(env!("CARGO_BIN_EXE_spm")).arg(&copy);
    assert!(cp.status().unwrap().success());
    run(&copy, folder, args)
}

fn run(program: &Path, folder: &Path, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .current_dir(folder)
        .env_remove("CARGO_TARGET_DIR")
        // Plain text on any terminal.
        .env("NO_COLOR", "1")
        .env("TERM", "xterm")
        .output()
        .unwrap()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Two guests on two cores, one of each common kind.
pub const SYSTEM: &str = r#"
[board]
name = "qemu-virt"
cores = 2
memory = "256MiB"

[[guest]]
name = "rt"
kind = "elf"
image = "rt.elf"
memory = "16MiB"
vcpus = [0]
priority = 200
bootargs = "period=1ms"

[[guest]]
name = "linux"
kind = "linux"
image = "Image"
initrd = "initrd.cpio"
memory = "64MiB"
identity = true
trusted-dma = true
vcpus = [0, 1]
priority = 100
bootargs = "console=ttyAMA0"
devices = ["virtio0", "virtio1"]
"#;

/// Builds the system of a description in `folder`, with these arguments; returns the image.
pub fn build(folder: &Path, description: &str, arguments: &[&str]) -> Vec<u8> {
    std::fs::write(folder.join("system.toml"), description).unwrap();
    let build = "build system.toml --hypervisor spumone -o a.img".split(' ');
    let all: Vec<_> = build.chain(arguments.iter().copied()).collect();
    let output = spm(folder, &all);
    assert!(output.status.success(), "{}", stderr(&output));
    std::fs::read(folder.join("a.img")).unwrap()
}

/// Makes a program that prints this QEMU version, and otherwise does what `script` says.
pub fn qemu(folder: &Path, version: &str, script: &str) {
    let text = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'QEMU emulator version {version}' && exit\n\
         {script}\n"
    );
    let path = folder.join("qemu");
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// Builds the system of `system.toml` and starts that program.
pub const RUN: &[&str] = &[
    "run",
    "system.toml",
    "--hypervisor",
    "spumone",
    "--qemu",
    "./qemu",
];

/// The steps of a fuzzer: as many as the environment says, else `default`; each number stands for other random choices.
pub fn fuzz_steps(default: u64) -> Range<u64> {
    let variable = |name| std::env::var(name).ok()?.parse().ok();
    let first = variable("SPUMONE_FUZZ_SEED").unwrap_or(0);
    first..first + variable("SPUMONE_FUZZ_STEPS").unwrap_or(default)
}
