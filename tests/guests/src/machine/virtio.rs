// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of a virtio device in memory (Virtio 1.2, section 4.2.2), and how a driver sets it up.

use super::mmio::{read32, write32};

/// Registers by their offsets. The areas of a queue have a lower and an upper half, of which the upper one follows.
pub mod register {
    pub const MAGIC: u64 = 0x000;
    pub const DEVICE_ID: u64 = 0x008;
    pub const DEVICE_FEATURES: u64 = 0x010;
    pub const DEVICE_FEATURES_SEL: u64 = 0x014;
    pub const DRIVER_FEATURES: u64 = 0x020;
    pub const DRIVER_FEATURES_SEL: u64 = 0x024;
    pub const QUEUE_SEL: u64 = 0x030;
    pub const QUEUE_NUM: u64 = 0x038;
    pub const QUEUE_READY: u64 = 0x044;
    pub const QUEUE_NOTIFY: u64 = 0x050;
    pub const INTERRUPT_ACK: u64 = 0x064;
    pub const STATUS: u64 = 0x070;
    pub const QUEUE_DESC: u64 = 0x080;
    pub const QUEUE_DRIVER: u64 = 0x090;
    pub const QUEUE_DEVICE: u64 = 0x0a0;
    pub const CONFIG: u64 = 0x100;
}

/// `MagicValue`: `virt`.
pub const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// `VIRTIO_F_VERSION_1`, in the upper half of the features.
const VERSION_1: u32 = 1 << 0;
/// `Status`: `ACKNOWLEDGE` and `DRIVER`; `FEATURES_OK`; `DRIVER_OK`; `DEVICE_NEEDS_RESET`.
const STARTED: u32 = 1 << 0 | 1 << 1;
const FEATURES_OK: u32 = STARTED | 1 << 3;
const DRIVER_OK: u32 = 1 << 2;
const NEEDS_RESET: u32 = 1 << 6;

/// A device, by the address of its registers.
#[derive(Clone, Copy)]
pub struct Device(pub u64);

impl Device {
    /// Reads a register.
    pub fn read(self, register: u64) -> u32 {
        read32(self.0 + register)
    }

    /// Writes a register.
    pub fn write(self, register: u64, value: u32) {
        write32(self.0 + register, value);
    }

    /// Resets it, and accepts those of these features that it offers, of the lower half. Queues may be set up then.
    pub fn begin(self, features: u32) {
        self.write(register::STATUS, 0);
        self.write(register::STATUS, STARTED);
        for (half, features) in [(0, features), (1, VERSION_1)] {
            self.write(register::DEVICE_FEATURES_SEL, half);
            let offered = self.read(register::DEVICE_FEATURES);
            self.write(register::DRIVER_FEATURES_SEL, half);
            self.write(register::DRIVER_FEATURES, features & offered);
        }
        self.write(register::STATUS, FEATURES_OK);
    }

    /// Sets a queue up: with so many entries, and with descriptors, the driver's area and the device's area at these addresses.
    pub fn set_queue(self, queue: u32, entries: u32, areas: [u64; 3]) {
        self.write(register::QUEUE_SEL, queue);
        self.write(register::QUEUE_NUM, entries);
        let registers = [
            register::QUEUE_DESC,
            register::QUEUE_DRIVER,
            register::QUEUE_DEVICE,
        ];
        for (low, address) in registers.into_iter().zip(areas) {
            self.write(low, address as u32);
            self.write(low + 4, (address >> 32) as u32);
        }
        self.write(register::QUEUE_READY, 1);
    }

    /// All queues are set up: it may use them.
    pub fn end(self) {
        self.write(register::STATUS, FEATURES_OK | DRIVER_OK);
    }

    /// Whether it may use its queues, and has found no fault of its driver.
    pub fn is_up(self) -> bool {
        self.read(register::STATUS) & (DRIVER_OK | NEEDS_RESET) == DRIVER_OK
    }
}
