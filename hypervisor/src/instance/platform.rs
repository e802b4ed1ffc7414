// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core as `core/src/migration` uses it: that module decides, and this one carries out its decisions.

use super::loaded_gic::LoadedGic;
use crate::cpu::{self, change_stage2};
use crate::events::{Event, Ring};
use crate::hardware::mitigate;
use crate::machine::{Core, Machine};
use crate::mitigation;
use crate::steps::{mark, step};
use crate::sysreg::mrs;
use crate::timers;
use crate::vcpu::{Vcpu, VcpuToken};
use spumone_config::types::MAX_GUESTS;
use spumone_config::{GuestId, PcpuId, VcpuId};
use spumone_core::console::Attendance;
use spumone_core::mailbox::Port;
use spumone_core::migration::{
    Candidate, Catch, Claim, Delivery, Fetcher, Interrupted, Platform, Sample, Saved, Shared,
    Taken, TracePoint, Verdict, may_hold_lock,
};
use spumone_core::mitigation::Needs;
use spumone_core::orders::{Orders, Route};
use spumone_core::protect;
use spumone_core::psci::Phase;
use spumone_core::schedule::{Band, Ticks, priority_mask};
use spumone_core::sets::VcpuSet;
use spumone_core::vgic::{Doorbell, VcpuIndex};
use spumone_core::watchdog::Looks;

/// The state of one core besides its vCPUs.
// `repr(C)`: the large orders, which are used rarely, come last. Behind them, other fields would need longer addresses.
#[repr(C)]
pub(super) struct CorePlatform {
    pub(super) core: PcpuId,
    pub(super) machine: &'static Machine,
    /// The state of this core that others use.
    pub(super) own: &'static Core,
    /// The last events of this core.
    pub(super) events: &'static Ring,
    /// Mail to and from other cores.
    pub(super) port: Port<'static>,
    /// When this core works for the console.
    pub(super) attendance: Attendance,
    /// When this core, if it idles then, looks for protected memory that is due to be checked.
    look_at: Ticks,
    /// When this core, if it does not idle then, looks for protected memory that is late.
    pub(super) late_look_at: Ticks,
    /// The console UART's interrupt was taken. It is active until the UART is served.
    pub(super) is_console_interrupted: bool,
    /// For each guest, its vCPU that was loaded here last, and its `resets` then; the TLB may have that vCPU's
    /// translations.
    last_of_guest: [Option<(VcpuId, u32)>; MAX_GUESTS],
    /// Bit n: the TLB may have translations of guest n by the stage 2 tables of a catch, which has ended.
    caught_guests: u8,
    /// When this core looks after watchdogs.
    pub(super) looks: Looks,
    /// Number of list registers.
    list_registers: usize,
    /// What this core needs of its firmware.
    pub(super) needs: Needs,
    /// Whether it calls a workaround at switches between guests.
    forgets_branches: bool,
    /// The guest that has run here last, if it does.
    predicts_for: Option<GuestId>,
    /// Whether the core has the registers of deferred SErrors, which a switch then saves and loads.
    has_error_registers: bool,
    /// Whether this core has the governor.
    pub(super) has_governor: bool,
    /// When the governor's window ends; [`Ticks::NEVER`]: there is none.
    pub(super) window_end: Ticks,
    /// What this core is to do about the lives of guests.
    pub(super) orders: Orders<'static>,
}

impl CorePlatform {
    /// The platform of core `core`, the calling one.
    pub(super) fn new(
        core: PcpuId,
        machine: &'static Machine,
        port: Port<'static>,
        attendance: Attendance,
        list_registers: usize,
    ) -> Self {
        let has_watchdogs = machine
            .guests
            .iter()
            .any(|guest| guest.config.watchdog_s != 0);
        let looks = core == machine.console_core && has_watchdogs;
        let has_governor = core == machine.console_core && machine.power.described.is_some();
        let own = &machine.cores[core.index()];
        let needs = mitigation::set_up();
        own.needs.publish(needs);
        Self {
            looks: Looks::new(looks, timers::frequency() as u32),
            core,
            machine,
            own,
            events: Ring::of(core),
            port,
            attendance,
            look_at: Ticks(0),
            late_look_at: Ticks(0),
            is_console_interrupted: false,
            orders: Orders::new(machine.bands()),
            last_of_guest: [None; MAX_GUESTS],
            caught_guests: 0,
            list_registers,
            needs,
            forgets_branches: needs.at_switch().is_some(),
            predicts_for: None,
            has_error_registers: cpu::has_error_registers(),
            has_governor,
            // A request, or the first decision, begins the windows.
            window_end: match has_governor {
                true => Ticks(0),
                false => Ticks::NEVER,
            },
        }
    }

