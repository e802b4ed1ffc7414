//! vCPUs change cores: parked when they leave this one, taken where they are wanted.
//!
//! A vCPU of a guest that has several cores is parked when it does not run and its registers are saved, if the policy moves
//! vCPUs at all; at once for an equal, after a while for a more urgent one. What this core has parked stays in its run queue, and is claimed when it is dispatched; if another core was
//! faster, it is not here any more.

use super::Instance;
use super::departure::Catch;
use crate::events::{Event, note};
use crate::steps::step;
use crate::sysreg::mrs;
use crate::timers::now;
use spumone_config::types::MAX_VCPUS;
use spumone_config::{PcpuId, VcpuId};
use spumone_core::migration::{
    Candidate, Choice, Glance, Here, Level, Parked, Rest, Running, Sample, whom_to_tell,
};
use spumone_core::psci::Phase;
use spumone_core::schedule::{Decision, Ticks, VcpuState};
use spumone_core::vgic::VcpuIndex;

impl Instance {
    /// Whether a vCPU changes cores, this one among them.
    #[inline(always)]
    pub(super) fn moves(&self, id: VcpuId) -> bool {
        self.moving >> (id.0 & 31) & 1 != 0
    }

    /// What is parked of a vCPU.
    #[inline(always)]
    pub(super) fn parked(&self, id: VcpuId) -> Option<Parked> {
        self.machine.parking.get(id.index())?.slot.look()
    }

    /// Whether this core has parked a vCPU, and nobody has taken it.
    pub(super) fn hosts(&self, id: VcpuId) -> bool {
        self.parked(id).is_some_and(|it| it.host == self.core)
    }

    /// Whether a vCPU is on this core, or parked by it.
    pub(super) fn has(&self, id: VcpuId) -> bool {
        self.vcpu(id).is_some() || self.hosts(id)
    }

    /// Sees to it that this core has the token of a vCPU that it runs or has parked. Returns whether it does.
    #[inline(always)]
    pub(super) fn hold(&mut self, id: VcpuId) -> bool {
        if self.vcpu(id).is_some() {
            return true;
        }
        let claim = || {
            self.parked(id)
                .filter(|seen| seen.host == self.core)
                .and_then(|seen| self.machine.parking.get(id.index())?.claim(seen))
        };
        // It may be pressed between look and claim, once.
        let token = claim().or_else(claim);
        let Some(token) = token else {
            return false;
        };
        let band = token.band;
        self.vcpus[id.index()] = Some(token);
        let bit = 1 << id.0;
        self.has_parked &= !bit;
        if self.sent & bit != 0 {
            // It was sent away, and nobody has come.
            self.sent &= !bit;
            let admitted = self.scheduler.admit(id, band, VcpuState::Suspend);
            debug_assert!(admitted.is_ok(), "who is sent away leaves the run queue");
        }
        true
    }

    /// Sees to it that this core has the token of the vCPU that a decision lets run; decides again where another core was
    /// faster.
    #[inline(always)]
    pub(super) fn hold_current(&mut self, now: Ticks, mut decision: Decision) -> Decision {
        for _ in 0..MAX_VCPUS {
            match self.scheduler.current() {
                Some(id) if !self.hold(id) => {
                    let _ = self.scheduler.remove(id);
                    decision = self.scheduler.decide(now);
                }
                _ => break,
            }
        }
        decision
    }

    /// Parks a vCPU of this core that does not run and whose registers are saved, if it is one that moves.
    pub(super) fn park(&mut self, id: VcpuId) {
        if !self.moves(id) {
            return;
        }
        let Some(vcpu) = self.vcpu(id) else {
            return;
        };
        let rest = match self.scheduler.state(id) {
            Some(VcpuState::Suspend) if vcpu.registers.is_in_kernel() => Rest::InKernel,
            Some(VcpuState::Suspend) => Rest::Runnable,
            Some(VcpuState::Sleep) => Rest::Asleep,
            Some(VcpuState::Off) => Rest::Off,
            Some(VcpuState::Running) | None => return,
        };
        self.lay_down(id, rest);
    }

