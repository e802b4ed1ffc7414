// SPDX-License-Identifier: MIT OR Apache-2.0
//! The firmware calls of guests: PSCI, SMCCC and TRNG. Decided in `core/psci`, done here.

use super::Instance;
use spumone_config::{GuestId, VcpuId};
use spumone_core::psci::{self, EntryPoint, Outcome, StopReason};
use spumone_core::schedule::VcpuState;
use spumone_core::smccc::{Call, SUCCESS, random_registers};

impl Instance {
    /// The running vCPU `id` called, by HVC or SMC; its program counter is past the call.
    pub(super) fn firmware_call(&mut self, id: VcpuId) {
        let Some(vcpu) = self.vcpu(id) else {
            return;
        };
        let (guest_id, x) = (vcpu.guest, &vcpu.registers.x);
        let call = Call::decode([x[0], x[1], x[2], x[3]]);
        let guest = self.machine.guest(guest_id);
        match psci::handle(call, &guest.power, |ipa| guest.has_memory(ipa)) {
            Outcome::Return(value) => self.answer(id, value),
            Outcome::ReturnFour(values) => self.answer_four(id, values),
            Outcome::Random { bits, width } => {
                let entropy = core::array::from_fn(|_| self.random.next_u64());
                self.answer_four(id, random_registers(entropy, bits, width));
            }
            Outcome::Suspend { powerdown } => {
                self.answer(id, SUCCESS);
                if let Some(vcpu) = self.local.vcpus[id.index()].as_mut() {
                    vcpu.resume = powerdown;
                }
                self.wait_for_interrupt(id);
                if self.local.scheduler.state(id) != Some(VcpuState::Sleep) {
                    // An interrupt was there already: it powers up again at once.
                    self.local.must_decide = true;
                }
            }
            Outcome::StopSelf => self.turn_off(id),
            Outcome::StartVcpu { index, entry_point } => {
                self.answer(id, SUCCESS);
                self.send_start(guest_id, index, entry_point);
            }
            Outcome::GuestOff => self.stop_guest(guest_id, StopReason::Off),
            Outcome::GuestReset => self.stop_guest(guest_id, StopReason::Reset),
        }
    }

    fn answer(&mut self, id: VcpuId, value: u64) {
        if let Some(vcpu) = self.local.vcpus[id.index()].as_mut() {
            vcpu.registers.x[0] = value;
        }
    }

    fn answer_four(&mut self, id: VcpuId, values: [u64; 4]) {
        if let Some(vcpu) = self.local.vcpus[id.index()].as_mut() {
            vcpu.registers.x[..4].copy_from_slice(&values);
        }
    }

    /// Sees to it that a vCPU of a guest that runs here starts, whichever core has it.
    fn send_start(&mut self, guest: GuestId, index: u8, entry_point: EntryPoint) {
        let shared = self.machine.guest(guest);
        if let Some(vcpu) = shared.vcpu(spumone_core::vgic::VcpuIndex(index)) {
            let generation = shared.lifecycle.now().1;
            self.start_vcpu(vcpu, entry_point, generation);
        }
    }

    /// A vCPU that was suspended to powerdown is to run again: it begins at its entry point.
    pub(super) fn power_up_if_suspended(&mut self, id: VcpuId) {
        let Some(start) = self.vcpu(id).and_then(|vcpu| vcpu.resume) else {
            return;
        };
        if self.local.loaded == Some(id) {
            self.save_loaded();
            // It runs, and was saved only to begin anew.
            self.local.deadlines.clear(id);
        }
        if let Some(vcpu) = self.local.vcpus[id.index()].as_mut() {
            vcpu.power_up(start);
        }
    }
}
