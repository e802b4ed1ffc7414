// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ESR_EL2`: the reason of an exit.

use super::abort::{AccessSize, DataAccess, FaultStatus};
use super::gpr::Gpr;
use super::sysreg::{SysReg, SysRegAccess};
use core::fmt;

/// The value of `ESR_EL2`. Section names below are those of its description in DDI 0487, chapter
/// D24, "ISS encoding for an exception from ...".
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Syndrome(pub u64);

/// `ESR_EL2.EC`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ExceptionClass(pub u8);

/// The kinds of wait instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// `WFI`: until an interrupt.
    Wfi,
    /// `WFE`: until an event or interrupt.
    Wfe,
    /// `WFIT`: until an interrupt or a time.
    Wfit,
    /// `WFET`: until an event, interrupt or a time.
    Wfet,
}

/// A trapped wait instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Which instruction.
    pub kind: WaitKind,
    /// The register with the time (virtual counter value) of `WFIT` and `WFET`, if reported.
    pub deadline: Option<Gpr>,
}

/// The decoded reason of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exception {
    /// A wait instruction. The return address is the instruction itself.
    Wait(Wait),
    /// `HVC #imm` from AArch64. The return address is the next instruction.
    Hvc(u16),
    /// `SMC #imm` from AArch64, trapped: the return address is the instruction itself.
    Smc(u16),
    /// A system register or instruction, trapped: the return address is the instruction itself.
    SysReg(SysRegAccess),
    /// A fetch that stage 2 refused.
    InstructionAbort(FaultStatus),
    /// A load or store that stage 2 refused; with its description if the syndrome has one.
    DataAbort {
        /// The reason.
        status: FaultStatus,
        /// Whether it was a store, or a cache maintenance instruction.
        write: bool,
        /// The access, if it can be emulated; `None`: the syndrome describes no single register.
        access: Option<DataAccess>,
    },
    /// An access to floating-point or vector registers.
    Fp,
    /// An access to SVE registers.
    Sve,
    /// An SError.
    SError,
    /// Any other class.
    Other(ExceptionClass),
}

macro_rules! classes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        impl ExceptionClass {
            $(
                #[doc = concat!("An exception class: ", $text, ".")]
                pub const $name: Self = Self($code);
            )*

            /// The name of the class; `None` if this module does not have it.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some($text),)*
                    _ => None,
                }
            }
        }
    };
}

classes! {
    UNKNOWN = 0x00, "unknown reason";
    WFX = 0x01, "wait instruction";
    CP15 = 0x03, "MCR or MRC from AArch32";
    FP = 0x07, "floating-point or vector access";
    POINTER_AUTHENTICATION = 0x09, "pointer authentication";
    LS64 = 0x0a, "64-byte load or store";
    BRANCH_TARGET = 0x0d, "branch target exception";
    ILLEGAL_STATE = 0x0e, "illegal execution state";
    SVC64 = 0x15, "SVC";
    HVC64 = 0x16, "HVC";
    SMC64 = 0x17, "SMC";
    SYS64 = 0x18, "system register access";
    SVE = 0x19, "SVE access";
    ERET = 0x1a, "ERET";
    SME = 0x1d, "SME access";
    INSTRUCTION_ABORT = 0x20, "instruction abort";
    PC_ALIGNMENT = 0x22, "PC alignment fault";
    DATA_ABORT = 0x24, "data abort";
    SP_ALIGNMENT = 0x26, "SP alignment fault";
    SERROR = 0x2f, "SError";
    BREAKPOINT = 0x30, "breakpoint";
    SOFTWARE_STEP = 0x32, "software step";
    WATCHPOINT = 0x34, "watchpoint";
    BRK = 0x3c, "BRK";
}

impl Syndrome {
    /// `EC`, bits 31:26.
    pub const fn class(self) -> ExceptionClass {
        ExceptionClass((self.0 >> 26 & 0x3f) as u8)
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
        let is_match =
            self.class().0 == ExceptionClass::SYS64.0 && self.iss() & !RT == wanted.encode();
        if is_match {
            Some(Gpr::new((self.iss() >> 5) as u8))
        } else {
            None
        }
    }