    /// Lays the token of a vCPU down where other cores may take it.
    pub(super) fn lay_down(&mut self, id: VcpuId, rest: Rest) {
        let Some(vcpu) = self.vcpu(id) else {
            return;
        };
        let (guest, index) = (vcpu.guest, vcpu.index);
        let parked = Parked {
            host: self.core,
            rest,
        };
        if let (Some(place), Some(token)) = (
            self.machine.parking.get(id.index()),
            self.vcpus[id.index()].take(),
        ) {
            place.park(token, parked, now());
            self.has_parked |= 1 << id.0;
        }
        let guest = self.machine.guest(guest);
        if rest == Rest::Asleep && !guest.gic.doorbell(index).is_silent() {
            // Who rang may not have seen it parked.
            self.wake(id);
        }
    }

    /// A vCPU that this core has parked could run now.
    pub(super) fn rouse(&self, id: VcpuId) {
        if let Some(place) = self.machine.parking.get(id.index()) {
            place.slot.rouse(self.core);
        }
    }

    /// A vCPU had to make room for another one, and is saved. For an equal, it is parked and another core is told at once; for
    /// a more urgent vCPU, only when that one has run for a while, so that it pays for nothing before, if the policy is patient.
    #[inline(always)]
    pub(super) fn give_up(&mut self, id: VcpuId) {
        if !self.moves(id) {
            return;
        }
        if self.is_cut_off_here(id) && self.patience > Ticks(0) {
            self.to_park |= 1 << id.0;
            return;
        }
        step!(Park);
        self.park(id);
        step!(Parked);
        if self.scheduler.state(id) == Some(VcpuState::Suspend) && self.hosts(id) {
            self.tell_others(id, true);
        }
    }

    /// Whether this core runs somebody more urgent than this vCPU.
    #[inline(always)]
    fn is_cut_off_here(&self, id: VcpuId) -> bool {
        let band = self.machine.bands.get(id.index());
        band.is_some_and(|&band| self.own.presence.is_above(band))
    }

