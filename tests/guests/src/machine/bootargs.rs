// SPDX-License-Identifier: MIT OR Apache-2.0
//! The device tree and its command line: words `key=value`.

use super::entry;
use super::part::Part;
use dtoolkit::fdt::Fdt;
use dtoolkit::{Node, Property};

/// The address at which QEMU puts the tree when it loads an ELF file, which it enters with x0 = 0.
const QEMU_TREE: u64 = 0x4000_0000;
const MAGIC: u32 = 0xd00d_feed;

/// The address of the device tree; 0 if there is none.
pub fn place() -> Part {
    let passed = entry::at_entry(0).x0;
    let start = if passed == 0 { QEMU_TREE } else { passed };
    let word = |offset: u64| u32::from_be(super::mmio::read32(start + offset));
    let size = if word(0) == MAGIC { word(4) } else { 0 };
    Part {
        start,
        end: start + u64::from(size),
    }
}

fn bytes() -> &'static [u8] {
    let Part { start, end } = place();
    // SAFETY: a device tree of this size is there, and nothing writes to it.
    unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) }
}

/// The device tree.
pub fn tree() -> Option<Fdt<'static>> {
    Fdt::new(bytes()).ok()
}

fn line() -> Option<&'static str> {
    let (tree, bytes) = (tree()?, bytes());
    let property = tree.find_node("/chosen")?.property("bootargs")?;
    // The same text as a part of `bytes`, which lives longer than the parser.
    let value = property.value().strip_suffix(&[0])?;
    let start = value.as_ptr().addr() - bytes.as_ptr().addr();
    core::str::from_utf8(bytes.get(start..start + value.len())?).ok()
}

/// The value of a key.
pub fn text(key: &str) -> Option<&'static str> {
    line()?
        .split_whitespace()
        .find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// The value of a key as a number, decimal or after 0x; `default` if there is none.
pub fn number_or(key: &str, default: u64) -> u64 {
    let number = |value: &str| match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    };
    text(key).and_then(number).unwrap_or(default)
}
