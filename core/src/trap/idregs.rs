// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ID registers that a guest reads (`HCR_EL2.TID3`): which features of the machine it sees.
//!
//! A guest uses what the ID registers report, so they must not report a feature that traps, that needs state which is
//! not switched with the vCPU, or that belongs to EL2. Each register has a list of fields that the guest reads as the
//! machine has them; all others read as zero, which means "not implemented" in nearly every field. So a feature of a
//! later machine stays hidden until it is added here. Fields and values: DDI 0487, D24.2; each field is four bits wide.

use super::sysreg::SysReg;

/// What a guest sees of an ID register.
struct Shown {
    /// Bits that it reads as the machine has them.
    pass: u64,
    /// A field that it reads as the machine has it up to a value: first bit, largest value.
    limited: Option<(u32, u64)>,
    /// What the hypervisor provides, on any machine.
    provided: u64,
}

impl Shown {
    const NOTHING: Self = Self::only(0);

    const fn only(pass: u64) -> Self {
        Self {
            pass,
            limited: None,
            provided: 0,
        }
    }
}

/// The value that a guest reads from ID register `register`, of which the machine's own value is `hardware`. Registers
/// outside the ID space (op0 3, op1 0, CRn 0, CRm 1 to 7) and reserved registers in it read as zero.
pub const fn guest_id_register(register: SysReg, hardware: u64) -> u64 {
    let shown = shown(register);
    let limited = match shown.limited {
        Some((start, most)) => at_most(hardware, start, most),
        None => 0,
    };
    hardware & shown.pass | limited | shown.provided
}

/// The mask of the four-bit fields that start at these bits.
const fn fields(starts: &[u32]) -> u64 {
    let mut mask = 0;
    let mut n = 0;
    while n < starts.len() {
        mask |= 0xf << starts[n];
        n += 1;
    }
    mask
}

/// The field at bit `start`, at most `most`.
const fn at_most(value: u64, start: u32, most: u64) -> u64 {
    let field = value >> start & 0xf;
    (if field < most { field } else { most }) << start
}