    /// The firmware has turned the core off and on again: what this has noted of its registers and its TLB does not hold any more.
    pub(super) fn begin_anew(&mut self) {
        mitigation::begin(self.needs);
        self.predicts_for = None;
        self.last_of_guest = [None; MAX_GUESTS];
        self.caught_guests = 0;
    }

    /// The core is about to run a vCPU of `guest`: if it needs that, it invalidates what other guests have trained in its branch predictors.
    #[cold]
    #[inline(never)]
    fn forget_branches(&mut self, guest: GuestId) {
        if self.predicts_for != Some(guest)
            && let Some(workaround) = self.needs.at_switch()
        {
            mitigate(workaround);
            self.predicts_for = Some(guest);
        }
    }

    /// The GIC for the virtual GIC of the loaded vCPU, which is a vCPU of `guest`.
    #[inline(always)]
    pub(super) fn loaded_gic(&self, guest: GuestId) -> LoadedGic {
        LoadedGic::new(self.machine, self.core, guest, self.list_registers)
    }

    /// When the alarm expires for the hypervisor's own work: that of the console, to look after watchdogs, to look for protected memory, and in the
    /// lowest band or while the core idles that of the governor.
    #[inline(always)]
    pub(super) fn own_chore(&mut self, now: Ticks, band: Option<Band>) -> Ticks {
        let mut due = self.attendance.due().min(self.looks.due());
        if is_low(band) {
            due = due.min(self.governs_at(now));
        }
        match self.machine.protected {
            0 => due,
            _ => due.min(self.next_look(now, band)),
        }
    }

    /// When the alarm expires so that a core that runs this band (`None`: it idles) looks for protected memory. A core that idles also looks
    /// whenever it is awake.
    #[inline(never)]
    fn next_look(&mut self, now: Ticks, band: Option<Band>) -> Ticks {
        match (band, self.machine.protected_band) {
            (None, _) => {
                if self.look_at <= now {
                    self.look_at = now.saturating_add(self.machine.look);
                }
                self.look_at
            }
            (Some(running), Some(guest)) if protect::is_checked_beside(guest, Some(running)) => {
                self.late_look_at
            }
            _ => Ticks::NEVER,
        }
    }

    /// Invalidates the TLB entries of `guest`, those of stage 2 as well if these have changed since it ran here. Its stage 2 tables must be in force.
    #[inline(always)]
    fn forget_translations(&mut self, guest: GuestId, changes_stage2: bool) {
        let guest = 1 << guest.0;
        match changes_stage2 || self.caught_guests & guest != 0 {
            true => cpu::forget_both_stages(),
            false => cpu::forget_guest_translations(),
        }
        self.caught_guests &= !guest;
    }

    /// Routes interrupts of a vCPU's devices to this core, where the vCPU is, and orders the rest.
    pub(super) fn route_from(&mut self, id: VcpuId, guest: GuestId, index: VcpuIndex, from: u8) {
        let shared = self.machine.guest(guest);
        if let Some(from) = self.machine.route_to(self.core, shared, index, from) {
            self.orders.route(id, Route { guest, from });
        }
    }
}

impl Platform for CorePlatform {
    type Token = VcpuToken;

    #[inline(always)]
    fn shared(&self) -> &Shared {
        &self.machine.shared
    }

    #[inline(always)]
    fn doorbell(&self, id: VcpuId) -> Option<&Doorbell> {
        let vcpu = self.machine.vcpu(id)?;
        Some(vcpu.guest.gic.doorbell(vcpu.index))
    }

    fn guest_runs(&self, id: VcpuId) -> bool {
        let vcpu = self.machine.vcpu(id);
        vcpu.is_some_and(|it| it.guest.lifecycle.now().0 == Phase::Running)
    }

    fn verdict(&mut self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        self.machine.policy.verdict(fetcher, candidate)
    }

    #[inline(always)]
    fn now(&self) -> Ticks {
        timers::now()
    }

    #[inline(always)]
    fn set_alarm(&mut self, at: Ticks) {
        timers::set_alarm(at);
    }

    #[inline(always)]
    fn set_priority_mask(&mut self, band: Option<Band>) {
        let mask = priority_mask(self.machine.interrupt_priorities, band);
        self.machine.gic.set_priority_mask(mask.0);
    }

    #[inline(always)]
    fn is_interrupted(&self) -> bool {
        cpu::interrupt_pending()
    }

    #[inline(always)]
    fn take_interrupt(&mut self, loaded: Option<&mut VcpuToken>) -> Taken {
        self.take(loaded)
    }

