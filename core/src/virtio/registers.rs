// SPDX-License-Identifier: MIT OR Apache-2.0
//! Registers of a virtio device in memory, and their values (Virtio 1.2, section 4.2.2).

/// Bytes of the registers and the configuration.
pub const FRAME_SIZE: u64 = 0x1000;

pub(super) const MAGIC_VALUE: u64 = 0x000;
pub(super) const VERSION: u64 = 0x004;
pub(super) const DEVICE_ID: u64 = 0x008;
pub(super) const VENDOR_ID: u64 = 0x00c;
pub(super) const DEVICE_FEATURES: u64 = 0x010;
pub(super) const DEVICE_FEATURES_SEL: u64 = 0x014;
pub(super) const DRIVER_FEATURES: u64 = 0x020;
pub(super) const DRIVER_FEATURES_SEL: u64 = 0x024;
pub(super) const QUEUE_SEL: u64 = 0x030;
pub(super) const QUEUE_NUM_MAX: u64 = 0x034;
pub(super) const QUEUE_NUM: u64 = 0x038;
pub(super) const QUEUE_READY: u64 = 0x044;
pub(super) const QUEUE_NOTIFY: u64 = 0x050;
pub(super) const INTERRUPT_STATUS: u64 = 0x060;
pub(super) const INTERRUPT_ACK: u64 = 0x064;
pub(super) const STATUS: u64 = 0x070;
pub(super) const QUEUE_DESC_LOW: u64 = 0x080;
pub(super) const QUEUE_DESC_HIGH: u64 = 0x084;
pub(super) const QUEUE_DRIVER_LOW: u64 = 0x090;
pub(super) const QUEUE_DRIVER_HIGH: u64 = 0x094;
pub(super) const QUEUE_DEVICE_LOW: u64 = 0x0a0;
pub(super) const QUEUE_DEVICE_HIGH: u64 = 0x0a4;
/// Lengths of shared memory: there is none, so they read as -1.
pub(super) const SHM_LEN_LOW: u64 = 0x0b0;
pub(super) const SHM_LEN_HIGH: u64 = 0x0b4;
pub(super) const CONFIG_GENERATION: u64 = 0x0fc;
pub(super) const CONFIG: u64 = 0x100;

/// `MagicValue`: `virt`.
pub(super) const MAGIC: u32 = u32::from_le_bytes(*b"virt");
/// `VendorID`: ours.
pub(super) const VENDOR: u32 = u32::from_le_bytes(*b"SPUM");
/// `DeviceID` of a network card, and of a socket device (section 5).
pub(super) const NETWORK: u32 = 1;
pub(super) const SOCKET: u32 = 19;

/// `Status` (section 2.1).
pub(super) const DRIVER_OK: u32 = 1 << 2;
pub(super) const FEATURES_OK: u32 = 1 << 3;
pub(super) const NEEDS_RESET: u32 = 1 << 6;
pub(super) const FAILED: u32 = 1 << 7;

/// `InterruptStatus`: a used buffer, or a change of the configuration.
pub(super) const USED_BUFFER: u32 = 1 << 0;
pub(super) const CONFIGURATION: u32 = 1 << 1;

/// Features (sections 5.1.3, 5.10.3 and 6), of which the upper half is selected with 1.
pub(super) const NET_MAC: u64 = 1 << 5;
pub(super) const NET_STATUS: u64 = 1 << 16;
/// What a driver accepts that gives its card frames of up to 64 KiB (`CSUM`, `HOST_TSO4`, `HOST_TSO6`), and one that takes them
/// (`GUEST_CSUM`, `GUEST_TSO4`, `GUEST_TSO6`, `MRG_RXBUF`).
pub(super) const SENDS_LARGE: u64 = 1 << 0 | 1 << 11 | 1 << 12;
pub(super) const TAKES_LARGE: u64 = 1 << 1 | 1 << 7 | 1 << 8 | 1 << 15;
pub(super) const SOCKET_STREAM: u64 = 1 << 0;
pub(super) const SOCKET_SEQPACKET: u64 = 1 << 1;
pub(super) const VERSION_1: u64 = 1 << 32;
/// `status` of the configuration: the peer's device is up.
pub(super) const LINK_UP: u8 = 1 << 0;
