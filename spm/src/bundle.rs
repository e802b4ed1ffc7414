// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the bootable file: hypervisor, packed system, payloads, their hashes, translation tables; and signs it.

use crate::hypervisor::Hypervisor;
use crate::key::SecretKey;
use crate::system::System;
use spumone_config::image::LINUX_IMAGE_SIZE_OFFSET;
use spumone_config::layout::{Payload, Source};
use spumone_config::packed::{Seal, Trust};
use spumone_config::seal::seal;

/// Offset in the image of the number that says where the key is that its hypervisor trusts (`spumone_trust`): a field of the Linux header that
/// boot loaders do not look at (Linux, Documentation/arch/arm64/booting.rst: `res2`). Only `spm verify` reads it.
pub const TRUST_PLACE: usize = 32;

/// The bytes of the bootable file. The system gets the hashes of its parts. With a key its description is signed, and the hypervisor
/// in the file accepts only descriptions that are signed with that key, and have the same version or a higher one.
///
/// # Errors
///
/// What does not fit; the checks should have found it.
pub fn image(
    hypervisor: &Hypervisor,
    system: &mut System,
    key: Option<&SecretKey>,
) -> Result<Vec<u8>, String> {
    let packed = &system.packed;
    let mut image = hypervisor.bytes.clone();
    let start = image.len();
    image.resize(start + packed.total_size as usize, 0);
    for payload in &packed.payloads {
        let bytes = bytes(payload, system).ok_or("a payload is not in its file")?;
        put(&mut image, start + payload.offset as usize, bytes)?;
    }
    let tables = &packed.tables;
    put(&mut image, start + tables.offset as usize, &tables.bytes)?;
    let address = packed.address;
    let bundle = image.get_mut(start..).unwrap_or_default();
    let sign = |sealed: &[u8]| key.map_or([0; Seal::SIGNATURE], |key| key.sign(sealed));
    seal(&mut system.packed.system, address, bundle, sign)?;
    if let Some(place) = hypervisor.trust {
        put(&mut image, TRUST_PLACE, &(place as u64).to_le_bytes())?;
    }
    if let Some(key) = key {
        let place = hypervisor
            .trust
            .ok_or("the hypervisor has no place for a key")?;
        let trust = Trust {
            key: key.public(),
            lowest_version: system.packed.system.version,
        };
        put(&mut image, place, &trust.to_bytes())?;
    }
    let total = (image.len() as u64).to_le_bytes();
    put(&mut image, LINUX_IMAGE_SIZE_OFFSET, &total)?;
    Ok(image)
}

fn put(image: &mut [u8], at: usize, bytes: &[u8]) -> Result<(), String> {
    image
        .get_mut(at..at + bytes.len())
        .ok_or("a payload lies beyond the image")?
        .copy_from_slice(bytes);
    Ok(())
}

fn bytes<'a>(payload: &Payload, system: &'a System) -> Option<&'a [u8]> {
    let contents = system.contents.get(payload.guest)?;
    let file = match payload.source {
        Source::Image => contents.image.as_slice(),
        Source::Initrd => contents.initrd.as_ref()?.as_slice(),
        Source::DeviceTree => system.trees.get(payload.guest)?.blob.as_slice(),
    };
    let start = usize::try_from(payload.file_offset).ok()?;
    file.get(start..start.checked_add(usize::try_from(payload.size).ok()?)?)
}
