// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts and guests' requests: see `hypervisor/src/instance/interrupts.rs`.

use super::Instance;
use crate::guest::{Exit, RESCHEDULE, TIMER};
use crate::world::{SMP_VCPUS, World};
use spumone_config::types::VcpuId;
use spumone_core::migration::{self, Taken};
use spumone_core::schedule::Ticks;

impl Instance {
    /// Whether an interrupt is pending that the priority mask does not hold back: the alarm, the timer of the loaded vCPU, a
    /// kick, or one of the storm.
    pub(super) fn interrupt_pending(&self, w: &World) -> bool {
        self.local.alarm <= self.now()
            || self.timer_pending(w).is_some()
            || self.kick_pending(w)
            || self.storm_pending()
    }

    fn timer_pending(&self, w: &World) -> Option<VcpuId> {
        let is_due = |id: &VcpuId| w.vcpus[id.index()].timer <= self.now();
        self.local.loaded.filter(is_due)
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
        if self.local.alarm <= self.now() {
            return Taken::Alarm;
        }
        if let Some(id) = self.timer_pending(w) {
            self.timer_fired(w, id);
        } else if self.kick_pending(w) {
            self.take_kicks(w);
        } else if self.storm_pending() {
            self.take_storm(w);
        } else {
            return Taken::Nothing;
        }
        Taken::Other
    }

    /// An interrupt of the storm, for each vCPU of the SMP guest in turn.
    fn take_storm(&mut self, w: &mut World) {
        let Some(storm) = w.storm else {
            self.storm_at = Ticks::NEVER;
            return;
        };
        self.spend(storm.cost);
        self.storm_at = self.now().saturating_add(storm.interval);
        w.counters.storm += 1;
        let target = w.counters.storm % (w.vcpus.len() as u64 - 1);
        self.send(w, 1 << target, RESCHEDULE);
    }

    /// Handles the kicks of other cores.
    fn take_kicks(&mut self, w: &mut World) {
        let shared = &mut w.cores[self.core.index()];
        shared.arrives = Ticks::NEVER;
        let mut kicked = core::mem::take(&mut shared.kicked);
        while kicked != 0 {
            let id = VcpuId(kicked.trailing_zeros() as u8);
            kicked &= kicked - 1;
            migration::kicked(&mut self.at(w), id);
        }
    }

    /// The timer of the loaded vCPU has expired; the vCPU may be asleep while the core idles.
    fn timer_fired(&mut self, w: &mut World, id: VcpuId) {
        let vcpu = &mut w.vcpus[id.index()];
        vcpu.timer = Ticks::NEVER;
        vcpu.irqs |= TIMER;
        migration::wake(&mut self.at(w), id);
    }

    /// The step of the running vCPU has ended.
    pub(super) fn end_of_step(&mut self, w: &mut World, id: VcpuId) {
        let now = self.begun;
        match w.advance(id, now) {
            Exit::None => {
                if self.is_caught(w, id) {
                    self.come_back(w, id);
                }
            }
            Exit::Sgi(targets, kind) => {
                w.leave(id, now);
                self.spend(w.costs.sgi);
                self.send(w, targets, kind);
            }
            Exit::Wfi => {
                w.leave(id, now);
                self.spend(w.costs.wfi);
                self.wait_for_interrupt(w, id);
            }
        }
    }

    /// Rings the doorbells of vCPUs of the SMP guest, and kicks their host cores.
    fn send(&mut self, w: &mut World, mut targets: u32, kind: u8) {
        while targets != 0 {
            let id = VcpuId(targets.trailing_zeros() as u8 + 1);
            targets &= targets - 1;
            w.vcpus[id.index()].bell |= kind;
            migration::notify_vcpu(&mut self.at(w), id);
        }
    }

    /// The running vCPU waits for an interrupt. If none is pending, it sleeps.
    fn wait_for_interrupt(&mut self, w: &World, id: VcpuId) {
        let vcpu = &w.vcpus[id.index()];
        if vcpu.bell | vcpu.irqs == 0 && vcpu.timer > self.now() {
            self.local.scheduler.sleep_current();
            self.local.must_decide = true;
        }
    }
}
