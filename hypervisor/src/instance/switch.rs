// SPDX-License-Identifier: MIT OR Apache-2.0
//! Who has the core: the switch from one vCPU to another.

use super::Instance;
use super::interrupts::LoadedGic;
use crate::cpu;
use crate::steps::step;
use crate::timers::now;
use spumone_config::VcpuId;
use spumone_core::migration::{self, Catch};
use spumone_core::schedule::VcpuState;

impl Instance {
    /// Puts the registers of the running vCPU on the core instead of those of another one, unless a
    /// more urgent vCPU turns up half way.
    #[inline(always)]
    pub(super) fn exchange(&mut self, id: VcpuId) {
        if self.overtaken() {
            return;
        }
        if let Some(last) = self.local.loaded {
            migration::catch(self, Catch::Nothing);
            self.save();
            migration::release_preempted(self, last);
            // From here on the alarm stands in for the timers just saved, and may ring at once.
            migration::arm_stale_alarm(self);
            if self.overtaken() {
                return;
            }
        }
        self.load(id);
    }

    /// Whether another vCPU may have to run instead: by an interrupt, or because what was saved is
    /// to run again.
    #[inline(always)]
    fn overtaken(&mut self) -> bool {
        if cpu::interrupt_pending() {
            self.take_interrupts();
        }
        self.local.must_decide
    }

    /// Takes the registers of the loaded vCPU from the core.
    #[inline(never)]
    pub(super) fn save_loaded(&mut self) {
        migration::catch(self, Catch::Nothing);
        self.save();
    }

    #[inline(always)]
    fn save(&mut self) {
        let Some(id) = self.local.loaded.take() else {
            return;
        };
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        step!(Save);
        let guest = vcpu.shared;
        let mut gic = LoadedGic::new(self.machine, self.core, vcpu.guest, self.list_registers);
        let guest_id = vcpu.guest;
        let kick = vcpu.vgic.unload(&guest.gic, &mut gic);
        vcpu.interface.save();
        vcpu.timers.save();
        vcpu.system.save();
        if self.has_error_registers {
            vcpu.system.errors.save();
        }
        vcpu.floating_point.save();
        self.interrupts_changed = false;

        // From here on the alarm stands in for its timers. One that has run out already needs
        // none: either it is why the vCPU is awake, or the guest does not want to hear of it.
        let now = now();
        if let Some(at) = vcpu.timers.deadline_after(now) {
            self.local.deadlines.set(id, vcpu.band, at);
            // There is no alarm for a lower band.
            self.local.alarm_is_stale |= Some(vcpu.band) >= self.local.scheduler.current_band();
        }
        if self.local.scheduler.state(id) == Some(VcpuState::Sleep)
            && vcpu.vgic.has_deliverable(
                &guest.gic,
                vcpu.timers.lines(now),
                vcpu.interface.vmcr(),
                vcpu.interface.running_priority(),
            )
        {
            // It ran out while the vCPU was being saved.
            self.local.scheduler.wake(id);
            // Less urgent than who runs, it only queues; an equal waits for the end of the turn.
            let (band, current) = (Some(vcpu.band), self.local.scheduler.current_band());
            self.local.must_decide |= band > current;
            self.local.alarm_is_stale |= band == current;
        }
        self.kick_all(guest_id, kick);
    }

    /// Puts a vCPU's registers on the core, which holds none; unless a more urgent one turns up.
    #[inline(always)]
    fn load(&mut self, id: VcpuId) {
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        step!(Load);
        let guest = vcpu.shared;
        cpu::set_stage2(guest.vttbr);
        let last = &mut self.last_of_guest[vcpu.guest.index()];
        if *last != Some(id) {
            *last = Some(id);
            cpu::forget_guest_translations();
        }
        vcpu.system.restore();
        if self.has_error_registers {
            vcpu.system.errors.restore();
        }
        vcpu.floating_point.restore();
        // A timer of its own that is due shows from here on, until the virtual GIC has seen it.
        if self.overtaken() {
            return;
        }
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        vcpu.interface.restore();
        vcpu.timers.restore();
        let mut gic = LoadedGic::new(self.machine, self.core, vcpu.guest, self.list_registers);
        let guest_id = vcpu.guest;
        let (kick, is_ready) = vcpu.vgic.load(&guest.gic, &mut gic, cpu::interrupt_pending);
        self.local.loaded = Some(id);
        // Who is overtaken has them refreshed, if it runs after all.
        self.interrupts_changed = !is_ready;
        if self.local.excludes_kernels {
            migration::stop_catching(self);
        }
        step!(Loaded);
        self.kick_all(guest_id, kick);
    }

    /// The vCPU with this id, if it is on this core.
    pub(super) fn vcpu(&self, id: VcpuId) -> Option<&crate::vcpu::Vcpu> {
        self.local.token(id).map(|token| &**token)
    }
}
