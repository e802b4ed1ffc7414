// SPDX-License-Identifier: MIT OR Apache-2.0
//! Synchronous exceptions of guests: firmware calls are served, accesses to virtual devices and
//! trapped registers are emulated, and a guest that faults is stopped, or takes an abort.

use super::{Instance, loaded};
use crate::console::{self, CONSOLE};
use crate::cpu;
use crate::events::Event;
use crate::guest::Guest;
use crate::sysreg::mrs;
use core::sync::atomic::Ordering::Relaxed;
use spumone_config::GuestAddr;
use spumone_config::gic::{DISTRIBUTOR_SIZE, REDISTRIBUTOR_SIZE};
use spumone_config::packed::OnFault;
use spumone_core::console::{Source, Subject};
use spumone_core::link::REGISTERS_SIZE as LINK_REGISTERS_SIZE;
use spumone_core::migration::{self, Catch};
use spumone_core::protect;
use spumone_core::schedule::Band;
use spumone_core::trap::{
    DataAccess, Effect, Exception, FaultReport, Hidden, Place, Syndrome, SysReg, fault_ipa,
    is_big_endian, is_hint,
};
use spumone_core::vgic::{Region, SgiRegister};
use spumone_core::vuart::Vuart;

/// The virtual device at an address that stage 2 does not map, and the offset in its frame.
enum Device {
    /// Its virtual GIC.
    Gic(Region, u64),
    /// Its virtual UART.
    Uart(u64),
    /// The registers of the link with this number.
    Link(usize, u64),
    /// The GPIO controller of that link.
    LinkGpio(usize, u64),
}

impl Instance {
    /// Handles a synchronous exception of the running vCPU.
    // Inlined for the fast paths; the others are not, or they would take registers from those.
    #[inline(always)]
    pub(super) fn exception(&mut self) {
        let syndrome = Syndrome(mrs!(ESR_EL2));
        // Fast paths of the most frequent exceptions, not recorded as events: an SGI, and a catch.
        if let Some(from) = syndrome.write_of(SysReg::ICC_SGI1R_EL1)
            && !cpu::interrupt_pending()
        {
            return self.send_sgi(SgiRegister::Sgi1r, from);
        }
        if self.state.catches() != Catch::Nothing && syndrome.is_refused_execution() {
            return migration::caught(&mut self.state, &mut self.platform);
        }
        self.platform.events.note(Event::Trap, syndrome.0);
        match syndrome.decode() {
            // A pending interrupt is handled first; the guest then executes the instruction again.
            Exception::WaitForInterrupt | Exception::WaitForEvent | Exception::SysReg(_)
                if cpu::interrupt_pending() =>
            {
                self.take_interrupts();
            }
            Exception::WaitForInterrupt => {
                self.skip_instruction(syndrome.instruction_size());
                self.wait_for_interrupt();
            }
            Exception::WaitForEvent => {
                self.skip_instruction(syndrome.instruction_size());
                self.state.yield_running();
            }
            Exception::Hvc => self.firmware_call(),
            Exception::Smc => {
                self.skip_instruction(syndrome.instruction_size());
                self.firmware_call();
            }
            Exception::SysReg(access) => self.system_register(access, syndrome),
            Exception::DataAbort(Some(access)) => self.data_abort(access, syndrome),
            Exception::DataAbort(None) | Exception::InstructionAbort => self.memory_fault(syndrome),
            Exception::Other => self.unknown(syndrome),
        }
    }

    /// Handles an exception that EL2 does not emulate. The use of a hidden feature is what it is on a core without the
    /// feature. Else the guest gets an undefined instruction exception at EL0, which its kernel handles; at EL1 it is a fault.
    pub(super) fn unknown(&mut self, syndrome: Syndrome) {
        /// `PSTATE.M`: exception level and, in bit 4, AArch32.
        const MODE: u64 = 0b1_1111;
        match syndrome.hidden_feature() {
            Some(Hidden::Undefined) => return self.inject_undefined(),
            Some(Hidden::NopIfHint) => return self.pointer_authentication(),
            None => {}
        }
        let mode = loaded(&mut self.state).registers.pstate & MODE;
        let is_program = mode == 0 || mode & 0b1_0000 != 0;
        if is_program {
            self.inject_undefined();
        } else {
            self.fault(syndrome, Place::Unknown);
        }
    }

    /// Handles a trapped instruction of pointer authentication as a core without it does: those in the hint space, with which
    /// compilers protect return addresses on any core, do nothing; the others are undefined.
    ///
    /// Hints trap (`HCR_EL2.API`) only in a guest that has set the enable bit of their key in `SCTLR_EL1`, although its ID
    /// registers show no such bit. If they did not trap, they would have an effect, with ten key registers to be switched.
    fn pointer_authentication(&mut self) {
        let vcpu = loaded(&mut self.state);
        match vcpu.shared.read_word(vcpu.registers.pc) {
            Some(instruction) if is_hint(instruction) => vcpu.registers.skip_hint(),
            _ => self.inject_undefined(),
        }
    }