const fn shown(register: SysReg) -> Shown {
    match register {
        // EL0 (AArch32 there works as on the machine), FP, AdvSIMD, DIT, CSV3. FP and AdvSIMD have 0xf for "not
        // implemented", so they are not changed. CSV2: values above 1 imply SCXTNUM_EL1, which is not switched.
        // Provided: EL1 runs AArch64 only (HCR_EL2.RW); the GIC's system registers, at the level of GICv3, which is what
        // the virtual GIC is.
        // Hidden: EL2, EL3 and SEL2, RME (there is one world below EL2, without nesting); RAS (its error records are the
        // machine's); SVE (EL2 does not switch it); MPAM and AMU (the machine's).
        SysReg::ID_AA64PFR0_EL1 => Shown {
            pass: fields(&[0, 16, 20, 48, 60]),
            limited: Some((56, 1)),
            provided: 1 << 4 | 1 << 24,
        },
        // BT and SSBS: no state but PSTATE and SCTLR_EL1. CSV2_frac: as CSV2, value 2 implies SCXTNUM_EL1.
        // Hidden: MTE (tags are memory that stage 2 does not cover), RAS_frac, MPAM_frac, SME, NMI (the virtual GIC has
        // none), RNDR_trap, GCS, THE, DF2, PFAR.
        SysReg::ID_AA64PFR1_EL1 => Shown {
            limited: Some((32, 1)),
            ..Shown::only(fields(&[0, 4]))
        },
        // The debug features of Armv8.0, on any machine, with the minimum that the architecture allows. DebugVer: Armv8;
        // later versions have registers that `debug_register` does not emulate. BRPs and WRPs: the number minus one; the
        // minimum is two of each. CTX_CMPs: one context-aware. DoubleLock: 0xf means not implemented.
        // Hidden: PMUVer, PMSVer (statistical profiling), TraceVer, TraceFilt, TraceBuffer, BRBE: they are the core's,
        // not the guest's, and MDCR_EL2 traps them.
        SysReg::ID_AA64DFR0_EL1 => Shown {
            provided: 6 | 1 << 12 | 1 << 20 | 0xf << 36,
            ..Shown::NOTHING
        },
        // Instructions need no support of EL2, except transactions (TME): HCR_EL2.TME is off.
        SysReg::ID_AA64ISAR0_EL1 => Shown::only(!fields(&[24])),
        // Hidden: pointer authentication (APA, API, GPA, GPI), which EL2 traps; LS64, which HCRX_EL2 would have to
        // enable.
        SysReg::ID_AA64ISAR1_EL1 => Shown::only(!fields(&[4, 8, 24, 28, 60])),
        // RPRES, BC, CLRBHB, PRFMSLC, RPRFM, CSSC, LUT.
        // Hidden: GPA3, APA3, PAC_frac, as above; WFxT (a vCPU that waits is woken by its interrupts; WFIT would need an
        // alarm of its own); MOPS, SYSREG_128, SYSINSTR_128 (HCRX_EL2 would have to enable them); ATS1A.
        SysReg::ID_AA64ISAR2_EL1 => Shown::only(fields(&[4, 20, 28, 40, 48, 52, 56])),
        // PARange, ASIDBits, BigEnd, SNSMem, BigEndEL0, TGran16, TGran64, TGran4, ExS. The granules have different values
        // for "not implemented", 0 or 0xf, so they are not changed. ECV: CNTVCTSS_EL0; the value 2 adds CNTPOFF_EL2,
        // which is EL2's.
        // Hidden: the granules of stage 2 and FGT, which are EL2's.
        SysReg::ID_AA64MMFR0_EL1 => Shown {
            limited: Some((60, 1)),
            ..Shown::only(fields(&[0, 4, 8, 12, 16, 20, 24, 28, 44]))
        },
        // HPDS, PAN, SpecSEI, ETS, AFP, nTLBPA, TIDCP1, CMOW, ECBHB. HAFDBS: access flag and dirty state; more than 2
        // needs what HCRX_EL2 enables.
        // Hidden: VMIDBits, VH, XNX, TWED, HCX, which are EL2's; LO (HCR_EL2.TLOR traps it).
        SysReg::ID_AA64MMFR1_EL1 => Shown {
            limited: Some((0, 2)),
            ..Shown::only(fields(&[12, 20, 24, 36, 44, 48, 52, 56, 60]))
        },
        // CnP, UAO, LSM, VARange, CCIDX, ST, AT, IDS, TTL, BBM, E0PD.
        // Hidden: IESB (part of RAS), NV, FWB, EVT, which are EL2's.
        SysReg::ID_AA64MMFR2_EL1 => Shown::only(fields(&[0, 4, 8, 16, 20, 28, 32, 36, 48, 52, 60])),
        // For AArch32 programs at EL0: what the machine has, without what is hidden above.
        // AMU, RAS; CSV2 as above.
        SysReg::ID_PFR0_EL1 => Shown::only(!(fields(&[20, 28]) | 0b1110 << 16)),
        // Security, Virtualization and their fractions: there is no EL2 or EL3.
        SysReg::ID_PFR1_EL1 => Shown::only(!fields(&[4, 12, 20, 24])),
        // RAS_frac.
        SysReg::ID_PFR2_EL1 => Shown::only(!fields(&[8])),
        // Trace, PMU, trace filter.
        SysReg::ID_DFR0_EL1 => Shown::only(!fields(&[12, 16, 24, 28])),
        // MTPMU, HPMN0; and two reserved registers.
        SysReg::ID_DFR1_EL1 | SysReg::RESERVED_3_3 | SysReg::RESERVED_3_7 => Shown::NOTHING,
        _ if register.is_id() && register.crm() <= 3 => Shown::only(u64::MAX),
        // Vectors of variable length, matrices, 8-bit floats (ZFR0, SMFR0, FPFR0): hidden.
        // DFR1, DFR2: more breakpoints, profiling: hidden. AFR0, AFR1: implementation defined.
        // PFR2, ISAR3, MMFR3, MMFR4: features that HCRX_EL2 or FGT enables, or of EL2: hidden.
        _ => Shown::NOTHING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The machine's values are those of QEMU's cortex-a76.
    #[test]
    fn a_cortex_a76_becomes_a_plain_core() {
        for (register, hardware, guest) in [
            (
                SysReg::ID_AA64PFR0_EL1,
                0x1100_0000_1111_1112,
                0x1100_0000_0111_0012,
            ),
            (SysReg::ID_AA64PFR1_EL1, 0x10, 0x10),
            (SysReg::ID_AA64DFR0_EL1, 0x10_0010_3051_5408, 0xf0_0010_1006),
            (SysReg::ID_AA64ISAR0_EL1, 0x1000_1021_1120, 0x1000_1021_1120),
            (SysReg::ID_AA64ISAR1_EL1, 0x10_0001, 0x10_0001),
            (SysReg::ID_AA64MMFR0_EL1, 0x10_1122, 0x10_1122),
            (SysReg::ID_AA64MMFR1_EL1, 0x1021_2122, 0x20_2002),
            (SysReg::ID_AA64MMFR2_EL1, 0x1011, 0x11),
            (SysReg::ID_PFR0_EL1, 0x1001_0131, 0x1_0131),
            (SysReg::ID_DFR0_EL1, 0x401_0088, 0x88),
            (SysReg::new(3, 0, 0, 2, 7), 0x10, 0x10),
        ] {
            let value = guest_id_register(register, hardware);
            assert_eq!(value, guest, "{register:?}: {value:#x}");
        }
    }

    fn field(value: u64, start: u32) -> u64 {
        value >> start & 0xf
    }

    #[test]
    fn features_that_are_not_switched_are_hidden_on_a_machine_with_all_features() {
        const ALL: u64 = u64::MAX;
        let pfr0 = guest_id_register(SysReg::ID_AA64PFR0_EL1, ALL);
        for hidden in [8, 12, 28, 32, 36, 40, 44, 52] {
            assert_eq!(field(pfr0, hidden), 0, "bit {hidden}");
        }
        assert_eq!(
            [field(pfr0, 4), field(pfr0, 24), field(pfr0, 56)],
            [1, 1, 1]
        );
        assert_eq!(
            guest_id_register(SysReg::ID_AA64PFR1_EL1, ALL),
            0x1_0000_00ff
        );
        let dfr0 = guest_id_register(SysReg::ID_AA64DFR0_EL1, ALL);
        for hidden in [4, 8, 32, 40, 44, 48, 52, 56, 60] {
            assert_eq!(field(dfr0, hidden), 0, "bit {hidden}");
        }
        let mmfr1 = guest_id_register(SysReg::ID_AA64MMFR1_EL1, ALL);
        for hidden in [4, 8, 16, 28, 32, 40] {
            assert_eq!(field(mmfr1, hidden), 0, "bit {hidden}");
        }
        assert_eq!(
            field(guest_id_register(SysReg::ID_AA64MMFR2_EL1, ALL), 24),
            0
        );
        for (op0, crn, crm, op2) in [
            (3, 0, 4, 2), // ID_AA64PFR2_EL1
            (3, 0, 4, 4), // ID_AA64ZFR0_EL1
            (3, 0, 4, 5), // ID_AA64SMFR0_EL1
            (3, 0, 4, 7), // ID_AA64FPFR0_EL1
            (3, 0, 5, 1), // ID_AA64DFR1_EL1
            (3, 0, 6, 3), // ID_AA64ISAR3_EL1
            (3, 0, 7, 3), // ID_AA64MMFR3_EL1
            (3, 0, 7, 4), // ID_AA64MMFR4_EL1
            (3, 0, 3, 5), // ID_DFR1_EL1
            (3, 0, 3, 3),
            (3, 0, 3, 7),
            (3, 0, 4, 3),
            (3, 0, 7, 7),
            (3, 0, 0, 0), // MIDR_EL1
            (2, 1, 1, 4), // OSLSR_EL1
        ] {
            let register = SysReg::new(op0, 0, crn, crm, op2);
            assert_eq!(guest_id_register(register, ALL), 0, "{register:?}");
        }
    }

    #[test]
    fn pointer_authentication_is_hidden() {
        assert_eq!(guest_id_register(SysReg::ID_AA64ISAR1_EL1, 0xff00_0ff0), 0);
        assert_eq!(guest_id_register(SysReg::ID_AA64ISAR2_EL1, 0xf00_ff00), 0);
    }

    #[test]
    fn fields_with_0xf_for_not_implemented_are_kept() {
        let no_fp = 0xff_0000;
        assert_eq!(
            guest_id_register(SysReg::ID_AA64PFR0_EL1, no_fp) & no_fp,
            no_fp
        );
        let no_granules = 0xff00_0000;
        assert_eq!(
            guest_id_register(SysReg::ID_AA64MMFR0_EL1, no_granules),
            no_granules
        );
    }

    proptest! {
        /// On any machine the guest sees no feature that the machine does not have, except those that the hypervisor
        /// itself provides.
        #[test]
        fn no_feature_is_added(crm in 1u8..8, op2 in 0u8..8, hardware: u64) {
            let register = SysReg::new(3, 0, 0, crm, op2);
            prop_assume!(register != SysReg::ID_AA64DFR0_EL1);
            let guest = guest_id_register(register, hardware);
            for start in (0..64).step_by(4) {
                let provided = register == SysReg::ID_AA64PFR0_EL1 && [4, 24].contains(&start);
                let (guest, hardware) = (field(guest, start), field(hardware, start));
                prop_assert!(provided || guest <= hardware, "{register:?} bit {start}");
            }
        }
    }
}
