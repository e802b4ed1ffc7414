// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts, SGIs and WFI of guests, as in `hypervisor/src/instance/interrupts.rs`.

use super::Instance;
use super::platform::Hardware;
use crate::guest::{Exit, RESCHEDULE, TIMER};
use crate::world::{SMP_VCPUS, World};
use spumone_config::types::VcpuId;
use spumone_core::migration::{self, Taken};
use spumone_core::schedule::Ticks;
use spumone_core::sets::VcpuSet;

impl Hardware {
    /// Whether an interrupt is pending that the priority mask does not hold back: the alarm, the timer of the loaded
    /// vCPU, a kick, or an interrupt of the storm.
    pub(super) fn interrupt_pending(&self, w: &World) -> bool {
        self.alarm <= self.now()
            || self.timer_pending(w).is_some()
            || self.kick_pending(w)
            || self.storm_pending()
    }

    fn timer_pending(&self, w: &World) -> Option<VcpuId> {
        let is_due = |id: &VcpuId| w.vcpus[id.index()].timer <= self.now();
        self.loaded.filter(is_due)
    }

    fn storm_pending(&self) -> bool {
        self.storm_at <= self.now() && self.mask & SMP_VCPUS != 0
    }

    fn kick_pending(&self, w: &World) -> bool {
        let shared = &w.cores[self.core.index()];
        shared.kicked & self.mask != 0 && shared.arrives <= self.now()
    }

    /// Handles the interrupt with the highest priority.
    pub(super) fn take_interrupt(&mut self, w: &mut World) -> Taken {
        if self.alarm <= self.now() {
            self.alarm = Ticks::NEVER;
            Taken::Alarm
        } else if let Some(id) = self.timer_pending(w) {
            let vcpu = &mut w.vcpus[id.index()];
            vcpu.timer = Ticks::NEVER;
            vcpu.irqs |= TIMER;
            Taken::Delivered(VcpuSet::EMPTY)
        } else if self.kick_pending(w) {
            let shared = &mut w.cores[self.core.index()];
            shared.arrives = Ticks::NEVER;
            Taken::Kicks(VcpuSet::from_bits(core::mem::take(&mut shared.kicked)))
        } else if self.storm_pending() {
            self.take_storm(w)
        } else {
            Taken::Nothing
        }
    }

    /// An interrupt of the storm, for each vCPU of the SMP guest in turn.
    fn take_storm(&mut self, w: &mut World) -> Taken {
        let Some(storm) = w.storm else {
            self.storm_at = Ticks::NEVER;
            return Taken::Other;
        };
        self.spend(storm.cost);
        self.storm_at = self.now().saturating_add(storm.interval);
        w.counters.storm += 1;
        let target = w.counters.storm % (w.vcpus.len() as u64 - 1);
        Taken::Rung(ring(w, 1 << target, RESCHEDULE))
    }
}

/// Rings the doorbells of vCPUs of the SMP guest; bit n of `targets` is its vCPU n.
fn ring(w: &mut World, targets: u32, kind: u8) -> VcpuSet {
    let vcpus = VcpuSet::from_bits(targets << 1);
    for id in vcpus.iter() {
        w.ring(id, kind);
    }
    vcpus
}

impl Instance {
    /// The step of the running vCPU has ended.
    pub(super) fn end_of_step(&mut self, w: &mut World, id: VcpuId) {
        let now = self.hardware.begun;
        match w.advance(id, now) {
            Exit::None => {
                if self.is_caught(w, id) {
                    self.exit_caught(w, id);
                }
            }
            Exit::Sgi(targets, kind) => {
                w.leave(id, now);
                self.spend(w.costs.sgi);
                let rung = ring(w, targets, kind);
                let (state, mut core) = self.at(w);
                migration::notify_vcpus(state, &mut core, rung);
            }
            Exit::Wfi => {
                w.leave(id, now);
                self.spend(w.costs.wfi);
                self.wait_for_interrupt(w, id);
            }
        }
    }

    /// The running vCPU waits for an interrupt. If none is pending, it sleeps.
    fn wait_for_interrupt(&mut self, w: &mut World, id: VcpuId) {
        if !w.vcpus[id.index()].has_pending(self.now()) {
            let (state, core) = self.at(w);
            migration::sleep(state, &core);
        }
    }
}
