// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console's work on this core: reads what is typed, answers the operator, prints waiting output.
//! `core/console/attendance.rs` decides when.

use super::Instance;
use super::platform::is_low;
use crate::console::{self, CONSOLE};
use crate::cpu;
use crate::machine::Machine;
use crate::timers;
use core::ops::Range;
use spumone_config::packed::PowerMode;
use spumone_config::{GuestId, PcpuId};
use spumone_core::console::{Answer, GuestState, InputEffect, Left, Off, PastLife, Served, Source};
use spumone_core::local::progress;
use spumone_core::migration::{Level, Platform};
use spumone_core::psci::Power;
use spumone_core::schedule::Ticks;
use spumone_core::usage::Usage;
use spumone_core::vgic::VcpuIndexSet;

/// Most bytes read from the keyboard at an interrupt; the UART's line stays high for the rest.
const MAX_RECEIVED: usize = 4;

/// What a step may do. Chores take turns, so that none starves another.
#[derive(Clone, Copy)]
enum Chore {
    /// Read a byte that was typed, and carry out its effect.
    ReadKey,
    /// Add a part of an answer to the operator's ring.
    Answer,
    /// Write some bytes to the UART.
    Write,
}

const CHORES: [Chore; 3] = [Chore::ReadKey, Chore::Answer, Chore::Write];

impl spumone_core::console::Machine for Machine {
    fn state(&self, guest: GuestId) -> Option<GuestState<'_>> {
        let guest = *self.guests.get(guest.index())?;
        let (phase, life) = guest.lifecycle.now();
        let vcpus = guest.power.count();
        let on = (0..vcpus).filter(|&vcpu| guest.power.get(vcpu) == Some(Power::On));
        Some(GuestState {
            name: &guest.config.name,
            phase,
            life: life.0,
            // At most 8 times: vCPUs of the guest.
            on: on.count() as u8,
            vcpus,
            progress: guest
                .config
                .has_rounds()
                .then(|| guest.rounds.progress(&guest.pace)),
            local: progress(&guest.config, &guest.local),
        })
    }

    fn usage(&self, core: PcpuId) -> Option<(&Usage, Ticks)> {
        Some((&self.cores.get(core.index())?.usage, timers::now()))
    }

    fn off(&self, core: PcpuId) -> Option<Off> {
        let is_off = self.shared.presence(core).level() == Level::OFF;
        is_off.then(|| self.power.supply.off(core))
    }

    fn power_mode(&self) -> Option<PowerMode> {
        self.power.mode()
    }

    fn past_lives(&self) -> Range<u32> {
        self.health.numbers()
    }

    fn past_life(&self, number: u32) -> Option<PastLife<'_>> {
        let end = self.health.get(number)?;
        let guest = *self.guests.get(end.guest.index())?;
        Some(PastLife {
            name: &guest.config.name,
            life: end.life.0,
            at_us: end.at.to_micros(timers::frequency() as u32),
            reason: end.reason,
        })
    }
}

impl Instance {
    /// Does the console's work that is due at `now`.
    pub(super) fn attend(&mut self, now: Ticks) {
        let is_low = is_low(self.state.current_band());
        let duty = self.platform.attendance.duty(now, is_low);
        if self.puts_off_duty(now) {
            return;
        }
        if duty.looks_for_idle_lines {
            CONSOLE.flush_idle();
            if self.puts_off_duty(now) {
                return;
            }
        }
        let mut left = Left::Nothing;
        for _ in 0..duty.steps {
            left = self.do_operator_step();
            if cpu::interrupt_pending() || self.state.must_decide() || left != Left::Some {
                break;
            }
        }
        // A vCPU that has just been chosen is not loaded yet.
        let is_loaded = self.state.loaded() == self.state.running();
        let timer = self.platform.loaded_timer().filter(|_| is_loaded);
        self.platform.attendance.done(now, left, timer);
    }

    /// A look for interrupts, which are taken: whether the duty that was due at `now` waits for the next decision.
    fn puts_off_duty(&mut self, now: Ticks) -> bool {
        if cpu::interrupt_pending() {
            self.take_interrupts();
        }
        self.state.must_decide() && self.platform.attendance.yields(now)
    }

