// SPDX-License-Identifier: MIT OR Apache-2.0
//! System registers by their encoding.

use super::gpr::Gpr;

/// A system register or instruction, as `op0:op1:CRn:CRm:op2`, 16 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SysReg(u16);

impl SysReg {
    /// The register `S<op0>_<op1>_C<crn>_C<crm>_<op2>`.
    pub const fn new(op0: u8, op1: u8, crn: u8, crm: u8, op2: u8) -> Self {
        Self(
            (op0 as u16 & 3) << 14
                | (op1 as u16 & 7) << 11
                | (crn as u16 & 15) << 7
                | (crm as u16 & 15) << 3
                | op2 as u16 & 7,
        )
    }

    /// `op0`, 0 to 3.
    pub const fn op0(self) -> u8 {
        (self.0 >> 14) as u8
    }

    /// `op1`, 0 to 7.
    pub const fn op1(self) -> u8 {
        (self.0 >> 11 & 7) as u8
    }

    /// `CRn`, 0 to 15.
    pub const fn crn(self) -> u8 {
        (self.0 >> 7 & 15) as u8
    }

    /// `CRm`, 0 to 15.
    pub const fn crm(self) -> u8 {
        (self.0 >> 3 & 15) as u8
    }

    /// `op2`, 0 to 7.
    pub const fn op2(self) -> u8 {
        (self.0 & 7) as u8
    }
}

/// A trapped access to a system register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SysRegAccess {
    /// Which register.
    pub register: SysReg,
    /// The general-purpose register read into or written from.
    pub gpr: Gpr,
    /// Whether it is an `MRS`; otherwise an `MSR` or a system instruction.
    pub read: bool,
}

impl SysRegAccess {
    /// Decodes the ISS of class 0x18 (DDI 0487, ESR_EL2, "ISS encoding for an exception from MSR,
    /// MRS, or System instruction execution in AArch64 state").
    pub const fn decode(iss: u32) -> Self {
        Self {
            register: SysReg::new(
                (iss >> 20 & 0b11) as u8,
                (iss >> 14 & 0b111) as u8,
                (iss >> 10 & 0b1111) as u8,
                (iss >> 1 & 0b1111) as u8,
                (iss >> 17 & 0b111) as u8,
            ),
            gpr: Gpr::new((iss >> 5) as u8),
            read: iss & 1 != 0,
        }
    }

    /// The ISS that [`decode`](Self::decode) decodes to this.
    pub const fn encode(self) -> u32 {
        let register = self.register;
        (register.op0() as u32) << 20
            | (register.op2() as u32) << 17
            | (register.op1() as u32) << 14
            | (register.crn() as u32) << 10
            | (self.gpr.number() as u32) << 5
            | (register.crm() as u32) << 1
            | self.read as u32
    }
}

macro_rules! registers {
    ($($name:ident = $op0:literal, $op1:literal, $crn:literal, $crm:literal, $op2:literal;)*) => {
        impl SysReg {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                pub const $name: Self = Self::new($op0, $op1, $crn, $crm, $op2);
            )*
        }
    };
}

// Registers whose emulation differs from that of others. DDI 0487, D23.1 and C5.3; for those of the GIC IHI 0069, 12.2.
registers! {
    ID_PFR0_EL1 = 3, 0, 0, 1, 0;
    ID_PFR1_EL1 = 3, 0, 0, 1, 1;
    ID_DFR0_EL1 = 3, 0, 0, 1, 2;
    RESERVED_3_3 = 3, 0, 0, 3, 3;
    ID_PFR2_EL1 = 3, 0, 0, 3, 4;
    ID_DFR1_EL1 = 3, 0, 0, 3, 5;
    RESERVED_3_7 = 3, 0, 0, 3, 7;
    ID_AA64PFR0_EL1 = 3, 0, 0, 4, 0;
    ID_AA64PFR1_EL1 = 3, 0, 0, 4, 1;
    ID_AA64DFR0_EL1 = 3, 0, 0, 5, 0;
    ID_AA64ISAR0_EL1 = 3, 0, 0, 6, 0;
    ID_AA64ISAR1_EL1 = 3, 0, 0, 6, 1;
    ID_AA64ISAR2_EL1 = 3, 0, 0, 6, 2;
    ID_AA64MMFR0_EL1 = 3, 0, 0, 7, 0;
    ID_AA64MMFR1_EL1 = 3, 0, 0, 7, 1;
    ID_AA64MMFR2_EL1 = 3, 0, 0, 7, 2;
    ACTLR_EL1 = 3, 0, 1, 0, 1;
    ICC_DIR_EL1 = 3, 0, 12, 11, 1;
    ICC_SGI1R_EL1 = 3, 0, 12, 11, 5;
    ICC_ASGI1R_EL1 = 3, 0, 12, 11, 6;
    ICC_SGI0R_EL1 = 3, 0, 12, 11, 7;
    ICC_SRE_EL1 = 3, 0, 12, 12, 5;
    OSDTRRX_EL1 = 2, 0, 0, 0, 2;
    MDCCINT_EL1 = 2, 0, 0, 2, 0;
    MDSCR_EL1 = 2, 0, 0, 2, 2;
    OSDTRTX_EL1 = 2, 0, 0, 3, 2;
    OSECCR_EL1 = 2, 0, 0, 6, 2;
    MDRAR_EL1 = 2, 0, 1, 0, 0;
    OSLAR_EL1 = 2, 0, 1, 0, 4;
    OSLSR_EL1 = 2, 0, 1, 1, 4;
    OSDLR_EL1 = 2, 0, 1, 3, 4;
    DBGPRCR_EL1 = 2, 0, 1, 4, 4;
    DBGCLAIMSET_EL1 = 2, 0, 7, 8, 6;
    DBGCLAIMCLR_EL1 = 2, 0, 7, 9, 6;
    DBGAUTHSTATUS_EL1 = 2, 0, 7, 14, 6;
    MDCCSR_EL0 = 2, 3, 0, 1, 0;
    DBGDTR_EL0 = 2, 3, 0, 4, 0;
    DBGDTRRX_EL0 = 2, 3, 0, 5, 0;
}

