// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of guests that run.

use super::with;
use spumone_config::PhysAddr;

fn load<const N: usize>(at: PhysAddr) -> [u8; N] {
    with(|machine| {
        machine.work += 1;
        let mut bytes = [0; N];
        bytes.copy_from_slice(machine.memory.of_guest(at.0, N));
        machine.gic.count_down(&mut machine.rises_after_accesses);
        bytes
    })
}

fn store(at: PhysAddr, bytes: &[u8]) {
    with(|machine| {
        machine.work += 1;
        let place = machine.memory.of_guest(at.0, bytes.len());
        place.copy_from_slice(bytes);
        machine.gic.count_down(&mut machine.rises_after_accesses);
    });
}

/// Reads 16 bits.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn load16(at: PhysAddr) -> u16 {
    u16::from_le_bytes(load(at))
}

/// Reads 64 bits.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn load64(at: PhysAddr) -> u64 {
    u64::from_le_bytes(load(at))
}

/// Writes 16 bits.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn store16(at: PhysAddr, value: u16) {
    store(at, &value.to_le_bytes());
}

/// Writes 32 bits.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn store32(at: PhysAddr, value: u32) {
    store(at, &value.to_le_bytes());
}

/// Copies bytes.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn copy(from: PhysAddr, to: PhysAddr, bytes: u32) {
    let copied = with(|machine| {
        let place = machine.memory.of_guest(from.0, bytes as usize);
        place.to_vec()
    });
    store(to, &copied);
}

/// Reads bytes, as [`copy`].
///
/// # Safety
///
/// As on the machine.
pub unsafe fn read(from: PhysAddr, into: &mut [u8]) {
    with(|machine| into.copy_from_slice(machine.memory.of_guest(from.0, into.len())));
}

/// Writes bytes, as [`copy`].
///
/// # Safety
///
/// As on the machine.
pub unsafe fn write(to: PhysAddr, bytes: &[u8]) {
    store(to, bytes);
}
