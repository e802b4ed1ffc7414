// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vCPU that runs, between an entry and the next exit.

use crate::fake::{self, Register};
use crate::guest_registers::{Exit, GuestRegisters};
use crate::tests::systems::GUEST_MEMORY;
use spumone_core::trap::{Gpr, SysReg, SysRegAccess};

/// What a guest does until its next exit.
pub type Action = Box<dyn FnOnce(&mut GuestCpu<'_>) -> Exit>;

/// What a vCPU does whenever its script has ended.
pub type Habit = Box<dyn FnMut(&mut GuestCpu<'_>) -> Exit>;

/// `ESR_EL2`: 32-bit instruction.
const IL: u64 = 1 << 25;
/// The register that instructions of tests use.
const OPERAND: u8 = 1;

/// `ESR_EL2` of an exception class.
pub const fn class(class: u64) -> u64 {
    class << 26 | IL
}

/// A firmware call of a vCPU.
#[derive(Clone, Copy)]
pub struct Call {
    is_hvc: bool,
    /// The address of the instruction.
    at: u64,
    /// x0 to x3.
    x: [u64; 4],
}

impl Call {
    /// Whether it is a call of `CPU_OFF`.
    pub fn turns_off(&self) -> bool {
        self.x[0] as u32 == psci::CPU_OFF as u32
    }
}

/// A vCPU that runs.
pub struct GuestCpu<'a> {
    /// Its general registers.
    pub registers: &'a mut GuestRegisters,
    /// The guest.
    pub guest: u8,
    /// The guest's own number of the vCPU.
    pub vcpu: u8,
    /// The core.
    pub core: usize,
}

impl<'a> GuestCpu<'a> {
    /// The vCPU that runs, by the registers of the core.
    pub fn new(registers: &'a mut GuestRegisters) -> Self {
        let (core, vmid, vcpu) = fake::with(|machine| {
            let vcpu = machine.cores[machine.current].get(Register::VMPIDR_EL2);
            (machine.current, machine.stage2().0, vcpu)
        });
        Self {
            registers,
            guest: vmid as u8 - 1,
            vcpu: vcpu as u8,
            core,
        }
    }

    /// A system register of the core.
    pub fn get(&self, register: Register) -> u64 {
        fake::with(|machine| machine.cores[self.core].get(register))
    }

    /// Writes a system register of the core.
    pub fn set(&self, register: Register, value: u64) {
        fake::with(|machine| machine.cores[self.core].set(register, value));
    }

    /// The system counter.
    pub fn now(&self) -> u64 {
        fake::with(|machine| machine.clock)
    }

    /// An exit with this syndrome.
    pub fn trap(&self, syndrome: u64) -> Exit {
        self.set(Register::ESR_EL2, syndrome);
        Exit::Synchronous
    }

    /// The exit at its first instruction, if stage 2 does not permit its execution: a policy catches the vCPU's entry
    /// to the kernel, or its exit from it.
    pub fn refused(&self) -> Option<Exit> {
        const INSTRUCTION_ABORT: u64 = 0x20;
        const PERMISSION_LEVEL_3: u64 = 0b00_1111;
        if fake::walk_stage2(GUEST_MEMORY).is_none() {
            return Some(self.fetch(GUEST_MEMORY));
        }
        let in_kernel = self.registers.is_in_kernel();
        (!fake::may_execute(GUEST_MEMORY, in_kernel))
            .then(|| self.trap(class(INSTRUCTION_ABORT) | PERMISSION_LEVEL_3))
    }

    /// Checks that this trap is enabled in `HCR_EL2`.
    fn must_trap(&self, bit: u32) {
        let control = self.get(Register::HCR_EL2);
        assert_eq!(
            control >> bit & 1,
            1,
            "bit {bit} of HCR_EL2 is clear: no exit"
        );
    }

    /// `WFI`.
    pub fn wfi(&self) -> Exit {
        const TWI: u32 = 13;
        self.must_trap(TWI);
        self.trap(class(0x01))
    }

    /// `WFE`, as if it trapped, which the hypervisor does not enable.
    pub fn wfe(&self) -> Exit {
        self.trap(class(0x01) | 1)
    }

    /// `HVC` with these in x0 to x3.
    pub fn hvc(&mut self, x: [u64; 4]) -> Exit {
        self.registers.x[..4].copy_from_slice(&x);
        self.registers.pc = self.registers.pc.wrapping_add(4);
        self.trap(class(0x16))
    }

    /// `SMC` with these in x0 to x3.
    pub fn smc(&mut self, x: [u64; 4]) -> Exit {
        const TSC: u32 = 19;
        self.must_trap(TSC);
        self.registers.x[..4].copy_from_slice(&x);
        self.trap(class(0x17))
    }

    /// The firmware call that this exit is.
    pub fn call(&self, exit: &Exit) -> Option<Call> {
        const HVC: u64 = 0x16;
        const SMC: u64 = 0x17;
        let exception = self.get(Register::ESR_EL2) >> 26;
        if !matches!(exit, Exit::Synchronous) || !matches!(exception, HVC | SMC) {
            return None;
        }
        let size = if exception == HVC { 4 } else { 0 };
        let mut x = [0; 4];
        x.copy_from_slice(&self.registers.x[..4]);
        Some(Call {
            is_hvc: exception == HVC,
            at: self.registers.pc.wrapping_sub(size),
            x,
        })
    }

    /// Whether this call is to be executed again: EL2 has not carried it out.
    pub fn repeats(&self, call: &Call) -> bool {
        self.registers.pc == call.at && self.registers.x[..4] == call.x
    }

    /// Executes a call.
    pub fn calls(&mut self, call: &Call) -> Exit {
        match call.is_hvc {
            true => self.hvc(call.x),
            false => self.smc(call.x),
        }
    }

    /// `MSR`, trapped.
    pub fn msr(&mut self, register: SysReg, value: u64) -> Exit {
        self.registers.x[usize::from(OPERAND)] = value;
        self.register_access(register, false)
    }

    /// `MRS` to x1, trapped.
    pub fn mrs(&mut self, register: SysReg) -> Exit {
        self.register_access(register, true)
    }

    fn register_access(&self, register: SysReg, read: bool) -> Exit {
        let access = SysRegAccess {
            register,
            gpr: Gpr::new(OPERAND),
            read,
        };
        self.trap(class(0x18) | u64::from(access.encode()))
    }

    /// A 32-bit store to an address that stage 2 does not map.
    pub fn store(&mut self, ipa: u64, value: u32) -> Exit {
        self.registers.x[usize::from(OPERAND)] = u64::from(value);
        self.access(ipa, true, 2)
    }

    /// A 32-bit load to x1 from an address that stage 2 does not map.
    pub fn load(&mut self, ipa: u64) -> Exit {
        self.access(ipa, false, 2)
    }

    /// A load or store of 2^`log_size` bytes, which stage 2 refuses.
    pub fn access(&mut self, ipa: u64, is_store: bool, log_size: u64) -> Exit {
        assert_eq!(
            fake::walk_stage2(ipa),
            None,
            "{ipa:#x} is mapped: it would not trap"
        );
        self.set(Register::FAR_EL2, ipa);
        self.set(Register::HPFAR_EL2, ipa >> 12 << 4);
        const VALID: u64 = 1 << 24;
        const WIDE: u64 = 1 << 15;
        const TRANSLATION_LEVEL_3: u64 = 0b00_0111;
        let register = u64::from(OPERAND) << 16;
        let form = VALID | log_size << 22 | register | WIDE | u64::from(is_store) << 6;
        self.trap(class(0x24) | form | TRANSLATION_LEVEL_3)
    }

    /// A 32-bit store to an address that stage 2 maps read-only.
    pub fn store_read_only(&mut self, ipa: u64) -> Exit {
        assert!(fake::walk_stage2(ipa).is_some());
        self.set(Register::FAR_EL2, ipa);
        // Not known for a permission fault.
        self.set(Register::HPFAR_EL2, 0);
        const PERMISSION_LEVEL_3: u64 = 0b00_1111;
        const WRITE: u64 = 1 << 6;
        self.trap(class(0x24) | WRITE | PERMISSION_LEVEL_3)
    }

    /// A load of a byte of its memory, or a store if there is a value; `Err`: it exits.
    pub fn uses(&mut self, ipa: u64, store: Option<u8>) -> Result<u8, Exit> {
        let Some(at) = fake::walk_stage2(ipa) else {
            return Err(self.access(ipa, store.is_some(), 0));
        };
        if store.is_some() && !fake::may_write(ipa) {
            return Err(self.store_read_only(ipa));
        }
        Ok(fake::with(|machine| {
            let place = &mut machine.memory.at(at, 1)[0];
            *place = store.unwrap_or(*place);
            *place
        }))
    }

    /// The fetch of an instruction at an address that stage 2 does not map.
    pub fn fetch(&self, ipa: u64) -> Exit {
        const INSTRUCTION_ABORT: u64 = 0x20;
        self.set(Register::FAR_EL2, ipa);
        self.set(Register::HPFAR_EL2, ipa >> 12 << 4);
        self.trap(class(INSTRUCTION_ABORT) | 0b00_0111)
    }

    /// An exit by an interrupt, which need not be pending any more.
    pub fn interrupted(&self) -> Exit {
        Exit::Interrupt
    }

    /// Turns its GIC interface on: Group 1, all priorities.
    pub fn open_interface(&self) {
        self.set(Register::ICH_VMCR_EL2, 0xFF << 24 | 1 << 1);
    }

    /// Acknowledges the virtual interrupt that is signalled to it.
    pub fn acknowledge(&self) -> Option<u16> {
        fake::with(|machine| machine.guest_acknowledges(self.core))
    }

    /// Ends a virtual interrupt.
    pub fn end(&self, interrupt: u16) {
        fake::with(|machine| machine.guest_ends(self.core, interrupt));
    }

    /// Reads the guest's memory.
    pub fn read_memory(&self, ipa: u64, size: usize) -> Vec<u8> {
        let Some(physical) = fake::walk_stage2(ipa) else {
            panic!("{ipa:#x} is not mapped");
        };
        fake::with(|machine| machine.memory.at(physical, size).to_vec())
    }

    /// Writes the guest's memory.
    pub fn write_memory(&self, ipa: u64, bytes: &[u8]) {
        let Some(physical) = fake::walk_stage2(ipa) else {
            panic!("{ipa:#x} is not mapped");
        };
        let size = bytes.len();
        fake::with(|machine| machine.memory.at(physical, size).copy_from_slice(bytes));
    }
}

/// PSCI functions, 64-bit where there are two (DEN0022, 5.1).
pub mod psci {
    pub const VERSION: u64 = 0x8400_0000;
    pub const CPU_SUSPEND: u64 = 0xC400_0001;
    pub const CPU_OFF: u64 = 0x8400_0002;
    pub const CPU_ON: u64 = 0xC400_0003;
    pub const SYSTEM_OFF: u64 = 0x8400_0008;
    pub const SYSTEM_RESET: u64 = 0x8400_0009;
    /// Argument of `CPU_SUSPEND`: powerdown, and not standby.
    pub const POWERDOWN: u64 = 1 << 16;
    /// Results.
    pub const SUCCESS: u64 = 0;
    pub const NOT_SUPPORTED: u64 = -1i64 as u64;
    pub const ALREADY_ON: u64 = -4i64 as u64;
    pub const INVALID_ADDRESS: u64 = -9i64 as u64;
}

/// Registers of the GIC, as a guest programs them (IHI 0069, 12.9 and 12.11).
pub mod gicd {
    pub const CTLR: u64 = 0x0000;
    pub const TYPER: u64 = 0x0004;
    pub const IGROUPR: u64 = 0x0080;
    pub const ISENABLER: u64 = 0x0100;
    pub const ICENABLER: u64 = 0x0180;
    pub const ISPENDR: u64 = 0x0200;
    pub const ICPENDR: u64 = 0x0280;
    pub const ISACTIVER: u64 = 0x0300;
    pub const ICACTIVER: u64 = 0x0380;
    pub const IPRIORITYR: u64 = 0x0400;
    pub const IROUTER: u64 = 0x6000;
    /// The frame of SGIs and PPIs in a redistributor.
    pub const SGI_FRAME: u64 = 0x1_0000;
    /// `CTLR`: affinity routing, Group 1.
    pub const ON: u32 = 1 << 4 | 1 << 1;
}
