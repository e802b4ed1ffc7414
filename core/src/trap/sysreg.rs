// SPDX-License-Identifier: MIT OR Apache-2.0
//! System registers by their encoding, and by name.

use super::gpr::Gpr;
use core::fmt;

/// A system register or instruction, as `op0:op1:CRn:CRm:op2`, 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

            /// The Arm manual's name of the register, if this module names it.
            const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

// Registers that trap to EL2, and registers that reports may name. DDI 0487, D23.1 and C5.3; for those of the GIC IHI
// 0069, 12.2.
registers! {
    MIDR_EL1 = 3, 0, 0, 0, 0;
    MPIDR_EL1 = 3, 0, 0, 0, 5;
    REVIDR_EL1 = 3, 0, 0, 0, 6;
    ID_PFR0_EL1 = 3, 0, 0, 1, 0;
    ID_PFR1_EL1 = 3, 0, 0, 1, 1;
    ID_DFR0_EL1 = 3, 0, 0, 1, 2;
    ID_AFR0_EL1 = 3, 0, 0, 1, 3;
    ID_MMFR0_EL1 = 3, 0, 0, 1, 4;
    ID_MMFR1_EL1 = 3, 0, 0, 1, 5;
    ID_MMFR2_EL1 = 3, 0, 0, 1, 6;
    ID_MMFR3_EL1 = 3, 0, 0, 1, 7;
    ID_ISAR0_EL1 = 3, 0, 0, 2, 0;
    ID_ISAR1_EL1 = 3, 0, 0, 2, 1;
    ID_ISAR2_EL1 = 3, 0, 0, 2, 2;
    ID_ISAR3_EL1 = 3, 0, 0, 2, 3;
    ID_ISAR4_EL1 = 3, 0, 0, 2, 4;
    ID_ISAR5_EL1 = 3, 0, 0, 2, 5;
    ID_MMFR4_EL1 = 3, 0, 0, 2, 6;
    ID_ISAR6_EL1 = 3, 0, 0, 2, 7;
    MVFR0_EL1 = 3, 0, 0, 3, 0;
    MVFR1_EL1 = 3, 0, 0, 3, 1;
    MVFR2_EL1 = 3, 0, 0, 3, 2;
    ID_PFR2_EL1 = 3, 0, 0, 3, 4;
    ID_DFR1_EL1 = 3, 0, 0, 3, 5;
    ID_MMFR5_EL1 = 3, 0, 0, 3, 6;
    ID_AA64PFR0_EL1 = 3, 0, 0, 4, 0;
    ID_AA64PFR1_EL1 = 3, 0, 0, 4, 1;
    ID_AA64PFR2_EL1 = 3, 0, 0, 4, 2;
    ID_AA64ZFR0_EL1 = 3, 0, 0, 4, 4;
    ID_AA64SMFR0_EL1 = 3, 0, 0, 4, 5;
    ID_AA64FPFR0_EL1 = 3, 0, 0, 4, 7;
    ID_AA64DFR0_EL1 = 3, 0, 0, 5, 0;
    ID_AA64DFR1_EL1 = 3, 0, 0, 5, 1;
    ID_AA64DFR2_EL1 = 3, 0, 0, 5, 2;
    ID_AA64AFR0_EL1 = 3, 0, 0, 5, 4;
    ID_AA64AFR1_EL1 = 3, 0, 0, 5, 5;
    ID_AA64ISAR0_EL1 = 3, 0, 0, 6, 0;
    ID_AA64ISAR1_EL1 = 3, 0, 0, 6, 1;
    ID_AA64ISAR2_EL1 = 3, 0, 0, 6, 2;
    ID_AA64ISAR3_EL1 = 3, 0, 0, 6, 3;
    ID_AA64MMFR0_EL1 = 3, 0, 0, 7, 0;
    ID_AA64MMFR1_EL1 = 3, 0, 0, 7, 1;
    ID_AA64MMFR2_EL1 = 3, 0, 0, 7, 2;
    ID_AA64MMFR3_EL1 = 3, 0, 0, 7, 3;
    ID_AA64MMFR4_EL1 = 3, 0, 0, 7, 4;
    SCTLR_EL1 = 3, 0, 1, 0, 0;
    ACTLR_EL1 = 3, 0, 1, 0, 1;
    CPACR_EL1 = 3, 0, 1, 0, 2;
    RGSR_EL1 = 3, 0, 1, 0, 5;
    GCR_EL1 = 3, 0, 1, 0, 6;
    ZCR_EL1 = 3, 0, 1, 2, 0;
    TRFCR_EL1 = 3, 0, 1, 2, 1;
    SMCR_EL1 = 3, 0, 1, 2, 6;
    TTBR0_EL1 = 3, 0, 2, 0, 0;
    TTBR1_EL1 = 3, 0, 2, 0, 1;
    TCR_EL1 = 3, 0, 2, 0, 2;
    TCR2_EL1 = 3, 0, 2, 0, 3;
    AFSR0_EL1 = 3, 0, 5, 1, 0;
    AFSR1_EL1 = 3, 0, 5, 1, 1;
    ESR_EL1 = 3, 0, 5, 2, 0;
    ERRIDR_EL1 = 3, 0, 5, 3, 0;
    ERRSELR_EL1 = 3, 0, 5, 3, 1;
    FAR_EL1 = 3, 0, 6, 0, 0;
    PMSCR_EL1 = 3, 0, 9, 9, 0;
    PMSIDR_EL1 = 3, 0, 9, 9, 7;
    PMBLIMITR_EL1 = 3, 0, 9, 10, 0;
    PMINTENSET_EL1 = 3, 0, 9, 14, 1;
    PMINTENCLR_EL1 = 3, 0, 9, 14, 2;
    PMMIR_EL1 = 3, 0, 9, 14, 6;
    MAIR_EL1 = 3, 0, 10, 2, 0;
    AMAIR_EL1 = 3, 0, 10, 3, 0;
    LORSA_EL1 = 3, 0, 10, 4, 0;
    LOREA_EL1 = 3, 0, 10, 4, 1;
    LORN_EL1 = 3, 0, 10, 4, 2;
    LORC_EL1 = 3, 0, 10, 4, 3;
    LORID_EL1 = 3, 0, 10, 4, 7;
    VBAR_EL1 = 3, 0, 12, 0, 0;
    DISR_EL1 = 3, 0, 12, 1, 1;
    CONTEXTIDR_EL1 = 3, 0, 13, 0, 1;
    SCXTNUM_EL1 = 3, 0, 13, 0, 7;
    ICC_PMR_EL1 = 3, 0, 4, 6, 0;
    ICC_IAR0_EL1 = 3, 0, 12, 8, 0;
    ICC_EOIR0_EL1 = 3, 0, 12, 8, 1;
    ICC_HPPIR0_EL1 = 3, 0, 12, 8, 2;
    ICC_BPR0_EL1 = 3, 0, 12, 8, 3;
    ICC_AP0R0_EL1 = 3, 0, 12, 8, 4;
    ICC_AP1R0_EL1 = 3, 0, 12, 9, 0;
    ICC_DIR_EL1 = 3, 0, 12, 11, 1;
    ICC_RPR_EL1 = 3, 0, 12, 11, 3;
    ICC_SGI1R_EL1 = 3, 0, 12, 11, 5;
    ICC_ASGI1R_EL1 = 3, 0, 12, 11, 6;
    ICC_SGI0R_EL1 = 3, 0, 12, 11, 7;
    ICC_IAR1_EL1 = 3, 0, 12, 12, 0;
    ICC_EOIR1_EL1 = 3, 0, 12, 12, 1;
    ICC_HPPIR1_EL1 = 3, 0, 12, 12, 2;
    ICC_BPR1_EL1 = 3, 0, 12, 12, 3;
    ICC_CTLR_EL1 = 3, 0, 12, 12, 4;
    ICC_SRE_EL1 = 3, 0, 12, 12, 5;
    ICC_IGRPEN0_EL1 = 3, 0, 12, 12, 6;
    ICC_IGRPEN1_EL1 = 3, 0, 12, 12, 7;
    CNTKCTL_EL1 = 3, 0, 14, 1, 0;
    PMCR_EL0 = 3, 3, 9, 12, 0;
    PMCNTENSET_EL0 = 3, 3, 9, 12, 1;
    PMCNTENCLR_EL0 = 3, 3, 9, 12, 2;
    PMOVSCLR_EL0 = 3, 3, 9, 12, 3;
    PMSWINC_EL0 = 3, 3, 9, 12, 4;
    PMSELR_EL0 = 3, 3, 9, 12, 5;
    PMCEID0_EL0 = 3, 3, 9, 12, 6;
    PMCEID1_EL0 = 3, 3, 9, 12, 7;
    PMCCNTR_EL0 = 3, 3, 9, 13, 0;
    PMXEVTYPER_EL0 = 3, 3, 9, 13, 1;
    PMXEVCNTR_EL0 = 3, 3, 9, 13, 2;
    PMUSERENR_EL0 = 3, 3, 9, 14, 0;
    PMOVSSET_EL0 = 3, 3, 9, 14, 3;
    AMCR_EL0 = 3, 3, 13, 2, 0;
    CNTFRQ_EL0 = 3, 3, 14, 0, 0;
    CNTPCT_EL0 = 3, 3, 14, 0, 1;
    CNTVCT_EL0 = 3, 3, 14, 0, 2;
    CNTPCTSS_EL0 = 3, 3, 14, 0, 5;
    CNTVCTSS_EL0 = 3, 3, 14, 0, 6;
    CNTP_TVAL_EL0 = 3, 3, 14, 2, 0;
    CNTP_CTL_EL0 = 3, 3, 14, 2, 1;
    CNTP_CVAL_EL0 = 3, 3, 14, 2, 2;
    CNTV_TVAL_EL0 = 3, 3, 14, 3, 0;
    CNTV_CTL_EL0 = 3, 3, 14, 3, 1;
    CNTV_CVAL_EL0 = 3, 3, 14, 3, 2;
    PMCCFILTR_EL0 = 3, 3, 14, 15, 7;
    CNTPS_TVAL_EL1 = 3, 7, 14, 2, 0;
    CNTPS_CTL_EL1 = 3, 7, 14, 2, 1;
    CNTPS_CVAL_EL1 = 3, 7, 14, 2, 2;
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
    DBGVCR32_EL2 = 2, 4, 0, 7, 0;
    DC_ISW = 1, 0, 7, 6, 2;
    DC_CSW = 1, 0, 7, 10, 2;
    DC_CISW = 1, 0, 7, 14, 2;
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

    /// Whether it is one of the three registers that send a software generated interrupt.
    pub const fn is_sgi(self) -> bool {
        matches!(
            self,
            Self::ICC_SGI0R_EL1 | Self::ICC_SGI1R_EL1 | Self::ICC_ASGI1R_EL1
        )
    }

    /// Name, number and level of a register that is one of several with a number.
    const fn numbered(self) -> Option<(&'static str, u8, &'static str)> {
        match (self.op0(), self.op1(), self.crn(), self.crm(), self.op2()) {
            (2, 0, 0, number, 4) => Some(("DBGBVR", number, "_EL1")),
            (2, 0, 0, number, 5) => Some(("DBGBCR", number, "_EL1")),
            (2, 0, 0, number, 6) => Some(("DBGWVR", number, "_EL1")),
            (2, 0, 0, number, 7) => Some(("DBGWCR", number, "_EL1")),
            (3, 3, 14, crm @ 8..=11, op2) => Some(("PMEVCNTR", (crm & 3) << 3 | op2, "_EL0")),
            (3, 3, 14, crm @ 12..=15, op2) => Some(("PMEVTYPER", (crm & 3) << 3 | op2, "_EL0")),
            _ => None,
        }
    }
}

