// SPDX-License-Identifier: MIT OR Apache-2.0
//! Accesses that stage 2 refused, and that can be emulated.

use super::gpr::Gpr;

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
}
