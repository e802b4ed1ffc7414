// SPDX-License-Identifier: MIT OR Apache-2.0
//! The context of a vCPU besides its general registers: the system registers of EL1 and EL0 and the
//! floating point registers. Saved when another vCPU takes the core, not at each exit.

use crate::hardware::{load_vectors, store_vectors};
use crate::sysreg::{mrs, msr};

macro_rules! system_registers {
    ($($(#[$doc:meta])* ($first:ident, $second:ident),)*) => {
        /// The registers of EL1 and EL0 that the hardware does not bank for the hypervisor.
        #[derive(Debug)]
        #[allow(non_snake_case)]
        #[repr(C)]
        pub struct SystemRegisters {
            $($(#[$doc])* pub $first: u64, pub $second: u64,)*
            /// What the guest reads as its `MPIDR_EL1`. It cannot write it.
            pub VMPIDR_EL2: u64,
            /// On cores with FEAT_RAS only.
            pub errors: ErrorRegisters,
        }

        impl SystemRegisters {
            /// All zero.
            const fn zero() -> Self {
                Self { $($first: 0, $second: 0,)* VMPIDR_EL2: 0, errors: ErrorRegisters::zero() }
            }

            /// Saves the registers of the core.
            pub fn save(&mut self) {
                // In pairs, so that one STP stores both.
                $(
                    let (first, second) = (mrs!($first), mrs!($second));
                    self.$first = first;
                    self.$second = second;
                )*
            }

            /// Restores the registers to the core; they take effect at the next `ISB` or `ERET`.
            pub fn restore(&self) {
                $(
                    let (first, second) = (self.$first, self.$second);
                    msr!($first, first);
                    msr!($second, second);
                )*
                msr!(VMPIDR_EL2, self.VMPIDR_EL2);
            }
        }
    };
}

system_registers! {
    (SCTLR_EL1, CPACR_EL1),
    (TTBR0_EL1, TTBR1_EL1),
    (TCR_EL1, MAIR_EL1),
    (AMAIR_EL1, VBAR_EL1),
    (CONTEXTIDR_EL1, TPIDR_EL0),
    (TPIDRRO_EL0, TPIDR_EL1),
    (ESR_EL1, FAR_EL1),
    (AFSR0_EL1, AFSR1_EL1),
    (PAR_EL1, ELR_EL1),
    (SPSR_EL1, SP_EL0),
    (SP_EL1, CNTKCTL_EL1),
    /// A guest's accesses to `MDSCR_EL1` trap; its value on the core makes single-stepping in the guest work.
    (MDSCR_EL1, CSSELR_EL1),
}

/// Reset value of `SCTLR_EL1`: MMU and caches off, the RES1 bits of Armv8.0 set
/// (Arm ARM DDI 0487, D23.2.142).
const SCTLR_EL1_RESET: u64 = 0x30D0_0800;
/// `MPIDR_EL1` bit 31, RES1.
const MPIDR_RES1: u64 = 1 << 31;

impl SystemRegisters {
    /// The state of a vCPU that has just been reset; `affinity` is its `MPIDR_EL1.Aff0`.
    pub const fn reset(affinity: u8) -> Self {
        let mut registers = Self::zero();
        registers.SCTLR_EL1 = SCTLR_EL1_RESET;
        registers.VMPIDR_EL2 = MPIDR_RES1 | affinity as u64;
        registers
    }
}

// `VDISR_EL2` is S3_4_C12_C1_1 and `VSESR_EL2` S3_4_C5_C2_3: the assembler of an Armv8.0 target accepts them by
// encoding only.

/// Registers of deferred SErrors. `DISR_EL1` of a guest is `VDISR_EL2` (`HCR_EL2.AMO`), and the guest can write it,
/// although its ID registers hide FEAT_RAS (Arm ARM DDI 0487, D24.2.41 and D24.2.195).
#[derive(Clone, Copy, Debug)]
pub struct ErrorRegisters {
    vdisr: u64,
    vsesr: u64,
}

impl ErrorRegisters {
    /// All zero.
    const fn zero() -> Self {
        Self { vdisr: 0, vsesr: 0 }
    }

    /// Saves the registers of a core with FEAT_RAS.
    pub fn save(&mut self) {
        let (vdisr, vsesr) = (mrs!(S3_4_C12_C1_1), mrs!(S3_4_C5_C2_3));
        (self.vdisr, self.vsesr) = (vdisr, vsesr);
    }

    /// Restores the registers to a core with FEAT_RAS.
    pub fn restore(&self) {
        let (vdisr, vsesr) = (self.vdisr, self.vsesr);
        msr!(S3_4_C12_C1_1, vdisr);
        msr!(S3_4_C5_C2_3, vsesr);
    }
}

// `FPCR` is S3_3_C4_C4_0 and `FPSR` S3_3_C4_C4_1: the assembler of a target without floating point
// accepts them by encoding only.

/// The floating point and SIMD registers. The hypervisor is built without floating point, so on the
/// core they keep the values of the loaded vCPU.
#[repr(C, align(16))]
pub struct FloatingPoint {
    v: [u128; 32],
    fpcr: u64,
    fpsr: u64,
}

impl FloatingPoint {
    /// All zero.
    pub const fn new() -> Self {
        Self {
            v: [0; 32],
            fpcr: 0,
            fpsr: 0,
        }
    }

    /// Saves the registers of the core.
    pub fn save(&mut self) {
        store_vectors(&mut self.v);
        let (fpcr, fpsr) = (mrs!(S3_3_C4_C4_0), mrs!(S3_3_C4_C4_1));
        (self.fpcr, self.fpsr) = (fpcr, fpsr);
    }

    /// Restores the registers to the core.
    pub fn restore(&self) {
        load_vectors(&self.v);
        let (fpcr, fpsr) = (self.fpcr, self.fpsr);
        msr!(S3_3_C4_C4_0, fpcr);
        msr!(S3_3_C4_C4_1, fpsr);
    }
}
