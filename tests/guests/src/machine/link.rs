// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of this guest's link 0, a memory link (docs/links.md).

use super::mmio::{read32, write32};
use crate::victim_link::REGISTERS;

/// The INTID of its interrupt, which is level-sensitive.
pub const INTERRUPT: u32 = 80;
const PEER: u64 = 0x14;
const ACK: u64 = 0x1C;

/// The number of the peer's life while the peer runs; else 0.
pub fn peer() -> u64 {
    read32(REGISTERS + PEER).into()
}

/// Takes back the signal that the peer has given, or that says that it has begun or ended a life.
pub fn acknowledge() {
    write32(REGISTERS + ACK, 1);
}