impl SysReg {
    /// Whether it is in the space of the ID registers that `HCR_EL2.TID3` traps.
    pub const fn is_id(self) -> bool {
        self.op0() == 3 && self.op1() == 0 && self.crn() == 0 && matches!(self.crm(), 1..=7)
    }

    /// Whether it is a debug or trace register.
    pub const fn is_debug(self) -> bool {
        self.op0() == 2
    }
}

#[cfg(test)]
mod tests {
    use super::super::syndrome::{Exception, Syndrome};
    use super::*;
    use proptest::prelude::*;

    /// The syndrome of an access, with its fields as in the manual.
    fn iss(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32, rt: u32, read: u32) -> u32 {
        op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | rt << 5 | crm << 1 | read
    }

    #[test]
    fn an_sgi_is_recognised() {
        let access = SysRegAccess::decode(iss(3, 0, 12, 11, 5, 2, 0));
        assert_eq!(access.register, SysReg::ICC_SGI1R_EL1);
        assert_eq!(access.gpr, Gpr::new(2));
        assert!(!access.read);
    }

    proptest! {
        #[test]
        fn encoding_is_the_inverse_of_decoding(iss in 0..1_u32 << 22) {
            prop_assert_eq!(SysRegAccess::decode(iss).encode(), iss);
        }

        #[test]
        fn the_fast_decoding_agrees_with_the_full_decoding(iss in 0..1_u64 << 22, class in 0x17..=0x18_u64) {
            let syndrome = Syndrome(class << 26 | 1 << 25 | iss);
            let register = SysRegAccess::decode(iss as u32).register;
            let written = match syndrome.decode() {
                Exception::SysReg(access) if !access.read => Some(access.gpr),
                _ => None,
            };
            prop_assert_eq!(syndrome.write_of(register), written);
            if register != SysReg::ICC_SGI1R_EL1 {
                prop_assert_eq!(syndrome.write_of(SysReg::ICC_SGI1R_EL1), None);
            }
        }
    }

    #[test]
    fn groups() {
        assert!(SysReg::ID_AA64PFR0_EL1.is_id() && SysReg::new(3, 0, 0, 7, 7).is_id());
        assert!(!SysReg::new(3, 0, 0, 0, 5).is_id() && !SysReg::new(3, 0, 0, 8, 0).is_id());
        assert!(SysReg::MDSCR_EL1.is_debug() && !SysReg::ID_AA64DFR0_EL1.is_debug());
    }

    proptest! {
        #[test]
        fn each_field_is_where_the_manual_has_it(
            op0 in 0u8..4, op1 in 0u8..8, crn in 0u8..16, crm in 0u8..16, op2 in 0u8..8, rt in 0u8..32,
            read: bool, rest in 0u32..8,
        ) {
            let fields = [op0, op1, crn, crm, op2, rt].map(u32::from);
            let [f0, f1, f2, f3, f4, f5] = fields;
            let iss = iss(f0, f1, f2, f3, f4, f5, u32::from(read)) | rest << 22;
            let access = SysRegAccess::decode(iss);
            prop_assert_eq!(access.register, SysReg::new(op0, op1, crn, crm, op2));
            prop_assert_eq!(
                [access.register.op0(), access.register.op1(), access.register.crn(),
                    access.register.crm(), access.register.op2()],
                [op0, op1, crn, crm, op2]
            );
            prop_assert_eq!((access.gpr, access.read), (Gpr::new(rt), read));
        }
    }
}
