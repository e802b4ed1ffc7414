//! Interrupts, and what guests ask for: see `hypervisor/src/instance/interrupts.rs`.

use super::Instance;
use crate::guest::{Exit, TIMER};
use crate::world::World;
use spumone_config::types::VcpuId;
use spumone_core::migration;
use spumone_core::schedule::Ticks;

impl Instance {
    /// Whether an interrupt waits that the priority mask lets through: a kick, or the timer of the loaded vCPU.
    pub(super) fn interrupt_pending(&self, w: &World) -> bool {
        self.kick_pending(w)
            || self
                .local
                .loaded
                .is_some_and(|id| w.vcpus[id.index()].timer <= self.begun)
    }

    fn kick_pending(&self, w: &World) -> bool {
        let shared = &w.cores[self.core.index()];
        shared.kicked & self.mask != 0 && shared.arrives <= self.begun
    }

    /// Takes what is pending and passes the priority mask.
    pub(super) fn take_interrupts(&mut self, w: &mut World) {
        if let Some(id) = self.local.loaded {
            self.timer_fired(w, id);
        }
        if self.kick_pending(w) {
            self.take_kicks(w);
        }
    }

    /// The vCPUs that other cores have kicked.
    fn take_kicks(&mut self, w: &mut World) {
        let shared = &mut w.cores[self.core.index()];
        shared.arrives = Ticks::NEVER;
        let mut kicked = core::mem::take(&mut shared.kicked);
        while kicked != 0 {
            let id = VcpuId(kicked.trailing_zeros() as u8);
            kicked &= kicked - 1;
            self.kicked(w, id);
        }
    }

    /// A timer of the loaded vCPU, which may be asleep while the core idles.
    fn timer_fired(&mut self, w: &mut World, id: VcpuId) {
        let vcpu = &mut w.vcpus[id.index()];
        if vcpu.timer <= self.begun {
            vcpu.timer = Ticks::NEVER;
            vcpu.irqs |= TIMER;
            migration::wake(&mut self.at(w), id);
        }
    }

    /// It is time to decide again.
    pub(super) fn alarm_rang(&mut self) {
        self.alarm = Ticks::NEVER;
        self.local.must_decide = true;
    }

    /// A vCPU of this core may have something in its doorbell.
    fn kicked(&mut self, w: &mut World, id: VcpuId) {
        if self.local.is_called(id) {
            self.local.must_decide = true;
        }
        if self.local.loaded == Some(id) {
            // It is signalled when it is entered.
            migration::wake(&mut self.at(w), id);
        } else {
            migration::kicked(&mut self.at(w), id);
        }
    }

    /// The step of the running vCPU is over.
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

    /// Rings vCPUs of the SMP guest and kicks them wherever they are.
    fn send(&mut self, w: &mut World, mut targets: u32, kind: u8) {
        while targets != 0 {
            let id = VcpuId(targets.trailing_zeros() as u8 + 1);
            targets &= targets - 1;
            w.vcpus[id.index()].bell |= kind;
            let core = w.location[id.index()];
            self.spend(w.costs.kick);
            if core == self.core {
                self.kicked(w, id);
            } else if !migration::summon(&mut self.at(w), id, core) {
                w.kick(core, id, self.now());
            }
        }
    }

    /// The running vCPU waits for an interrupt. If none is there, it sleeps.
    fn wait_for_interrupt(&mut self, w: &World, id: VcpuId) {
        let vcpu = &w.vcpus[id.index()];
        if vcpu.bell | vcpu.irqs == 0 && vcpu.timer > self.now() {
            self.local.scheduler.sleep_current();
            self.local.must_decide = true;
        }
    }
}
