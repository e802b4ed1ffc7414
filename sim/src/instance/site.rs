// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs change cores: `core/src/migration` decides; this is what it needs of a core, with the costs.

use super::Instance;
use crate::world::{Token, World};
use spumone_config::types::{PcpuId, VcpuId};
use spumone_core::migration::{
    self, Candidate, Catch, CoreState, Here, Level, Parked, ParkingSlot, Platform, Presence,
    Sample, Taken, TracePoint, Verdict,
};
use spumone_core::schedule::{Band, Ticks};
use spumone_core::sets::CoreSet;

/// A core that executes a step.
pub(super) struct AtWork<'a> {
    own: &'a mut Instance,
    world: &'a mut World,
}

impl Instance {
    pub(super) fn at<'a>(&'a mut self, world: &'a mut World) -> AtWork<'a> {
        AtWork { own: self, world }
    }
}

impl Platform for AtWork<'_> {
    type Token = Token;

    fn local(&self) -> &CoreState<Token> {
        &self.own.local
    }

    fn local_mut(&mut self) -> &mut CoreState<Token> {
        &mut self.own.local
    }

    fn core(&self) -> PcpuId {
        self.own.core
    }

    fn now(&self) -> Ticks {
        self.own.now()
    }

    fn is_interrupted(&self) -> bool {
        self.own.interrupt_pending(self.world)
    }

    fn take_interrupt(&mut self) -> Taken {
        self.own.take_interrupt(self.world)
    }

    fn deliver_to_loaded(&mut self, id: VcpuId) {
        // The interrupt is signalled at the next entry.
        migration::wake(self, id);
    }

    fn set_priority_mask(&mut self, band: Option<Band>) {
        self.own.mask = self.world.at_least(band);
    }

    fn set_alarm(&mut self, _: Ticks) {}

    fn next_chore(&self) -> Ticks {
        Ticks::NEVER
    }

    fn decided(&mut self, _: Ticks) {}

    fn slot(&self, id: VcpuId) -> &ParkingSlot {
        &self.world.parking[id.index()].slot
    }

    fn store_parked(&mut self, _: VcpuId, token: Token, parked: Parked) {
        self.own.spend(self.world.costs.park);
        self.world.park(token, parked, self.own.now());
    }

    fn claim(&mut self, id: VcpuId, seen: Parked) -> Option<Token> {
        self.world.claim(id, seen)
    }

    fn own_presence(&self) -> &Presence {
        &self.world.cores[self.own.core.index()].presence
    }

    fn presence(&self, core: PcpuId) -> Option<&Presence> {
        Some(&self.world.cores.get(core.index())?.presence)
    }

    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.own.spend(self.world.costs.kick);
        self.world.kick(core, id, self.own.now());
    }

    fn band(&self, id: VcpuId) -> Option<Band> {
        (id.index() < self.world.vcpus.len()).then(|| self.world.band(id))
    }

    fn home(&self, id: VcpuId) -> Option<PcpuId> {
        Some(self.world.home(id))
    }

    fn host(&self, id: VcpuId) -> Option<PcpuId> {
        self.world.location.get(id.index()).copied()
    }

    fn cores_of(&self, _: VcpuId) -> CoreSet {
        CoreSet::from_bits(self.world.all_cores())
    }

    fn guest_runs(&self, _: VcpuId) -> bool {
        true
    }

    fn is_rung(&self, id: VcpuId) -> bool {
        self.world.vcpus[id.index()].bell != 0
    }

    fn highest_movable(&self) -> Level {
        self.world.highest_movable
    }

    fn lowest_movable(&self) -> Level {
        self.world.highest_movable
    }

    fn excludes_kernels(&self, core: PcpuId) -> bool {
        self.world.excludes_kernels(core)
    }

    fn gang(&self) -> Option<(Band, CoreSet)> {
        self.world.gang
    }

    fn verdict(&mut self, here: &Here, candidate: &Candidate) -> Verdict {
        self.world.counters.candidates += 1;
        self.own.spend(self.world.costs.candidate);
        self.world.deciding.verdict(here, candidate)
    }

    fn was_in_kernel(&self, token: &Token) -> bool {
        self.world.vcpus[token.id.index()].is_in_kernel()
    }

    fn next_timer(&self, token: &Token, _: Ticks) -> Option<Ticks> {
        let timer = self.world.vcpus[token.id.index()].timer;
        (timer != Ticks::NEVER).then_some(timer)
    }

    fn settle(&mut self, token: &Token) {
        self.world.location[token.id.index()] = self.own.core;
    }

    fn save_loaded(&mut self) {
        self.own.save_loaded(self.world);
    }

    fn sample(&self, id: VcpuId) -> Option<Sample> {
        Some(self.world.vcpus[id.index()].sample())
    }

    fn may_hold_lock(&self, id: VcpuId) -> bool {
        self.world.is_smp(id) && self.world.vcpus[id.index()].is_in_kernel()
    }

    fn set_catch(&mut self, catch: Catch) -> bool {
        let Some(id) = self.own.local.loaded else {
            return false;
        };
        match catch {
            Catch::Nothing => true,
            Catch::Exit => self.world.is_smp(id) && self.world.catches_exit,
            Catch::Entry => self.world.is_smp(id),
        }
    }

    fn trace(&mut self, mark: TracePoint) {
        let (counters, costs) = (&mut self.world.counters, &self.world.costs);
        let cost = match mark {
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
            TracePoint::Look
            | TracePoint::Taken
            | TracePoint::Park
            | TracePoint::Parked
            | TracePoint::Notified
            | TracePoint::Dispatch(_) => 0,
        };
        self.own.spend(cost);
    }
}
