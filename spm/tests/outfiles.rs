// SPDX-License-Identifier: MIT OR Apache-2.0
//! How `spm` writes the files that a user names: whole or not at all, and nothing else.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};
use support::{SYSTEM, build, spm, stderr, stdout};
use tempfile::TempDir;

const BUILD: &str = "build system.toml --hypervisor spumone -o";

fn folder() -> TempDir {
    let folder = support::folder();
    fs::write(folder.path().join("system.toml"), SYSTEM).unwrap();
    fs::create_dir(folder.path().join("out")).unwrap();
    folder
}

/// Has bash do this in `folder`; `$spm` is `spm`.
fn bash(folder: &Path, script: &str) -> Output {
    Command::new("bash")
        .args(["-c", script])
        .env("spm", env!("CARGO_BIN_EXE_spm"))
        .env("NO_COLOR", "1")
        .current_dir(folder)
        .output()
        .unwrap()
}

/// The names of all files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = names
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_link_to_an_image_stays() {
    let folder = folder();
    let folder = folder.path();
    let expected = build(folder, SYSTEM, &[]);
    fs::create_dir(folder.join("real")).unwrap();
    fs::write(folder.join("real/of.img"), "old").unwrap();
    symlink("../real/of.img", folder.join("out/a.img")).unwrap();
    let output = bash(folder, &format!("$spm {BUILD} out/a.img"));
    assert!(output.status.success(), "{}", stderr(&output));
    let link = fs::read_link(folder.join("out/a.img")).unwrap();
    assert_eq!(link, Path::new("../real/of.img"));
    assert!(fs::read(folder.join("real/of.img")).unwrap() == expected);
    assert_eq!(names(&folder.join("real")), ["of.img"]);

    symlink("missing.img", folder.join("out/b.img")).unwrap();
    let output = bash(folder, &format!("$spm {BUILD} out/b.img"));
    let said = stderr(&output).replace("\n  │ ", " ");
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("a link to missing.img, which is not there"),
        "{said}"
    );
    assert_eq!(names(&folder.join("out")), ["a.img", "b.img"]);
}

#[test]
fn an_image_keeps_its_mode() {
    let folder = folder();
    let image = folder.path().join("out/a.img");
    let mode = || fs::metadata(&image).unwrap().permissions().mode() & 0o777;
    let output = bash(folder.path(), &format!("umask 27; $spm {BUILD} out/a.img"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(mode(), 0o640);
    for kept in [0o600, 0o664, 0o755] {
        fs::set_permissions(&image, fs::Permissions::from_mode(kept)).unwrap();
        let output = bash(folder.path(), &format!("umask 77; $spm {BUILD} out/a.img"));
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(mode(), kept);
    }
}

/// The limit has the system send a signal that ends a program.
#[test]
fn an_image_that_does_not_fit_leaves_the_old_one_and_nothing_else() {
    let folder = folder();
    fs::write(folder.path().join("out/a.img"), "old").unwrap();
    let output = bash(
        folder.path(),
        &format!("ulimit -f 100; exec $spm {BUILD} out/a.img"),
    );
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot write out/a.img"));
    assert_eq!(names(&folder.path().join("out")), ["a.img"]);
    assert_eq!(fs::read(folder.path().join("out/a.img")).unwrap(), b"old");
}

/// The name was that of the image with the number of the process.
#[test]
fn no_link_is_followed_under_a_name_that_can_be_guessed() {
    let folder = folder();
    fs::write(folder.path().join("victim"), "mine").unwrap();
    let output = bash(
        folder.path(),
        &format!("ln -s ../victim out/a.img.$$; exec $spm {BUILD} out/a.img"),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(folder.path().join("victim")).unwrap(), b"mine");
}

/// As /dev/stdout and /dev/fd/3 are; those are not risked.
#[test]
fn an_open_file_is_written_where_it_is() {
    let folder = folder();
    let folder = folder.path();
    let image = build(folder, SYSTEM, &[]);
    symlink("/proc/self/fd/1", folder.join("stdout")).unwrap();
    symlink("/proc/self/fd/3", folder.join("third")).unwrap();
    let output = bash(folder, &format!("$spm {BUILD} stdout"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stdout == image);
    let output = bash(folder, &format!("$spm {BUILD} stdout > a"));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(fs::read(folder.join("a")).unwrap() == image);
    let output = bash(
        folder,
        &format!("echo first > b; $spm {BUILD} third 3>>b; echo last >>b"),
    );
    assert!(
        stdout(&output).starts_with("third: "),
        "{}",
        stderr(&output)
    );
    let expected = [b"first\n", &image[..], b"last\n"].concat();
    assert!(fs::read(folder.join("b")).unwrap() == expected);
    for link in ["stdout", "third"] {
        assert!(fs::read_link(folder.join(link)).is_ok(), "{link}");
    }
    let output = bash(folder, &format!("$spm {BUILD} out"));
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn a_key_is_made_whole_or_not_at_all() {
    let folder = support::folder();
    let folder = folder.path();
    let before = names(folder);
    // As on a full disk.
    let output = bash(folder, "ulimit -f 0; exec $spm key new a");
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(stderr(&output).contains("cannot write a.key"));
    assert_eq!(names(folder), before);
    for taken in ["b.pub", "c.key"] {
        symlink("missing", folder.join(taken)).unwrap();
        let output = spm(folder, &["key", "new", &taken[..1]]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("cannot write {taken}")), "{said}");
        assert!(said.contains("name another one"), "{said}");
        fs::remove_file(folder.join(taken)).unwrap();
        assert_eq!(names(folder), before);
    }
    fs::create_dir(folder.join("kd")).unwrap();
    for name in ["kd/", "kd/.", "kd/.."] {
        let output = spm(folder, &["key", "new", name]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("is no name of a key"), "{said}");
        assert_eq!(names(&folder.join("kd")), [""; 0]);
    }
}

/// The runs would take days.
#[test]
fn a_picture_that_cannot_be_written_is_reported_before_the_runs() {
    let folder = support::folder();
    for more in ["", "--power saving"] {
        let output = bash(
            folder.path(),
            &format!("$spm sim --cores 1024 --seconds 3600 --seeds 1000 --svg nodir/x.svg {more}"),
        );
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("cannot write nodir/x.svg"), "{said}");
    }
}
