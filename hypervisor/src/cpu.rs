// SPDX-License-Identifier: MIT OR Apache-2.0
//! Setup of a core at EL2: which accesses of a guest trap, and which do not.
//!
//! Source: Arm ARM DDI 0487, chapter D23 (register descriptions).

use crate::hardware::{self, isb};
use crate::sysreg::{mrs, msr, msr_own};
use spumone_config::{PcpuId, PhysAddr};

/// `HCR_EL2` while a guest runs. `API` and `APK` are clear: the keys of pointer authentication trap, and its instructions where
/// the guest has enabled them.
pub const HCR_GUEST: u64 = {
    /// Stage 2 translation.
    const VM: u64 = 1 << 0;
    /// A guest's invalidation by set and way also cleans: it must not discard writes of other guests.
    const SWIO: u64 = 1 << 1;
    /// A table walk of the guest that hits device memory faults.
    const PTW: u64 = 1 << 2;
    /// Physical FIQ, IRQ and SError are routed to EL2; the guest gets virtual ones.
    const FMO: u64 = 1 << 3;
    const IMO: u64 = 1 << 4;
    const AMO: u64 = 1 << 5;
    /// TLB and cache maintenance is broadcast, so that it also covers the core where the vCPU runs next.
    const FB: u64 = 1 << 9;
    const BSU_INNER: u64 = 1 << 10;
    /// WFI traps to EL2: the vCPU sleeps, and the core may run another one.
    const TWI: u64 = 1 << 13;
    /// Reads of ID registers trap to EL2, which hides the features that it does not virtualize.
    const TID3: u64 = 1 << 18;
    /// SMC traps to EL2: guests do not reach the firmware.
    const TSC: u64 = 1 << 19;
    /// Implementation defined registers.
    const TIDCP: u64 = 1 << 20;
    /// Auxiliary control registers.
    const TACR: u64 = 1 << 21;
    /// EL1 is AArch64.
    const RW: u64 = 1 << 31;
    /// Limited ordering regions and error records.
    const TLOR: u64 = 1 << 35;
    const TERR: u64 = 1 << 36;
    VM | SWIO
        | PTW
        | FMO
        | IMO
        | AMO
        | FB
        | BSU_INNER
        | TWI
        | TID3
        | TSC
        | TIDCP
        | TACR
        | RW
        | TLOR
        | TERR
};

/// `CPTR_EL2`: SVE, trace and activity monitors trap; floating point does not.
const CPTR: u64 = {
    const RES1_AND_TZ: u64 = 0x33FF;
    const TTA: u64 = 1 << 20;
    const TAM: u64 = 1 << 30;
    RES1_AND_TZ | TTA | TAM
};

/// `MDCR_EL2`: debug and performance registers trap to EL2. `HPMN` keeps its reset value.
const MDCR_TRAPS: u64 = {
    const TPMCR: u64 = 1 << 5;
    const TPM: u64 = 1 << 6;
    const TDA: u64 = 1 << 9;
    const TDOSA: u64 = 1 << 10;
    const TDRA: u64 = 1 << 11;
    const TPMS: u64 = 1 << 14;
    const TTRF: u64 = 1 << 19;
    TPMCR | TPM | TDA | TDOSA | TDRA | TPMS | TTRF
};

/// `CNTHCTL_EL2`: a guest's accesses to the physical counter and the EL1 physical timer do not trap.
const CNTHCTL: u64 = 0b11;

/// `VTTBR_EL2` of a guest: which tables translate its addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vttbr(u64);

impl Vttbr {
    /// A value from the bundle.
    ///
    /// # Safety
    ///
    /// The tables never change, and map memory and devices of one guest only.
    pub const unsafe fn new(value: u64) -> Self {
        Self(value)
    }

    /// The register's value.
    pub const fn value(self) -> u64 {
        self.0
    }
}

/// Sets up the calling core for guests. To be called once on each core, at EL2, MMU on.
pub fn set_up(vtcr: u64) {
    let hpmn = mrs!(MDCR_EL2) & 0x1F;
    // SAFETY: the constants above confine guests; `vtcr` is the format of the stage 2 tables in the bundle, which
    // the core supports (`boot::check_core`). The counter has no offset.
    unsafe {
        msr_own!(VTCR_EL2, vtcr);
        msr_own!(HCR_EL2, HCR_GUEST);
        msr_own!(CPTR_EL2, CPTR);
        msr_own!(MDCR_EL2, MDCR_TRAPS | hpmn);
        msr_own!(CNTHCTL_EL2, CNTHCTL);
        msr_own!(CNTVOFF_EL2, 0);
        msr_own!(HSTR_EL2, 0);
    }
    // The firmware or boot loader may have left timers on.
    msr!(CNTV_CTL_EL0, 0);
    msr!(CNTP_CTL_EL0, 0);
    msr!(CNTHP_CTL_EL2, 0);
    // The OS lock would disable software step, which debuggers inside guests use.
    msr!(OSLAR_EL1, 0);
    msr!(OSDLR_EL1, 0);
    hide_later_features();
    msr!(VPIDR_EL2, mrs!(MIDR_EL1));
    isb();
}

