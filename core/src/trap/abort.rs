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
    /// Whether it is big-endian. The syndrome does not tell: see [`is_big_endian`].
    pub big_endian: bool,
}

/// Whether data accesses of a vCPU are big-endian, by its `PSTATE` and `SCTLR_EL1`: `PSTATE.E` in AArch32, else
/// `SCTLR_EL1.E0E` at EL0 and `SCTLR_EL1.EE` at EL1 (DDI 0487, "BigEndian" in J1.3; `SPSR_EL2` and `SCTLR_EL1` in D24.2).
pub const fn is_big_endian(pstate: u64, control: u64) -> bool {
    /// `M`: AArch32, and the exception level.
    const AARCH32: u64 = 1 << 4;
    const EXCEPTION_LEVEL: u64 = 0b1100;
    const E: u64 = 1 << 9;
    const E0E: u64 = 1 << 24;
    const EE: u64 = 1 << 25;
    if pstate & AARCH32 != 0 {
        pstate & E != 0
    } else if pstate & EXCEPTION_LEVEL == 0 {
        control & E0E != 0
    } else {
        control & EE != 0
    }
}

impl DataAccess {
    /// The bytes of `value`, which the access transfers, in the order in which the device has them: emulated devices are
    /// little-endian. The same in the other direction.
    const fn ordered(&self, value: u64) -> u64 {
        if self.big_endian {
            value.swap_bytes() >> (64 - 8 * self.size.bytes() as u32)
        } else {
            value
        }
    }

    /// The value of the register after a load has read `raw` from the device: `raw` truncated to the
    /// size of the access, then extended.
    pub const fn load_value(&self, raw: u64) -> u64 {
        let raw = self.ordered(raw);
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
        self.size.truncate(self.ordered(value))
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
            big_endian: false,
        }
    }

    #[test]
    fn big_endian_accesses_have_their_bytes_in_the_other_order() {
        use AccessSize::{Byte, Double, Half, Word};
        const VALUE: u64 = 0xfedc_ba98_7654_3281;
        for (size, swapped) in [
            (Byte, 0x81),
            (Half, 0x8132),
            (Word, 0x8132_5476),
            (Double, 0x8132_5476_98ba_dcfe),
        ] {
            let mut access = load(size, false, true);
            access.big_endian = true;
            assert_eq!(access.load_value(VALUE), swapped, "{size:?}");
            assert_eq!(access.store_value(VALUE), swapped, "{size:?}");
        }
        // The sign is that of the byte that is the first one in memory.
        let mut access = load(Half, true, false);
        access.big_endian = true;
        assert_eq!(access.load_value(0x0180), 0xffff_8001);
        access.wide = true;
        assert_eq!(access.load_value(0x8001), 0x0180);
    }

    #[test]
    fn each_level_has_its_own_bit_of_endianness() {
        const EL0: u64 = 0b0_0000;
        const EL1_SP0: u64 = 0b0_0100;
        const EL1: u64 = 0b0_0101;
        const AARCH32: u64 = 0b1_0000;
        const E: u64 = 1 << 9;
        const E0E: u64 = 1 << 24;
        const EE: u64 = 1 << 25;
        for (pstate, of_its_own) in [(EL0, E0E), (EL1_SP0, EE), (EL1, EE)] {
            // The flags of PSTATE count in AArch32 only, where bit 9 is E.
            for other_bits in [0, E, u64::MAX << 5] {
                let pstate = pstate | other_bits;
                assert!(is_big_endian(pstate, of_its_own), "{pstate:#x}");
                assert!(!is_big_endian(pstate, !of_its_own), "{pstate:#x}");
            }
        }
        assert!(is_big_endian(AARCH32 | E, 0));
        assert!(!is_big_endian(AARCH32, E0E | EE));
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
