// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exceptions that a guest takes at EL1 because EL2 makes it do so.

use super::{Instance, loaded};
use crate::guest_registers::GuestRegisters;
use crate::sysreg::{mrs, msr};
use spumone_core::trap::{Exception, Syndrome, external_abort};

/// `SPSR_EL1.M`: EL1 with its own stack pointer.
const MODE_EL1H: u64 = 0b0101;
/// `SPSR_EL1` bits: D, A, I, F masked.
const DAIF: u64 = 0b1111 << 6;
/// `ESR_EL1` of an instruction that is undefined: class 0, 32-bit instruction.
const ESR_UNDEFINED: u64 = 1 << 25;
/// Bytes of a vector table.
const VECTORS_SIZE: u64 = 0x800;

impl Instance {
    /// Makes the guest take an undefined instruction exception.
    pub(super) fn inject_undefined(&mut self) {
        take_at_el1(&mut loaded(&mut self.state).registers, ESR_UNDEFINED);
    }

    /// Makes the guest take the external abort that stands for an access that stage 2 has refused. Returns whether it can: not if that
    /// access was the fetch of one of its exception vectors. It would take the abort again and again.
    pub(super) fn inject_abort(&mut self, refused: Syndrome) -> bool {
        let far = mrs!(FAR_EL2);
        let is_fetch = matches!(refused.decode(), Exception::InstructionAbort);
        if is_fetch && far.wrapping_sub(mrs!(VBAR_EL1)) < VECTORS_SIZE {
            return false;
        }
        let registers = &mut loaded(&mut self.state).registers;
        let syndrome = external_abort(refused, registers.is_in_kernel());
        msr!(FAR_EL1, far);
        take_at_el1(registers, syndrome);
        true
    }
}

/// Makes the guest take a synchronous exception at EL1 with this `ESR_EL1`, from the instruction that trapped (Arm ARM DDI 0487,
/// D1.3.1). EL1's exception registers are the guest's, and loaded.
fn take_at_el1(registers: &mut GuestRegisters, syndrome: u64) {
    /// Offsets into the vector table by where the exception came from.
    const FROM_CURRENT_SP0: u64 = 0x000;
    const FROM_CURRENT_SPX: u64 = 0x200;
    const FROM_LOWER_AARCH64: u64 = 0x400;
    const FROM_LOWER_AARCH32: u64 = 0x600;
    let offset = match registers.pstate & 0x1F {
        0b0_0101 => FROM_CURRENT_SPX,
        0b0_0100 => FROM_CURRENT_SP0,
        0b0_0000 => FROM_LOWER_AARCH64,
        _ => FROM_LOWER_AARCH32,
    };
    msr!(ELR_EL1, registers.pc);
    msr!(SPSR_EL1, registers.pstate);
    msr!(ESR_EL1, syndrome);
    /// Bits that an exception leaves unchanged: condition flags, and from AArch64 DIT and PAN.
    const FLAGS: u64 = 0xF << 28;
    const DIT: u64 = 1 << 24;
    const PAN: u64 = 1 << 22;
    /// `PSTATE.SSBS` and its value on exceptions, `SCTLR_EL1.DSSBS`.
    const SSBS: u64 = 1 << 12;
    const DSSBS: u64 = 1 << 44;
    /// `SCTLR_EL1.SPAN`: exceptions leave PAN alone.
    const SPAN: u64 = 1 << 23;
    /// `ID_AA64MMFR1_EL1.PAN`.
    const HAS_PAN: u64 = 0xF << 20;
    let kept = if offset == FROM_LOWER_AARCH32 {
        FLAGS
    } else {
        FLAGS | DIT | PAN
    };
    let control = mrs!(SCTLR_EL1);
    let mut pstate = (registers.pstate & kept) | MODE_EL1H | DAIF;
    if control & SPAN == 0 && mrs!(ID_AA64MMFR1_EL1) & HAS_PAN != 0 {
        pstate |= PAN;
    }
    if control & DSSBS != 0 {
        pstate |= SSBS;
    }
    registers.pc = mrs!(VBAR_EL1) + offset;
    registers.pstate = pstate;
}
