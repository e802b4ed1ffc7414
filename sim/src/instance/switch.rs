// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vCPU has the core: see `hypervisor/src/instance/switch.rs`.

use super::Instance;
use crate::world::World;
use spumone_config::types::VcpuId;
use spumone_core::migration::{self, Catch};
use spumone_core::schedule::{Ticks, VcpuState};

impl Instance {
    /// One step of a switch to the vCPU that is to run: saves the registers that are on the core, or loads that vCPU's
    /// registers.
    pub(super) fn exchange(&mut self, w: &mut World, id: VcpuId) {
        if self.overtaken(w) {
            return;
        }
        if let Some(last) = self.local.loaded {
            self.save_loaded(w);
            migration::release_preempted(&mut self.at(w), last);
            return;
        }
        if self.local.token(id).is_none() {
            self.local.running = None;
            self.local.must_decide = true;
            return;
        }
        w.counters.switches += 1;
        self.spend(w.costs.load);
        self.local.deadlines.clear(id);
        self.local.loaded = Some(id);
        if self.local.excludes_kernels {
            migration::stop_catching(&mut self.at(w));
        }
    }

    fn overtaken(&mut self, w: &mut World) -> bool {
        if self.interrupt_pending(w) {
            migration::take_interrupts(&mut self.at(w));
        }
        self.local.must_decide
    }

    /// Saves the registers of the loaded vCPU.
    pub(super) fn save_loaded(&mut self, w: &mut World) {
        migration::catch(&mut self.at(w), Catch::Nothing);
        self.save(w);
    }

    fn save(&mut self, w: &mut World) {
        let Some(id) = self.local.loaded.take() else {
            return;
        };
        self.spend(w.costs.save);
        let now = self.now();
        let vcpu = &w.vcpus[id.index()];
        let lines = vcpu.timer <= now;
        if !lines && vcpu.timer != Ticks::NEVER {
            self.local.deadlines.set(id, w.band(id), vcpu.timer);
            self.local.alarm_is_stale = true;
        }
        if self.local.scheduler.state(id) == Some(VcpuState::Sleep)
            && (lines || vcpu.bell | vcpu.irqs != 0)
        {
            self.local.scheduler.wake(id);
            self.local.must_decide = true;
        }
    }
}
