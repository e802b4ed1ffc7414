// SPDX-License-Identifier: MIT OR Apache-2.0
//! The platform of a core for `core/src/migration`, and the costs of its steps.

use crate::powering::{RT_GUEST, SMP_GUEST};
use crate::world::{RT, Token, World};
use spumone_config::types::{PcpuId, VcpuId};
use spumone_core::migration::{
    Candidate, Catch, Claim, Delivery, Fetcher, Platform, Sample, Saved, Shared, Taken, TracePoint,
    Verdict,
};
use spumone_core::schedule::{Band, Ticks};
use spumone_core::sets::VcpuSet;
use spumone_core::vgic::Doorbell;

/// One core's hardware, and its time.
#[derive(Debug)]
pub(super) struct Hardware {
    pub(super) core: PcpuId,
    /// The loaded vCPU.
    pub(super) loaded: Option<VcpuId>,
    /// The priority mask: the vCPUs whose interrupts it does not hold back; bit n for vCPU n.
    pub(super) mask: u32,
    /// When the alarm expires.
    pub(super) alarm: Ticks,
    /// When the current step began.
    pub(super) begun: Ticks,
    /// Instructions of the current step.
    pub(super) spent: u64,
    /// The core is at EL2 until this time.
    pub(super) busy_until: Ticks,
    /// When the next interrupt of the storm is pending; [`Ticks::NEVER`]: there is no storm here.
    pub(super) storm_at: Ticks,
}

impl Hardware {
    /// A core at time 0.
    pub(super) fn new(core: PcpuId, storm_at: Ticks) -> Self {
        Self {
            core,
            loaded: None,
            mask: u32::MAX,
            alarm: Ticks::NEVER,
            begun: Ticks(0),
            spent: 0,
            busy_until: Ticks(0),
            storm_at,
        }
    }

    pub(super) fn begin_step(&mut self, now: Ticks) {
        self.begun = now;
        self.spent = 0;
    }

    /// The current time within the step.
    pub(super) fn now(&self) -> Ticks {
        Ticks(self.begun.0 + self.spent)
    }

    pub(super) fn spend(&mut self, instructions: u64) {
        self.spent += instructions;
    }
}

/// A core that executes a step.
pub(super) struct Core<'a> {
    hardware: &'a mut Hardware,
    world: &'a mut World,
}

impl<'a> Core<'a> {
    pub(super) fn new(hardware: &'a mut Hardware, world: &'a mut World) -> Self {
        Self { hardware, world }
    }
}

