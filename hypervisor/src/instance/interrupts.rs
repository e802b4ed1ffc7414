// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical interrupts: takes them, and delivers them to their vCPUs.
//!
//! `core/src/migration/interrupt.rs` decides which vCPU wakes, and which cores are kicked.

use super::Instance;
use super::platform::CorePlatform;
use crate::cpu;
use crate::epitaph;
use crate::events::Event;
use crate::gic::ALARM;
use crate::hardware::{halt, isb};
use crate::sysreg::mrs;
use crate::timers;
use crate::vcpu::VcpuToken;
use spumone_config::gic::{MAINTENANCE, PHYSICAL_TIMER, VIRTUAL_TIMER};
use spumone_config::packed::SpiOwner;
use spumone_config::{GuestId, IntId};
use spumone_core::migration::{self, Taken};
use spumone_core::psci::Phase;
use spumone_core::schedule::Ticks;
use spumone_core::sets::VcpuSet;
use spumone_core::vgic::{CpuInterface, PhysicalGic, VcpuIndexSet, running_priority};

impl CorePlatform {
    /// Takes the pending interrupt of the highest priority.
    #[inline(always)]
    pub(super) fn take(&mut self, loaded: Option<&mut VcpuToken>) -> Taken {
        match self.machine.gic.take() {
            None => Taken::Nothing,
            Some(ALARM) => {
                self.silence_alarm();
                Taken::Alarm
            }
            Some(interrupt) => {
                self.events.note(Event::Interrupt, u64::from(interrupt.0));
                self.acknowledged(interrupt, loaded)
            }
        }
    }

    /// Handles an acknowledged interrupt other than the alarm.
    #[inline(always)]
    fn acknowledged(&mut self, interrupt: IntId, loaded: Option<&mut VcpuToken>) -> Taken {
        match (interrupt, loaded) {
            // The guest deactivates it, or the virtual GIC does.
            (VIRTUAL_TIMER | PHYSICAL_TIMER, Some(_)) => Taken::Timer(interrupt),
            (_, loaded) => self.acknowledged_other(interrupt, loaded),
        }
    }

    #[inline(never)]
    fn acknowledged_other(&mut self, interrupt: IntId, loaded: Option<&mut VcpuToken>) -> Taken {
        match (interrupt, loaded) {
            // A timer that was saved after it had signalled its interrupt.
            (VIRTUAL_TIMER | PHYSICAL_TIMER, _) => {
                self.machine.gic.deactivate(interrupt);
                Taken::Other
            }
            (IntId(0..16), _) => {
                let kicks = self.sgi(interrupt);
                Taken::of_kicks(kicks, self.has_chore())
            }
            (MAINTENANCE, loaded) => {
                if let Some(vcpu) = loaded {
                    CpuInterface::hold_maintenance(&mut self.loaded_gic(vcpu.guest));
                }
                self.machine.gic.deactivate(interrupt);
                Taken::Maintenance
            }
            (_, loaded) => self.spi(interrupt, loaded),
        }
    }

    /// Handles the alarm: disarms it before its interrupt is deactivated.
    #[inline(always)]
    fn silence_alarm(&mut self) {
        timers::set_alarm(Ticks::NEVER);
        self.machine.gic.deactivate(ALARM);
    }

    /// Handles an SGI: another core has kicked this one, has sent mail, or has died. Returns the vCPUs for which it was kicked.
    #[inline(always)]
    fn sgi(&mut self, interrupt: IntId) -> VcpuSet {
        if epitaph::is_written() {
            // A core has died, and has sent this SGI.
            halt();
        }
        self.machine.gic.deactivate(interrupt);
        // The sender's writes are read after the acknowledge, not before it.
        isb();
        self.own.take_kicked(self.machine.kicked_by(interrupt))
    }

    /// For which vCPUs other cores have kicked this one, and what else they have asked it for.
    pub(super) fn kicks(&self) -> Taken {
        let kicks = self.own.take_kicked(VcpuSet::from_bits(u32::MAX));
        Taken::of_kicks(kicks, self.has_chore())
    }

    /// Whether other cores have asked this one for something else than to see to a vCPU.
    #[inline(always)]
    fn has_chore(&self) -> bool {
        // A core without the governor makes one test more only.
        self.port.has_mail() || self.has_governor && (self.is_asked() || self.turns_cores_on())
    }

