// SPDX-License-Identifier: MIT OR Apache-2.0
//! Aborts at stage 2: decodes the access and the reason of the fault.

use super::gpr::Gpr;
use core::fmt;

/// Size of a memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccessSize {
    /// One byte.
    Byte = 1,
    /// Two bytes.
    Half = 2,
    /// Four bytes.
    Word = 4,
    /// Eight bytes.
    Double = 8,
}

impl AccessSize {
    /// The size in bytes.
    pub const fn bytes(self) -> u64 {
        self as u64
    }

    /// `value` reduced to this size.
    pub const fn truncate(self, value: u64) -> u64 {
        value & (u64::MAX >> (64 - 8 * self.bytes()))
    }
}

/// A load or store of one general-purpose register, as the syndrome of a data abort describes it
/// (`ISS.ISV` = 1); it can be emulated without reading the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataAccess {
    /// Size of the access.
    pub size: AccessSize,
    /// Whether a load fills the register with the sign (`SSE`).
    pub sign_extend: bool,
    /// Whether the register is 64 bits wide (`SF`).
    pub wide: bool,
    /// The register loaded or stored.
    pub register: Gpr,
    /// Whether it is a store.
    pub write: bool,
    /// Whether it has acquire or release semantics (`AR`).
    pub ordered: bool,
}

impl DataAccess {
    /// The value of the register after a load has read `raw` from the device: `raw` truncated to the
    /// size of the access, then extended.
    pub const fn load_value(&self, raw: u64) -> u64 {
        let unused = 64 - 8 * self.size.bytes() as u32;
        let value = if self.sign_extend {
            ((raw << unused) as i64 >> unused) as u64
        } else {
            self.size.truncate(raw)
        };
        if self.wide {
            value
        } else {
            value & 0xffff_ffff
        }
    }

    /// The value that a store writes to the device if the register has `value`.
    pub const fn store_value(&self, value: u64) -> u64 {
        self.size.truncate(value)
    }
}

/// Why an access aborted (`DFSC` or `IFSC`, DDI 0487, ESR_EL2 "ISS encoding for an exception from
/// a Data Abort").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultStatus {
    /// The address has more bits than the translation allows; level of the walk.
    AddressSize(i8),
    /// No valid translation at this level of the walk.
    Translation(i8),
    /// The access flag is clear.
    AccessFlag(i8),
    /// The translation forbids the access.
    Permission(i8),
    /// The memory system refused the access.
    External,
    /// The memory system refused an access of the table walk.
    ExternalOnWalk(i8),
    /// The access is not aligned.
    Alignment,
    /// The TLB holds two entries for the address.
    TlbConflict,
    /// An exclusive or atomic access to memory that does not support it.
    UnsupportedAtomic,
    /// Any other status code.
    Other(u8),
}

impl FaultStatus {
    /// Decodes the six bits of `DFSC` or `IFSC`.
    pub const fn decode(code: u8) -> Self {
        let level = (code & 0b11) as i8;
        match code & 0x3f {
            0b00_0000..=0b00_0011 => Self::AddressSize(level),
            0b10_1001 => Self::AddressSize(-1),
            0b00_0100..=0b00_0111 => Self::Translation(level),
            0b10_1011 => Self::Translation(-1),
            0b00_1000..=0b00_1011 => Self::AccessFlag(level),
            0b00_1100..=0b00_1111 => Self::Permission(level),
            0b01_0000 => Self::External,
            0b01_0100..=0b01_0111 => Self::ExternalOnWalk(level),
            0b01_0011 => Self::ExternalOnWalk(-1),
            0b10_0001 => Self::Alignment,
            0b11_0000 => Self::TlbConflict,
            0b11_0101 => Self::UnsupportedAtomic,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for FaultStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AddressSize(level) => write!(f, "address size fault at level {level}"),
            Self::Translation(level) => write!(f, "translation fault at level {level}"),
            Self::AccessFlag(level) => write!(f, "access flag fault at level {level}"),
            Self::Permission(level) => write!(f, "permission fault at level {level}"),
            Self::External => f.write_str("external abort"),
            Self::ExternalOnWalk(level) => write!(f, "external abort on walk at level {level}"),
            Self::Alignment => f.write_str("alignment fault"),
            Self::TlbConflict => f.write_str("TLB conflict"),
            Self::UnsupportedAtomic => f.write_str("unsupported exclusive or atomic access"),
            Self::Other(code) => write!(f, "fault status {code:#04x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(size: AccessSize, sign_extend: bool, wide: bool) -> DataAccess {
        DataAccess {
            size,
            sign_extend,
            wide,
            register: Gpr::ZERO,
            write: false,
            ordered: false,
        }
    }

    #[test]
    fn loads_extend_as_the_instruction_says() {
        use AccessSize::{Byte, Double, Half, Word};
        const RAW: u64 = 0xfedc_ba98_8765_8081;
        for (access, value) in [
            (load(Byte, false, false), 0x81),
            (load(Byte, false, true), 0x81),
            (load(Byte, true, false), 0xffff_ff81),
            (load(Byte, true, true), 0xffff_ffff_ffff_ff81),
            (load(Half, false, false), 0x8081),
            (load(Half, true, false), 0xffff_8081),
            (load(Half, true, true), 0xffff_ffff_ffff_8081),
            (load(Word, false, false), 0x8765_8081),
            (load(Word, true, true), 0xffff_ffff_8765_8081),
            (load(Double, false, true), RAW),
        ] {
            assert_eq!(access.load_value(RAW), value, "{access:?}");
        }
        assert_eq!(load(Byte, true, true).load_value(0x7f), 0x7f);
    }

    #[test]
    fn stores_are_truncated_to_their_size() {
        assert_eq!(
            load(AccessSize::Byte, false, false).store_value(0x1234),
            0x34
        );
        assert_eq!(
            load(AccessSize::Double, false, true).store_value(u64::MAX),
            u64::MAX
        );
    }

    #[test]
    fn fault_status_codes() {
        for (code, status) in [
            (0b00_0000, FaultStatus::AddressSize(0)),
            (0b00_0111, FaultStatus::Translation(3)),
            (0b00_1001, FaultStatus::AccessFlag(1)),
            (0b00_1111, FaultStatus::Permission(3)),
            (0b01_0000, FaultStatus::External),
            (0b01_0110, FaultStatus::ExternalOnWalk(2)),
            (0b01_0011, FaultStatus::ExternalOnWalk(-1)),
            (0b10_0001, FaultStatus::Alignment),
            (0b10_1011, FaultStatus::Translation(-1)),
            (0b10_1001, FaultStatus::AddressSize(-1)),
            (0b11_0000, FaultStatus::TlbConflict),
            (0b11_0101, FaultStatus::UnsupportedAtomic),
            (0b11_0100, FaultStatus::Other(0b11_0100)),
        ] {
            assert_eq!(FaultStatus::decode(code), status, "{code:#b}");
            assert_eq!(FaultStatus::decode(code | 0xc0), status, "{code:#b}");
        }
    }
}
