// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the bootable file: hypervisor, packed system, payloads, stage 2 tables.

use crate::hypervisor::Hypervisor;
use crate::system::System;
use spumone_config::image::LINUX_IMAGE_SIZE_OFFSET;
use spumone_config::layout::{Payload, SYSTEM_ROOM, Source};
use spumone_config::packed::BundleHeader;

/// The bytes of the bootable file.
///
/// # Errors
///
/// What does not fit; the checks should have found it.
pub fn image(hypervisor: &Hypervisor, system: &System) -> Result<Vec<u8>, String> {
    let packed = &system.packed;
    let encoded = postcard::to_allocvec(&packed.system)
        .map_err(|error| format!("the system cannot be encoded: {error}"))?;
    if BundleHeader::SIZE + encoded.len() > SYSTEM_ROOM as usize {
        return Err("the system does not fit into the space reserved for it".into());
    }
    let mut image = hypervisor.bytes.clone();
    let start = image.len();
    image.resize(start + packed.total_size as usize, 0);
    let header = BundleHeader {
        system_len: encoded.len() as u32,
        total_len: packed.total_size,
        address: packed.address,
    };
    put(&mut image, start, &header.to_bytes())?;
    put(&mut image, start + BundleHeader::SIZE, &encoded)?;
    for payload in &packed.payloads {
        let bytes = bytes(payload, system).ok_or("a payload is not in its file")?;
        put(&mut image, start + payload.offset as usize, bytes)?;
    }
    let tables = &packed.tables;
    put(&mut image, start + tables.offset as usize, &tables.bytes)?;
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
        Source::Initrd => contents.initrd.as_deref()?,
        Source::DeviceTree => system.trees.get(payload.guest)?.blob.as_slice(),
    };
    let start = usize::try_from(payload.file_offset).ok()?;
    file.get(start..start.checked_add(usize::try_from(payload.size).ok()?)?)
}
