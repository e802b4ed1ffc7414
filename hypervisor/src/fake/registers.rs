// SPDX-License-Identifier: MIT OR Apache-2.0
//! The register file of a core, and the side effects of reading and writing registers.

use super::{Machine, with};

macro_rules! registers {
    ($($name:ident)*) => {
        /// A system register.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Register {
            $(
                #[doc = concat!("`", stringify!($name), "`.")]
                $name,
            )*
        }

        impl Register {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name),*];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();
        }
    };
}

registers! {
    SCTLR_EL1 CPACR_EL1 TTBR0_EL1 TTBR1_EL1 TCR_EL1 MAIR_EL1 AMAIR_EL1 VBAR_EL1 CONTEXTIDR_EL1 TPIDR_EL0 TPIDRRO_EL0
    TPIDR_EL1 ESR_EL1 FAR_EL1 AFSR0_EL1 AFSR1_EL1 PAR_EL1 ELR_EL1 SPSR_EL1 SP_EL0 SP_EL1 CNTKCTL_EL1 MDSCR_EL1 CSSELR_EL1
    VMPIDR_EL2 VPIDR_EL2 S3_4_C12_C1_1 S3_4_C5_C2_3 S3_3_C4_C4_0 S3_3_C4_C4_1
    CNTFRQ_EL0 CNTPCT_EL0 CNTV_CTL_EL0 CNTV_CVAL_EL0 CNTP_CTL_EL0 CNTP_CVAL_EL0 CNTHP_CTL_EL2 CNTHP_CVAL_EL2
    OSLAR_EL1 OSDLR_EL1 CTR_EL0 DCZID_EL0 MIDR_EL1 MPIDR_EL1 ISR_EL1
    ID_AA64MMFR0_EL1 ID_AA64MMFR1_EL1 ID_AA64PFR0_EL1
    ELR_EL2 ESR_EL2 FAR_EL2 HPFAR_EL2 SPSR_EL2
    ICC_SRE_EL1 ICC_SRE_EL2 ICC_CTLR_EL1 ICC_BPR1_EL1 ICC_PMR_EL1 ICC_IGRPEN1_EL1 ICC_IAR1_EL1 ICC_EOIR1_EL1 ICC_DIR_EL1
    ICC_SGI1R_EL1 ICH_HCR_EL2 ICH_VMCR_EL2 ICH_AP0R0_EL2 ICH_AP1R0_EL2 ICH_ELRSR_EL2 ICH_VTR_EL2
    ICH_LR0_EL2 ICH_LR1_EL2 ICH_LR2_EL2 ICH_LR3_EL2 ICH_LR4_EL2 ICH_LR5_EL2 ICH_LR6_EL2 ICH_LR7_EL2
    ICH_LR8_EL2 ICH_LR9_EL2 ICH_LR10_EL2 ICH_LR11_EL2 ICH_LR12_EL2 ICH_LR13_EL2 ICH_LR14_EL2 ICH_LR15_EL2
    HCR_EL2 VTCR_EL2 VTTBR_EL2 CPTR_EL2 MDCR_EL2 CNTHCTL_EL2 CNTVOFF_EL2 HSTR_EL2
    S3_4_C1_C2_2 S3_4_C1_C1_4 S3_4_C1_C1_5 S3_4_C1_C1_6 S3_4_C3_C1_4 S3_4_C3_C1_5
    S3_4_C3_C1_0 S3_4_C3_C1_1 S3_4_C3_C1_2 S3_4_C3_C1_3 S3_4_C3_C1_7
    S3_0_C0_C1_0 S3_0_C0_C1_1 S3_0_C0_C1_2 S3_0_C0_C1_3 S3_0_C0_C1_4 S3_0_C0_C1_5 S3_0_C0_C1_6 S3_0_C0_C1_7
    S3_0_C0_C2_0 S3_0_C0_C2_1 S3_0_C0_C2_2 S3_0_C0_C2_3 S3_0_C0_C2_4 S3_0_C0_C2_5 S3_0_C0_C2_6 S3_0_C0_C2_7
    S3_0_C0_C3_0 S3_0_C0_C3_1 S3_0_C0_C3_2 S3_0_C0_C3_3 S3_0_C0_C3_4 S3_0_C0_C3_5 S3_0_C0_C3_6 S3_0_C0_C3_7
    S3_0_C0_C4_0 S3_0_C0_C4_1 S3_0_C0_C4_2 S3_0_C0_C4_3 S3_0_C0_C4_4 S3_0_C0_C4_5 S3_0_C0_C4_6 S3_0_C0_C4_7
    S3_0_C0_C5_0 S3_0_C0_C5_1 S3_0_C0_C5_2 S3_0_C0_C5_3 S3_0_C0_C5_4 S3_0_C0_C5_5 S3_0_C0_C5_6 S3_0_C0_C5_7
    S3_0_C0_C6_0 S3_0_C0_C6_1 S3_0_C0_C6_2 S3_0_C0_C6_3 S3_0_C0_C6_4 S3_0_C0_C6_5 S3_0_C0_C6_6 S3_0_C0_C6_7
    S3_0_C0_C7_0 S3_0_C0_C7_1 S3_0_C0_C7_2 S3_0_C0_C7_3 S3_0_C0_C7_4 S3_0_C0_C7_5 S3_0_C0_C7_6 S3_0_C0_C7_7
}

