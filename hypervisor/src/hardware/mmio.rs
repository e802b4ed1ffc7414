// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to device registers and memory by physical address. EL2's map is the identity.

use arm_pl011_uart::{PL011Registers, Uart, UniqueMmioPointer};
use core::arch::asm;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use spumone_config::PhysAddr;

/// Reads a device register.
///
/// # Safety
///
/// The register exists, is mapped as device memory, and a side effect of reading it does not disturb another user of
/// the device.
#[inline(always)]
pub unsafe fn read_u32(register: PhysAddr) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { (register.0 as *const u32).read_volatile() }
}

/// Writes a device register.
///
/// # Safety
///
/// The register exists, is mapped as device memory, and the caller may write this value.
#[inline(always)]
pub unsafe fn write_u32(register: PhysAddr, value: u32) {
    // SAFETY: as the caller promises.
    unsafe { (register.0 as *mut u32).write_volatile(value) };
}

/// Writes a device register of 64 bits.
///
/// # Safety
///
/// As [`write_u32`].
#[inline(always)]
pub unsafe fn write_u64(register: PhysAddr, value: u64) {
    // SAFETY: as the caller promises.
    unsafe { (register.0 as *mut u64).write_volatile(value) };
}

/// Reads a 32-bit word of memory that guests may write concurrently.
///
/// # Safety
///
/// The address is a multiple of 4, in memory that EL2 maps.
#[inline(always)]
pub unsafe fn read_word_of_memory(address: PhysAddr) -> u32 {
    // SAFETY: as the caller promises; a volatile read of an aligned word is safe with concurrent writers.
    unsafe { (address.0 as *const u32).read_volatile() }
}

/// Writes a value to memory.
///
/// # Safety
///
/// The memory is mapped writable, aligned for `T`, and has no other user.
#[inline(always)]
pub unsafe fn write_memory<T>(address: PhysAddr, value: T) {
    // SAFETY: as the caller promises.
    unsafe { (address.0 as *mut T).write_volatile(value) };
}

/// Bytes of memory.
///
/// # Safety
///
/// They are mapped, and are not written as long as the slice is used.
#[inline(always)]
pub unsafe fn memory_bytes(start: PhysAddr, size: usize) -> &'static [u8] {
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts(start.0 as *const u8, size) }
}

/// Words of memory that the core's own walks of tables read, too.
///
/// # Safety
///
/// They are mapped, aligned, and accessed as atomics only.
pub unsafe fn words_of_memory(start: PhysAddr, count: usize) -> &'static [AtomicU64] {
    // SAFETY: as the caller promises.
    unsafe { core::slice::from_raw_parts(start.0 as *const AtomicU64, count) }
}

/// The PL011 at this address; `None` at address 0.
///
/// # Safety
///
/// There is a PL011 at the address, always mapped as device memory, and the caller is its only user.
pub unsafe fn uart_at(base: PhysAddr) -> Option<Uart<'static>> {
    let registers = NonNull::new(base.0 as *mut PL011Registers)?;
    // SAFETY: as the caller promises.
    Some(Uart::new(unsafe { UniqueMmioPointer::new(registers) }))
}

/// Writes a device register; has no effect if the machine lacks the device.
///
/// Only for the registers that the board file lists for this purpose (`quiesce`): mapped as
/// device memory, of a device whose guest does not run.
pub fn write_if_there(register: PhysAddr, value: u32) {
    unsafe extern "C" {
        static el2_vectors: u8;
        static forgiving_vectors: u8;
    }
    // SAFETY: while the forgiving vectors are in place only the store can fault, and they only skip
    // it; they change no register but x0, which is clobbered. Interrupts are masked at EL2.
    unsafe {
        asm!(
            "msr vbar_el2, {forgiving}",
            "isb",
            "str {value:w}, [{register}]",
            "dsb sy",
            "isb",
            "msr vbar_el2, {normal}",
            "isb",
            forgiving = in(reg) &raw const forgiving_vectors,
            normal = in(reg) &raw const el2_vectors,
            register = in(reg) register.0,
            value = in(reg) value,
            out("x0") _,
            options(nostack, preserves_flags),
        );
    }
}