impl fmt::Display for SysReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(name) = self.name() {
            return f.write_str(name);
        }
        if let Some((name, number, level)) = self.numbered() {
            return write!(f, "{name}{number}{level}");
        }
        write!(
            f,
            "S{}_{}_C{}_C{}_{}",
            self.op0(),
            self.op1(),
            self.crn(),
            self.crm(),
            self.op2()
        )
    }
}

impl fmt::Debug for SysReg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::super::syndrome::{Exception, Syndrome};
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    /// The syndrome of an access, with its fields as in the manual.
    fn iss(op0: u32, op1: u32, crn: u32, crm: u32, op2: u32, rt: u32, read: u32) -> u32 {
        op0 << 20 | op2 << 17 | op1 << 14 | crn << 10 | rt << 5 | crm << 1 | read
    }

    #[test]
    fn an_sgi_is_recognised() {
        let access = SysRegAccess::decode(iss(3, 0, 12, 11, 5, 2, 0));
        assert_eq!(access.register, SysReg::ICC_SGI1R_EL1);
        assert_eq!(access.gpr, Gpr::new(2));
        assert!(!access.read && access.register.is_sgi());
        assert!(!SysReg::ICC_DIR_EL1.is_sgi());
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
    fn names() {
        for (register, name) in [
            (SysReg::ID_AA64PFR0_EL1, "ID_AA64PFR0_EL1"),
            (SysReg::new(2, 0, 0, 5, 6), "DBGWVR5_EL1"),
            (SysReg::new(3, 3, 14, 11, 6), "PMEVCNTR30_EL0"),
            (SysReg::new(3, 3, 14, 12, 1), "PMEVTYPER1_EL0"),
            (SysReg::PMCCFILTR_EL0, "PMCCFILTR_EL0"),
            (SysReg::new(3, 1, 15, 2, 7), "S3_1_C15_C2_7"),
        ] {
            assert_eq!(register.to_string(), name);
        }
    }

    #[test]
    fn groups() {
        assert!(SysReg::ID_AA64MMFR4_EL1.is_id() && SysReg::new(3, 0, 0, 7, 7).is_id());
        assert!(!SysReg::MPIDR_EL1.is_id() && !SysReg::new(3, 0, 0, 8, 0).is_id());
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