/// Makes registers of features later than Armv8.0 trap, where the core has a control for it. The value is zero: in
/// these registers, a set bit enables a feature whose registers a switch does not save (`TCR2_EL1`, `TPIDR2_EL0`,
/// `PIR_EL1`, …), or traps a register that guests may use. The reset values are UNKNOWN (Arm ARM DDI 0487, D24.2).
/// [`own`](crate::sysreg::own) has the registers' names.
fn hide_later_features() {
    /// `ID_AA64MMFR1_EL1.HCX`.
    const HCX: u64 = 0xF << 40;
    if mrs!(ID_AA64MMFR1_EL1) & HCX != 0 {
        // SAFETY: zero only adds traps.
        unsafe { msr_own!(S3_4_C1_C2_2, 0) };
    }
    // ID_AA64MMFR0_EL1.FGT: 1 is FEAT_FGT, 2 also FEAT_FGT2.
    let fine_grained_traps = mrs!(ID_AA64MMFR0_EL1) >> 56 & 0xF;
    if fine_grained_traps >= 1 {
        // SAFETY: as above.
        unsafe {
            msr_own!(S3_4_C1_C1_4, 0);
            msr_own!(S3_4_C1_C1_5, 0);
            msr_own!(S3_4_C1_C1_6, 0);
            msr_own!(S3_4_C3_C1_4, 0);
            msr_own!(S3_4_C3_C1_5, 0);
        }
    }
    if fine_grained_traps >= 2 {
        // SAFETY: as above.
        unsafe {
            msr_own!(S3_4_C3_C1_0, 0);
            msr_own!(S3_4_C3_C1_1, 0);
            msr_own!(S3_4_C3_C1_2, 0);
            msr_own!(S3_4_C3_C1_3, 0);
            msr_own!(S3_4_C3_C1_7, 0);
        }
    }
}

/// Which of these cores, by `MPIDR_EL1`, executes this; `None`: none of them.
pub fn this_core(mpidrs: impl Iterator<Item = u64>) -> Option<PcpuId> {
    /// The affinity fields of `MPIDR_EL1`.
    const AFFINITY: u64 = 0xFF_00FF_FFFF;
    let own = mrs!(MPIDR_EL1) & AFFINITY;
    let ids = (0..).map(PcpuId);
    ids.zip(mpidrs)
        .find(|(_, mpidr)| mpidr & AFFINITY == own)
        .map(|(id, _)| id)
}

/// Whether the calling core has FEAT_RAS, and with it the registers of deferred SErrors.
pub fn has_error_registers() -> bool {
    /// `ID_AA64PFR0_EL1.RAS`.
    const RAS: u64 = 0xF << 28;
    mrs!(ID_AA64PFR0_EL1) & RAS != 0
}

/// Makes the guest with these stage 2 tables the current one. Takes effect at the next `ERET`.
#[inline(always)]
pub fn set_stage2(tables: Vttbr) {
    // SAFETY: the tables of a `Vttbr` confine one guest (`Vttbr::new`).
    unsafe { msr_own!(VTTBR_EL2, tables.value()) };
}

/// Invalidates what this core has cached of the current guest's stage 1: another vCPU of the same
/// guest has run here, and a guest may use other translations on each of its CPUs.
#[inline(always)]
pub fn forget_guest_translations() {
    hardware::forget_guest_translations();
}

/// The same, and what this core has cached of the current guest's stage 2.
#[inline(always)]
pub fn forget_both_stages() {
    hardware::forget_both_stages();
}

/// As [`set_stage2`] with other tables of the current guest: also invalidates what the core has cached of the former
/// ones. All tables of a guest have one VMID, so that the guest's own TLB maintenance covers each.
pub fn change_stage2(tables: Vttbr) {
    set_stage2(tables);
    hardware::forget_both_stages();
}

/// The physical address of a virtual address of the loaded vCPU, for a read by its kernel; `None` if
/// that read would fault.
pub fn translate(address: u64) -> Option<PhysAddr> {
    /// `PAR_EL1.F`: the translation failed.
    const FAILED: u64 = 1;
    const PAGE: u64 = 0x0000_FFFF_FFFF_F000;
    // The vCPU may have been interrupted between an `AT` of its own and its read of the result.
    let of_guest = mrs!(PAR_EL1);
    hardware::translate_for_kernel_read(address);
    let par = mrs!(PAR_EL1);
    msr!(PAR_EL1, of_guest);
    (par & FAILED == 0).then_some(PhysAddr((par & PAGE) | (address & 0xFFF)))
}

/// Whether a physical interrupt is pending that passes the priority mask. Long work at EL2 is done in
/// steps, and stops when this returns true.
#[inline(always)]
pub fn interrupt_pending() -> bool {
    /// `ISR_EL1.I`. Pending SErrors, also shown in this register, do not count.
    const IRQ: u64 = 1 << 7;
    mrs!(ISR_EL1) & IRQ != 0
}