    // Not inlined, to keep the frequent paths above short.
    #[inline(never)]
    fn spi(&mut self, interrupt: IntId, loaded: Option<&mut VcpuToken>) -> Taken {
        match self.machine.destinations.of(interrupt) {
            SpiOwner::Guest(guest, number) => {
                self.device_interrupt(guest, number, interrupt, loaded)
            }
            // The UART's line is high until the UART is served; the interrupt stays active until then.
            SpiOwner::Console => {
                self.is_console_interrupted = true;
                Taken::Chore
            }
            SpiOwner::Unowned => {
                self.machine.gic.deactivate(interrupt);
                Taken::Other
            }
        }
    }

    /// Handles a passed-through interrupt, which is `number` for the guest.
    fn device_interrupt(
        &mut self,
        guest: GuestId,
        number: IntId,
        physical: IntId,
        loaded: Option<&mut VcpuToken>,
    ) -> Taken {
        let shared = self.machine.guest(guest);
        if shared.lifecycle.now().0 != Phase::Running {
            // The guest's life is over. Disabled before it is deactivated: a level-sensitive interrupt of a device that
            // is not quiesced yet would be signalled again at once.
            self.machine.gic.set_spi_enabled(physical, false);
            self.machine.gic.deactivate(physical);
            return Taken::Other;
        }
        match loaded.filter(|vcpu| vcpu.guest == guest) {
            Some(vcpu) => {
                let mut gic = self.loaded_gic(guest);
                let rung = vcpu.vgic.spi_arrived(&shared.gic, number, &mut gic);
                Taken::Delivered(shared.ids_of(rung))
            }
            None => Taken::Rung(shared.ids_of(shared.gic.spi_arrived(number))),
        }
    }
}

/// What an exit by an interrupt has delivered to the running vCPU, if it has changed nothing else.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Delivered {
    Nothing,
    /// The interrupt of a timer of its own.
    Timer,
    /// An interrupt for which another core has kicked this one.
    Kick,
}

impl Instance {
    /// Takes all pending interrupts.
    pub(super) fn take_interrupts(&mut self) {
        migration::take_interrupts(&mut self.state, &mut self.platform);
    }

    /// Looks for interrupts if a decision follows.
    #[inline(always)]
    pub(super) fn look_before_decision(&mut self) {
        migration::look_before_decision(&mut self.state, &mut self.platform);
    }

    /// Handles an exit by an interrupt. The most frequent ones have fast paths, and are not recorded
    /// as events: SGIs of other cores, the vCPU's own timer if it fires again, and the alarm. Returns what is delivered and has changed nothing
    /// else, so that the vCPU can be entered again at once. Where its guest's devices have something to do, nothing is delivered that way.
    #[inline(always)]
    pub(super) fn interrupted(&mut self) -> Delivered {
        let Some(interrupt) = self.platform.machine.gic.take() else {
            return Delivered::Nothing;
        };
        if interrupt.is_sgi() {
            return self.kicked(interrupt);
        }
        if matches!(interrupt, VIRTUAL_TIMER | PHYSICAL_TIMER) {
            let vcpu = super::loaded(&mut self.state);
            let mut gic = self.platform.loaded_gic(vcpu.guest);
            if !vcpu.has_due() && vcpu.vgic.timer_fired_again(interrupt, &mut gic) {
                return Delivered::Timer;
            }
        }
        if interrupt == ALARM {
            self.platform.silence_alarm();
            migration::alarm_expired(&mut self.state, &mut self.platform);
        } else {
            self.interrupted_by_other(interrupt);
        }
        Delivered::Nothing
    }

    /// Handles an SGI that came while the running vCPU was in its guest. Returns what [`Self::interrupted`] does.
    // Not inlined: in the large loop of a core, its values would have no registers.
    #[inline(never)]
    fn kicked(&mut self, sgi: IntId) -> Delivered {
        let kicks = self.platform.sgi(sgi);
        let has_chore = self.platform.has_chore();
        if !has_chore {
            let delivers = |vcpu: &mut VcpuToken| {
                let guest = vcpu.shared;
                let mut gic = self.platform.loaded_gic(vcpu.guest);
                !vcpu.has_due() && vcpu.vgic.kicked_again(&guest.gic, &mut gic)
            };
            if migration::delivers_kick(&mut self.state, kicks, delivers) {
                return Delivered::Kick;
            }
        }
        self.handle_kicks(kicks, has_chore)
    }