    #[inline(always)]
    fn deliver(&mut self, loaded: &mut VcpuToken, what: Delivery) -> VcpuSet {
        let guest = loaded.shared;
        let mut gic = self.loaded_gic(loaded.guest);
        let vgic = &mut loaded.vgic;
        let rung = match what {
            Delivery::Doorbell => vgic.kicked(&guest.gic, &mut gic),
            Delivery::Timer(timer) => vgic.timer_fired(&guest.gic, timer, &mut gic),
            Delivery::LateTimer(timer) => {
                vgic.timer_fired_late(timer);
                return VcpuSet::EMPTY;
            }
            Delivery::All => vgic.synchronize(&guest.gic, &mut gic),
        };
        guest.ids_of(rung)
    }

    #[inline(always)]
    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.machine.kick(core, id);
    }

    #[inline(always)]
    fn route_devices(&mut self, vcpu: &VcpuToken) {
        if !vcpu.shared.config.interrupts.is_empty() {
            self.route_from(vcpu.id(), vcpu.guest, vcpu.index, 0);
        }
    }

    #[inline(always)]
    fn store_token(&mut self, token: VcpuToken) {
        self.machine.parked.store(token);
    }

    #[inline(always)]
    fn take_token(&mut self, claim: Claim) -> Option<VcpuToken> {
        self.machine.parked.take(claim)
    }

    #[inline(always)]
    fn load_registers(&mut self, vcpu: &mut VcpuToken) {
        step!(Load);
        if self.forgets_branches {
            self.forget_branches(vcpu.guest);
        }
        cpu::set_stage2(vcpu.shared.stage2.all);
        let last = &mut self.last_of_guest[vcpu.guest.index()];
        let own = Some((vcpu.id(), vcpu.resets));
        if *last != own {
            *last = own;
            // A guest that runs from local memory begins its life without pages.
            self.forget_translations(vcpu.guest, vcpu.paging.is_some());
        }
        vcpu.system.restore();
        if self.has_error_registers {
            vcpu.system.errors.restore();
        }
        vcpu.floating_point.restore();
    }

    #[inline(always)]
    fn load_interrupts(&mut self, vcpu: &mut VcpuToken, since: Ticks) -> (VcpuSet, bool) {
        vcpu.interface.restore();
        vcpu.timers.restore();
        let guest = vcpu.shared;
        let mut gic = self.loaded_gic(vcpu.guest);
        let (rung, is_complete) = vcpu.vgic.load(&guest.gic, &mut gic);
        if let Some(stolen) = vcpu.stolen()
            && let Some(sum) = stolen.runs(since)
        {
            guest.publish_stolen(vcpu.index, sum);
        }
        step!(Loaded);
        (guest.ids_of(rung), is_complete)
    }

    #[inline(always)]
    fn lists_many(&self, loaded: &VcpuToken) -> bool {
        loaded.vgic.lists_many()
    }

    #[inline(always)]
    fn take_back(&mut self, loaded: &mut VcpuToken, is_urgent: bool) -> (VcpuSet, bool) {
        let guest = loaded.shared;
        let mut gic = self.loaded_gic(loaded.guest);
        if is_urgent {
            loaded.vgic.copy_lists(&mut gic);
            return (VcpuSet::EMPTY, true);
        }
        let (rung, is_done) = loaded.vgic.take_back(&guest.gic, &mut gic);
        (guest.ids_of(rung), is_done)
    }

    #[inline(always)]
    fn save(
        &mut self,
        loaded: &mut VcpuToken,
        ended: Option<Ticks>,
        is_asleep: bool,
        is_urgent: bool,
    ) -> Saved {
        step!(Save);
        let guest = loaded.shared;
        let mut gic = self.loaded_gic(loaded.guest);
        let rung = loaded.vgic.unload(&guest.gic, &mut gic);
        loaded.interface.save();
        loaded.timers.save();
        loaded.system.save();
        if self.has_error_registers {
            loaded.system.errors.save();
        }
        loaded.floating_point.save();
        let now = timers::now();
        let saved = Saved {
            deadline: loaded.timers.deadline_after(now),
            wakes: is_asleep && wakes(loaded, now, is_urgent),
            rung: guest.ids_of(rung),
        };
        if let Some(stolen) = loaded.stolen() {
            stolen.waits(match is_asleep && !saved.wakes {
                true => saved.deadline.unwrap_or(Ticks::NEVER),
                false => ended.unwrap_or(now),
            });
        }
        saved
    }

    #[inline(always)]
    fn was_in_kernel(&self, vcpu: &VcpuToken) -> bool {
        // A vCPU that is to start does so in its kernel; its registers are still those of before.
        vcpu.resume.is_some() || vcpu.registers.is_in_kernel()
    }

    fn next_timer(&self, vcpu: &VcpuToken) -> Option<Ticks> {
        vcpu.timers.first_deadline()
    }

    #[inline(always)]
    fn loaded_timer(&self) -> Option<Ticks> {
        timers::first_live_deadline()
    }

    #[inline(always)]
    fn sample(&self, loaded: &VcpuToken) -> Sample {
        Sample {
            in_kernel: loaded.registers.is_in_kernel(),
            pc: loaded.registers.pc,
            stack: mrs!(SP_EL1),
        }
    }

    fn may_hold_lock(&self, loaded: &VcpuToken) -> bool {
        let guest = loaded.shared;
        let seen = Interrupted {
            in_kernel: loaded.registers.is_in_kernel(),
            masks_interrupts: loaded.registers.masks_interrupts(),
        };
        let preempt_count = guest.config.preempt_count.map(|offset| {
            // The guest controls the address; `read_word` reads its own memory only.
            move || {
                let current: u64 = mrs!(SP_EL0);
                guest.read_word(current.wrapping_add(u64::from(offset)))
            }
        });
        guest.vcpus.len() > 1 && may_hold_lock(seen, preempt_count)
    }

    #[inline(never)]
    fn set_catch(&mut self, loaded: &VcpuToken, catch: Catch) -> bool {
        let guest = loaded.shared;
        let tables = match catch {
            Catch::Nothing => Some(guest.stage2.all),
            Catch::Exit => guest.stage2.of_kernel,
            Catch::Entry => guest.stage2.of_programs,
        };
        if let Some(tables) = tables {
            change_stage2(tables);
        }
        tables.is_some()
    }

    #[inline(always)]
    fn end_catch(&mut self, saved: &VcpuToken) {
        self.caught_guests |= 1 << saved.guest.0;
        self.last_of_guest[saved.guest.index()] = None;
    }

    #[inline(always)]
    fn next_chore(&mut self, now: Ticks, band: Option<Band>, defers: bool) -> Ticks {
        match defers {
            true => self.attendance.put_off(now),
            false => self.attendance.decided(now, is_low(band)),
        }
        match self.orders.are_due(band) {
            true => now,
            // While a preemption is deferred, nothing else is done.
            false if defers => self.attendance.due(),
            false => self.own_chore(now, band),
        }
    }

    #[inline(always)]
    fn is_wanted(&self, core: PcpuId) -> bool {
        self.machine.power.wish.wants(core)
    }

    #[inline(always)]
    fn may_bring_core_back(&self) -> bool {
        self.machine.power.may_bring_back()
    }

    fn waits_for_core(&mut self, id: VcpuId) -> bool {
        self.bring_core_back(id)
    }

    #[inline(always)]
    fn trace(&mut self, point: TracePoint) {
        match point {
            TracePoint::Look => step!(Look),
            TracePoint::Take(id) => {
                step!(Take);
                self.events.note(Event::Take, u64::from(id.0));
            }
            TracePoint::Taken => step!(Taken),
            TracePoint::Park => step!(Park),
            TracePoint::Parked => step!(Parked),
            TracePoint::Send(id) => self.events.note(Event::Send, u64::from(id.0)),
            TracePoint::Notified => step!(Notified),
            TracePoint::Off => mark!(CoreOff),
            TracePoint::On => mark!(CoreOn),
            TracePoint::Dispatch(Some(id), now) => {
                self.events.note(Event::Dispatch, u64::from(id.0));
                let guest = self.machine.vcpu(id).map(|it| it.id);
                self.own.usage.switch(guest, now);
            }
            TracePoint::Dispatch(None, now) => {
                self.events.note(Event::Idle, 0);
                self.own.usage.switch(None, now);
            }
            TracePoint::Decide
            | TracePoint::Peeked(_)
            | TracePoint::LostClaim
            | TracePoint::Checked(_)
            | TracePoint::CheckedGang(_)
            | TracePoint::Again
            | TracePoint::Saved => {}
        }
    }
}

/// Whether an interrupt wakes a vCPU that slept and is saved at `now`. `is_urgent`: see [`Platform::save`].
// Not inlined: in the switch it would take registers from a vCPU that was preempted.
#[inline(never)]
fn wakes(vcpu: &Vcpu, now: Ticks, is_urgent: bool) -> bool {
    let lines = vcpu.timers.lines(now);
    if vcpu.resume.is_some() && lines != 0 {
        // A guest closes its CPU interface before a powerdown. Its timers wake it all the same.
        return true;
    }
    let interface = &vcpu.interface;
    let (vmcr, running) = (interface.vmcr(), interface.running_priority());
    let gic = &vcpu.shared.gic;
    vcpu.vgic
        .wakes(gic, lines, vmcr, running, is_urgent, cpu::interrupt_pending)
}

/// Whether the core idles, or runs the lowest band.
#[inline(always)]
pub(super) fn is_low(band: Option<Band>) -> bool {
    band.is_none_or(|band| band == Band::LOWEST)
}
