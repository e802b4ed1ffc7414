//! vCPUs change cores: `hypervisor/src/instance/migration.rs`, function by function.

use super::Instance;
use super::departure::Catch;
use crate::time::us;
use crate::world::World;
use spumone_config::types::{MAX_VCPUS, PcpuId, VcpuId};
use spumone_core::migration::{
    Candidate, Choice, Glance, Here, Level, Parked, Rest, Running, whom_to_tell,
};
use spumone_core::schedule::{Decision, Ticks, VcpuState};

/// See `RETELL_US` of the hypervisor.
const RETELL_AFTER: Ticks = us(1_600);

impl Instance {
    pub(super) fn moves(&self, id: VcpuId) -> bool {
        self.moving >> (id.0 & 31) & 1 != 0
    }

    pub(super) fn parked(&self, w: &World, id: VcpuId) -> Option<Parked> {
        w.parking[id.index()].slot.look()
    }

    /// Whether this core has parked a vCPU, and nobody has taken it.
    pub(super) fn hosts(&self, w: &World, id: VcpuId) -> bool {
        self.parked(w, id).is_some_and(|it| it.host == self.core)
    }

    /// Whether a vCPU is on this core, or parked by it.
    pub(super) fn has(&self, w: &World, id: VcpuId) -> bool {
        self.vcpu(id).is_some() || self.hosts(w, id)
    }

    pub(super) fn hold(&mut self, w: &mut World, id: VcpuId) -> bool {
        if self.vcpu(id).is_some() {
            return true;
        }
        let own = self.parked(w, id).filter(|seen| seen.host == self.core);
        let token = own.and_then(|seen| w.claim(id, seen));
        let Some(token) = token else {
            return false;
        };
        let band = token.band;
        self.vcpus[id.index()] = Some(token);
        let bit = 1 << id.0;
        self.has_parked &= !bit;
        if self.sent & bit != 0 {
            self.sent &= !bit;
            let admitted = self.scheduler.admit(id, band, VcpuState::Suspend);
            debug_assert!(admitted.is_ok(), "who is sent away leaves the run queue");
        }
        true
    }

    pub(super) fn hold_current(
        &mut self,
        w: &mut World,
        now: Ticks,
        mut decision: Decision,
    ) -> Decision {
        for _ in 0..MAX_VCPUS {
            match self.scheduler.current() {
                Some(id) if !self.hold(w, id) => {
                    let _ = self.scheduler.remove(id);
                    self.spend(w.costs.decide);
                    decision = self.scheduler.decide(now);
                }
                _ => break,
            }
        }
        decision
    }

    pub(super) fn park(&mut self, w: &mut World, id: VcpuId) {
        if !self.moves(id) || self.vcpu(id).is_none() {
            return;
        }
        let rest = match self.scheduler.state(id) {
            Some(VcpuState::Suspend) if w.vcpus[id.index()].is_in_kernel() => Rest::InKernel,
            Some(VcpuState::Suspend) => Rest::Runnable,
            Some(VcpuState::Sleep) => Rest::Asleep,
            Some(VcpuState::Off) => Rest::Off,
            Some(VcpuState::Running) | None => return,
        };
        self.lay_down(w, id, rest);
    }

    /// Lays the token of a vCPU down where other cores may take it.
    pub(super) fn lay_down(&mut self, w: &mut World, id: VcpuId, rest: Rest) {
        let parked = Parked {
            host: self.core,
            rest,
        };
        self.spend(w.costs.park);
        if let Some(token) = self.vcpus[id.index()].take() {
            w.park(token, parked, self.now());
            self.has_parked |= 1 << id.0;
        }
        if rest == Rest::Asleep && w.vcpus[id.index()].bell != 0 {
            self.wake(w, id);
        }
    }

    /// A vCPU that this core has parked could run now.
    pub(super) fn rouse(&self, w: &World, id: VcpuId) {
        w.parking[id.index()].slot.rouse(self.core);
    }

