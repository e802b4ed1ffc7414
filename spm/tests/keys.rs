// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm key`, and images that are signed.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use spumone_config::packed::{BundleHeader, Seal, Trust};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use support::{HYPERVISOR_SIZE, SYSTEM, TRUST, TRUST_SIZE, build, spm, stderr};

fn trust(image: &[u8]) -> [u8; TRUST_SIZE as usize] {
    *image[TRUST as usize..].first_chunk().unwrap()
}

fn seal(image: &[u8]) -> Seal {
    let bundle = &image[HYPERVISOR_SIZE as usize..];
    let header = BundleHeader::from_bytes(bundle).unwrap();
    Seal::from_bytes(&bundle[header.sealed_len().unwrap()..]).unwrap()
}

#[test]
fn a_new_key_signs_and_is_in_the_hypervisor() {
    let folder = support::folder();
    let folder = folder.path();
    let output = spm(folder, &["key", "new", "a"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mode = fs::metadata(folder.join("a.key"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    let described = format!("version = 7\n{SYSTEM}");
    let image = build(folder, &described, &["--sign", "a.key"]);
    let trust = Trust::from_bytes(trust(&image));
    assert_eq!(trust.lowest_version, 7);
    let key: String = trust.key.iter().map(|byte| format!("{byte:02x}")).collect();
    let public = fs::read_to_string(folder.join("a.pub")).unwrap();
    assert_eq!(public, format!("spumone-public-key {key}\n"));
    assert!(seal(&image).is_signed());
    assert!(image == build(folder, &described, &["--sign", "a.key"]));
}

#[test]
fn without_a_key_the_hypervisor_is_as_it_was_compiled() {
    let folder = support::folder();
    let image = build(folder.path(), SYSTEM, &[]);
    assert_eq!(trust(&image), [0xc0; TRUST_SIZE as usize]);
    assert!(!seal(&image).is_signed());
}

#[test]
fn a_key_is_never_overwritten() {
    let folder = support::folder();
    let folder = folder.path();
    for taken in ["a.key", "b.pub"] {
        fs::write(folder.join(taken), "mine").unwrap();
        let output = spm(folder, &["key", "new", &taken[..1]]);
        assert_eq!(output.status.code(), Some(3));
        let text = stderr(&output);
        assert!(text.contains(&format!("cannot write {taken}")), "{text}");
        assert!(text.contains("name another one"), "{text}");
        assert_eq!(fs::read(folder.join(taken)).unwrap(), b"mine");
    }
    assert!(!folder.join("a.pub").exists() && !folder.join("b.key").exists());
}

#[test]
fn what_is_no_secret_key_signs_nothing() {
    let folder = support::folder();
    let folder = folder.path();
    fs::write(folder.join("system.toml"), SYSTEM).unwrap();
    spm(folder, &["key", "new", "a"]);
    for file in ["a.pub", "Image", "missing"] {
        refused(
            folder,
            &["build", "system.toml", "--sign", file],
            "name a file NAME.key",
        );
    }
}

/// Demands that this is refused, with a text that has `why`.
fn refused(folder: &Path, arguments: &[&str], why: &str) {
    let output = spm(folder, arguments);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(3), "{arguments:?}: {text}");
    assert!(text.contains(why), "{text}");
}

#[test]
fn what_is_no_key_or_no_name_of_one_is_refused() {
    let folder = support::folder();
    let folder = folder.path();
    for name in ["a.key", "a.pub", ".."] {
        refused(folder, &["key", "new", name], "no name of a key");
    }
    fs::write(folder.join("system.toml"), SYSTEM).unwrap();
    let zeros = format!("spumone-secret-key {}\n", "0".repeat(64));
    fs::write(folder.join("zero.key"), zeros).unwrap();
    let build = ["build", "system.toml", "--sign", "zero.key"];
    refused(folder, &build, "zero.key is no secret key");
}

#[test]
fn an_image_is_not_written_over_what_it_is_made_from() {
    let folder = support::folder();
    let folder = folder.path();
    assert!(spm(folder, &["key", "new", "a"]).status.success());
    fs::write(folder.join("system.toml"), SYSTEM).unwrap();
    for input in ["a.key", "system.toml", "spumone", "rt.elf"] {
        let before = fs::read(folder.join(input)).unwrap();
        let build = "build system.toml --hypervisor spumone --sign a.key -o".split(' ');
        let build: Vec<_> = build.chain([input]).collect();
        refused(folder, &build, "is read to make the image");
        assert!(before == fs::read(folder.join(input)).unwrap());
    }
}
