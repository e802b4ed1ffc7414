// SPDX-License-Identifier: MIT OR Apache-2.0
//! Emulation of system registers that trap: SGIs, ID registers, debug registers.

use super::{Instance, loaded};
use crate::sysreg::{mrs, msr};
use spumone_config::IntId;
use spumone_core::trap::{
    DebugAction, Gpr, MDSCR_WRITABLE, Syndrome, SysReg, SysRegAccess, debug_register,
    guest_id_register,
};
use spumone_core::vgic::SgiRegister;

/// Bytes of an A64 instruction; AArch32 programs reach no register of this file.
const A64_INSTRUCTION: u64 = 4;

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
        let mut gic = self.platform.loaded_gic(guest);
        let (rung, is_done) = vcpu.vgic.deactivate(&vcpu.shared.gic, interrupt, &mut gic);
        if is_done {
            vcpu.registers.skip_instruction(A64_INSTRUCTION);
        }
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