    /// A vCPU had to make room for another one, and is saved.
    pub(super) fn give_up(&mut self, w: &mut World, id: VcpuId) {
        if !self.moves(id) {
            return;
        }
        if self.is_cut_off_here(w, id) && self.patience > Ticks(0) {
            self.to_park |= 1 << id.0;
            return;
        }
        self.park(w, id);
        if self.scheduler.state(id) == Some(VcpuState::Suspend) && self.hosts(w, id) {
            self.tell_others(w, id, true);
        }
    }

    /// Whether this core runs somebody more urgent than this vCPU.
    fn is_cut_off_here(&self, w: &World, id: VcpuId) -> bool {
        w.cores[self.core.index()].presence.is_above(w.band(id))
    }

    fn level(&self, w: &World, core: PcpuId) -> Level {
        w.cores[core.index()].presence.level()
    }

    fn park_kept(&mut self, w: &mut World) {
        let mut left = core::mem::take(&mut self.to_park);
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            if self.loaded != Some(id) {
                self.park(w, id);
            }
        }
    }

    pub(super) fn tell_others(&mut self, w: &mut World, id: VcpuId, busy: bool) {
        let count = w.cores.len() as u8;
        let is_program = self
            .parked(w, id)
            .is_some_and(|it| it.rest == Rest::Runnable);
        let mut asked = 0;
        let others = (1..count)
            .map(|step| PcpuId((self.core.0 + step) % count))
            .filter(|&other| is_program || !w.keeps_kernels_off(other))
            .inspect(|_| asked += 1)
            .map(|other| (other, w.cores[other.index()].presence.level()));
        let found = whom_to_tell(others, w.band(id), busy);
        w.counters.tellings += 1;
        w.counters.asked += asked;
        self.spend(w.costs.ask * asked);
        if let Some(core) = found {
            self.spend(w.costs.kick);
            w.kick(core, id, self.now());
        }
    }

    pub(super) fn look_for_work(&mut self, w: &mut World, now: Ticks) -> bool {
        self.look_at = Ticks::NEVER;
        let top = Level::of(self.scheduler.highest_band());
        if top > w.moving_level {
            return false;
        }
        if self.sent | self.strangers != 0 || self.conduct.restless.is_some() {
            self.see_off(w, now);
        }
        let top = Level::of(self.scheduler.highest_band());
        if top == Level::IDLE {
            self.publish(w, Level::IDLE);
        }
        let mut elsewhere = 0;
        let mut left = self.moving;
        let mut glances = 0;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            glances += 1;
            let concerns = match w.parking[id.index()].slot.glance(self.core) {
                Glance::Nothing => false,
                Glance::Runnable => true,
                Glance::Waits(host) => w.cores[host.index()].presence.is_above(w.band(id)),
            };
            elsewhere |= u32::from(concerns) << id.0;
        }
        w.counters.glances += glances;
        self.spend(w.costs.glance * glances);
        let turn = self.scheduler.turn();
        let is_over = turn.is_some_and(|turn| turn.equal_waits && turn.quantum_end <= now);
        if elsewhere == 0 && !is_over {
            self.stop_catching(w);
            return false;
        }
        self.choose(w, now, elsewhere, is_over);
        true
    }

    fn choose(&mut self, w: &mut World, now: Ticks, mut elsewhere: u32, is_over: bool) {
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
            let Some(candidate) = self.candidate(w, id) else {
                continue;
            };
            w.counters.candidates += 1;
            self.spend(w.costs.candidate);
            let verdict = w.deciding.verdict(&here, &candidate);
            if choice.note(id, &candidate, verdict) {
                self.take(w, id, candidate.parked, now);
            }
        }
        self.look_at = self.look_at.min(choice.look_at);
        let must_let_go = is_over || choice.best.is_some_and(|it| it.swap);
        if must_let_go && let Some(until) = self.more_grace(w, now) {
            self.scheduler.extend_turn(until);
            self.look_at = self.look_at.min(until);
            self.catch(w, Catch::Exit);
            return;
        }
        self.stop_catching(w);
        if let Some(found) = choice.best
            && self.take(w, found.vcpu, found.parked, now)
        {
            if found.swap {
                self.scheduler.yield_current();
            }
            if let Some(id) = choice.left_over {
                self.tell_others(w, id, true);
            }
        }
    }

    fn candidate(&self, w: &World, id: VcpuId) -> Option<Candidate> {
        let slot = &w.parking[id.index()].slot;
        let parked = slot.look()?;
        if parked.host == self.core {
            return None;
        }
        let band = w.band(id);
        Some(Candidate {
            parked,
            band,
            home: w.home(id),
            since: slot.since(),
            is_cut_off: w.cores[parked.host.index()].presence.is_above(band),
        })
    }

    fn more_grace(&mut self, w: &World, now: Ticks) -> Option<Ticks> {
        let id = self.running.filter(|_| self.running == self.loaded)?;
        self.grace.more(now, w.vcpus[id.index()].sample())
    }

    fn take(&mut self, w: &mut World, id: VcpuId, seen: Parked, now: Ticks) -> bool {
        let Some(token) = w.claim(id, seen) else {
            return false;
        };
        w.counters.migrations += 1;
        self.spend(w.costs.take);
        w.location[id.index()] = self.core;
        let _ = self.scheduler.remove(id);
        self.deadlines.clear(id);
        let mut state = match seen.rest {
            Rest::Runnable | Rest::InKernel | Rest::Sent => VcpuState::Suspend,
            Rest::Asleep => VcpuState::Sleep,
            Rest::Off => VcpuState::Off,
        };
        if state == VcpuState::Sleep {
            let timer = w.vcpus[id.index()].timer;
            if timer <= now {
                state = VcpuState::Suspend;
            } else if timer != Ticks::NEVER {
                self.deadlines.set(id, token.band, timer);
            }
        }
        let admitted = self.scheduler.admit(id, token.band, state);
        debug_assert!(admitted.is_ok(), "a vCPU is on one core");
        self.vcpus[id.index()] = Some(token);
        let bit = 1 << id.0;
        self.sent &= !bit;
        self.stays &= !bit;
        if self.conduct.goes_home && self.at_home & bit == 0 {
            self.strangers |= bit;
        }
        self.park(w, id);
        true
    }

    /// An interrupt was rung for a vCPU whose host hears nothing: this core takes it, if it may.
    pub(super) fn summon(&mut self, w: &mut World, id: VcpuId, host: PcpuId) -> bool {
        let is_cut_off = w.cores[host.index()].presence.is_above(w.band(id));
        if !is_cut_off || !self.moves(id) {
            return false;
        }
        let Some(seen) = self.parked(w, id) else {
            return false;
        };
        let now = self.now();
        let served = match seen.rest.is_runnable() {
            // Whoever takes it finds what was rung.
            true => w.parking[id.index()].slot.press(seen),
            false if self.scheduler.current_band() > Some(w.band(id)) => {
                self.tell_others(w, id, true);
                false
            }
            false => self.take(w, id, seen, now),
        };
        self.must_decide |= served;
        served
    }

    pub(super) fn publish(&self, w: &World, level: Level) {
        let presence = &w.cores[self.core.index()].presence;
        if presence.level() != level {
            presence.publish(level);
        }
    }

    /// After a decision: others learn whom this core runs, and of vCPUs that wait here and could run elsewhere.
    pub(super) fn offer(&mut self, w: &mut World, now: Ticks) {
        let level = Level::of(self.scheduler.current_band());
        let before = self.level(w, self.core);
        let has_changed = before != level;
        self.publish(w, level);
        if level <= w.moving_level {
            self.tell_at = Ticks::NEVER;
            if before > w.moving_level && self.conduct.goes_home {
                self.call_home(w);
            }
            if self.to_park != 0 {
                self.park_kept(w);
            }
            if self.has_parked != 0
                && level != Level::IDLE
                && let Some(id) = self.parked_here(w)
            {
                self.tell_others(w, id, false);
            }
        } else if has_changed {
            self.tell_at = self.tell_at.min(now.saturating_add(self.patience));
        } else if self.tell_at <= now {
            self.park_kept(w);
            self.tell_at = match self.parked_here(w) {
                Some(id) => {
                    self.tell_others(w, id, true);
                    now.saturating_add(RETELL_AFTER)
                }
                None => Ticks::NEVER,
            };
        }
    }

    fn parked_here(&mut self, w: &World) -> Option<VcpuId> {
        let mut found = None;
        let mut left = self.has_parked;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            match self.parked(w, id) {
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
}