    /// Parks vCPUs that were kept for the core to come back to them.
    fn park_kept(&mut self) {
        let mut left = core::mem::take(&mut self.to_park);
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            if self.loaded != Some(id) && self.running != Some(id) {
                step!(Park);
                self.park(id);
                step!(Parked);
            }
        }
    }

    /// Tells a core that a vCPU is parked here: an idle one; else, if it may be a busy one, one that runs nobody more
    /// urgent.
    pub(super) fn tell_others(&mut self, id: VcpuId, busy: bool) {
        let machine = self.machine;
        let Some((guest, &band)) = machine.owner(id).zip(machine.bands.get(id.index())) else {
            return;
        };
        let guest = machine.guest(guest);
        let is_program = self.parked(id).is_some_and(|it| it.rest == Rest::Runnable);
        let others = guest
            .cores_after(self.core)
            .filter(|&other| is_program || !machine.keeps_kernels_off(other))
            .filter_map(|other| Some((other, machine.cores.get(other.index())?.presence.level())));
        if let Some(core) = whom_to_tell(others, band, busy) {
            machine.kick(core, id);
            step!(Told);
        }
    }

    /// Looks what other cores have parked, and takes what the policy says. Returns whether there was something, so that time
    /// has passed; `None` if somebody wants the core at once, so that nothing was looked at.
    #[inline(always)]
    pub(super) fn look_for_work(&mut self, now: Ticks) -> Option<bool> {
        self.look_at = Ticks::NEVER;
        let top = Level::of(self.scheduler.highest_band());
        if top > self.machine.moving_level {
            return None;
        }
        if self.sent | self.strangers != 0 || self.conduct.restless.is_some() {
            self.see_off(now);
        }
        let top = Level::of(self.scheduler.highest_band());
        if top == Level::IDLE {
            // First published, then looked: who parks looks at who is idle afterwards.
            self.publish(Level::IDLE);
        }
        let mut elsewhere = 0;
        let mut left = self.moving;
        while left != 0 {
            let id = left.trailing_zeros() as usize;
            left &= left - 1;
            let concerns = match self.machine.parking[id % MAX_VCPUS].slot.glance(self.core) {
                Glance::Nothing => false,
                Glance::Runnable => true,
                // It is cared for, unless its host hears nothing.
                Glance::Waits(host) => {
                    let host = self.machine.cores.get(host.index());
                    host.zip(self.machine.bands.get(id))
                        .is_some_and(|(it, &band)| it.presence.is_above(band))
                }
            };
            elsewhere |= u32::from(concerns) << id;
        }
        let turn = self.scheduler.turn();
        let is_over = turn.is_some_and(|turn| turn.equal_waits && turn.quantum_end <= now);
        if elsewhere == 0 && !is_over {
            self.stop_catching();
            return Some(false);
        }
        self.choose(now, elsewhere, is_over);
        Some(true)
    }

    /// Takes what the policy says of these vCPUs, which other cores have parked. `is_over`: the running vCPU is to let go for
    /// one that is here.
    #[inline(never)]
    fn choose(&mut self, now: Ticks, mut elsewhere: u32, is_over: bool) {
        step!(Look);
        let turn = self.scheduler.turn();
        let here = Here {
            core: self.core,
            now,
            running: turn.map(|turn| Running {
                band: turn.band,
                since: turn.since,
                turn_end: turn.quantum_end,
            }),
            equal_waits: turn.map_or(self.scheduler.highest_band().is_some(), |turn| {
                turn.equal_waits
            }),
            keeps_kernels_off: self.keeps_kernels_off,
        };
        let mut choice = Choice::NOTHING;
        while elsewhere != 0 {
            let id = VcpuId(elsewhere.trailing_zeros() as u8);
            elsewhere &= elsewhere - 1;
            let Some(candidate) = self.candidate(id) else {
                continue;
            };
            let verdict = self.machine.policy.verdict(&here, &candidate);
            if choice.note(id, &candidate, verdict) {
                self.take(id, candidate.parked, now);
            }
        }
        self.look_at = self.look_at.min(choice.look_at);
        let must_let_go = is_over || choice.best.is_some_and(|it| it.swap);
        if must_let_go && let Some(until) = self.more_grace(now) {
            self.scheduler.extend_turn(until);
            self.look_at = self.look_at.min(until);
            self.catch(Catch::Exit);
            return;
        }
        self.stop_catching();
        if let Some(found) = choice.best
            && self.take(found.vcpu, found.parked, now)
        {
            if found.swap {
                self.scheduler.yield_current();
            }
            if let Some(id) = choice.left_over {
                self.tell_others(id, true);
            }
        }
    }

    /// A vCPU that another core has parked, of a guest that runs.
    fn candidate(&self, id: VcpuId) -> Option<Candidate> {
        let place = self.machine.parking.get(id.index())?;
        let parked = place.slot.look()?;
        if parked.host == self.core {
            return None;
        }
        if !self.guest_runs(id) {
            return None;
        }
        let home = self.machine.home(id)?;
        let band = *self.machine.bands.get(id.index())?;
        let host = self.machine.cores.get(parked.host.index())?;
        Some(Candidate {
            parked,
            band,
            home,
            since: place.slot.since(),
            is_cut_off: host.presence.is_above(band),
        })
    }

    /// Whether the guest of a vCPU runs. A core that has acknowledged the end of a life takes nothing of it any more.
    fn guest_runs(&self, id: VcpuId) -> bool {
        let guest = self.machine.owner(id).map(|it| self.machine.guest(it));
        guest.is_some_and(|it| it.lifecycle.now().0 == Phase::Running)
    }

    /// Whether the running vCPU, which is to let go, may run on for a while.
    fn more_grace(&mut self, now: Ticks) -> Option<Ticks> {
        let id = self.running.filter(|_| self.running == self.loaded)?;
        let registers = &self.vcpu(id)?.registers;
        let sample = Sample {
            in_kernel: registers.is_in_kernel(),
            pc: registers.pc,
            stack: mrs!(SP_EL1),
        };
        self.grace.more(now, sample)
    }

    /// Becomes the host of a vCPU that another core has parked. Returns whether it has: not if that core, or a third, was
    /// faster, or its guest does not run.
    pub(super) fn take(&mut self, id: VcpuId, seen: Parked, now: Ticks) -> bool {
        if !self.guest_runs(id) {
            return false;
        }
        let Some(token) = self
            .machine
            .parking
            .get(id.index())
            .and_then(|place| place.claim(seen))
        else {
            return false;
        };
        step!(Take);
        note(self.core, Event::Take, u64::from(id.0));
        let (guest, index, band) = (token.guest, token.index, token.band);
        // Whoever rings from here on kicks this core; what was rung before is seen when it is parked or loaded.
        let shared = self.machine.guest(guest);
        shared.gic.doorbell(index).settle(self.core);
        if !shared.config.interrupts.is_empty() {
            for physical in shared.gic.physical_spis_of(index) {
                self.machine.gic.route_spi(physical, self.own.mpidr);
            }
        }
        // Of an earlier stay.
        let _ = self.scheduler.remove(id);
        self.deadlines.clear(id);
        let mut state = match seen.rest {
            Rest::Runnable | Rest::InKernel | Rest::Sent => VcpuState::Suspend,
            Rest::Asleep => VcpuState::Sleep,
            Rest::Off => VcpuState::Off,
        };
        if state == VcpuState::Sleep {
            if token.timers.lines(now) != 0 {
                state = VcpuState::Suspend;
            } else if let Some(at) = token.timers.deadline_after(now) {
                self.deadlines.set(id, band, at);
            }
        }
        let admitted = self.scheduler.admit(id, band, state);
        debug_assert!(admitted.is_ok(), "a vCPU is on one core");
        self.vcpus[id.index()] = Some(token);
        let bit = 1 << id.0;
        self.sent &= !bit;
        self.stays &= !bit;
        if self.conduct.goes_home && self.at_home & bit == 0 {
            self.strangers |= bit;
        }
        self.alarm_changed = true;
        self.park(id);
        step!(Taken);
        true
    }

    /// An interrupt was rung, or a start is asked, for a vCPU whose host hears nothing because it runs somebody more urgent: this core
    /// takes it, if it may. Returns whether it did.
    pub(super) fn summon(&mut self, id: VcpuId, host: PcpuId) -> bool {
        let Some(&band) = self.machine.bands.get(id.index()) else {
            return false;
        };
        let is_cut_off = self
            .machine
            .cores
            .get(host.index())
            .is_some_and(|core| core.presence.is_above(band));
        if !is_cut_off || !self.moves(id) || self.machine.without.ipi_pull {
            return false;
        }
        let Some(seen) = self.parked(id) else {
            return false;
        };
        let served = match self.machine.parking.get(id.index()) {
            // Whoever takes it finds what was rung.
            Some(place) if seen.rest.is_runnable() => place.slot.press(seen),
            // Here it would be cut off too.
            _ if self.scheduler.current_band() > Some(band) => {
                self.tell_others(id, true);
                false
            }
            _ => self.take(id, seen, now()),
        };
        self.must_decide |= served;
        served
    }

    /// Tells others whom this core runs, if that has changed: a fence costs.
    #[inline(always)]
    pub(super) fn publish(&mut self, level: Level) {
        if self.own.presence.level() != level {
            self.own.presence.publish(level);
        }
    }

    /// After a decision: others learn whom this core runs, and of vCPUs that wait here and could run elsewhere.
    pub(super) fn offer(&mut self, now: Ticks) {
        let level = Level::of(self.scheduler.current_band());
        let before = self.own.presence.level();
        let has_changed = before != level;
        self.publish(level);
        if level <= self.machine.moving_floor {
            self.tell_at = Ticks::NEVER;
            if before > self.machine.moving_floor && self.conduct.goes_home {
                self.call_home();
            }
            if self.to_park != 0 {
                self.park_kept();
            }
            if self.has_parked != 0
                && level != Level::IDLE
                && let Some(id) = self.parked_here()
            {
                self.tell_others(id, false);
            }
        } else if has_changed {
            // If it sleeps again soon, nothing has happened.
            self.tell_at = self.tell_at.min(now.saturating_add(self.patience));
        } else if self.tell_at <= now {
            self.park_kept();
            self.tell_at = match self.parked_here() {
                Some(id) => {
                    self.tell_others(id, true);
                    // Whom it told may just have become as deaf as this one.
                    now.saturating_add(self.retell_after)
                }
                None => Ticks::NEVER,
            };
        }
    }

    /// A vCPU that this core has parked: one that could run if there is one; any, if the core hears nothing for it.
    fn parked_here(&mut self) -> Option<VcpuId> {
        let mut found = None;
        let mut left = self.has_parked;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            match self.parked(id) {
                Some(it) if it.host == self.core => {
                    if it.rest.is_runnable() {
                        return Some(id);
                    }
                    if self.scheduler.current_band() > self.scheduler.band(id) {
                        found = Some(id);
                    }
                }
                _ => self.has_parked &= !(1 << id.0),
            }
        }
        found
    }

    /// The core where a vCPU is.
    pub(super) fn host(&self, id: VcpuId) -> Option<PcpuId> {
        let guest = self.machine.guest(self.machine.owner(id)?);
        let index = guest.vcpus.iter().position(|&it| it == id)?;
        Some(guest.gic.doorbell(VcpuIndex(index as u8)).location())
    }
}
