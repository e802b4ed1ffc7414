//! The command line, from the device tree: words `key=value`.

use dtoolkit::fdt::Fdt;
use dtoolkit::{Node, Property};

/// Where QEMU puts the tree when it loads an ELF file and passes nothing.
const QEMU_TREE: u64 = 0x4000_0000;
const MAGIC: u32 = 0xd00d_feed;

fn line() -> Option<&'static str> {
    let passed = super::entry::at_entry(0).x0;
    let address = if passed == 0 { QEMU_TREE } else { passed };
    let word = |offset: u64| u32::from_be(super::mmio::read32(address + offset));
    if word(0) != MAGIC {
        return None;
    }
    let size = word(4) as usize;
    // SAFETY: a device tree of this size is there, and nothing writes to it.
    let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, size) };
    let tree = Fdt::new(bytes).ok()?;
    let property = tree.find_node("/chosen")?.property("bootargs")?;
    // The same text, as part of `bytes`: the parser lends it for less long.
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

/// The value of a key as a number, decimal or after 0x.
pub fn number(key: &str) -> Option<u64> {
    let value = text(key)?;
    match value.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => value.parse().ok(),
    }
}

/// As [`number`], with a value to take if there is none.
pub fn number_or(key: &str, default: u64) -> u64 {
    number(key).unwrap_or(default)
}
