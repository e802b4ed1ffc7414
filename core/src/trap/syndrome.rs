// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ESR_EL2`: the reason of an exit.

use super::abort::{AccessSize, DataAccess};
use super::gpr::Gpr;
use super::sysreg::{SysReg, SysRegAccess};

/// The value of `ESR_EL2`. Section names below are those of its description in DDI 0487, chapter
/// D24, "ISS encoding for an exception from ...".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syndrome(pub u64);

/// The decoded reason of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// `WFI` or `WFIT`. The return address is the instruction itself.
    WaitForInterrupt,
    /// `WFE` or `WFET`. The return address is the instruction itself.
    WaitForEvent,
    /// `HVC` from AArch64. The return address is the next instruction.
    Hvc,
    /// `SMC` from AArch64, trapped: the return address is the instruction itself.
    Smc,
    /// A system register or instruction, trapped: the return address is the instruction itself.
    SysReg(SysRegAccess),
    /// A fetch that stage 2 refused.
    InstructionAbort,
    /// A load or store that stage 2 refused, if it can be emulated; `None`: the syndrome describes no single register.
    DataAbort(Option<DataAccess>),
    /// Anything else: see [`Syndrome::hidden_feature`].
    Other,
}

/// What an instruction of a feature does on a core without the feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hidden {
    /// It is UNDEFINED.
    Undefined,
    /// It is a NOP if it is in the hint space ([`is_hint`](super::is_hint)), else UNDEFINED.
    NopIfHint,
}

/// Values of `ESR_EL2.EC`.
mod class {
    pub const WFX: u8 = 0x01;
    pub const POINTER_AUTHENTICATION: u8 = 0x09;
    /// `LD64B` and `ST64B*` (FEAT_LS64), and what has no class of its own.
    pub const LOAD_STORE_64_BYTES: u8 = 0x0a;
    /// `MSRR`, `MRRS` and `SYSP` (FEAT_SYSREG128, FEAT_SYSINSTR128).
    pub const SYS128: u8 = 0x14;
    pub const HVC64: u8 = 0x16;
    pub const SMC64: u8 = 0x17;
    pub const SYS64: u8 = 0x18;
    pub const SVE: u8 = 0x19;
    pub const ERET: u8 = 0x1a;
    /// `TSTART` (FEAT_TME).
    pub const TRANSACTION: u8 = 0x1b;
    pub const SME: u8 = 0x1d;
    pub const INSTRUCTION_ABORT: u8 = 0x20;
    pub const DATA_ABORT: u8 = 0x24;
}

impl Syndrome {
    /// `EC`, bits 31:26.
    pub const fn class(self) -> u8 {
        (self.0 >> 26 & 0x3f) as u8
    }

    /// `ISS`, bits 24:0.
    pub const fn iss(self) -> u32 {
        (self.0 & 0x1ff_ffff) as u32
    }

    /// The register that an `MSR` to `register` writes from, if that instruction trapped. Faster than
    /// [`decode`](Self::decode).
    #[inline(always)]
    pub const fn write_of(self, register: SysReg) -> Option<Gpr> {
        /// `Rt` in the ISS.
        const RT: u32 = 0b1_1111 << 5;
        let wanted = SysRegAccess {
            register,
            gpr: Gpr::new(0),
            read: false,
        };
        let is_match = self.class() == class::SYS64 && self.iss() & !RT == wanted.encode();
        if is_match {
            Some(Gpr::new((self.iss() >> 5) as u8))
        } else {
            None
        }
    }

    /// `ISS.CM`: a data abort of a cache maintenance or address translation instruction.
    const CM: u64 = 1 << 8;

    /// Whether stage 2 did not permit the guest to execute code (a permission fault). Faster than
    /// [`decode`](Self::decode).
    #[inline(always)]
    pub const fn is_refused_execution(self) -> bool {
        /// `IFSC` without the level.
        const STATUS: u64 = 0b11_1100;
        const PERMISSION: u64 = 0b00_1100;
        self.class() == class::INSTRUCTION_ABORT && self.0 & STATUS == PERMISSION
    }

    /// Size in bytes of the instruction that trapped (`IL`), by which the program counter moves to skip it.
    pub const fn instruction_size(self) -> u64 {
        if self.0 & 1 << 25 != 0 { 4 } else { 2 }
    }

    /// The fault status of an abort (`DFSC`, `IFSC`).
    pub const fn fault_status(self) -> u8 {
        (self.0 & 0x3f) as u8
    }

    /// Whether stage 2 has nothing at the address that an abort is about: a translation or address size fault (`DFSC`, `IFSC`).
    pub const fn is_of_nothing(self) -> bool {
        matches!(
            self.fault_status(),
            0b00_0000..=0b00_0111 | 0b10_1001 | 0b10_1011
        )
    }

    /// Whether stage 2 has the address that an abort is about, and does not permit the access: a permission fault.
    pub const fn is_of_permission(self) -> bool {
        matches!(self.fault_status(), 0b00_1100..=0b00_1111)
    }

