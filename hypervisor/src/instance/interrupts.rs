// SPDX-License-Identifier: MIT OR Apache-2.0
//! Physical interrupts: taken here, given to the vCPU they are for.

use super::Instance;
use crate::console;
use crate::cpu;
use crate::epitaph::{self, fatal};
use crate::events::{Event, note};
use crate::gic::{
    ALARM, MAINTENANCE, PHYSICAL_TIMER, VIRTUAL_TIMER, read_list_register, write_list_register,
};
use crate::hardware::{halt, isb, system_off};
use crate::machine::{Destination, Machine};
use crate::sysreg::{mrs, msr};
use crate::timers;
use spumone_config::types::MAX_PCPUS;
use spumone_config::{GuestId, IntId, PcpuId, VcpuId};
use spumone_core::mailbox::{CAPACITY, Message};
use spumone_core::migration::{self, Taken};
use spumone_core::psci::Phase;
use spumone_core::schedule::{Ticks, VcpuState};
use spumone_core::vgic::{ListRegister, PhysicalGic, VcpuIndex, VcpuSet, running_priority};

/// More messages than all boxes to one core can hold.
const MAX_MAIL: usize = (CAPACITY + 1) * MAX_PCPUS;

/// The machine's GIC as the virtual GIC of the loaded vCPU uses it.
pub(super) struct LoadedGic {
    machine: &'static Machine,
    core: PcpuId,
    guest: GuestId,
    list_registers: usize,
}

impl LoadedGic {
    pub(super) fn new(
        machine: &'static Machine,
        core: PcpuId,
        guest: GuestId,
        list_registers: usize,
    ) -> Self {
        Self {
            machine,
            core,
            guest,
            list_registers,
        }
    }
}

impl PhysicalGic for LoadedGic {
    #[inline(always)]
    fn list_registers(&self) -> usize {
        self.list_registers
    }

    #[inline(always)]
    fn read_lr(&self, index: usize) -> ListRegister {
        ListRegister(read_list_register(index))
    }

    #[inline(always)]
    fn write_lr(&mut self, index: usize, value: ListRegister) {
        write_list_register(index, value.0);
    }

    #[inline(always)]
    fn empty_lrs(&self) -> u32 {
        // Status follows writes of list registers after a context synchronization only.
        isb();
        mrs!(ICH_ELRSR_EL2) as u32
    }

    #[inline(always)]
    fn read_hcr(&self) -> u64 {
        isb();
        mrs!(ICH_HCR_EL2)
    }

    #[inline(always)]
    fn write_hcr(&mut self, value: u64) {
        msr!(ICH_HCR_EL2, value);
    }

    #[inline(always)]
    fn vmcr(&self) -> u64 {
        mrs!(ICH_VMCR_EL2)
    }

    #[inline(always)]
    fn lines(&self) -> u32 {
        timers::live_lines()
    }

    fn set_enabled(&mut self, physical: IntId, enabled: bool) {
        self.machine.gic.set_spi_enabled(physical, enabled);
    }

    fn set_route(&mut self, physical: IntId, vcpu: VcpuIndex) {
        let core = self.machine.guest(self.guest).gic.doorbell(vcpu).location();
        if let Some(core) = self.machine.cores.get(core.index()) {
            self.machine.gic.route_spi(physical, core.mpidr);
        }
    }

    fn is_pending(&self, physical: IntId) -> bool {
        self.machine.gic.is_spi_pending(physical)
    }

    fn clear_pending(&mut self, physical: IntId) {
        self.machine.gic.clear_spi_pending(physical);
    }

    fn set_active(&mut self, physical: IntId, active: bool) {
        self.machine.gic.set_active(self.core, physical, active);
    }
}

impl Instance {
    /// The running vCPU `id` was interrupted. What is most frequent has a short way, and is not
    /// noted: its own timer, what other cores send, and the alarm.
    #[inline(always)]
    pub(super) fn interrupted(&mut self, id: VcpuId) {
        let Some(interrupt) = self.machine.gic.take() else {
            return;
        };
        if matches!(interrupt, VIRTUAL_TIMER | PHYSICAL_TIMER)
            && let Some(vcpu) = self.local.vcpus[id.index()].as_mut()
        {
            let mut gic = LoadedGic::new(self.machine, self.core, vcpu.guest, self.list_registers);
            if vcpu.vgic.timer_fired_again(interrupt, &mut gic) {
                return;
            }
        }
        // If another one waits, the guest will not get far.
        if interrupt.is_sgi() {
            self.sgi(interrupt);
        } else if interrupt == ALARM {
            self.silence_alarm();
            migration::alarm_rang(self);
        } else {
            note(self.core, Event::Interrupt, u64::from(interrupt.0));
            self.interrupt(interrupt);
        }
    }