    /// One short step for the operator.
    fn do_operator_step(&mut self) -> Left {
        let mut served = Served::Done;
        for _ in 0..CHORES.len() {
            let chore = CHORES.get(self.next_chore % CHORES.len());
            self.next_chore = self.next_chore.wrapping_add(1);
            let is_done = match chore {
                Some(Chore::ReadKey) if self.has_input() => {
                    self.take_key();
                    true
                }
                Some(Chore::Answer) => self.answer_more(),
                Some(Chore::Write) if CONSOLE.work_left() || CONSOLE.has_message() => {
                    served = console::serve_a_little();
                    self.wake_stalled_uarts();
                    true
                }
                _ => false,
            };
            if is_done {
                break;
            }
        }
        if self.has_input() || !self.answers.is_empty() || CONSOLE.has_message() {
            if served == Served::SinkFull {
                Left::UartFull
            } else {
                Left::Some
            }
        } else {
            Left::Nothing
        }
    }

    /// Adds a part of an answer to the operator's ring; false if there is no answer, or no room.
    fn answer_more(&mut self) -> bool {
        if self.answers.is_empty() || CONSOLE.room(Source::Operator) == 0 {
            return false;
        }
        let machine = self.platform.machine;
        let push = |byte| CONSOLE.push(Source::Operator, byte).is_ok();
        self.answers.step(machine, push);
        CONSOLE.ask();
        true
    }

    fn has_input(&self) -> bool {
        self.keyboard.as_ref().is_some_and(|keys| keys.has_input())
    }

    /// Reads a byte that was typed, and carries out its effect. Work that takes long is only ordered.
    fn take_key(&mut self) {
        let Some(effect) = self.keyboard.as_mut().and_then(|keys| keys.take()) else {
            return;
        };
        match effect {
            InputEffect::Deliver(guest, byte) => {
                if self.platform.machine.guest(guest).vuart.receive(byte) {
                    self.publish_uart_line(guest);
                }
                return;
            }
            InputEffect::Focus(guest) => {
                CONSOLE.set_focus(guest);
                self.answers.queue_focus(guest);
            }
            InputEffect::Status => self.answers.queue(Answer::Status),
            InputEffect::Restart(guest) => {
                let phase = self.restart_guest(guest);
                self.answers.queue(Answer::Restart(guest, phase));
            }
            InputEffect::Power(mode) => {
                self.platform.machine.set_power_mode(mode);
                self.answers.queue(Answer::Power);
            }
            InputEffect::Stop => self.stop_machine(),
            InputEffect::Notice(text) => self.answers.queue(Answer::Text(text)),
        }
        self.platform.attendance.request();
    }

    /// Handles the console UART's interrupt: a byte was typed, or the transmit FIFO has room again.
    pub(super) fn console_interrupt(&mut self) {
        if let Some(keyboard) = self.keyboard.as_mut().filter(|keys| !keys.has_input()) {
            keyboard.silence();
        }
        for _ in 0..MAX_RECEIVED {
            if !self.has_input() {
                break;
            }
            self.take_key();
        }
        self.serve_console_in_band();
    }

    /// Prints some waiting output; only a little of it if a band above the lowest is about to run.
    pub(super) fn serve_console_in_band(&mut self) {
        if is_low(self.state.current_band()) {
            let _ = self.serve_console();
        } else {
            let _ = console::serve_a_little();
            self.wake_stalled_uarts();
        }
    }

    /// Prints some waiting output, and interrupts guests whose virtual UARTs wait for room.
    pub(super) fn serve_console(&mut self) -> Served {
        let served = console::serve();
        self.wake_stalled_uarts();
        served
    }

    fn wake_stalled_uarts(&mut self) {
        // At most 8 times: guests.
        for index in 0..self.platform.machine.guests.len() {
            let guest = GuestId(index as u8);
            let vuart = &self.platform.machine.guest(guest).vuart;
            let room = console::room(guest);
            if vuart.is_stalled() && vuart.output_drained(room) {
                self.publish_uart_line(guest);
            }
        }
    }

    /// Passes the level of a virtual UART's interrupt line to the guest's virtual GIC.
    pub(super) fn publish_uart_line(&mut self, guest: GuestId) {
        let shared = self.platform.machine.guest(guest);
        let Some(console) = &shared.config.console else {
            return;
        };
        let mut rung = VcpuIndexSet::EMPTY;
        shared.vuart.publish_line(|high| {
            rung = rung.with(shared.gic.set_level(console.interrupt, high));
        });
        self.notify(guest, rung);
    }
}