    /// Whether stage 2 did not permit the guest to execute code (a permission fault). Faster than
    /// [`decode`](Self::decode).
    #[inline(always)]
    pub const fn is_refused_execution(self) -> bool {
        /// `IFSC` without the level.
        const STATUS: u64 = 0b11_1100;
        const PERMISSION: u64 = 0b00_1100;
        self.class().0 == ExceptionClass::INSTRUCTION_ABORT.0 && self.0 & STATUS == PERMISSION
    }

    /// Size in bytes of the instruction that trapped (`IL`), by which the program counter moves to skip it.
    pub const fn instruction_size(self) -> u64 {
        if self.0 & 1 << 25 != 0 { 4 } else { 2 }
    }

    /// The fault status of an abort (`DFSC`, `IFSC`).
    pub const fn fault_status(self) -> FaultStatus {
        FaultStatus::decode((self.0 & 0x3f) as u8)
    }

    /// Whether the fault arose when stage 2 translated a descriptor of the guest's stage 1
    /// (`S1PTW`).
    pub const fn is_stage1_walk(self) -> bool {
        self.0 & 1 << 7 != 0
    }

    /// Whether `FAR_EL2` is the faulting address (`FnV` = 0); matters for external aborts only.
    pub const fn is_far_valid(self) -> bool {
        self.0 & 1 << 10 == 0
    }

    /// Whether an abort is of a cache maintenance or address translation instruction (`CM`).
    pub const fn is_cache_maintenance(self) -> bool {
        self.0 & 1 << 8 != 0
    }

    /// Decodes the whole register.
    pub const fn decode(self) -> Exception {
        match self.class() {
            ExceptionClass::WFX => Exception::Wait(self.wait()),
            ExceptionClass::HVC64 => Exception::Hvc(self.0 as u16),
            ExceptionClass::SMC64 => Exception::Smc(self.0 as u16),
            ExceptionClass::SYS64 => Exception::SysReg(SysRegAccess::decode(self.iss())),
            ExceptionClass::INSTRUCTION_ABORT => Exception::InstructionAbort(self.fault_status()),
            ExceptionClass::DATA_ABORT => Exception::DataAbort {
                status: self.fault_status(),
                write: self.0 & 1 << 6 != 0,
                access: self.data_access(),
            },
            ExceptionClass::FP => Exception::Fp,
            ExceptionClass::SVE => Exception::Sve,
            ExceptionClass::SERROR => Exception::SError,
            other => Exception::Other(other),
        }
    }

    const fn wait(self) -> Wait {
        let kind = match self.0 & 0b11 {
            0b00 => WaitKind::Wfi,
            0b01 => WaitKind::Wfe,
            0b10 => WaitKind::Wfit,
            _ => WaitKind::Wfet,
        };
        // RV, bit 2: whether RN, bits 9:5, is given.
        let deadline = match kind {
            WaitKind::Wfit | WaitKind::Wfet if self.0 & 1 << 2 != 0 => {
                Some(Gpr::new((self.0 >> 5) as u8))
            }
            _ => None,
        };
        Wait { kind, deadline }
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
            ordered: self.0 & 1 << 14 != 0,
        })
    }
}

impl fmt::Debug for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Syndrome({:#x})", self.0)
    }
}

impl fmt::Display for ExceptionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "exception class {:#04x}", self.0),
        }
    }
}