    /// Takes one interrupt. The alarm is left to the caller.
    #[inline(always)]
    pub(super) fn take_interrupt(&mut self) -> Taken {
        match self.machine.gic.take() {
            None => Taken::Nothing,
            Some(ALARM) => {
                self.silence_alarm();
                Taken::Alarm
            }
            Some(interrupt) => {
                note(self.core, Event::Interrupt, u64::from(interrupt.0));
                self.interrupt(interrupt);
                Taken::Other
            }
        }
    }

    #[inline(never)]
    fn interrupt(&mut self, interrupt: IntId) {
        match interrupt {
            // Its deactivation is left to the guest, or to the virtual GIC.
            VIRTUAL_TIMER | PHYSICAL_TIMER => self.timer_fired(interrupt),
            IntId(0..16) => self.sgi(interrupt),
            MAINTENANCE => {
                self.refresh_interrupts();
                self.machine.gic.deactivate(interrupt);
            }
            _ => self.spi(interrupt),
        }
    }

    /// The alarm has rung: its line is lowered before the interrupt is ended.
    #[inline(always)]
    fn silence_alarm(&mut self) {
        timers::set_alarm(Ticks::NEVER);
        self.machine.gic.deactivate(ALARM);
    }

    /// Another core has sent something.
    #[inline(always)]
    fn sgi(&mut self, interrupt: IntId) {
        if epitaph::is_written() {
            // The core that died has sent this one.
            halt();
        }
        self.machine.gic.deactivate(interrupt);
        // What the sender wrote is looked for after the interrupt was taken, not before.
        isb();
        self.take_kicks();
        if self.port.has_mail() {
            self.read_mail();
        }
    }

    // Kept apart, so that the frequent ways above stay short.
    #[inline(never)]
    fn spi(&mut self, interrupt: IntId) {
        match self.machine.destinations.of(interrupt) {
            Destination::Guest(guest, number) => {
                self.device_interrupt(guest, number, interrupt);
            }
            Destination::Console => {
                self.console_interrupt();
                self.machine.gic.deactivate(interrupt);
            }
            Destination::Nobody => self.machine.gic.deactivate(interrupt),
        }
    }

    /// A timer of the loaded vCPU, which may be asleep while the core idles.
    fn timer_fired(&mut self, timer: IntId) {
        let Some(id) = self.local.loaded else {
            // No vCPU is loaded, so no timer can run: a late echo of one just saved.
            self.machine.gic.deactivate(timer);
            return;
        };
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        if self.local.scheduler.state(id) == Some(VcpuState::Suspend) {
            // On its way out, for somebody who shall not pay for this.
            vcpu.vgic.timer_fired_late(timer);
            self.interrupts_changed = true;
            return;
        }
        let (core, guest) = (self.core, vcpu.guest);
        let mut gic = LoadedGic::new(self.machine, core, guest, self.list_registers);
        let kick = vcpu
            .vgic
            .timer_fired(&self.machine.guest(guest).gic, timer, &mut gic);
        migration::wake(self, id);
        self.kick_all(guest, kick);
    }

    /// A passed-through interrupt: the guest's number `number` fired.
    fn device_interrupt(&mut self, guest: GuestId, number: IntId, physical: IntId) {
        let shared = self.machine.guest(guest);
        if shared.lifecycle.now().0 != Phase::Running {
            // One of a guest that is no more. Disabled before it is ended: the level of a device
            // that nobody has silenced yet would come again at once.
            self.machine.gic.set_spi_enabled(physical, false);
            self.machine.gic.deactivate(physical);
            return;
        }
        let kick = match self.loaded_of(guest) {
            Some(id) => match self.local.vcpus[id.index()].as_mut() {
                Some(vcpu) => {
                    let mut gic =
                        LoadedGic::new(self.machine, self.core, guest, self.list_registers);
                    let kick = vcpu.vgic.spi_arrived(&shared.gic, number, &mut gic);
                    migration::wake(self, id);
                    kick
                }
                None => VcpuSet::EMPTY,
            },
            None => shared.gic.spi_arrived(number),
        };
        self.kick_all(guest, kick);
    }

    /// The loaded vCPU, if it is one of `guest`.
    fn loaded_of(&self, guest: GuestId) -> Option<VcpuId> {
        let id = self.local.loaded?;
        (self.vcpu(id)?.guest == guest).then_some(id)
    }

    /// Kicks vCPUs of a guest wherever they are; their doorbells have been rung.
    #[inline(always)]
    pub(super) fn kick_all(&mut self, guest: GuestId, vcpus: VcpuSet) {
        if !vcpus.is_empty() {
            self.kick_each(guest, vcpus);
        }
    }

    fn kick_each(&mut self, guest: GuestId, vcpus: VcpuSet) {
        for index in vcpus.iter() {
            let shared = self.machine.guest(guest);
            let Some(id) = shared.vcpu(index) else {
                continue;
            };
            migration::notify_vcpu(self, id);
        }
    }

