//! Who has the core: the switch from one vCPU to another.

use super::Instance;
use super::departure::Catch;
use super::interrupts::LoadedGic;
use crate::cpu;
use crate::events::{Event, note};
use crate::timers::now;
use spumone_config::VcpuId;
use spumone_core::schedule::VcpuState;

impl Instance {
    /// Gives the core to `to`, or to nobody. The registers of the vCPU that had it stay on the
    /// core until another one needs it: [`Self::exchange`].
    pub(super) fn switch_to(&mut self, to: Option<VcpuId>) {
        let last = core::mem::replace(&mut self.running, to);
        self.grace.renew();
        if self.moving != 0
            && let Some(last) = last
            && self.loaded != Some(last)
        {
            // Overtaken before it was loaded.
            self.give_up(last);
        }
        let Some(id) = to else {
            note(self.core, Event::Idle, 0);
            return;
        };
        note(self.core, Event::Dispatch, u64::from(id.0));
        // It runs, so its timers need no alarm.
        self.deadlines.clear(id);
    }

    /// Puts the registers of the running vCPU on the core instead of those of another one, unless a
    /// more urgent vCPU turns up half way.
    #[inline(always)]
    pub(super) fn exchange(&mut self, id: VcpuId) {
        if self.overtaken() {
            return;
        }
        if let Some(last) = self.loaded {
            self.catch(Catch::Nothing);
            self.save();
            self.give_up(last);
            // From here on the alarm stands in for the timers just saved, and may ring at once.
            if self.alarm_changed {
                self.set_alarm();
            }
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
        self.must_decide
    }

    /// Takes the registers of the loaded vCPU from the core.
    #[inline(never)]
    pub(super) fn save_loaded(&mut self) {
        self.catch(Catch::Nothing);
        self.save();
    }

    #[inline(always)]
    fn save(&mut self) {
        let Some(id) = self.loaded.take() else {
            return;
        };
        let Some(vcpu) = self.vcpus[id.index()].as_mut() else {
            return;
        };
        let guest = self.machine.guest(vcpu.guest);
        let mut gic = LoadedGic::new(self.machine, self.core, vcpu.guest, self.list_registers);
        let guest_id = vcpu.guest;
        let kick = vcpu.vgic.unload(&guest.gic, &mut gic);
        vcpu.interface.save();
        vcpu.timers.save();
        vcpu.system.save();
        vcpu.floating_point.save();
        self.interrupts_changed = false;

        // From here on the alarm stands in for its timers. One that has run out already needs
        // none: either it is why the vCPU is awake, or the guest does not want to hear of it.
        let now = now();
        let lines = vcpu.timers.lines(now);
        if let Some(at) = vcpu.timers.deadline_after(now) {
            self.deadlines.set(id, vcpu.band, at);
            // There is no alarm for a lower band.
            self.alarm_changed |= Some(vcpu.band) >= self.scheduler.current_band();
        }
        if self.scheduler.state(id) == Some(VcpuState::Sleep)
            && vcpu.vgic.has_deliverable(
                &guest.gic,
                lines,
                vcpu.interface.vmcr(),
                vcpu.interface.running_priority(),
            )
        {
            // It ran out while the vCPU was being saved.
            self.scheduler.wake(id);
            self.must_decide = true;
        }
        self.kick_all(guest_id, kick);
    }

    /// Puts a vCPU's registers on the core, which holds none; unless a more urgent one turns up.
    #[inline(always)]
    fn load(&mut self, id: VcpuId) {
        let Some(vcpu) = self.vcpus[id.index()].as_mut() else {
            return;
        };
        let guest = self.machine.guest(vcpu.guest);
        // Of a vCPU that was saved only to begin anew.
        self.alarm_changed |= self.deadlines.clear(id);
        cpu::set_stage2(guest.vttbr);
        let last = &mut self.last_of_guest[vcpu.guest.index()];
        if *last != Some(id) {
            *last = Some(id);
            cpu::forget_guest_translations();
        }
        vcpu.system.restore();
        vcpu.floating_point.restore();
        // The last look: a timer that is due would show from here on.
        if self.overtaken() {
            return;
        }
        let Some(vcpu) = self.vcpus[id.index()].as_mut() else {
            return;
        };
        vcpu.interface.restore();
        vcpu.timers.restore();
        self.loaded = Some(id);
        if self.keeps_kernels_off {
            self.stop_catching();
        }
        let Some(vcpu) = self.vcpus[id.index()].as_mut() else {
            return;
        };
        let mut gic = LoadedGic::new(self.machine, self.core, vcpu.guest, self.list_registers);
        let guest_id = vcpu.guest;
        let kick = vcpu.vgic.load(&guest.gic, &mut gic);
        self.interrupts_changed = false;
        self.kick_all(guest_id, kick);
    }

    /// The vCPU with this id, if it is on this core.
    pub(super) fn vcpu(&self, id: VcpuId) -> Option<&crate::vcpu::Vcpu> {
        self.vcpus.get(id.index())?.as_deref()
    }
}