/// `CNT*_CTL`: the timer is on; its output is masked; its condition is met.
pub const ENABLE: u64 = 1 << 0;
pub const IMASK: u64 = 1 << 1;
pub const ISTATUS: u64 = 1 << 2;
/// `ISR_EL1.I`.
const IRQ: u64 = 1 << 7;
/// No interrupt is pending (IHI 0069, 2.2.1).
const SPURIOUS: u64 = 1023;

impl Machine {
    fn read(&mut self, register: Register) -> u64 {
        let now = self.clock;
        let current = self.current;
        let timer = |control: u64, compare: u64| {
            let is_met = control & ENABLE != 0 && now >= compare;
            control & (ENABLE | IMASK) | if is_met { ISTATUS } else { 0 }
        };
        let core = self.core();
        match register {
            Register::CNTPCT_EL0 => {
                // Each read advances the counter, so that every loop that waits for a time ends.
                self.clock += 1;
                now
            }
            Register::ICH_VMCR_EL2 => {
                let value = core.get(register);
                // A save takes time: a timer may expire before it is saved, and after the last look at its output.
                self.clock += 1;
                value
            }
            Register::CNTV_CTL_EL0 => timer(core.get(register), core.get(Register::CNTV_CVAL_EL0)),
            Register::CNTP_CTL_EL0 => timer(core.get(register), core.get(Register::CNTP_CVAL_EL0)),
            Register::CNTHP_CTL_EL2 => {
                timer(core.get(register), core.get(Register::CNTHP_CVAL_EL2))
            }
            Register::ISR_EL1 => match self.signalled(current) {
                Some(_) => IRQ,
                None => 0,
            },
            Register::ICC_IAR1_EL1 => self.acknowledge(current).map_or(SPURIOUS, u64::from),
            Register::ICH_ELRSR_EL2 => core.empty_list_registers(),
            _ => core.get(register),
        }
    }

    fn write(&mut self, register: Register, value: u64) {
        let current = self.current;
        self.core().set(register, value);
        match register {
            Register::ICC_EOIR1_EL1 => self.drop_priority(current, value as u16),
            Register::ICC_DIR_EL1 => self.deactivate(current, value as u16),
            Register::ICC_SGI1R_EL1 => self.send_sgi(current, value),
            _ => {}
        }
    }
}

/// Reads a register of the core that executes.
pub fn read(register: Register) -> u64 {
    with(|machine| machine.read(register))
}

/// Writes a register of the core that executes.
pub fn write(register: Register, value: u64) {
    with(|machine| machine.write(register, value));
}

/// Writes a register that controls what guests can access.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn write_own(register: Register, value: u64) {
    write(register, value);
}

/// Stores V0 to V31.
pub fn store_vectors(v: &mut [u128; 32]) {
    *v = with(|machine| machine.core().vectors);
}

/// Loads V0 to V31.
pub fn load_vectors(v: &[u128; 32]) {
    with(|machine| machine.core().vectors = *v);
}

/// No effect: the fake machine executes in program order.
pub fn isb() {}

/// As [`isb`].
pub fn dsb_sy() {}

/// As [`isb`].
pub fn dsb_ish() {}

/// As [`isb`].
pub fn dsb_ishst() {}

/// No effect: the fake machine takes no exceptions from EL2.
pub fn set_vectors() {}

/// Reads a system register.
macro_rules! read_register {
    ($register:ident) => {
        $crate::fake::read($crate::fake::Register::$register)
    };
}

/// Writes a system register of `sysreg::free`.
macro_rules! write_register {
    ($register:ident, $value:expr) => {
        $crate::fake::write($crate::fake::Register::$register, $value)
    };
}

/// Writes a system register of `sysreg::own`. Unsafe: the value must keep guests isolated.
macro_rules! write_own_register {
    ($register:ident, $value:expr) => {
        $crate::fake::write_own($crate::fake::Register::$register, $value)
    };
}

/// No effect: the fake machine does not count instructions.
pub fn note_step(_: u16) {}

/// Executes the instruction of a step.
macro_rules! pass_step {
    ($number:expr) => {
        $crate::fake::note_step($number)
    };
}

pub(crate) use {pass_step, read_register, write_own_register, write_register};
