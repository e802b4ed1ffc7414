// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of an end of a memory link, 32 bits each.
//!
//! | offset | register | access | |
//! | --- | --- | --- | --- |
//! | 0x00 | `ID` | RO | [`ID`] |
//! | 0x04 | `VERSION` | RO | 1 |
//! | 0x08 | `SIZE` | RO | bytes of the memory |
//! | 0x0c | `ACCESS` | RO | bit 0: this guest may write to the memory; bit 1: it is the second of the two that the description names |
//! | 0x10 | `LIFE` | RO | the number of this guest's own life, from 1 on |
//! | 0x14 | `PEER` | RO | the number of the peer's life while the peer runs; else 0 |
//! | 0x18 | `SIGNAL` | WO | any value: signals the peer |
//! | 0x1c | `ACK` | WO | any value: takes the signal back that the peer has given |
//! | 0x20 | `STATUS` | RO | bit 0: the peer has signalled, or begun or ended a life, since the last `ACK` |
//! | 0x24 | `ENDED` | RO | the number of the peer's life that ended last; 0: none has |
//! | 0x28 | `CAUSE` | RO | why: 1 off, 2 reset, 3 fault, 4 its watchdog expired, 5 operator, 6 image differs from its hash, 7 protected memory changed, or it wrote there; 0: none has ended |
//! | 0x2c | `ENDED_LOW` | RO | when, in ticks of the system counter: the lower half |
//! | 0x30 | `ENDED_HIGH` | RO | the upper half |
//!
//! The last four are of one end if `ENDED` is the same before and after the others are read.
//! `STATUS` bit 0 is the level of the guest's interrupt. A signal that has not been taken back is not given again, so a
//! peer that signals without end causes one interrupt for each `ACK`.

use crate::health::End;
use crate::psci::{Generation, Phase};

/// `ID`: the letters `SLNK`, the first in the lowest byte.
pub const ID: u32 = u32::from_le_bytes(*b"SLNK");
/// Bytes of the registers.
pub const REGISTERS_SIZE: u64 = 0x1000;
/// `VERSION`.
const VERSION: u32 = 1;

/// Register offsets.
mod register {
    pub const ID: u64 = 0x00;
    pub const VERSION: u64 = 0x04;
    pub const SIZE: u64 = 0x08;
    pub const ACCESS: u64 = 0x0c;
    pub const LIFE: u64 = 0x10;
    pub const PEER: u64 = 0x14;
    pub const SIGNAL: u64 = 0x18;
    pub const ACK: u64 = 0x1c;
    pub const STATUS: u64 = 0x20;
    pub const ENDED: u64 = 0x24;
    pub const CAUSE: u64 = 0x28;
    pub const ENDED_LOW: u64 = 0x2c;
    pub const ENDED_HIGH: u64 = 0x30;
}

/// What a guest reads in the registers of its end of a memory link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Bytes of the memory.
    pub size: u64,
    /// Whether the guest may write to it.
    pub writes: bool,
    /// Whether the guest is the second of the two that the description names.
    pub is_second: bool,
    /// The number of the guest's life.
    pub life: Generation,
    /// Phase and number of the peer's life.
    pub peer: (Phase, Generation),
    /// Whether the signal is given.
    pub is_given: bool,
    /// How the peer's last life ended, if one has.
    pub ended: Option<End>,
}

impl Registers {
    /// The value of the 32-bit register at `offset`. What is no register reads as zero.
    #[must_use]
    pub fn read(&self, offset: u64) -> u32 {
        match offset {
            register::ID => ID,
            register::VERSION => VERSION,
            register::SIZE => u32::try_from(self.size).unwrap_or(u32::MAX),
            register::ACCESS => u32::from(self.writes) | u32::from(self.is_second) << 1,
            register::LIFE => self.life.0,
            register::PEER => match self.peer {
                (Phase::Running, Generation(life)) => life,
                _ => 0,
            },
            register::STATUS => u32::from(self.is_given),
            register::ENDED => self.of_end(|end| end.life.0),
            register::CAUSE => self.of_end(|end| end.reason as u32 + 1),
            register::ENDED_LOW => self.of_end(|end| end.at.0 as u32),
            register::ENDED_HIGH => self.of_end(|end| (end.at.0 >> 32) as u32),
            _ => 0,
        }
    }

    fn of_end(&self, value: impl Fn(&End) -> u32) -> u32 {
        self.ended.as_ref().map_or(0, value)
    }
}

/// What a guest wants with a write to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// To signal its peer.
    Signal,
    /// To take back the signal that the peer has given.
    Acknowledge,
}

impl Command {
    /// The command of a write at `offset`. `None`: the register cannot be written.
    #[must_use]
    pub const fn of_write(offset: u64) -> Option<Self> {
        match offset {
            register::SIGNAL => Some(Self::Signal),
            register::ACK => Some(Self::Acknowledge),
            _ => None,
        }
    }
}