    /// Whether an abort is of a write: by `ISS.WnR` of a data abort, or because the walk of the guest's stage 1, which may read, was refused: then it
    /// was to update a descriptor. Cache maintenance needs no more than a read, unless it was refused for want of a permission.
    pub const fn is_write(self) -> bool {
        if self.is_stage1_walk() && self.is_of_permission() {
            return true;
        }
        let is_data = self.class() == class::DATA_ABORT;
        let writes = self.0 & Self::CM == 0 || self.is_of_permission();
        is_data && self.0 & 1 << 6 != 0 && writes
    }

    /// Whether an exception is a data abort of a cache maintenance instruction (`ISS.CM`), at the address that it names. (If the walk of the
    /// guest's stage 1 has aborted, it may as well be an address translation instruction.)
    pub const fn is_cache_maintenance(self) -> bool {
        self.class() == class::DATA_ABORT && self.0 & Self::CM != 0 && !self.is_stage1_walk()
    }

    /// Whether the fault arose when stage 2 translated a descriptor of the guest's stage 1
    /// (`S1PTW`).
    pub const fn is_stage1_walk(self) -> bool {
        self.0 & 1 << 7 != 0
    }

    /// Decodes the whole register.
    pub const fn decode(self) -> Exception {
        match self.class() {
            // TI, bits 1:0: bit 0 tells an event from an interrupt, bit 1 is for a wait with a time.
            class::WFX if self.0 & 1 == 0 => Exception::WaitForInterrupt,
            class::WFX => Exception::WaitForEvent,
            class::HVC64 => Exception::Hvc,
            class::SMC64 => Exception::Smc,
            class::SYS64 => Exception::SysReg(SysRegAccess::decode(self.iss())),
            class::INSTRUCTION_ABORT => Exception::InstructionAbort,
            class::DATA_ABORT => Exception::DataAbort(self.data_access()),
            _ => Exception::Other,
        }
    }

    /// What becomes of an instruction of a feature that the ID registers hide; `None`: it is none. Apart from
    /// [`decode`](Self::decode), which stays short.
    pub const fn hidden_feature(self) -> Option<Hidden> {
        match self.class() {
            class::POINTER_AUTHENTICATION => Some(Hidden::NopIfHint),
            class::SVE
            | class::SME
            | class::LOAD_STORE_64_BYTES
            | class::SYS128
            | class::TRANSACTION => Some(Hidden::Undefined),
            // ISS.ERET, bit 1: `ERETAA` or `ERETAB`, of pointer authentication. EL2 traps `ERET` itself nowhere.
            class::ERET if self.0 & 1 << 1 != 0 => Some(Hidden::Undefined),
            _ => None,
        }
    }

