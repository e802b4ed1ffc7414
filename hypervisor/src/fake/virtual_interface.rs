// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual CPU interface: how a guest acknowledges, ends and deactivates the interrupts in its list registers.
//!
//! Source: GIC architecture specification IHI 0069, chapters 6 and 12.4. Group 1 only, 5 bits of priority.

use super::core::LIST_REGISTERS;
use super::registers::Register;
use super::{Core, Machine};
use spumone_core::vgic::{ListRegister, State, running_priority};

/// `ICH_HCR_EL2`: the interface is on; maintenance interrupts for an EOI without a list register, and for no pending
/// interrupt.
const ENABLE: u64 = 1 << 0;
const EOI_NOT_PRESENT: u64 = 1 << 2;
const NO_PENDING: u64 = 1 << 3;
/// `ICH_HCR_EL2.EOIcount`: EOIs without a list register.
const EOI_COUNT: u64 = 0x1F << 27;
const EOI_COUNT_ONE: u64 = 1 << 27;
/// `ICH_VMCR_EL2`: Group 1 is on; EOI drops the priority only.
const GROUP1: u64 = 1 << 1;
const EOI_MODE: u64 = 1 << 9;
const PRIORITY_MASK_SHIFT: u32 = 24;

impl Core {
    fn registers(&self) -> impl Iterator<Item = (usize, ListRegister)> {
        (0..LIST_REGISTERS).map(|index| (index, ListRegister(self.list_register(index))))
    }

    /// `ICH_ELRSR_EL2`.
    pub fn empty_list_registers(&self) -> u64 {
        self.registers()
            .filter(|(_, register)| {
                register.state() == State::Inactive && !register.has_eoi_interrupt()
            })
            .fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The line of the maintenance interrupt.
    pub fn wants_maintenance(&self) -> bool {
        let control = self.get(Register::ICH_HCR_EL2);
        let nothing_pending = || !self.registers().any(|(_, it)| it.state().is_pending());
        let has_ended = || {
            self.registers()
                .any(|(_, it)| it.state() == State::Inactive && it.has_eoi_interrupt())
        };
        control & ENABLE != 0
            && (control & NO_PENDING != 0 && nothing_pending()
                || control & EOI_NOT_PRESENT != 0 && control & EOI_COUNT != 0
                || has_ended())
    }

    /// The list register whose interrupt is signalled to the guest.
    pub fn virtual_signalled(&self) -> Option<(usize, ListRegister)> {
        let control = self.get(Register::ICH_VMCR_EL2);
        if self.get(Register::ICH_HCR_EL2) & ENABLE == 0 || control & GROUP1 == 0 {
            return None;
        }
        let mask = (control >> PRIORITY_MASK_SHIFT) as u8;
        let (group0, group1) = (Register::ICH_AP0R0_EL2, Register::ICH_AP1R0_EL2);
        let running = running_priority(self.get(group0) as u32, self.get(group1) as u32);
        self.registers()
            .filter(|(_, it)| it.state().is_pending() && it.is_group1())
            .min_by_key(|(_, it)| it.priority())
            .filter(|(_, it)| it.priority() < mask && it.priority() < running)
    }
}

impl Machine {
    /// The guest on `core` reads `ICC_IAR1_EL1`.
    pub fn guest_acknowledges(&mut self, core: usize) -> Option<u16> {
        let core = &mut self.cores[core];
        let (index, register) = core.virtual_signalled()?;
        core.set_list_register(index, register.with_state(State::Active).0);
        let active = core.get(Register::ICH_AP1R0_EL2);
        let priority = 1 << (register.priority() >> 3);
        core.set(Register::ICH_AP1R0_EL2, active | priority);
        Some(register.intid().0)
    }

    /// The guest on `core` writes `ICC_EOIR1_EL1`.
    pub fn guest_ends(&mut self, core: usize, interrupt: u16) {
        let it = &mut self.cores[core];
        let active = it.get(Register::ICH_AP1R0_EL2);
        it.set(Register::ICH_AP1R0_EL2, active & active.wrapping_sub(1));
        if it.get(Register::ICH_VMCR_EL2) & EOI_MODE == 0 {
            self.guest_deactivates(core, interrupt);
        }
    }

    /// The guest on `core` deactivates an interrupt, by its EOI or by `ICC_DIR_EL1`.
    pub fn guest_deactivates(&mut self, core: usize, interrupt: u16) {
        let it = &mut self.cores[core];
        let found = it
            .registers()
            .find(|(_, lr)| lr.intid().0 == interrupt && lr.state().is_active());
        let Some((index, register)) = found else {
            let control = it.get(Register::ICH_HCR_EL2);
            if control & EOI_COUNT != EOI_COUNT {
                it.set(Register::ICH_HCR_EL2, control + EOI_COUNT_ONE);
            }
            return;
        };
        let state = match register.state() {
            State::PendingActive => State::Pending,
            _ => State::Inactive,
        };
        it.set_list_register(index, register.with_state(state).0);
        if let Some(physical) = register.physical() {
            self.deactivate(core, physical.0);
        }
    }
}
