// SPDX-License-Identifier: MIT OR Apache-2.0
//! `spm key`, and images that are signed.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use spumone_config::packed::{BundleHeader, Seal, System, Trust};
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
fn a_secret_key_that_others_can_read_signs_nothing() {
    let folder = support::folder();
    let folder = folder.path();
    assert!(spm(folder, &["key", "new", "a"]).status.success());
    fs::write(folder.join("system.toml"), SYSTEM).unwrap();
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(folder.join("a.key"), fs::Permissions::from_mode(mode)).unwrap();
        for arguments in [
            &["build", "system.toml", "--sign", "a.key"][..],
            &["key", "show", "a.key"],
        ] {
            refused(folder, arguments, "chmod 600 a.key");
        }
    }
}

#[test]
fn the_public_key_of_both_files_is_shown() {
    let folder = support::folder();
    let folder = folder.path();
    assert!(spm(folder, &["key", "new", "a"]).status.success());
    let public = fs::read(folder.join("a.pub")).unwrap();
    for file in ["a.pub", "a.key"] {
        assert_eq!(spm(folder, &["key", "show", file]).stdout, public, "{file}");
    }
    fs::write(folder.join("text"), "text").unwrap();
    refused(folder, &["key", "show", "text"], "text is no secret key");
}

/// Verifies this image; demands this exit code, and returns what is printed.
fn verified(folder: &Path, image: &[u8], arguments: &[&str], code: i32) -> String {
    fs::write(folder.join("it.img"), image).unwrap();
    let output = spm(folder, &[&["verify", "it.img"], arguments].concat());
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
    text.into_owned()
}

#[test]
fn an_image_is_verified_as_the_hypervisor_does() {
    let folder = support::folder();
    let folder = folder.path();
    for name in ["a", "b"] {
        assert!(spm(folder, &["key", "new", name]).status.success());
    }
    let described = format!("version = 7\n{SYSTEM}");
    let image = build(folder, &described, &["--sign", "a.key"]);
    let public = fs::read_to_string(folder.join("a.pub")).unwrap();
    let key = public.split_whitespace().nth(1).unwrap();
    for arguments in [&[][..], &["--key", "a.pub"]] {
        let text = verified(folder, &image, arguments, 0);
        assert!(
            text.contains(&format!("version 7, signed with {key}")),
            "{text}"
        );
    }
    let text = verified(folder, &image, &["--json"], 0);
    assert!(
        text.contains("\"ok\": true") && text.contains(key),
        "{text}"
    );
    let text = verified(folder, &image, &["--key", "b.pub"], 1);
    assert!(text.contains("has another key"), "{text}");
    // Of each part one bit.
    let bundle = HYPERVISOR_SIZE as usize;
    let header = BundleHeader::from_bytes(&image[bundle..]).unwrap();
    let encoded = &image[bundle + BundleHeader::SIZE..];
    let system: System = postcard::take_from_bytes(encoded).unwrap().0;
    let segment = system.guests[0].segments[0];
    for (at, message) in [
        (100, "the description differs from its hash"),
        (
            header.sealed_len().unwrap() as u64 + 40,
            "is not signed with the key",
        ),
        (system.stage2_pages.offset, "the stage 2 tables differ"),
        (system.el2_pages.offset, "own tables differ"),
        (segment.list, "image: the list of hashes differs"),
        (segment.offset, "image: the page at 0x"),
    ] {
        let mut changed = image.clone();
        changed[bundle + at as usize] ^= 1;
        let text = verified(folder, &changed, &[], 1);
        assert!(text.contains(message), "{message}: {text}");
        assert!(verified(folder, &changed, &["--json"], 1).contains("\"ok\": false"));
    }
    let text = verified(folder, &image[..image.len() - 1], &[], 1);
    assert!(text.contains("cut off"), "{text}");
    let text = verified(folder, b"text", &[], 1);
    assert!(text.contains("no image that `spm build`"), "{text}");
}

#[test]
fn an_image_is_not_written_over_what_it_is_made_from() {
    let folder = support::folder();
    let folder = folder.path();
    assert!(spm(folder, &["key", "new", "a"]).status.success());
    fs::write(folder.join("system.toml"), SYSTEM).unwrap();
    fs::create_dir(folder.join("boards")).unwrap();
    let board = Path::new(env!("CARGO_MANIFEST_DIR")).join("../boards/qemu-virt.toml");
    fs::copy(board, folder.join("boards/qemu-virt.toml")).unwrap();
    fs::hard_link(folder.join("rt.elf"), folder.join("hard.elf")).unwrap();
    std::os::unix::fs::symlink("rt.elf", folder.join("soft.elf")).unwrap();
    for (input, why) in [
        ("a.key", "is read to make the image"),
        ("a.pub", "is the public key of the signature"),
        ("system.toml", "is read to make the image"),
        ("spumone", "is read to make the image"),
        ("rt.elf", "is read to make the image"),
        ("hard.elf", "is read to make the image"),
        ("soft.elf", "is read to make the image"),
        ("boards/qemu-virt.toml", "is read to make the image"),
    ] {
        let before = fs::read(folder.join(input)).unwrap();
        let build = "build system.toml --hypervisor spumone --sign a.key -o".split(' ');
        let build: Vec<_> = build.chain([input]).collect();
        refused(folder, &build, why);
        assert!(before == fs::read(folder.join(input)).unwrap());
    }
}
