// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs change cores: `core/src/migration` decides, here is what it needs of this core.

use super::Instance;
use crate::cpu::{self, exchange_stage2};
use crate::events::{Event, note};
use crate::steps::step;
use crate::sysreg::mrs;
use crate::timers;
use crate::vcpu::VcpuToken;
use spumone_config::types::MAX_VCPUS;
use spumone_config::{PcpuId, VcpuId};
use spumone_core::migration::{
    Candidate, Catch, CoreState, Here, Interrupted, Level, Parked, ParkingSlot, Platform, Presence,
    Sample, Taken, TracePoint, Verdict, may_hold_lock,
};
use spumone_core::psci::Phase;
use spumone_core::schedule::{Band, Ticks, priority_mask};
use spumone_core::sets::CoreSet;

impl Platform for Instance {
    type Token = VcpuToken;

    #[inline(always)]
    fn local(&self) -> &CoreState<VcpuToken> {
        &self.local
    }

    #[inline(always)]
    fn local_mut(&mut self) -> &mut CoreState<VcpuToken> {
        &mut self.local
    }

    #[inline(always)]
    fn core(&self) -> PcpuId {
        self.core
    }

    #[inline(always)]
    fn now(&self) -> Ticks {
        timers::now()
    }

    #[inline(always)]
    fn is_interrupted(&self) -> bool {
        cpu::interrupt_pending()
    }

    #[inline(always)]
    fn take_interrupt(&mut self) -> Taken {
        Self::take_interrupt(self)
    }

    #[inline(always)]
    fn deliver_to_loaded(&mut self, id: VcpuId) {
        Self::deliver_to_loaded(self, id);
    }

    #[inline(always)]
    fn set_priority_mask(&mut self, band: Option<Band>) {
        let mask = priority_mask(self.machine.interrupt_priorities, band);
        self.machine.gic.set_priority_mask(mask.0);
    }

    #[inline(always)]
    fn set_alarm(&mut self, at: Ticks) {
        timers::set_alarm(at);
    }

    #[inline(always)]
    fn next_chore(&self) -> Ticks {
        self.attendance.due()
    }

    #[inline(always)]
    fn decided(&mut self, now: Ticks) {
        if self.local.defers_preemption() {
            self.attendance.put_off(now);
            return;
        }
        if let Some(id) = self.local.running {
            self.power_up_if_suspended(id);
        }
        self.keep_house(now, self.local.scheduler.current_band());
    }

    #[inline(always)]
    fn slot(&self, id: VcpuId) -> &ParkingSlot {
        &self.machine.parking[id.index() % MAX_VCPUS].slot
    }

    #[inline(always)]
    fn store_parked(&mut self, id: VcpuId, token: VcpuToken, parked: Parked) {
        let place = &self.machine.parking[id.index() % MAX_VCPUS];
        place.park(token, parked, timers::now());
    }

    #[inline(always)]
    fn claim(&mut self, id: VcpuId, seen: Parked) -> Option<VcpuToken> {
        self.machine.parking[id.index() % MAX_VCPUS].claim(seen)
    }

    #[inline(always)]
    fn own_presence(&self) -> &Presence {
        &self.own.presence
    }

    #[inline(always)]
    fn presence(&self, core: PcpuId) -> Option<&Presence> {
        Some(&self.machine.cores.get(core.index())?.presence)
    }

