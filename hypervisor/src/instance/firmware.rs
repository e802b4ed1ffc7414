// SPDX-License-Identifier: MIT OR Apache-2.0
//! The firmware calls of guests: PSCI, SMCCC and TRNG. `core/psci` decides their outcome, which is carried out here.

use super::{Instance, loaded};
use crate::cpu;
use crate::hardware::mitigate;
use crate::timers;
use spumone_config::VcpuId;
use spumone_core::migration;
use spumone_core::power;
use spumone_core::psci::{self, Outcome, StopReason};
use spumone_core::smccc::{Call, SUCCESS, random_registers};
use spumone_core::vgic::VcpuIndex;
use spumone_core::watchdog::Caller;

impl Instance {
    /// Handles an HVC or SMC of the running vCPU, whose program counter is past the instruction.
    pub(super) fn firmware_call(&mut self) {
        let vcpu = loaded(&mut self.state);
        let (guest_id, guest, x) = (vcpu.guest, vcpu.shared, &vcpu.registers.x);
        let call = Call::decode([x[0], x[1], x[2], x[3]]);
        let stolen_time = guest.stolen_time_of(vcpu.index);
        let machine = self.platform.machine;
        let offer = |workaround| machine.offer(workaround, guest);
        let is_memory = |ipa| guest.has_memory(ipa);
        match psci::handle(call, &guest.power, stolen_time, offer, is_memory) {
            Outcome::Return(value) => self.answer(value),
            Outcome::ReturnFour(values) => self.answer_four(values),
            Outcome::Watchdog { command, argument } => {
                let caller = Caller {
                    longest_s: guest.config.watchdog_s,
                    frequency_hz: timers::frequency(),
                    now: timers::now(),
                    stolen: guest.stolen(),
                };
                let values = guest.watchdog.call(command, argument, caller);
                self.answer_four(values);
            }
            Outcome::PowerMode { command } => {
                let mode = machine.power.mode();
                let set = |mode| machine.set_power_mode(mode);
                let value = power::call(command, guest.config.sets_power, mode, set);
                self.answer(value);
            }
            Outcome::Mitigate(workaround) => {
                if self.platform.needs.passes_on(workaround) {
                    mitigate(workaround);
                }
                self.answer(SUCCESS);
            }
            Outcome::Repeat => loaded(&mut self.state).registers.repeat_call(),
            Outcome::Random { bits, width } => match self.random.take(cpu::interrupt_pending) {
                Some(entropy) => self.answer_four(random_registers(entropy, bits, width)),
                // The guest executes the instruction again.
                None => loaded(&mut self.state).registers.repeat_call(),
            },
            Outcome::Suspend { powerdown } => {
                self.answer(SUCCESS);
                loaded(&mut self.state).resume = powerdown;
                self.wait_for_interrupt();
                if powerdown.is_some() {
                    // It is not entered before `power_down`.
                    self.state.refresh_before_entry();
                }
            }
            Outcome::StopSelf if self.can_be_saved() => self.turn_off(),
            // The guest executes the instruction again, once the interrupt is handled.
            Outcome::StopSelf => loaded(&mut self.state).registers.repeat_call(),
            Outcome::StartVcpu { index, entry_point } => {
                let generation = guest.lifecycle.now().1;
                let target = guest.vcpu(VcpuIndex(index));
                self.answer(SUCCESS);
                if let Some(target) = target {
                    self.order_start(target, entry_point, generation);
                }
            }
            Outcome::GuestOff => self.stop_guest(guest_id, StopReason::Off),
            Outcome::GuestReset => self.stop_guest(guest_id, StopReason::Reset),
        }
    }

    fn answer(&mut self, value: u64) {
        loaded(&mut self.state).registers.x[0] = value;
    }

    fn answer_four(&mut self, values: [u64; 4]) {
        loaded(&mut self.state).registers.x[..4].copy_from_slice(&values);
    }

    /// Whether the core takes an interrupt, if one is pending, before a step that takes long.
    pub(super) fn defers_step(&mut self) -> bool {
        self.deferral.defers(cpu::interrupt_pending())
    }

    /// Takes the interrupts of the loaded vCPU back, and returns whether its registers can be saved now. If not, an interrupt comes first.
    pub(super) fn can_be_saved(&mut self) -> bool {
        migration::take_back_interrupts(&mut self.state, &mut self.platform) && !self.defers_step()
    }

    /// The running vCPU has suspended to powerdown, and is to run again: at its entry point ([`Instance::prepare_vcpu`]). So its registers
    /// are taken off the core first.
    #[cold]
    pub(super) fn power_down(&mut self, id: VcpuId) {
        migration::switch_out(&mut self.state, &mut self.platform);
        // It does not sleep.
        self.state.clear_deadline(id);
    }
}
