// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to memory and devices by physical address.

use super::{Machine, with};
use spumone_config::PhysAddr;
use spumone_config::packed::{MemoryRange, Sections};
use spumone_core::load::CLEARED;
use std::sync::atomic::AtomicU64;

/// Least size of a bundle: the hypervisor reads as many bytes.
pub const MIN_BUNDLE: usize = 1 << 20;

/// The machine's memory.
pub struct Memory {
    start: u64,
    bytes: Vec<u8>,
    loadable: Vec<(u64, u64)>,
    bundle: Vec<u8>,
    own: MemoryRange,
}

impl Memory {
    /// Memory that is all zero.
    pub fn new(
        (start, size): (u64, u64),
        loadable: Vec<(u64, u64)>,
        mut bundle: Vec<u8>,
        own: MemoryRange,
    ) -> Self {
        bundle.resize(bundle.len().max(MIN_BUNDLE), 0);
        Self {
            start,
            bytes: vec![0; size as usize],
            loadable,
            bundle,
            own,
        }
    }

    /// Bytes of memory, to read and to write.
    pub fn at(&mut self, address: u64, size: usize) -> &mut [u8] {
        let offset = address.wrapping_sub(self.start) as usize;
        match offset
            .checked_add(size)
            .and_then(|end| self.bytes.get_mut(offset..end))
        {
            Some(bytes) => bytes,
            None => panic!("there is no memory at {address:#x}"),
        }
    }

    /// The 64 bits at an address of the machine's memory, if it is one.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        bytes.try_into().ok().map(u64::from_le_bytes)
    }

    pub(super) fn of_guest(&mut self, address: u64, size: usize) -> &mut [u8] {
        let is_inside = self
            .loadable
            .iter()
            .any(|&(start, length)| address >= start && address + size as u64 <= start + length);
        assert!(
            is_inside,
            "{address:#x} is written as guest memory, but belongs to no guest"
        );
        self.at(address, size)
    }
}

impl Machine {
    /// Changes a byte of the bundle.
    #[cfg(test)]
    pub fn damage_bundle(&mut self, offset: u64) {
        self.memory.bundle[offset as usize] ^= 1;
    }

    fn read_device(&mut self, address: u64) -> u32 {
        self.work += 1;
        if let Some(value) = self.read_uart(address) {
            return value;
        }
        match self.read_gic(address) {
            Some(value) => value,
            None => panic!("there is no device register at {address:#x}"),
        }
    }

    fn write_device(&mut self, address: u64, value: u64) {
        self.work += 1;
        let is_there = self.write_uart(address, value as u32) || self.write_gic(address, value);
        assert!(is_there, "there is no device register at {address:#x}");
    }
}

/// Reads a device register.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn read_u32(register: PhysAddr) -> u32 {
    with(|machine| machine.read_device(register.0))
}

/// Writes a device register.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn write_u32(register: PhysAddr, value: u32) {
    with(|machine| machine.write_device(register.0, u64::from(value)));
}

/// Writes a device register of 64 bits.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn write_u64(register: PhysAddr, value: u64) {
    with(|machine| machine.write_device(register.0, value));
}

/// Reads a 32-bit word of memory that guests may write concurrently.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn read_word_of_memory(address: PhysAddr) -> u32 {
    let bytes = with(|machine| <[u8; 4]>::try_from(machine.memory.at(address.0, 4)));
    bytes.map_or(0, u32::from_le_bytes)
}

/// Writes a value to memory.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn write_memory<T>(address: PhysAddr, value: T) {
    with(|machine| {
        let place = machine.memory.at(address.0, size_of::<T>());
        // SAFETY: as many bytes as a `T` has, borrowed for writing.
        unsafe { place.as_mut_ptr().cast::<T>().write_unaligned(value) };
    });
}

/// Bytes of memory.
///
/// # Safety
///
/// As on the machine; the slice is used until the next machine at most.
pub unsafe fn memory_bytes(start: PhysAddr, size: usize) -> &'static [u8] {
    let address = with(|machine| machine.memory.at(start.0, size).as_ptr());
    // SAFETY: memory does not move as long as the machine lives; it is not written meanwhile, as the caller promises.
    unsafe { std::slice::from_raw_parts(address, size) }
}

/// Words of memory.
///
/// # Safety
///
/// As on the machine; the slice is used until the next machine at most.
pub unsafe fn words_of_memory(start: PhysAddr, count: usize) -> &'static [AtomicU64] {
    let address = with(|machine| machine.memory.at(start.0, 8 * count).as_ptr());
    assert!(address.cast::<AtomicU64>().is_aligned());
    // SAFETY: memory does not move as long as the machine lives, and these words are accessed as atomics, or by this thread.
    unsafe { std::slice::from_raw_parts(address.cast(), count) }
}

/// First byte of the bundle.
pub fn bundle_start() -> *const u8 {
    with(|machine| machine.memory.bundle.as_ptr())
}

/// Where the hypervisor is said to be. Nothing of it is there: a host has code and bundle elsewhere.
pub fn own_memory(_: u64) -> MemoryRange {
    with(|machine| machine.memory.own)
}

/// Where the parts of this build are said to be.
pub fn own_sections() -> Sections {
    Sections {
        constants: 0x1000,
        data: 0x2000,
        guards: [0x3000].into_iter().collect(),
    }
}

/// There is no code in the machine's memory.
pub fn text_start() -> usize {
    0
}

/// Clears one chunk of guest memory.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn clear_memory(start: PhysAddr) {
    assert!(
        start.0.is_multiple_of(CLEARED),
        "chunks are aligned to their size"
    );
    with(|machine| {
        machine.work += 1;
        machine.memory.of_guest(start.0, CLEARED as usize).fill(0);
        machine.gic.count_down(&mut machine.rises_after_pages);
    });
}

/// Reads bytes of the bundle, and copies them to guest memory.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn fetch_payload(offset: u64, to: Option<PhysAddr>, block: &mut [u8], bytes: u64) {
    with(|machine| {
        machine.work += 1;
        let (offset, bytes) = (offset as usize, bytes as usize);
        let piece = &machine.memory.bundle[offset..offset + bytes];
        block[..bytes].copy_from_slice(piece);
        if let Some(to) = to {
            let place = machine.memory.of_guest(to.0, bytes);
            place.copy_from_slice(&block[..bytes]);
        }
    });
}

/// Copies bytes of guest memory.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn fetch_memory(from: PhysAddr, to: PhysAddr, block: &mut [u8]) {
    with(|machine| {
        machine.work += 1;
        block.copy_from_slice(machine.memory.of_guest(from.0, block.len()));
        let place = machine.memory.of_guest(to.0, block.len());
        place.copy_from_slice(block);
    });
}

/// The bytes at this offset of the bundle.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn payload_bytes<const N: usize>(offset: u64) -> [u8; N] {
    with(|machine| std::array::from_fn(|n| machine.memory.bundle[offset as usize + n]))
}

/// Writes one byte of guest memory.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn write_memory_byte(to: PhysAddr, value: u8) {
    with(|machine| {
        machine.work += 1;
        machine.memory.of_guest(to.0, 1)[0] = value;
    });
}

/// What one core writes all see at once.
pub fn wait_until_visible() {}

/// There are no caches.
pub fn finish_loading() {}

/// There are no caches.
pub fn publish_pages() {}

/// Writes a register of a device that the machine may lack.
pub fn write_if_there(register: PhysAddr, value: u32) {
    with(|machine| machine.quiesced.push((register.0, value)));
}
