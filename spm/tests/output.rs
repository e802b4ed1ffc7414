// SPDX-License-Identifier: MIT OR Apache-2.0
//! What `spm` does if what it writes is not read, or names of files are not text.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use serde_json::Value;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use support::{SYSTEM, stderr};
use tempfile::TempDir;

const SIGPIPE: i32 = 13;

/// With a system, a bad one, and an image.
fn folder() -> TempDir {
    let folder = support::folder();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("system.toml", SYSTEM);
    write("bad.toml", &SYSTEM.replace("16MiB", "x"));
    let key = support::spm(folder.path(), &["key", "new", "k"]);
    assert!(key.status.success());
    let build = "build system.toml --hypervisor spumone -o a.img --sign k.key";
    let build: Vec<_> = build.split(' ').collect();
    assert!(support::spm(folder.path(), &build).status.success());
    folder
}

/// Commands that print something on standard output.
const PRINTING: &[&str] = &[
    "check system.toml --hypervisor spumone",
    "check --json system.toml --hypervisor spumone",
    "check --json bad.toml",
    "build system.toml --hypervisor spumone -o b.img",
    "build --json system.toml --hypervisor spumone -o b.img",
    "verify a.img",
    "verify --json a.img",
    "key show k.pub",
    "key new k2",
    "explain system.toml",
    "sim --cores 1 --json",
    "bench --list",
    "--help",
    "--version",
];

/// Runs `spm` with these files as its outputs.
fn run(folder: &Path, command: &str, out: impl Into<Stdio>, errors: impl Into<Stdio>) -> Output {
    let mut spm = Command::new(env!("CARGO_BIN_EXE_spm"));
    spm.args(command.split(' ')).current_dir(folder);
    spm.env("NO_COLOR", "1").stdout(out).stderr(errors);
    spm.spawn().unwrap().wait_with_output().unwrap()
}

fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

#[test]
fn an_output_that_takes_no_more_is_said_in_one_line() {
    let folder = folder();
    for command in PRINTING {
        let output = run(folder.path(), command, full(), Stdio::piped());
        let said = stderr(&output);
        // The simulator also says how long it has taken.
        let mut lines = said
            .lines()
            .filter(|it| !it.contains(" events, "))
            .filter(|it| !it.is_empty());
        let line = lines.next().unwrap_or_default();
        assert!(
            line.starts_with("spm: cannot write to standard output: "),
            "{command}: {said}"
        );
        assert_eq!(
            (lines.next(), output.status.code()),
            (None, Some(3)),
            "{command}: {said}"
        );
    }
}

#[test]
fn without_a_reader_it_ends_by_sigpipe_without_a_word() {
    let folder = folder();
    for command in PRINTING.iter().filter(|it| !it.starts_with("sim")) {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = run(folder.path(), command, writer, Stdio::piped());
        let said = stderr(&output);
        assert_eq!(
            (said.as_str(), output.status.signal()),
            ("", Some(SIGPIPE)),
            "{command}"
        );
    }
}

#[test]
fn messages_that_nobody_reads_change_no_exit_code() {
    let folder = folder();
    for (command, code) in [
        ("check bad.toml", 1),
        ("check missing.toml", 3),
        ("bench", 2),
        ("chek", 2),
    ] {
        let output = run(folder.path(), command, Stdio::piped(), full());
        assert_eq!(output.status.code(), Some(code), "{command}");
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let output = run(folder.path(), command, Stdio::piped(), writer);
        assert_eq!(output.status.code(), Some(code), "{command}");
    }
}