    /// The rest of [`Self::kicked`].
    #[inline(never)]
    fn handle_kicks(&mut self, kicks: VcpuSet, has_chore: bool) -> Delivered {
        let taken = Taken::of_kicks(kicks, has_chore);
        migration::handle(&mut self.state, &mut self.platform, taken);
        Delivered::Nothing
    }

    #[inline(never)]
    fn interrupted_by_other(&mut self, interrupt: IntId) {
        self.platform
            .events
            .note(Event::Interrupt, u64::from(interrupt.0));
        let loaded = self.state.loaded_vcpu_mut();
        let taken = self.platform.acknowledged(interrupt, loaded);
        migration::handle(&mut self.state, &mut self.platform, taken);
        if matches!(taken, Taken::Timer(_)) {
            let attendance = &mut self.platform.attendance;
            attendance.timer_has_come(timers::first_live_deadline);
        }
    }

    /// Delivers interrupts to vCPUs of a guest whose doorbells have been rung, on whichever cores they are.
    #[inline(always)]
    pub(super) fn notify(&mut self, guest: GuestId, rung: VcpuIndexSet) {
        if !rung.is_empty() {
            let ids = self.platform.machine.guest(guest).ids_of(rung);
            migration::notify_vcpus(&mut self.state, &mut self.platform, ids);
        }
    }

    /// As [`Self::notify`], after work that takes long: if an interrupt is pending, the core takes it first.
    #[inline(always)]
    pub(super) fn notify_later(&mut self, guest: GuestId, rung: VcpuIndexSet) {
        if !rung.is_empty() {
            let ids = self.platform.machine.guest(guest).ids_of(rung);
            migration::notify_unless_interrupted(&mut self.state, &mut self.platform, ids);
        }
    }

    /// Handles WFI: the running vCPU [sleeps](migration::sleep), unless an interrupt is pending for it, or its guest's devices have something to do
    /// (`Guest::due`). The architecture allows a WFI to end at any time.
    #[inline(never)]
    pub(super) fn wait_for_interrupt(&mut self) {
        let vcpu = super::loaded(&mut self.state);
        // Frames were left because the vCPU had an interrupt to handle. It moves them before it sleeps: nothing else may wake it.
        if vcpu.has_due() {
            return;
        }
        let guest = vcpu.guest;
        let shared = &vcpu.shared.gic;
        let mut gic = self.platform.loaded_gic(guest);
        let (quiet, mut rung) = vcpu.vgic.is_quiet(shared, &mut gic);
        if quiet {
            migration::sleep(&mut self.state, &self.platform);
            self.notify(guest, rung);
            return;
        }
        if cpu::interrupt_pending() {
            self.notify(guest, rung);
            return;
        }
        let (deliverable, more) = self.has_deliverable();
        rung = rung.with(more);
        if !deliverable {
            migration::sleep(&mut self.state, &self.platform);
        }
        self.notify(guest, rung);
    }

    /// Whether the running vCPU has an interrupt that is signalled to it when it is entered and does not mask it. The answer is also yes if the
    /// core is interrupted before that is known. Also returns the vCPUs of its guest to notify.
    #[inline(always)]
    pub(super) fn has_deliverable(&mut self) -> (bool, VcpuIndexSet) {
        let vcpu = super::loaded(&mut self.state);
        let (guest, shared) = (vcpu.guest, &vcpu.shared.gic);
        let mut gic = self.platform.loaded_gic(guest);
        let lines = timers::live_lines();
        let (rung, is_done) = vcpu.vgic.take_back(shared, &mut gic);
        if !is_done {
            self.state.refresh_before_entry();
            return (true, rung);
        }
        let running = running_priority(mrs!(ICH_AP0R0_EL2) as u32, mrs!(ICH_AP1R0_EL2) as u32);
        let mut deliverable =
            vcpu.vgic
                .has_deliverable(shared, lines, gic.vmcr(), running, cpu::interrupt_pending);
        let rung = rung.with(vcpu.vgic.fill(shared, &mut gic));
        // A timer that has expired since `lines` was read may be in a list register already. Then no
        // physical interrupt would wake the vCPU.
        let missed = match vcpu.resume.is_some() {
            // A guest closes its CPU interface before a powerdown. Its timers wake it all the same.
            true => timers::live_lines(),
            false => timers::live_lines() & !lines,
        };
        deliverable |= missed != 0;
        (deliverable, rung)
    }
}
