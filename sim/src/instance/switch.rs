//! Who has the core: see `hypervisor/src/instance/switch.rs`.

use super::Instance;
use super::departure::Catch;
use crate::world::{Token, World};
use spumone_config::types::VcpuId;
use spumone_core::schedule::{Ticks, VcpuState};

impl Instance {
    pub(super) fn switch_to(&mut self, w: &mut World, to: Option<VcpuId>) {
        let last = core::mem::replace(&mut self.running, to);
        self.grace.renew();
        if self.moving != 0
            && let Some(last) = last
            && self.loaded != Some(last)
        {
            self.give_up(w, last);
        }
        let Some(id) = to else {
            return;
        };
        self.deadlines.clear(id);
    }

    /// A step on the way to the running vCPU, whose registers are not on the core: saves those that are there, or loads
    /// its own.
    pub(super) fn exchange(&mut self, w: &mut World, id: VcpuId) {
        if self.overtaken(w) {
            return;
        }
        if let Some(last) = self.loaded {
            self.save_loaded(w);
            self.give_up(w, last);
            return;
        }
        if self.vcpu(id).is_none() {
            self.running = None;
            self.must_decide = true;
            return;
        }
        w.counters.switches += 1;
        self.spend(w.costs.load);
        self.deadlines.clear(id);
        self.loaded = Some(id);
        if self.keeps_kernels_off {
            self.stop_catching(w);
        }
    }

    fn overtaken(&mut self, w: &mut World) -> bool {
        if self.interrupt_pending(w) {
            self.take_interrupts(w);
        }
        if self.alarm <= self.begun {
            self.alarm_rang();
        }
        self.must_decide
    }

    /// Takes the registers of the loaded vCPU from the core.
    pub(super) fn save_loaded(&mut self, w: &mut World) {
        self.catch(w, Catch::Nothing);
        self.save(w);
    }

    fn save(&mut self, w: &mut World) {
        let Some(id) = self.loaded.take() else {
            return;
        };
        self.spend(w.costs.save);
        let now = self.now();
        let vcpu = &w.vcpus[id.index()];
        let lines = vcpu.timer <= now;
        if !lines && vcpu.timer != Ticks::NEVER {
            self.deadlines.set(id, w.band(id), vcpu.timer);
        }
        if self.scheduler.state(id) == Some(VcpuState::Sleep)
            && (lines || vcpu.bell | vcpu.irqs != 0)
        {
            self.scheduler.wake(id);
            self.must_decide = true;
        }
    }

    /// The vCPU with this id, if it is on this core.
    pub(super) fn vcpu(&self, id: VcpuId) -> Option<&Token> {
        self.vcpus.get(id.index())?.as_ref()
    }
}
