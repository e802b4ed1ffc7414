// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ESR_EL2` in words (DDI 0487, chapter D24).

use spumone_core::trap::Syndrome;
use std::fmt;

/// The exception class of an SError.
pub const SERROR: u8 = 0x2f;

/// The name of an exception class (`EC`).
pub fn class(syndrome: Syndrome) -> String {
    let name = match syndrome.class() {
        0x00 => "unknown reason",
        0x01 => "wait instruction",
        0x03 => "MCR or MRC from AArch32",
        0x07 => "floating-point or vector access",
        0x09 => "pointer authentication",
        0x0a => "64-byte load or store",
        0x0d => "branch target exception",
        0x0e => "illegal execution state",
        0x15 => "SVC",
        0x16 => "HVC",
        0x17 => "SMC",
        0x18 => "system register access",
        0x19 => "SVE access",
        0x1a => "ERET",
        0x1d => "SME access",
        0x20 => "instruction abort",
        0x22 => "PC alignment fault",
        0x24 => "data abort",
        0x26 => "SP alignment fault",
        SERROR => "SError",
        0x30 => "breakpoint",
        0x32 => "software step",
        0x34 => "watchpoint",
        0x3c => "BRK",
        other => return format!("exception class {other:#04x}"),
    };
    name.into()
}

/// Why an access aborted (`DFSC`, `IFSC`). Faults of stage 1 go to the guest, so a fault that comes to EL2 is one of stage 2.
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
    /// That of an abort.
    pub const fn of(syndrome: Syndrome) -> Self {
        let code = syndrome.fault_status();
        let level = (code & 0b11) as i8;
        match code {
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
            Self::AddressSize(level) => write!(f, "stage 2 address size fault at level {level}"),
            Self::Translation(level) => write!(f, "stage 2 translation fault at level {level}"),
            Self::AccessFlag(level) => write!(f, "stage 2 access flag fault at level {level}"),
            Self::Permission(level) => write!(f, "stage 2 permission fault at level {level}"),
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
            assert_eq!(FaultStatus::of(Syndrome(code)), status, "{code:#b}");
            let with_other_bits = Syndrome(0x9200_00c0 | code);
            assert_eq!(FaultStatus::of(with_other_bits), status, "{code:#b}");
        }
    }

    #[test]
    fn every_class_has_a_name() {
        assert_eq!(class(Syndrome(0x9382_0046)), "data abort");
        assert_eq!(class(Syndrome(0x3f << 26)), "exception class 0x3f");
    }
}