    /// Handles an SError while a guest ran: one of its accesses has failed.
    pub(super) fn system_error(&mut self) {
        self.fault(Syndrome(mrs!(ESR_EL2)), Place::Unknown);
    }

    pub(super) fn skip_instruction(&mut self, size: u64) {
        loaded(&mut self.state).registers.skip_instruction(size);
    }

    /// Handles a load or store that stage 2 refused, and that the syndrome describes.
    #[inline(never)]
    fn data_abort(&mut self, access: DataAccess, syndrome: Syndrome) {
        let ipa = fault_ipa(syndrome, mrs!(FAR_EL2), mrs!(HPFAR_EL2));
        let vcpu = loaded(&mut self.state);
        let guest = vcpu.shared;
        let access = DataAccess {
            big_endian: is_big_endian(vcpu.registers.pstate, mrs!(SCTLR_EL1)),
            ..access
        };
        let Some(device) = ipa.and_then(|ipa| device_at(guest, ipa)) else {
            self.memory_fault(syndrome);
            return;
        };
        // As in `exception`: the guest then executes the instruction again.
        if cpu::interrupt_pending() {
            self.take_interrupts();
            return;
        }
        match device {
            Device::Uart(offset) => self.access_uart(offset, access),
            Device::Gic(region, offset) => {
                if !self.access_gic(region, offset, access) {
                    return;
                }
            }
            Device::Link(index, offset) => {
                if !self.access_link(index, offset, access) {
                    return;
                }
            }
            Device::LinkGpio(index, offset) => self.access_link_gpio(index, offset, access),
        }
        self.skip_instruction(syndrome.instruction_size());
        self.look_before_decision();
    }

    /// Returns whether the access is done. If not, an interrupt is pending, and the guest executes the instruction again.
    fn access_gic(&mut self, region: Region, offset: u64, access: DataAccess) -> bool {
        let vcpu = loaded(&mut self.state);
        let (guest, shared) = (vcpu.guest, &vcpu.shared.gic);
        let mut gic = self.platform.loaded_gic(guest);
        let size = access.size.bytes() as u8;
        let (rung, is_done) = if access.write {
            let value = access.store_value(access.register.read(&vcpu.registers.x));
            let vgic = &mut vcpu.vgic;
            vgic.mmio_write(shared, region, offset, size, value, &mut gic)
        } else {
            let (value, rung) = vcpu.vgic.mmio_read(shared, region, offset, size, &mut gic);
            if let Some(value) = value {
                let value = access.load_value(value);
                access.register.write(&mut vcpu.registers.x, value);
            }
            (rung, value.is_some())
        };
        // The list registers are updated in a separate step.
        if vcpu.vgic.is_unfilled() {
            self.state.refresh_before_entry();
        }
        self.notify_later(guest, rung);
        is_done
    }

    fn access_uart(&mut self, offset: u64, access: DataAccess) {
        let vcpu = loaded(&mut self.state);
        let (guest, vuart) = (vcpu.guest, &vcpu.shared.vuart);
        let source = Source::Guest(guest);
        let room = console::room(guest);
        let effect = if access.write {
            let value = access.store_value(access.register.read(&vcpu.registers.x));
            vuart.write(offset, access.size, value, room)
        } else {
            let (value, effect) = vuart.read(offset, access.size, room);
            access
                .register
                .write(&mut vcpu.registers.x, access.load_value(value));
            effect
        };
        if let Some(byte) = effect.transmit {
            // Without room the byte is lost, as by an overrun of a UART.
            let _ = CONSOLE.push(source, byte);
        }
        // A guest above the lowest band does not spend time on printing output, which may be other guests', unless it
        // waits for room.
        let is_lowest = self.state.current_band() <= Some(Band::LOWEST);
        if effect.stalled || (effect.transmit.is_some() && is_lowest) {
            // An interrupt comes first; the output is then printed before a vCPU of the lowest band is entered.
            if !cpu::interrupt_pending() {
                let _ = self.serve_console();
            }
            if cpu::interrupt_pending() {
                self.take_interrupts();
            }
        } else if effect.transmit.is_some() {
            CONSOLE.ask();
        }
        if effect.line_changed {
            self.publish_uart_line(guest);
        }
    }