    #[inline(always)]
    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.machine.kick(core, id);
    }

    #[inline(always)]
    fn band(&self, id: VcpuId) -> Option<Band> {
        Some(self.machine.vcpu(id)?.band)
    }

    fn home(&self, id: VcpuId) -> Option<PcpuId> {
        Some(self.machine.vcpu(id)?.home)
    }

    fn host(&self, id: VcpuId) -> Option<PcpuId> {
        self.machine.host(id)
    }

    fn cores_of(&self, id: VcpuId) -> CoreSet {
        let vcpu = self.machine.vcpu(id);
        vcpu.map_or(CoreSet::EMPTY, |it| CoreSet::from_bits(it.guest.cores()))
    }

    fn guest_runs(&self, id: VcpuId) -> bool {
        let vcpu = self.machine.vcpu(id);
        vcpu.is_some_and(|it| it.guest.lifecycle.now().0 == Phase::Running)
    }

    fn is_rung(&self, id: VcpuId) -> bool {
        let vcpu = self.machine.vcpu(id);
        vcpu.is_some_and(|it| !it.guest.gic.doorbell(it.index).is_silent())
    }

    #[inline(always)]
    fn highest_movable(&self) -> Level {
        self.machine.highest_movable
    }

    #[inline(always)]
    fn lowest_movable(&self) -> Level {
        self.machine.lowest_movable
    }

    fn excludes_kernels(&self, core: PcpuId) -> bool {
        self.machine.excludes_kernels(core)
    }

    fn gang(&self) -> Option<(Band, CoreSet)> {
        self.machine.gang
    }

    fn verdict(&mut self, here: &Here, candidate: &Candidate) -> Verdict {
        self.machine.policy.verdict(here, candidate)
    }

    #[inline(always)]
    fn was_in_kernel(&self, token: &VcpuToken) -> bool {
        token.registers.is_in_kernel()
    }

    fn next_timer(&self, token: &VcpuToken, now: Ticks) -> Option<Ticks> {
        match token.timers.lines(now) {
            0 => token.timers.deadline_after(now),
            _ => Some(now),
        }
    }

    #[inline(always)]
    fn settle(&mut self, token: &VcpuToken) {
        let shared = token.shared;
        shared.gic.doorbell(token.index).settle(self.core);
        if !shared.config.interrupts.is_empty() {
            for physical in shared.gic.physical_spis_of(token.index) {
                self.machine.gic.route_spi(physical, self.own.mpidr);
            }
        }
    }

    #[inline(always)]
    fn save_loaded(&mut self) {
        Self::save_loaded(self);
    }

    #[inline(always)]
    fn sample(&self, id: VcpuId) -> Option<Sample> {
        let registers = &self.vcpu(id)?.registers;
        Some(Sample {
            in_kernel: registers.is_in_kernel(),
            pc: registers.pc,
            stack: mrs!(SP_EL1),
        })
    }

    fn may_hold_lock(&self, id: VcpuId) -> bool {
        let Some(vcpu) = self.vcpu(id) else {
            return false;
        };
        let guest = vcpu.shared;
        let seen = Interrupted {
            in_kernel: vcpu.registers.is_in_kernel(),
            masks_interrupts: vcpu.registers.masks_interrupts(),
        };
        let preempt_count = guest.config.preempt_count.map(|offset| {
            // The guest may have written anything there: only its own memory is read.
            move || {
                let current: u64 = mrs!(SP_EL0);
                guest.read_word(current.wrapping_add(u64::from(offset)))
            }
        });
        guest.vcpus.len() > 1 && may_hold_lock(seen, preempt_count)
    }

    #[inline(never)]
    fn set_catch(&mut self, catch: Catch) -> bool {
        let Some(vcpu) = self.local.loaded.and_then(|id| self.vcpu(id)) else {
            return false;
        };
        let guest = vcpu.shared;
        let tables = match catch {
            Catch::Nothing => Some(guest.vttbr),
            Catch::Exit => guest.vttbr_kernel,
            Catch::Entry => guest.vttbr_programs,
        };
        if let Some(tables) = tables {
            exchange_stage2(tables);
        }
        tables.is_some()
    }

    #[inline(always)]
    fn trace(&mut self, mark: TracePoint) {
        match mark {
            TracePoint::Look => step!(Look),
            TracePoint::Take(id) => {
                step!(Take);
                note(self.core, Event::Take, u64::from(id.0));
            }
            TracePoint::Taken => step!(Taken),
            TracePoint::Park => step!(Park),
            TracePoint::Parked => step!(Parked),
            TracePoint::Send(id) => note(self.core, Event::Send, u64::from(id.0)),
            TracePoint::Notified => step!(Notified),
            TracePoint::Dispatch(Some(id)) => note(self.core, Event::Dispatch, u64::from(id.0)),
            TracePoint::Dispatch(None) => note(self.core, Event::Idle, 0),
            TracePoint::Decide
            | TracePoint::Peeked(_)
            | TracePoint::Checked(_)
            | TracePoint::CheckedGang(_)
            | TracePoint::Again => {}
        }
    }
}
