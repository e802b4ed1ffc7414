// SPDX-License-Identifier: MIT OR Apache-2.0
//! Loads and stores of a given width at a given address, all of which the hypervisor can emulate.

use core::arch::asm;

/// Reads 8 bits.
pub fn read8(address: u64) -> u8 {
    let value: u64;
    // SAFETY: a device's register, or an address whose fault is the subject of a test.
    unsafe { asm!("ldrb {:w}, [{}]", out(reg) value, in(reg) address, options(nostack)) };
    value as u8
}

/// Reads 16 bits.
pub fn read16(address: u64) -> u16 {
    let value: u64;
    // SAFETY: as in `read8`.
    unsafe { asm!("ldrh {:w}, [{}]", out(reg) value, in(reg) address, options(nostack)) };
    value as u16
}

/// Reads 32 bits.
pub fn read32(address: u64) -> u32 {
    let value: u64;
    // SAFETY: as in `read8`.
    unsafe { asm!("ldr {:w}, [{}]", out(reg) value, in(reg) address, options(nostack)) };
    value as u32
}

/// Reads 64 bits.
pub fn read64(address: u64) -> u64 {
    let value;
    // SAFETY: as in `read8`.
    unsafe { asm!("ldr {}, [{}]", out(reg) value, in(reg) address, options(nostack)) };
    value
}

/// Writes 8 bits.
pub fn write8(address: u64, value: u8) {
    // SAFETY: as in `read8`; no device of this machine writes memory.
    unsafe { asm!("strb {:w}, [{}]", in(reg) u64::from(value), in(reg) address, options(nostack)) };
}

/// Writes 16 bits.
pub fn write16(address: u64, value: u16) {
    // SAFETY: as in `write8`.
    unsafe { asm!("strh {:w}, [{}]", in(reg) u64::from(value), in(reg) address, options(nostack)) };
}

/// Writes 32 bits.
pub fn write32(address: u64, value: u32) {
    // SAFETY: as in `write8`.
    unsafe { asm!("str {:w}, [{}]", in(reg) u64::from(value), in(reg) address, options(nostack)) };
}

/// Writes 64 bits.
pub fn write64(address: u64, value: u64) {
    // SAFETY: as in `write8`.
    unsafe { asm!("str {}, [{}]", in(reg) value, in(reg) address, options(nostack)) };
}