    /// The vCPUs that other cores have kicked.
    #[inline(always)]
    fn take_kicks(&mut self) {
        let mut kicked = self.own.take_kicked();
        while kicked != 0 {
            let id = VcpuId(kicked.trailing_zeros() as u8);
            kicked &= kicked - 1;
            migration::kicked(self, id);
        }
    }

    /// The loaded vCPU has something in its doorbell. If it is about to be switched out, that waits until it runs again, so
    /// that the vCPU which runs next does not pay for it.
    #[inline(always)]
    pub(super) fn deliver_to_loaded(&mut self, id: VcpuId) {
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        if self.local.scheduler.state(id) != Some(VcpuState::Running) {
            self.interrupts_changed = true;
            migration::wake(self, id);
            return;
        }
        let guest = vcpu.guest;
        let mut gic = LoadedGic::new(self.machine, self.core, guest, self.list_registers);
        let shared = &self.machine.guest(guest).gic;
        if vcpu.vgic.kicked_again(shared, &mut gic) {
            migration::wake(self, id);
            return;
        }
        let kick = vcpu.vgic.kicked(shared, &mut gic);
        migration::wake(self, id);
        // Kicks lead to kicks only where an SPI changes hands, which happens once a call.
        for index in kick.iter() {
            self.pass_on(guest, index);
        }
    }

    /// An SPI that came for one vCPU is another one's now. One that is here looks at its doorbell when it is next.
    fn pass_on(&mut self, guest: GuestId, index: VcpuIndex) {
        let shared = self.machine.guest(guest);
        let Some(id) = shared.vcpu(index) else {
            return;
        };
        let core = shared.gic.doorbell(index).location();
        if core == self.core {
            if self.local.loaded == Some(id) {
                self.interrupts_changed = true;
            }
            migration::wake(self, id);
        } else {
            migration::notify_vcpu(self, id);
        }
    }

    /// Brings the list registers of the loaded vCPU up to date.
    #[inline(never)]
    pub(super) fn refresh_interrupts(&mut self) {
        self.interrupts_changed = false;
        let Some(id) = self.local.loaded else {
            return;
        };
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        let guest = vcpu.guest;
        let mut gic = LoadedGic::new(self.machine, self.core, guest, self.list_registers);
        let kick = vcpu
            .vgic
            .synchronize(&self.machine.guest(guest).gic, &mut gic);
        migration::wake(self, id);
        self.kick_all(guest, kick);
    }

    /// The running vCPU waits for an interrupt. If none is there, it sleeps.
    pub(super) fn wait_for_interrupt(&mut self, id: VcpuId) {
        let Some(vcpu) = self.local.vcpus[id.index()].as_mut() else {
            return;
        };
        let guest = vcpu.guest;
        let shared = &self.machine.guest(guest).gic;
        let mut gic = LoadedGic::new(self.machine, self.core, guest, self.list_registers);
        let (quiet, mut kick) = vcpu.vgic.is_quiet(shared, &mut gic);
        if quiet {
            self.local.scheduler.sleep_current();
            self.local.must_decide = true;
            self.kick_all(guest, kick);
            return;
        }
        if cpu::interrupt_pending() {
            // A wait may end at any time.
            self.kick_all(guest, kick);
            return;
        }
        let lines = timers::live_lines();
        kick = kick.with(vcpu.vgic.fold(shared, &mut gic));
        let running = running_priority(mrs!(ICH_AP0R0_EL2) as u32, mrs!(ICH_AP1R0_EL2) as u32);
        let mut deliverable = vcpu
            .vgic
            .has_deliverable(shared, lines, gic.vmcr(), running);
        kick = kick.with(vcpu.vgic.fill(shared, &mut gic));
        // A timer that ran out meanwhile may be in a list register already: then no physical
        // interrupt will come and wake the vCPU.
        deliverable |= timers::live_lines() & !lines != 0;
        if !deliverable {
            self.local.scheduler.sleep_current();
            self.local.must_decide = true;
        }
        self.kick_all(guest, kick);
    }

    /// Reads the mail of this core.
    #[inline(never)]
    pub(super) fn read_mail(&mut self) {
        for _ in 0..MAX_MAIL {
            let Some(message) = self.port.receive() else {
                return;
            };
            note(self.core, Event::Mail, 0);
            match message {
                Message::StartVcpu {
                    vcpu,
                    entry_point,
                    generation,
                } => self.start_vcpu(vcpu, entry_point, generation),
                Message::StopGuest { guest, generation } => self.stop_own_vcpus(guest, generation),
                Message::RestartGuest { guest, .. } => self.begin_loading(guest),
                Message::Corrupt => fatal!("a mailbox holds what nobody wrote"),
            }
        }
    }
}

/// Stops the machine where the firmware can, after what was printed is out, for which it takes so many
/// microseconds at most.
pub(super) fn power_off(machine: &Machine, flush_us: u32) -> ! {
    // None counts any more.
    machine.gic.set_priority_mask(0);
    console::flush(Ticks::from_micros(flush_us, timers::frequency() as u32));
    system_off();
    halt()
}
