// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the way into a guest and back ([`enter`](crate::hardware::enter)) works on: general registers, and what
//! brought the guest back.

/// General registers, program counter and state of a vCPU that is not on the core.
#[repr(C)]
#[derive(Debug)]
pub struct GuestRegisters {
    /// x0 to x30.
    pub x: [u64; 31],
    /// Where it continues (`ELR_EL2`).
    pub pc: u64,
    /// Its `PSTATE` (`SPSR_EL2`).
    pub pstate: u64,
}

impl GuestRegisters {
    /// EL1h with debug, SError, IRQ and FIQ masked: the state PSCI CPU_ON and the Linux boot
    /// protocol ask for (DEN0022 section 6.4).
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
        /// `PSTATE.M`: AArch32, in which only programs run.
        const AARCH32: u64 = 1 << 4;
        /// `PSTATE.M`: the exception level, in bits 3 and 2.
        const EXCEPTION_LEVEL: u64 = 0b1100;
        self.pstate & AARCH32 == 0 && self.pstate & EXCEPTION_LEVEL != 0
    }

    /// Whether the guest held off IRQs.
    pub fn masks_interrupts(&self) -> bool {
        /// `PSTATE.I`.
        const IRQ_MASK: u64 = 1 << 7;
        self.pstate & IRQ_MASK != 0
    }

    /// Steps over the instruction that trapped, which has `size` bytes.
    pub fn skip_instruction(&mut self, size: u64) {
        /// `PSTATE.SS`: the step that a debugger inside the guest has asked for is done.
        const SOFTWARE_STEP: u64 = 1 << 21;
        self.pc = self.pc.wrapping_add(size);
        self.pstate &= !SOFTWARE_STEP;
    }
}

/// What brought a guest back to EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// A synchronous exception; `ESR_EL2` tells.
    Synchronous,
    /// A physical interrupt.
    Interrupt,
    /// An SError.
    SystemError,
}