    /// Handles an access to memory that the guest does not have, or an access to a device that cannot be emulated.
    fn memory_fault(&mut self, syndrome: Syndrome) {
        let ipa = fault_ipa(syndrome, mrs!(FAR_EL2), mrs!(HPFAR_EL2));
        let vcpu = loaded(&mut self.state);
        let guest = vcpu.shared;
        let ipa = match ipa {
            None if syndrome.is_of_permission() => {
                cpu::translate(mrs!(FAR_EL2)).and_then(|at| match &vcpu.paging {
                    Some(paging) => paging.own_address(at),
                    None => guest.own_address(at),
                })
            }
            known => known,
        };
        if vcpu.paging.is_some() {
            let is_executed_again = match ipa {
                Some(ipa) => self.brings_page(syndrome, ipa),
                // EL2 could not translate the address: a page with the guest's stage 1 tables has lost its access flag, and the guest's core
                // had still cached the translation. The guest makes its access again; its own walk then faults at that page.
                None => syndrome.is_of_permission(),
            };
            if is_executed_again {
                return;
            }
        }
        let place = match ipa {
            Some(ipa) if device_at(guest, ipa).is_some() => Place::Emulated(ipa),
            Some(ipa) => Place::Memory(ipa, self.platform.machine.device_name(ipa)),
            None => Place::Unknown,
        };
        if let Place::Memory(at, _) = place
            && syndrome.is_of_permission()
            && syndrome.is_cache_maintenance()
            && guest.has_memory(at)
        {
            // `DC IVAC` needs the permission to write. Memory that the guest cannot write has nothing in the caches that could be lost.
            self.skip_instruction(syndrome.instruction_size());
            return;
        }
        // What hardware would answer with an external abort. A guest that runs from local memory has its memory also where no page is.
        let has_abort = match place {
            Place::Memory(at, _) => syndrome.is_of_nothing() && !guest.has_memory(at),
            Place::Emulated(_) => true,
            Place::Unknown => false,
        };
        let aborts = has_abort && guest.config.on_fault == OnFault::Abort;
        if !aborts || !self.abort(syndrome, place) {
            self.fault(syndrome, place);
        }
    }

    /// The guest accessed an address where it has nothing, or a device by an access that cannot be emulated, and takes an abort.
    /// Reports the first one of its life. Returns whether the guest can take it.
    fn abort(&mut self, syndrome: Syndrome, place: Place<'static>) -> bool {
        let vcpu = loaded(&mut self.state);
        let (id, guest) = (vcpu.guest, vcpu.shared);
        if syndrome.is_cache_maintenance() {
            // Most machines do not mind.
            self.skip_instruction(syndrome.instruction_size());
            return true;
        }
        // Before the guest's `pc` is that of its vector.
        let is_first = !guest.has_aborted.load(Relaxed);
        let report = is_first.then(|| self.report(syndrome, place, Effect::Aborted));
        if !self.inject_abort(syndrome) {
            return false;
        }
        if let Some(report) = report
            && !guest.has_aborted.swap(true, Relaxed)
        {
            self.say_of(id, Subject::Fault(report));
        }
        true
    }

    /// Reports a fault of the guest, and stops the guest.
    fn fault(&mut self, syndrome: Syndrome, place: Place<'static>) {
        let report = self.report(syndrome, place, Effect::Stopped);
        let vcpu = loaded(&mut self.state);
        let guest = vcpu.guest;
        let at = match place {
            Place::Memory(at, _) => Some(at),
            Place::Unknown | Place::Emulated(_) => None,
        };
        let reason = protect::reason_of_fault(&vcpu.shared.config, at);
        self.say_of(guest, Subject::Fault(report));
        self.stop_guest(guest, reason);
    }

    fn report(
        &mut self,
        syndrome: Syndrome,
        place: Place<'static>,
        effect: Effect,
    ) -> FaultReport<'static> {
        let vcpu = loaded(&mut self.state);
        let guest = vcpu.shared;
        FaultReport {
            guest: &guest.config.name,
            vcpu: vcpu.index.0,
            syndrome,
            pc: vcpu.registers.pc,
            far: mrs!(FAR_EL2),
            instruction: guest.read_word(vcpu.registers.pc & !3),
            place,
            effect,
        }
    }
}

/// The virtual device of a guest at this address.
fn device_at(guest: &Guest, ipa: GuestAddr) -> Option<Device> {
    let config = &guest.config;
    let offset = |base: GuestAddr, size: u64| {
        let offset = ipa.0.wrapping_sub(base.0);
        (offset < size).then_some(offset)
    };
    let redistributors = REDISTRIBUTOR_SIZE * config.vcpus.len() as u64;
    if let Some(console) = &config.console
        && let Some(offset) = offset(console.base, Vuart::FRAME_SIZE)
    {
        Some(Device::Uart(offset))
    } else if let Some(offset) = offset(config.gic.distributor, DISTRIBUTOR_SIZE) {
        Some(Device::Gic(Region::Distributor, offset))
    } else if let Some(offset) = offset(config.gic.redistributor, redistributors) {
        Some(Device::Gic(Region::Redistributors, offset))
    } else {
        let mut links = config.links.iter().enumerate();
        // At most 8 times: links.
        links.find_map(|(index, end)| {
            let registers = offset(end.registers, LINK_REGISTERS_SIZE);
            let gpio = || offset(end.gpio?.base, LINK_REGISTERS_SIZE);
            match registers {
                Some(offset) => Some(Device::Link(index, offset)),
                None => gpio().map(|offset| Device::LinkGpio(index, offset)),
            }
        })
    }
}
