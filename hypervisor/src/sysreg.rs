// SPDX-License-Identifier: MIT OR Apache-2.0
//! Access to system registers by name. Registers that belong to guests are written by safe code, those that
//! control EL2 only by `unsafe` code.
//!
//! `hardware` has the instructions; on a host, `fake` replaces it.

/// Reads a system register.
///
/// Reading has no side effect for every register named in this crate except `ICC_IAR1_EL1`,
/// which acknowledges an interrupt, and is read by `Gic::take` only.
macro_rules! mrs {
    ($register:ident) => {
        $crate::hardware::read_register!($register)
    };
}

/// Writes a system register of [`free`]: one on which the safety of the hypervisor does not depend. The
/// caller adds the barriers it needs.
macro_rules! msr {
    ($register:ident, $value:expr) => {{
        const _: $crate::sysreg::Free = $crate::sysreg::free::$register;
        $crate::hardware::write_register!($register, $value)
    }};
}

/// Writes a system register of [`own`]: one that controls what guests can access, or what EL2 itself does.
/// To be used in `unsafe` code, which says why the value keeps guests isolated.
macro_rules! msr_own {
    ($register:ident, $value:expr) => {{
        const _: $crate::sysreg::Own = $crate::sysreg::own::$register;
        $crate::hardware::write_own_register!($register, $value)
    }};
}

pub(crate) use {mrs, msr, msr_own};

/// A register that [`msr!`] writes.
pub struct Free;

/// A register that [`msr_own!`] writes.
pub struct Own;

macro_rules! names {
    ($module:ident: $kind:ident, $doc:literal, $($register:ident)*) => {
        #[doc = $doc]
        #[allow(non_upper_case_globals)]
        pub mod $module {
            $(
                #[doc = concat!("`", stringify!($register), "`.")]
                pub const $register: super::$kind = super::$kind;
            )*
        }
    };
}

names! {
    free: Free,
    "Registers of EL1 and EL0, timers, and interfaces of the GIC: they govern lower exception levels or the delivery of
    interrupts, not the memory or the control flow of EL2.",
    SCTLR_EL1 CPACR_EL1 TTBR0_EL1 TTBR1_EL1 TCR_EL1 MAIR_EL1 AMAIR_EL1 VBAR_EL1 CONTEXTIDR_EL1 TPIDR_EL0 TPIDRRO_EL0
    TPIDR_EL1 ESR_EL1 FAR_EL1 AFSR0_EL1 AFSR1_EL1 PAR_EL1 ELR_EL1 SPSR_EL1 SP_EL0 SP_EL1 CNTKCTL_EL1 MDSCR_EL1 CSSELR_EL1
    VMPIDR_EL2 VPIDR_EL2 S3_4_C12_C1_1 S3_4_C5_C2_3 S3_3_C4_C4_0 S3_3_C4_C4_1
    CNTV_CTL_EL0 CNTV_CVAL_EL0 CNTP_CTL_EL0 CNTP_CVAL_EL0 CNTHP_CTL_EL2 CNTHP_CVAL_EL2 OSLAR_EL1 OSDLR_EL1
    ICC_SRE_EL1 ICC_CTLR_EL1 ICC_BPR1_EL1 ICC_PMR_EL1 ICC_IGRPEN1_EL1 ICC_EOIR1_EL1 ICC_DIR_EL1 ICC_SGI1R_EL1
    ICH_HCR_EL2 ICH_VMCR_EL2 ICH_AP0R0_EL2 ICH_AP1R0_EL2
    ICH_LR0_EL2 ICH_LR1_EL2 ICH_LR2_EL2 ICH_LR3_EL2 ICH_LR4_EL2 ICH_LR5_EL2 ICH_LR6_EL2 ICH_LR7_EL2
    ICH_LR8_EL2 ICH_LR9_EL2 ICH_LR10_EL2 ICH_LR11_EL2 ICH_LR12_EL2 ICH_LR13_EL2 ICH_LR14_EL2 ICH_LR15_EL2
}

// HCRX_EL2 is S3_4_C1_C2_2. Of FEAT_FGT, HFGRTR_EL2, HFGWTR_EL2 and HFGITR_EL2 are S3_4_C1_C1_4 to 6, HDFGRTR_EL2 and
// HDFGWTR_EL2 S3_4_C3_C1_4 and 5; of FEAT_FGT2, HDFGRTR2_EL2, HDFGWTR2_EL2, HFGRTR2_EL2 and HFGWTR2_EL2 are
// S3_4_C3_C1_0 to 3, HFGITR2_EL2 is S3_4_C3_C1_7: the assembler of an Armv8.0 target accepts them by encoding only.
names! {
    own: Own,
    "Registers that control what traps and which memory a guest can access.",
    HCR_EL2 VTCR_EL2 VTTBR_EL2 CPTR_EL2 MDCR_EL2 CNTHCTL_EL2 CNTVOFF_EL2 HSTR_EL2 ICC_SRE_EL2
    S3_4_C1_C2_2 S3_4_C1_C1_4 S3_4_C1_C1_5 S3_4_C1_C1_6 S3_4_C3_C1_4 S3_4_C3_C1_5
    S3_4_C3_C1_0 S3_4_C3_C1_1 S3_4_C3_C1_2 S3_4_C3_C1_3 S3_4_C3_C1_7
}