/// Paths in JSON are text: what is none in them is replaced.
#[test]
fn json_has_paths_that_are_no_text() {
    let folder = folder();
    let strange = |name: &[u8]| folder.path().join(OsStr::from_bytes(name));
    fs::copy(folder.path().join("bad.toml"), strange(b"\xffbad.toml")).unwrap();
    fs::copy(folder.path().join("system.toml"), strange(b"\xff.toml")).unwrap();
    fs::copy(folder.path().join("a.img"), strange(b"\xff.img")).unwrap();
    let json = |code: i32, args: &[&[u8]]| -> Value {
        let mut spm = Command::new(env!("CARGO_BIN_EXE_spm"));
        spm.args(args.iter().map(|it| OsStr::from_bytes(it)));
        let output = spm
            .arg("--json")
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let refused = json(1, &[b"check", b"\xffbad.toml"]);
    let file = &refused["problems"][0]["labels"][0]["file"];
    assert_eq!(file, "\u{fffd}bad.toml", "{refused}");
    let built = json(
        0,
        &[
            b"build",
            b"\xff.toml",
            b"--hypervisor",
            b"spumone",
            b"-o",
            b"\xfe.img",
        ],
    );
    assert_eq!(built["output"], "\u{fffd}.img");
    let verified = json(0, &[b"verify", b"\xff.img"]);
    assert_eq!(verified["image"], "\u{fffd}.img");
    let missing = json(3, &[b"check", b"\xfe.toml"]);
    let message = missing["error"]["message"].as_str().unwrap();
    assert!(message.contains("\u{fffd}.toml"), "{message}");
}

/// No text of a file or path reaches the terminal as it is; the underlined text is still the right one.
#[test]
fn what_a_terminal_would_obey_is_shown_as_text() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    const EVIL: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\r";
    let write = |name: &str, text: &str| fs::write(at(name), text).unwrap();
    fs::create_dir(at("boards")).unwrap();
    let board = include_str!("../../boards/qemu-virt.toml");
    let name = "name = \"x\\u001b[31m\\u202e\"";
    write(
        "boards/evil.toml",
        &board.replace("name = \"qemu-virt\"", name),
    );
    write("board.toml", &SYSTEM.replace("qemu-virt", "evil"));
    write(
        "comment.toml",
        &SYSTEM.replace("\"16MiB\"", "\"x\" # \u{9b}\u{202e}"),
    );
    write("syntax.toml", &format!("[board] {EVIL}"));
    write(
        "image.toml",
        &SYSTEM.replace("\"rt.elf\"", "\"\\u001b[2J\\u009b\\u202e\\r.elf\""),
    );
    write(
        "guest.toml",
        &SYSTEM.replace("\"rt\"", "\"\\u001b[2J\\u009b\\u202e\""),
    );
    write(
        "kind.toml",
        &SYSTEM.replace("\"elf\"", "\"\\u001b[2J\\u009b\\u202e\""),
    );
    write(
        "key.toml",
        &SYSTEM.replace("vcpus = [0]", "vcpus = [0]\n\"\\u001b[2J\\u202e\" = 1"),
    );
    write(
        "no-board.toml",
        &SYSTEM.replace("qemu-virt", "\\u001b[2J\\u202e"),
    );
    let evil = format!("{EVIL}.toml");
    write(&evil, SYSTEM);
    write(
        "serial.log",
        &format!("from a boot loader: {EVIL}\nrt | text\n"),
    );
    fs::copy(at("k.pub"), at(EVIL)).unwrap();
    let image = format!("{EVIL}.img");
    let commands: &[&[&str]] = &[
        &["check", "board.toml", "--hypervisor", "spumone"],
        &["check", "comment.toml"],
        &["check", "syntax.toml"],
        &["check", "image.toml"],
        &["check", "guest.toml"],
        &["check", "kind.toml"],
        &["check", "key.toml"],
        &["check", "no-board.toml"],
        &["check", &evil, "--hypervisor", "spumone"],
        &["check", "system.toml", "--hypervisor", EVIL],
        &["check", EVIL],
        &[
            "build",
            &evil,
            "--hypervisor",
            "spumone",
            "-o",
            &image,
            "--sign",
            "k.key",
        ],
        &["verify", &image],
        &["verify", EVIL],
        &["key", "show", EVIL],
        &["key", "new", EVIL],
        &["explain", EVIL],
        &["explain", "serial.log"],
        &[EVIL],
    ];
    for command in commands {
        let output = support::spm(folder.path(), command);
        let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let is_obeyed = |it: &char| {
            it.is_control() && *it != '\n'
                || matches!(it, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert_eq!(said.chars().find(is_obeyed), None, "{command:?}: {said:?}");
        assert!(!said.is_empty(), "{command:?}");
    }
    // The column of what is wrong is that of the file.
    write(
        "column.toml",
        &SYSTEM.replace(
            "name = \"qemu-virt\"",
            "name = \"\u{202e}\u{200f}\u{61c}\" ",
        ),
    );
    let output = support::spm(folder.path(), &["check", "column.toml"]);
    let said = stderr(&output);
    let underlined = " 3 │ name = \"���\" \n   ·        ──┬──\n";
    assert!(
        said.contains("[column.toml:3:8]") && said.contains(underlined),
        "{said}"
    );
}
