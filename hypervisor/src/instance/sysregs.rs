// SPDX-License-Identifier: MIT OR Apache-2.0
//! Emulation of system registers that trap: SGIs, ID registers, debug registers.

use super::{Instance, loaded};
use crate::guest_registers::GuestRegisters;
use crate::sysreg::{mrs, msr};
use spumone_config::IntId;
use spumone_core::trap::{
    DebugAction, Gpr, MDSCR_WRITABLE, Syndrome, SysReg, SysRegAccess, debug_register,
    guest_id_register,
};
use spumone_core::vgic::SgiRegister;

/// Bytes of an A64 instruction; AArch32 programs reach no register of this file.
const A64_INSTRUCTION: u64 = 4;
/// `SPSR_EL1.M`: EL1 with its own stack pointer.
const MODE_EL1H: u64 = 0b0101;
/// `SPSR_EL1` bits: D, A, I, F masked.
const DAIF: u64 = 0b1111 << 6;
/// `ESR_EL1` of an instruction that is undefined: class 0, 32-bit instruction.
const ESR_UNDEFINED: u64 = 1 << 25;

impl Instance {
    /// Handles an access of the running vCPU to a system register that traps.
    pub(super) fn system_register(&mut self, access: SysRegAccess, syndrome: Syndrome) {
        match access.register {
            SysReg::ICC_SGI1R_EL1 if !access.read => self.send_sgi(SgiRegister::Sgi1r, access.gpr),
            SysReg::ICC_SGI0R_EL1 if !access.read => self.send_sgi(SgiRegister::Sgi0r, access.gpr),
            SysReg::ICC_ASGI1R_EL1 if !access.read => {
                self.send_sgi(SgiRegister::Asgi1r, access.gpr);
            }
            // Traps while a guest with several vCPUs uses EOImode 1 (core/vgic).
            SysReg::ICC_DIR_EL1 if !access.read => self.deactivate(access),
            // Traps (`HCR_EL2.TACR`). Every core has it; its fields are implementation defined.
            SysReg::ACTLR_EL1 => self.complete(access, 0),
            // Traps, since it is not switched between guests (`gic`). Constant: system registers, no bypass. Writes are
            // ignored.
            SysReg::ICC_SRE_EL1 => self.complete(access, 0b111),
            register if register.is_id() && access.read => {
                self.complete(access, guest_id_register(register, read_id(register)));
            }
            register if register.is_debug() => self.debug_register(access),
            register if is_hidden(register) => self.inject_undefined(),
            _ => self.unknown(syndrome),
        }
    }

    /// Emulates a write of `from` to a register that sends SGIs.
    #[inline(always)]
    pub(super) fn send_sgi(&mut self, register: SgiRegister, from: Gpr) {
        let vcpu = loaded(&mut self.state);
        let guest = vcpu.guest;
        let value = from.read(&vcpu.registers.x);
        vcpu.registers.skip_instruction(A64_INSTRUCTION);
        let mut gic = self.platform.loaded_gic(guest);
        let rung = vcpu
            .vgic
            .send_sgi(&vcpu.shared.gic, register, value, &mut gic);
        self.notify(guest, rung);
    }

    fn deactivate(&mut self, access: SysRegAccess) {
        let vcpu = loaded(&mut self.state);
        let guest = vcpu.guest;
        let interrupt = IntId(access.gpr.read(&vcpu.registers.x) as u16);
        vcpu.registers.skip_instruction(A64_INSTRUCTION);
        let mut gic = self.platform.loaded_gic(guest);
        let rung = vcpu.vgic.deactivate(&vcpu.shared.gic, interrupt, &mut gic);
        self.notify(guest, rung);
    }

    fn debug_register(&mut self, access: SysRegAccess) {
        match debug_register(access) {
            DebugAction::Read(value) => self.complete(access, value),
            DebugAction::Ignore => self.skip_instruction(A64_INSTRUCTION),
            DebugAction::Mdscr if access.read => self.complete(access, mrs!(MDSCR_EL1)),
            DebugAction::Mdscr => {
                let value = access.gpr.read(&loaded(&mut self.state).registers.x);
                msr!(MDSCR_EL1, value & MDSCR_WRITABLE);
                self.skip_instruction(A64_INSTRUCTION);
            }
            DebugAction::Undefined => self.inject_undefined(),
        }
    }

    /// Completes an access: a read returns `value`, a write is ignored.
    fn complete(&mut self, access: SysRegAccess, value: u64) {
        let vcpu = loaded(&mut self.state);
        if access.read {
            access.gpr.write(&mut vcpu.registers.x, value);
        }
        vcpu.registers.skip_instruction(A64_INSTRUCTION);
    }
}

/// Whether the register, or implementation defined instruction, is undefined for guests, as on a core without it. Each
/// register that traps and is not emulated belongs to a feature that the ID registers hide, also on later cores.
fn is_hidden(register: SysReg) -> bool {
    let implementation_defined = matches!(register.crn(), 11 | 15);
    register.op0() == 3 || implementation_defined
}

macro_rules! id_registers {
    ($($crm:literal: $($name:ident)*;)*) => {
        /// The core's value of an ID register.
        fn read_id(register: SysReg) -> u64 {
            let values: [u64; 8] = match register.crm() {
                $($crm => [$(mrs!($name)),*],)*
                _ => [0; 8],
            };
            values[usize::from(register.op2() & 7)]
        }
    };
}

id_registers! {
    1: S3_0_C0_C1_0 S3_0_C0_C1_1 S3_0_C0_C1_2 S3_0_C0_C1_3 S3_0_C0_C1_4 S3_0_C0_C1_5 S3_0_C0_C1_6 S3_0_C0_C1_7;
    2: S3_0_C0_C2_0 S3_0_C0_C2_1 S3_0_C0_C2_2 S3_0_C0_C2_3 S3_0_C0_C2_4 S3_0_C0_C2_5 S3_0_C0_C2_6 S3_0_C0_C2_7;
    3: S3_0_C0_C3_0 S3_0_C0_C3_1 S3_0_C0_C3_2 S3_0_C0_C3_3 S3_0_C0_C3_4 S3_0_C0_C3_5 S3_0_C0_C3_6 S3_0_C0_C3_7;
    4: S3_0_C0_C4_0 S3_0_C0_C4_1 S3_0_C0_C4_2 S3_0_C0_C4_3 S3_0_C0_C4_4 S3_0_C0_C4_5 S3_0_C0_C4_6 S3_0_C0_C4_7;
    5: S3_0_C0_C5_0 S3_0_C0_C5_1 S3_0_C0_C5_2 S3_0_C0_C5_3 S3_0_C0_C5_4 S3_0_C0_C5_5 S3_0_C0_C5_6 S3_0_C0_C5_7;
    6: S3_0_C0_C6_0 S3_0_C0_C6_1 S3_0_C0_C6_2 S3_0_C0_C6_3 S3_0_C0_C6_4 S3_0_C0_C6_5 S3_0_C0_C6_6 S3_0_C0_C6_7;
    7: S3_0_C0_C7_0 S3_0_C0_C7_1 S3_0_C0_C7_2 S3_0_C0_C7_3 S3_0_C0_C7_4 S3_0_C0_C7_5 S3_0_C0_C7_6 S3_0_C0_C7_7;
}

/// Makes the guest take an undefined instruction exception at EL1, from the instruction that
/// trapped (Arm ARM DDI 0487, D1.3.1). EL1's exception registers are the guest's, and loaded.
pub(super) fn inject_undefined(registers: &mut GuestRegisters) {
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
    msr!(ESR_EL1, ESR_UNDEFINED);
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