impl fmt::Debug for ExceptionClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExceptionClass({:#04x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn waits() {
        let wait = |kind, deadline| Exception::Wait(Wait { kind, deadline });
        let decode = |iss: u64| Syndrome(0x01 << 26 | 1 << 25 | iss).decode();
        // COND and CV, which AArch64 sets, have no meaning.
        assert_eq!(decode(0x1e0_0000), wait(WaitKind::Wfi, None));
        assert_eq!(decode(1), wait(WaitKind::Wfe, None));
        assert_eq!(decode(1 << 2 | 5 << 5), wait(WaitKind::Wfi, None));
        assert_eq!(
            decode(0b110 | 5 << 5),
            wait(WaitKind::Wfit, Some(Gpr::new(5)))
        );
        assert_eq!(
            decode(0b111 | 31 << 5),
            wait(WaitKind::Wfet, Some(Gpr::ZERO))
        );
        assert_eq!(decode(0b011 | 5 << 5), wait(WaitKind::Wfet, None));
    }

    #[test]
    fn refused_execution_is_an_instruction_abort_with_a_permission_fault() {
        for class in 0..0x40 {
            for status in 0..0x40 {
                let syndrome = Syndrome(class << 26 | 1 << 25 | status);
                let is_match = matches!(
                    syndrome.decode(),
                    Exception::InstructionAbort(FaultStatus::Permission(_))
                );
                assert_eq!(syndrome.is_refused_execution(), is_match, "{syndrome:?}");
            }
        }
    }

    #[test]
    fn calls() {
        assert_eq!(Syndrome(0x5a00_0000).decode(), Exception::Hvc(0));
        assert_eq!(Syndrome(0x5a00_abcd).decode(), Exception::Hvc(0xabcd));
        assert_eq!(Syndrome(0x5e00_0001).decode(), Exception::Smc(1));
        assert_eq!(Syndrome(0x5600_0001).class(), ExceptionClass::SVC64);
        assert_eq!(Syndrome(0x5e00_0000).instruction_size(), 4);
        assert_eq!(Syndrome(0x0c00_0000).instruction_size(), 2);
    }

    #[test]
    fn others() {
        for (code, exception) in [
            (0x07, Exception::Fp),
            (0x19, Exception::Sve),
            (0x2f, Exception::SError),
            (0x3c, Exception::Other(ExceptionClass::BRK)),
            (0x3f, Exception::Other(ExceptionClass(0x3f))),
        ] {
            assert_eq!(Syndrome(code << 26).decode(), exception);
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
            ordered: false,
        };
        assert_eq!(
            syndrome.decode(),
            Exception::DataAbort {
                status: FaultStatus::Translation(3),
                write: false,
                access: Some(access),
            }
        );
        // ldrsb x7; stlrh w30
        let byte = Syndrome(0x92 << 24 | 1 << 24 | 1 << 21 | 7 << 16 | 1 << 15 | 6);
        let half = Syndrome(0x92 << 24 | 1 << 24 | 1 << 22 | 30 << 16 | 1 << 14 | 1 << 6 | 6);
        let Exception::DataAbort {
            access: Some(byte), ..
        } = byte.decode()
        else {
            panic!()
        };
        assert!(byte.sign_extend && byte.wide && !byte.write);
        assert_eq!((byte.size, byte.register), (AccessSize::Byte, Gpr::new(7)));
        let Exception::DataAbort {
            access: Some(half),
            write: true,
            ..
        } = half.decode()
        else {
            panic!()
        };
        assert!(half.ordered && half.write && !half.wide);
        assert_eq!((half.size, half.register), (AccessSize::Half, Gpr::new(30)));
    }

    #[test]
    fn without_isv_there_is_no_description_of_the_access() {
        assert_eq!(
            Syndrome(0x92 << 24 | 1 << 6 | 7).decode(),
            Exception::DataAbort {
                status: FaultStatus::Translation(3),
                write: true,
                access: None,
            }
        );
    }

    proptest! {
        #[test]
        fn any_value_is_decoded(esr: u64) {
            let syndrome = Syndrome(esr);
            prop_assert_eq!(u64::from(syndrome.class().0), esr >> 26 & 63);
            prop_assert_eq!(u64::from(syndrome.iss()), esr & 0x1ff_ffff);
            let _ = std::format!("{:?} {}", syndrome.decode(), syndrome.class());
        }
    }
}
