// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which files `spm` reads, how far, and which it leaves alone.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use flate2::Compression;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use support::{SYSTEM, spm, stderr, stdout};

/// A file with a hole of so many bytes.
fn sparse(path: &Path, size: u64) {
    File::create(path).unwrap().set_len(size).unwrap();
}

#[test]
fn the_beginning_of_a_file_says_whether_the_rest_is_read() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    // As large as an image may be, and the hypervisor: to read that takes a while, and much memory.
    sparse(&folder.path().join("image"), 3 << 30);
    sparse(&folder.path().join("elf"), 256 << 20);
    sparse(&folder.path().join("larger"), (3 << 30) + 1);
    let check = ["check", "system.toml", "--hypervisor", "elf"];
    for (args, code, words) in [
        (&["verify", "image"][..], 1, "this is no image"),
        (&["verify", "larger"], 3, "it has more than 3 GiB"),
        (&check, 3, "this is not the hypervisor"),
    ] {
        let space = format!("ulimit -v {}; exec \"$0\" \"$@\"", 250 << 10);
        let mut bash = std::process::Command::new("bash");
        bash.args(["-c", &space, env!("CARGO_BIN_EXE_spm")]);
        let output = bash.args(args).current_dir(folder.path()).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn a_kernel_in_two_gzip_members_is_unpacked_whole() {
    let folder = support::folder();
    let image = fs::read(folder.path().join("Image")).unwrap();
    let (first, second) = image.split_at(image.len() / 2);
    let member = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let plain = support::build(folder.path(), SYSTEM, &[]);
    let packed = [member(first), member(second)].concat();
    fs::write(folder.path().join("Image.gz"), packed).unwrap();
    let gzip = SYSTEM.replace("\"Image\"", "\"Image.gz\"");
    assert!(support::build(folder.path(), &gzip, &[]) == plain);
}

#[test]
fn what_is_no_board_file_in_a_folder_above_is_left_alone() {
    let folder = support::folder();
    let inner = folder.path().join("inner");
    fs::create_dir_all(inner.join("boards")).unwrap();
    for file in ["Image", "initrd.cpio", "rt.elf", "spumone"] {
        fs::copy(folder.path().join(file), inner.join(file)).unwrap();
    }
    fs::write(inner.join("system.toml"), SYSTEM).unwrap();
    let boards = folder.path().join("boards");
    let board = boards.join("qemu-virt.toml");
    let check = ["check", "inner/system.toml", "--hypervisor", "spumone"];
    fs::create_dir_all(&board).unwrap();
    let output = spm(folder.path(), &check);
    assert!(output.status.success(), "{}", stderr(&output));
    fs::remove_dir(&board).unwrap();
    symlink("qemu-virt.toml", &board).unwrap();
    let output = spm(folder.path(), &check);
    assert!(output.status.success(), "{}", stderr(&output));
    // A damaged board file is an error: it is a regular file that can be read.
    fs::remove_file(&board).unwrap();
    fs::write(&board, b"\xff").unwrap();
    assert_eq!(spm(folder.path(), &check).status.code(), Some(3));
    fs::remove_file(&board).unwrap();
    // Without another one, the reason is named; in the description's own folder, always.
    fs::create_dir(boards.join("other.toml")).unwrap();
    let other = SYSTEM.replace("qemu-virt", "other");
    fs::write(inner.join("system.toml"), other).unwrap();
    let output = spm(folder.path(), &check);
    assert!(
        stderr(&output).contains("it is a folder, not a file"),
        "{}",
        stderr(&output)
    );
    fs::write(inner.join("system.toml"), SYSTEM).unwrap();
    fs::create_dir(inner.join("boards/qemu-virt.toml")).unwrap();
    let output = spm(folder.path(), &check);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn a_hypervisor_that_cannot_be_used_is_not_said_to_be_missing() {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    let place = folder
        .path()
        .join("target/aarch64-unknown-none-softfloat/release");
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("spumone"), b"half of it").unwrap();
    let output = spm(folder.path(), &["check", "system.toml"]);
    let said = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        said.ends_with("spumone cannot be used: its size is assumed.\n"),
        "{said}"
    );
}
