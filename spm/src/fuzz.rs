// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a fuzzer calls: the readers of all files that a user names, without the disk. Each file may be anything; none may make
//! `spm` panic, take long, or take more memory than some times its size.

use crate::bundle;
use crate::failure::Failure;
use crate::guest_files::{elf, pe, preempt_count};
use crate::hypervisor::{self, Hypervisor};
use crate::input::Unreadable;
use crate::key::{self, SecretKey};
use crate::progress::Progress;
use crate::summary;
use crate::system::{self, System};
use crate::verify;
use spumone_config::image::{LINUX_MAGIC, LINUX_MAGIC_OFFSET};
use spumone_config::packed::Sections;
use spumone_config::packed::Trust;
use std::io::{Error, ErrorKind};
use std::path::Path;

pub use crate::input::MAX_TEXT;

/// Bytes of the hypervisor of these systems.
const SIZE: u64 = 0x3000;

/// Where in it the key is.
const TRUST: usize = 0x100;

/// The name of the description among the files of a system.
pub const DESCRIPTION: &str = "system.toml";

/// Checks and builds the system of these files, each with its name; their folders do not matter.
///
/// # Errors
///
/// What is refused, as a user would see it.
///
/// # Panics
///
/// If a system that was accepted cannot be built.
pub fn system(files: &[(&str, &[u8])]) -> Result<(), String> {
    match load(files) {
        Ok(mut system) => {
            let _ = summary::text(Path::new(DESCRIPTION), &system);
            let _ = summary::json(&system).to_string();
            let built = bundle::image(&hypervisor(), &mut system, None);
            assert!(built.is_ok(), "accepted, but {:?}", built.err());
            Ok(())
        }
        Err(failure) => {
            let _ = failure.json_text();
            Err(failure.text())
        }
    }
}

/// Builds the system of these files, signed with the key of this seed. Returns the bundle, and the key that the hypervisor then trusts.
///
/// # Errors
///
/// What is refused, as a user would see it.
pub fn signed_bundle(files: &[(&str, &[u8])], seed: [u8; 32]) -> Result<(Vec<u8>, Trust), String> {
    let mut system = load(files).map_err(|failure| failure.text())?;
    let key = SecretKey::from_seed(seed);
    let image = bundle::image(&hypervisor(), &mut system, Some(&key))?;
    let trust = image.get(TRUST..).and_then(<[u8]>::first_chunk);
    let trust = trust.ok_or("the hypervisor is too short")?;
    Ok((image[SIZE as usize..].to_vec(), Trust::from_bytes(*trust)))
}

/// Builds the system of these files as an image, which `spm verify` accepts.
///
/// # Errors
///
/// What is refused, as a user would see it.
pub fn image(files: &[(&str, &[u8])]) -> Result<Vec<u8>, String> {
    let mut system = load(files).map_err(|failure| failure.text())?;
    let mut hypervisor = hypervisor();
    hypervisor.bytes[LINUX_MAGIC_OFFSET..][..LINUX_MAGIC.len()].copy_from_slice(&LINUX_MAGIC);
    bundle::image(&hypervisor, &mut system, None)
}

/// The device tree of the first guest of the system of these files.
///
/// # Errors
///
/// What is refused, as a user would see it.
pub fn tree(files: &[(&str, &[u8])]) -> Result<Vec<u8>, String> {
    let system = load(files).map_err(|failure| failure.text())?;
    let tree = system.trees.into_iter().next();
    Ok(tree.ok_or("there is no guest")?.blob)
}

/// Whether an image passes `spm verify`.
pub fn is_verified(image: &[u8]) -> bool {
    verify::verify_image(image, None).is_ok()
}

/// Whether the ELF executable of a guest is accepted as far as no description is needed.
pub fn is_elf(file: &[u8]) -> bool {
    elf::inspect(file).is_ok()
}

/// Whether the PE header of a Linux image says how long the image is.
pub fn has_pe_size(image: &[u8]) -> bool {
    pe::needed_size(image).is_some()
}

/// Whether the type information of a Linux image says where its kernel counts.
pub fn has_preempt_count(image: &[u8]) -> bool {
    preempt_count::offset(image).is_ok()
}

/// Whether the file of `--hypervisor` is accepted.
pub fn is_hypervisor(file: &[u8]) -> bool {
    hypervisor::flatten(file).is_ok()
}

/// Whether the text of a file `NAME.key` is accepted.
pub fn is_secret_key(text: &str) -> bool {
    key::key_of(text, key::SECRET).is_some()
}

fn load(files: &[(&str, &[u8])]) -> Result<System, Failure> {
    let read = |path: &Path, limit: u64| {
        let named = files.iter().find(|(name, _)| path.ends_with(name));
        match named {
            Some((_, bytes)) if bytes.len() as u64 > limit => Err(Unreadable::TooLarge(limit)),
            Some((_, bytes)) => Ok(bytes.to_vec()),
            None => Err(Error::from(ErrorKind::NotFound).into()),
        }
    };
    let hypervisor = hypervisor();
    let path = Path::new(DESCRIPTION);
    system::load_from(&read, path, Some(&hypervisor), &Progress::hidden())
}

/// A hypervisor without code.
fn hypervisor() -> Hypervisor {
    Hypervisor {
        address: 0x4008_0000,
        bytes: vec![0; SIZE as usize],
        loaded: SIZE,
        trust: Some(TRUST),
        sections: Sections {
            constants: 0x1000,
            data: 0x2000,
            guards: Default::default(),
        },
    }
}
