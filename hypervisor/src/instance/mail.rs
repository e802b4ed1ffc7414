// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work from interrupts that are not for a vCPU: mail from other cores, and the console UART. Also turns the machine
//! off.

use super::Instance;
use super::platform::is_low;
use crate::console;
use crate::cpu;
use crate::epitaph::fatal;
use crate::events::Event;
use crate::hardware::{halt, system_off};
use crate::machine::Machine;
use crate::timers;
use spumone_config::types::MAX_PCPUS;
use spumone_core::mailbox::{CAPACITY, Message};
use spumone_core::migration;
use spumone_core::schedule::Ticks;

/// More messages than all mailboxes of one core have room for.
const MAX_MAIL: usize = (CAPACITY + 1) * MAX_PCPUS;

impl Instance {
    /// Does what interrupts have asked for, then the console's work if it is due at `now`.
    #[cold]
    #[inline(never)]
    pub(super) fn do_chore(&mut self, now: Ticks) {
        if self.platform.port.has_mail() {
            self.read_mail();
        }
        if core::mem::take(&mut self.platform.is_console_interrupted) {
            self.console_interrupt();
            let machine = self.platform.machine;
            machine.gic.deactivate(machine.board.uart.interrupt);
        }
        if self.platform.attendance.due() <= now {
            self.attend(now);
            self.govern(now);
            self.platform.machine.power.supply.order_lost();
        } else if is_low(self.state.current_band()) {
            self.govern(now);
        }
        if self.platform.looks.are_due(now) {
            self.look_after_watchdogs();
        }
        if self.platform.machine.protected != 0 && self.platform.late_look_at <= now {
            self.checks_late_memory();
        }
        if self.platform.turns_cores_on() {
            self.turn_cores_on(now);
        }
        self.do_orders();
        let band = self.state.current_band();
        let next = self.platform.own_chore(now, band);
        migration::set_chore(&mut self.state, &self.platform, now, next);
    }

    /// Reads the mail of this core, and notes what it orders, until an interrupt is pending. What is left then is an order. Returns whether
    /// it has read all.
    pub(super) fn read_mail(&mut self) -> bool {
        let has_read_all = self.read_until_interrupted();
        if !has_read_all {
            self.platform.orders.mail_is_left();
        }
        has_read_all
    }

    fn read_until_interrupted(&mut self) -> bool {
        // At most 1,032 times: `MAX_MAIL`.
        for _ in 0..MAX_MAIL {
            let Some(message) = self.platform.port.receive() else {
                break;
            };
            self.platform.events.note(Event::Mail, 0);
            match message {
                Message::StartVcpu {
                    vcpu,
                    entry_point,
                    generation,
                } => self.order_start(vcpu, entry_point, generation),
                Message::StopGuest {
                    guest,
                    generation,
                    others,
                } => {
                    self.platform.orders.tell(guest, others);
                    self.order_stop(guest, generation);
                }
                Message::RestartGuest { guest, .. } => {
                    self.platform.orders.load(guest);
                    self.state.decide_anew();
                }
                Message::Corrupt => fatal!("a mailbox holds a message that no core has sent"),
            }
            if cpu::interrupt_pending() {
                break;
            }
        }
        // Mail may have come since the boxes were found empty, and its kick may have been taken.
        !self.platform.port.has_mail()
    }
}

/// Turns the machine off, or halts if the firmware cannot. Before that, prints the remaining output for at
/// most `flush_us` microseconds.
pub(super) fn power_off(machine: &Machine, flush_us: u32) -> ! {
    // Holds back all interrupts.
    machine.gic.set_priority_mask(0);
    console::flush(Ticks::from_micros(flush_us, timers::frequency() as u32));
    system_off();
    halt()
}