impl Platform for Core<'_> {
    type Token = Token;

    fn shared(&self) -> &Shared {
        &self.world.shared
    }

    fn doorbell(&self, id: VcpuId) -> Option<&Doorbell> {
        self.world.doorbells.get(id.index())
    }

    fn guest_runs(&self, _: VcpuId) -> bool {
        true
    }

    fn verdict(&mut self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        self.world.counters.candidates += 1;
        self.hardware.spend(self.world.costs.candidate);
        self.world.deciding.verdict(fetcher, candidate)
    }

    fn now(&self) -> Ticks {
        self.hardware.now()
    }

    fn set_alarm(&mut self, at: Ticks) {
        self.hardware.alarm = at;
    }

    fn set_priority_mask(&mut self, band: Option<Band>) {
        self.hardware.mask = self.world.at_least(band);
    }

    fn is_interrupted(&self) -> bool {
        self.hardware.interrupt_pending(self.world)
    }

    fn take_interrupt(&mut self, _: Option<&mut Token>) -> Taken {
        self.hardware.take_interrupt(self.world)
    }

    fn deliver(&mut self, _: &mut Token, _: Delivery) -> VcpuSet {
        // The interrupt is signalled at the next entry.
        VcpuSet::EMPTY
    }

    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.hardware.spend(self.world.costs.kick);
        self.world.kick(core, id, self.hardware.now());
    }

    fn route_devices(&mut self, _: &Token) {}

    fn store_token(&mut self, token: Token) {
        self.hardware.spend(self.world.costs.park);
        self.world.store_token(token);
    }

    fn take_token(&mut self, claim: Claim) -> Option<Token> {
        self.world.take_token(claim.vcpu())
    }

    fn load_registers(&mut self, _: &mut Token) {
        self.world.counters.switches += 1;
        self.hardware.spend(self.world.costs.load);
    }

    fn load_interrupts(&mut self, vcpu: &mut Token, _: Ticks) -> (VcpuSet, bool) {
        self.hardware.loaded = Some(vcpu.id);
        (VcpuSet::EMPTY, true)
    }

    fn save(&mut self, loaded: &mut Token, _: Option<Ticks>, is_asleep: bool, _: bool) -> Saved {
        self.hardware.spend(self.world.costs.save);
        self.hardware.loaded = None;
        let now = self.hardware.now();
        let vcpu = &self.world.vcpus[loaded.id.index()];
        let is_armed = vcpu.timer > now && vcpu.timer != Ticks::NEVER;
        Saved {
            deadline: is_armed.then_some(vcpu.timer),
            wakes: is_asleep && vcpu.has_pending(now),
            rung: VcpuSet::EMPTY,
        }
    }

    fn was_in_kernel(&self, vcpu: &Token) -> bool {
        self.world.vcpus[vcpu.id.index()].is_in_kernel()
    }

    fn next_timer(&self, vcpu: &Token) -> Option<Ticks> {
        let timer = self.world.vcpus[vcpu.id.index()].timer;
        (timer != Ticks::NEVER).then_some(timer)
    }

    fn loaded_timer(&self) -> Option<Ticks> {
        let timer = self.world.vcpus[self.hardware.loaded?.index()].timer;
        (timer != Ticks::NEVER).then_some(timer)
    }

    fn sample(&self, loaded: &Token) -> Sample {
        self.world.vcpus[loaded.id.index()].sample()
    }

    fn may_hold_lock(&self, loaded: &Token) -> bool {
        self.world.is_smp(loaded.id) && self.world.vcpus[loaded.id.index()].is_in_kernel()
    }

    fn set_catch(&mut self, loaded: &Token, catch: Catch) -> bool {
        match catch {
            Catch::Nothing => true,
            Catch::Exit => self.world.is_smp(loaded.id) && self.world.catches_exit,
            Catch::Entry => self.world.is_smp(loaded.id),
        }
    }

    fn next_chore(&mut self, _: Ticks, _: Option<Band>, _: bool) -> Ticks {
        Ticks::NEVER
    }

    fn is_wanted(&self, core: PcpuId) -> bool {
        self.world.is_wanted(core)
    }

    fn may_bring_core_back(&self) -> bool {
        self.world.may_bring_back()
    }

    fn waits_for_core(&mut self, id: VcpuId) -> bool {
        self.world.bring_back(id, self.hardware.now())
    }

    fn trace(&mut self, point: TracePoint) {
        let (counters, costs) = (&mut self.world.counters, &self.world.costs);
        let cost = match point {
            TracePoint::Decide => {
                counters.decisions += 1;
                costs.decide
            }
            TracePoint::Peeked(slots) => {
                counters.slots_read += u64::from(slots);
                costs.read_slot * u64::from(slots)
            }
            TracePoint::Take(_) => {
                counters.migrations += 1;
                costs.claim
            }
            TracePoint::LostClaim => {
                counters.lost_claims += 1;
                0
            }
            TracePoint::Send(_) => {
                counters.sent_away += 1;
                0
            }
            TracePoint::Checked(cores) => {
                counters.notifications += 1;
                counters.asked += u64::from(cores);
                costs.ask * u64::from(cores)
            }
            TracePoint::CheckedGang(cores) => costs.ask * u64::from(cores),
            TracePoint::Again => costs.decide,
            TracePoint::Off => {
                counters.off += 1;
                0
            }
            TracePoint::Dispatch(id, now) => {
                if let Some(power) = &mut self.world.power {
                    let core = self.hardware.core;
                    power.meter.works(self.hardware.begun, core.0, id.is_some());
                    let guest = id.map(|id| if id == RT { RT_GUEST } else { SMP_GUEST });
                    power.usages[core.index()].switch(guest, now);
                }
                0
            }
            TracePoint::Look
            | TracePoint::Taken
            | TracePoint::Park
            | TracePoint::Parked
            | TracePoint::Notified
            | TracePoint::Saved
            | TracePoint::On => 0,
        };
        self.hardware.spend(cost);
    }
}