    const fn data_access(self) -> Option<DataAccess> {
        // ISV, bit 24. With FEAT_LS64 or S1PTW it is 0.
        if self.0 & 1 << 24 == 0 {
            return None;
        }
        Some(DataAccess {
            size: match self.0 >> 22 & 0b11 {
                0b00 => AccessSize::Byte,
                0b01 => AccessSize::Half,
                0b10 => AccessSize::Word,
                _ => AccessSize::Double,
            },
            sign_extend: self.0 & 1 << 21 != 0,
            wide: self.0 & 1 << 15 != 0,
            register: Gpr::new((self.0 >> 16) as u8),
            write: self.0 & 1 << 6 != 0,
            big_endian: false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits() {
        let decode = |iss: u64| Syndrome(0x01 << 26 | 1 << 25 | iss).decode();
        // COND and CV, which AArch64 sets, have no meaning.
        assert_eq!(decode(0x1e0_0000), Exception::WaitForInterrupt);
        assert_eq!(decode(1), Exception::WaitForEvent);
        // WFIT and WFET, which have a time: `RN` names the register with the time if `RV` is set.
        assert_eq!(decode(0b110 | 5 << 5), Exception::WaitForInterrupt);
        assert_eq!(decode(0b111 | 31 << 5), Exception::WaitForEvent);
        assert_eq!(decode(0b011), Exception::WaitForEvent);
    }

    #[test]
    fn refused_execution_is_an_instruction_abort_with_a_permission_fault() {
        for class in 0..0x40 {
            for status in 0..0x40 {
                let syndrome = Syndrome(class << 26 | 1 << 25 | status);
                let is_match = class == 0x20 && matches!(status, 0b00_1100..=0b00_1111);
                assert_eq!(syndrome.is_refused_execution(), is_match, "{syndrome:?}");
            }
        }
    }

    #[test]
    fn writes_are_told_from_reads() {
        const DATA: u64 = 0x24 << 26;
        const INSTRUCTION: u64 = 0x20 << 26;
        const TRANSLATION: u64 = 0b00_0111;
        const PERMISSION: u64 = 0b00_1111;
        const WRITE: u64 = 1 << 6;
        const WALK: u64 = 1 << 7;
        const MAINTENANCE: u64 = 1 << 8;
        for (syndrome, is_write) in [
            (DATA | TRANSLATION, false),
            (DATA | TRANSLATION | WRITE, true),
            (DATA | TRANSLATION | WRITE | MAINTENANCE, false),
            (DATA | PERMISSION | WRITE | MAINTENANCE, true),
            (DATA | TRANSLATION | WALK, false),
            (DATA | TRANSLATION | WALK | WRITE | MAINTENANCE, false),
            (DATA | PERMISSION | WALK, true),
            (INSTRUCTION | TRANSLATION | WRITE, false),
            (INSTRUCTION | TRANSLATION | WALK, false),
            (INSTRUCTION | PERMISSION | WALK, true),
        ] {
            assert_eq!(Syndrome(syndrome).is_write(), is_write, "{syndrome:#x}");
        }
    }

    #[test]
    fn cache_maintenance_is_a_data_abort_at_its_own_address() {
        let is = |class: u64, iss: u64| Syndrome(class << 26 | iss).is_cache_maintenance();
        assert!(is(0x24, 1 << 8));
        assert!(!is(0x24, 1 << 6));
        // The walk for an address translation instruction.
        assert!(!is(0x24, 1 << 8 | 1 << 7));
        assert!(!is(0x20, 1 << 8));
    }

    #[test]
    fn calls() {
        assert_eq!(Syndrome(0x5a00_abcd).decode(), Exception::Hvc);
        assert_eq!(Syndrome(0x5e00_0001).decode(), Exception::Smc);
        assert_eq!(Syndrome(0x5e00_0000).instruction_size(), 4);
        assert_eq!(Syndrome(0x0c00_0000).instruction_size(), 2);
    }

    #[test]
    fn others() {
        for (code, hidden) in [
            (0x07, None),
            (0x09, Some(Hidden::NopIfHint)),
            (0x0a, Some(Hidden::Undefined)),
            (0x14, Some(Hidden::Undefined)),
            (0x19, Some(Hidden::Undefined)),
            (0x1a, None),
            (0x1b, Some(Hidden::Undefined)),
            (0x1d, Some(Hidden::Undefined)),
            (0x2f, None),
            (0x3c, None),
        ] {
            let syndrome = Syndrome(code << 26);
            assert_eq!(syndrome.decode(), Exception::Other, "{code:#x}");
            assert_eq!(syndrome.hidden_feature(), hidden, "{code:#x}");
        }
        // ERETAA and ERETAB.
        for form in [0b10, 0b11] {
            let syndrome = Syndrome(0x1a << 26 | 1 << 25 | form);
            assert_eq!(syndrome.hidden_feature(), Some(Hidden::Undefined));
        }
        // What `decode` describes uses no hidden feature.
        for code in 0..0x40 {
            let syndrome = Syndrome(code << 26 | 0b10);
            let is_other = syndrome.decode() == Exception::Other;
            assert!(is_other || syndrome.hidden_feature().is_none(), "{code:#x}");
        }
    }

    /// `ldr w1, [x0]`, as a PL011 driver in a guest reads a register: translation fault, level 3.
    #[test]
    fn a_load_that_can_be_emulated() {
        let syndrome = Syndrome(0x9381_0007);
        let access = DataAccess {
            size: AccessSize::Word,
            sign_extend: false,
            wide: false,
            register: Gpr::new(1),
            write: false,
            big_endian: false,
        };
        assert_eq!(syndrome.decode(), Exception::DataAbort(Some(access)));
        // ldrsb x7; stlrh w30
        let byte = Syndrome(0x92 << 24 | 1 << 24 | 1 << 21 | 7 << 16 | 1 << 15 | 6);
        let half = Syndrome(0x92 << 24 | 1 << 24 | 1 << 22 | 30 << 16 | 1 << 14 | 1 << 6 | 6);
        let Exception::DataAbort(Some(byte)) = byte.decode() else {
            panic!()
        };
        assert!(byte.sign_extend && byte.wide && !byte.write);
        assert_eq!((byte.size, byte.register), (AccessSize::Byte, Gpr::new(7)));
        let Exception::DataAbort(Some(half)) = half.decode() else {
            panic!()
        };
        assert!(half.write && !half.wide);
        assert_eq!((half.size, half.register), (AccessSize::Half, Gpr::new(30)));
    }

    #[test]
    fn without_isv_there_is_no_description_of_the_access() {
        let pair = Syndrome(0x92 << 24 | 1 << 6 | 7);
        assert_eq!(pair.decode(), Exception::DataAbort(None));
    }

    proptest! {
        #[test]
        fn any_value_is_decoded(esr: u64) {
            let syndrome = Syndrome(esr);
            prop_assert_eq!(u64::from(syndrome.class()), esr >> 26 & 63);
            prop_assert_eq!(u64::from(syndrome.iss()), esr & 0x1ff_ffff);
            let _ = syndrome.decode();
        }
    }
}
