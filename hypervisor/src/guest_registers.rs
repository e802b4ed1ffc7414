// SPDX-License-Identifier: MIT OR Apache-2.0
//! The argument and the result of [`enter`](crate::hardware::enter): the general registers of a vCPU, and the kind of
//! its exit.

/// General registers, program counter and `PSTATE` of a vCPU at its last exit.
#[repr(C)]
#[derive(Debug)]
pub struct GuestRegisters {
    /// x0 to x30.
    pub x: [u64; 31],
    /// The address at which it resumes (`ELR_EL2`).
    pub pc: u64,
    /// Its `PSTATE` (`SPSR_EL2`).
    pub pstate: u64,
}

impl GuestRegisters {
    /// EL1h with debug, SError, IRQ and FIQ masked: the state that PSCI CPU_ON and the Linux boot
    /// protocol require (DEN0022 section 6.4).
    pub const RESET_PSTATE: u64 = 0x3C5;

    /// All registers zero.
    pub const fn new() -> Self {
        Self {
            x: [0; 31],
            pc: 0,
            pstate: Self::RESET_PSTATE,
        }
    }

    /// Whether the guest was in its kernel (EL1), not in a program.
    #[inline(always)]
    pub fn is_in_kernel(&self) -> bool {
        /// `PSTATE.M`: AArch32, which guests have at EL0 only.
        const AARCH32: u64 = 1 << 4;
        /// `PSTATE.M`: the exception level, in bits 3 and 2.
        const EXCEPTION_LEVEL: u64 = 0b1100;
        self.pstate & AARCH32 == 0 && self.pstate & EXCEPTION_LEVEL != 0
    }

    /// Whether the guest had IRQs masked.
    pub fn masks_interrupts(&self) -> bool {
        /// `PSTATE.I`.
        const IRQ_MASK: u64 = 1 << 7;
        self.pstate & IRQ_MASK != 0
    }

    /// Skips the instruction that trapped, which has `size` bytes.
    pub fn skip_instruction(&mut self, size: u64) {
        /// `PSTATE.SS`: cleared, since a debugger inside the guest has now stepped one instruction.
        const SOFTWARE_STEP: u64 = 1 << 21;
        self.pc = self.pc.wrapping_add(size);
        self.pstate &= !SOFTWARE_STEP;
    }

    /// Goes back to the HVC or SMC before the program counter, so that the guest executes it again.
    pub fn repeat_call(&mut self) {
        /// HVC and SMC are instructions of A64 only.
        const SIZE: u64 = 4;
        self.pc = self.pc.wrapping_sub(SIZE);
    }

    /// Skips an A64 instruction in the hint space. It may be the target of an indirect branch, as `PACIASP` is: the next
    /// instruction is not (FEAT_BTI; Arm ARM DDI 0487, `PSTATE.BTYPE`).
    pub fn skip_hint(&mut self) {
        /// `PSTATE.BTYPE`.
        const BRANCH_TYPE: u64 = 0b11 << 10;
        self.skip_instruction(4);
        self.pstate &= !BRANCH_TYPE;
    }
}

/// The kind of an exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A synchronous exception; `ESR_EL2` has its syndrome.
    Synchronous,
    /// A physical interrupt.
    Interrupt,
    /// An SError.
    SystemError,
}
