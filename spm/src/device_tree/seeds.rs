// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random seeds in `/chosen`: space for them here, filled by the hypervisor at each start. A guest that runs from local memory has none: its
//! pages are those that were hashed with the image.
//!
//! Without `rng-seed` Linux's random generator is not ready at its start, and then every system call takes
//! a global lock.

use dtoolkit::error::ModelError;
use dtoolkit::fdt::Fdt;
use dtoolkit::model::{DeviceTreeNode, DeviceTreeProperty};
use dtoolkit::{Node, Property};

/// Property that seeds the kernel's generator.
const RNG_SEED: &str = "rng-seed";
/// Property that seeds the kernel's address space layout.
const KASLR_SEED: &str = "kaslr-seed";
/// Bytes of `rng-seed`: all that Linux's generator uses.
const RNG_SEED_SIZE: usize = 32;
/// Bytes of `kaslr-seed`, a 64-bit number.
const KASLR_SEED_SIZE: usize = 8;

/// Adds empty seeds to `/chosen`.
pub fn add(chosen: &mut DeviceTreeNode) -> Result<(), ModelError> {
    chosen.add_property(DeviceTreeProperty::new(RNG_SEED, [0u8; RNG_SEED_SIZE])?);
    chosen.add_property(DeviceTreeProperty::new(KASLR_SEED, [0u8; KASLR_SEED_SIZE])?);
    Ok(())
}

/// Offset and size of each seed in a blob.
pub fn find(blob: &[u8]) -> Vec<(u64, u32)> {
    let Ok(fdt) = Fdt::new(blob) else {
        return Vec::new();
    };
    let Some(chosen) = fdt.find_node("/chosen") else {
        return Vec::new();
    };
    [RNG_SEED, KASLR_SEED]
        .into_iter()
        .filter_map(|name| {
            let property = chosen.property(name)?;
            let value = property.value();
            // The value is a slice of the blob: the distance of their starts is its offset.
            let offset = value.as_ptr().addr().checked_sub(blob.as_ptr().addr())?;
            Some((offset as u64, u32::try_from(value.len()).ok()?))
        })
        .collect()
}
