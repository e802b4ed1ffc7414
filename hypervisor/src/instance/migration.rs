//! vCPUs change cores: parked when they leave this one, taken where they are wanted.
//!
//! A vCPU of a guest that has several cores is parked whenever its registers are saved, if the policy moves vCPUs at
//! all. What this core has parked stays in its run queue, and is claimed when it is dispatched; if another core was
//! faster, it is not here any more.

use super::Instance;
use crate::cpu::exchange_stage2;
use crate::events::{Event, note};
use crate::machine::Guest;
use crate::sysreg::mrs;
use crate::timers::now;
use spumone_config::types::MAX_GUESTS;
use spumone_config::{GuestId, PcpuId, VcpuId};
use spumone_core::migration::{Candidate, Here, Parked, Rest, Running, Sample, Verdict};
use spumone_core::psci::Phase;
use spumone_core::schedule::{Band, Ticks, VcpuState};
use spumone_core::vgic::VcpuIndex;

impl Instance {
    /// Whether the vCPUs of a guest change cores.
    #[inline(always)]
    pub(super) fn moves(&self, guest: GuestId) -> bool {
        self.policy_moves && self.machine.guest(guest).may_move()
    }

    /// What is parked of a vCPU.
    fn parked(&self, id: VcpuId) -> Option<Parked> {
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
        let token = self
            .parked(id)
            .filter(|seen| seen.host == self.core)
            .and_then(|seen| self.machine.parking.get(id.index())?.claim(seen));
        let held = token.is_some();
        if held {
            self.vcpus[id.index()] = token;
        }
        held
    }

    /// Parks a vCPU of this core that does not run and whose registers are saved, if it is one that moves.
    pub(super) fn park(&mut self, id: VcpuId) {
        let Some(vcpu) = self.vcpu(id) else {
            return;
        };
        let (guest, index, band) = (vcpu.guest, vcpu.index, vcpu.band);
        if !self.moves(guest) {
            return;
        }
        let rest = match self.scheduler.state(id) {
            Some(VcpuState::Suspend) if vcpu.registers.is_in_kernel() => Rest::InKernel,
            Some(VcpuState::Suspend) => Rest::Runnable,
            Some(VcpuState::Sleep) => Rest::Asleep,
            Some(VcpuState::Off) => Rest::Off,
            Some(VcpuState::Running) | None => return,
        };
        let ripe = match self.scheduler.current_band() > Some(band) {
            true => now().saturating_add(self.patience),
            false => Ticks(0),
        };
        let parked = Parked {
            host: self.core,
            rest,
        };
        if let (Some(place), Some(token)) = (
            self.machine.parking.get(id.index()),
            self.vcpus[id.index()].take(),
        ) {
            place.park(token, parked, ripe);
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

    /// A vCPU had to make room for another one, and is saved: it is parked, and another core is told.
    pub(super) fn give_up(&mut self, id: VcpuId) {
        let Some(vcpu) = self.vcpu(id) else {
            return;
        };
        let (guest, band) = (vcpu.guest, vcpu.band);
        self.park(id);
        if !self.hosts(id) {
            return;
        }
        let is_cut_off = self.scheduler.current_band() > Some(band);
        if is_cut_off || self.scheduler.state(id) == Some(VcpuState::Suspend) {
            self.tell_others(guest, id, true);
        }
    }

    /// Tells a core that a vCPU of `guest` is parked here: an idle one; else, if it may be a busy one, one that runs nobody more
    /// urgent.
    fn tell_others(&mut self, guest: GuestId, id: VcpuId, busy: bool) {
        let machine = self.machine;
        let guest = machine.guest(guest);
        let Some(&band) = machine.bands.get(id.index()) else {
            return;
        };
        let count = machine.cores.len() as u8;
        let mut chosen = None;
        for step in 1..count {
            let other = PcpuId((self.core.0 + step) % count);
            let Some(core) = machine.cores.get(other.index()) else {
                continue;
            };
            if !guest.may_run_on(other) || core.presence.is_above(band) {
                continue;
            }
            if core.presence.is_idle() {
                chosen = Some(other);
                break;
            }
            if busy && chosen.is_none() {
                chosen = Some(other);
            }
        }
        if let Some(core) = chosen {
            machine.kick(core, id);
        }
    }

    /// Looks what other cores have parked, and takes what the policy says.
    pub(super) fn look_for_work(&mut self, now: Ticks) {
        self.look_at = None;
        let top = self.scheduler.highest_band();
        if top > Some(self.machine.moving_band) {
            return;
        }
        if top.is_none() {
            // First published, then looked: who parks looks at who is idle afterwards.
            self.publish(None);
        }
        let turn = self.scheduler.turn();
        let here = Here {
            now,
            running: turn.map(|turn| Running {
                band: turn.band,
                since: turn.since,
                turn_end: turn.quantum_end,
            }),
            equal_waits: turn.map_or(top.is_some(), |turn| turn.equal_waits),
        };
        let mut best: Option<(VcpuId, Parked, Ticks, bool)> = None;
        for index in 0..self.machine.guests.len().min(MAX_GUESTS) {
            let guest = self.machine.guest(GuestId(index as u8));
            if !guest.may_move()
                || !guest.may_run_on(self.core)
                || guest.lifecycle.now().0 != Phase::Running
            {
                continue;
            }
            for &id in &guest.vcpus {
                let Some(candidate) = self.candidate(id) else {
                    continue;
                };
                let Candidate { parked, ripe, .. } = candidate;
                match self.machine.policy.verdict(&here, &candidate) {
                    Verdict::Leave => {}
                    Verdict::Later(at) => self.look_again(at),
                    Verdict::Take if matches!(parked.rest, Rest::Asleep | Rest::Off) => {
                        self.take(id, parked, now);
                    }
                    verdict => {
                        if best.is_none_or(|(_, _, since, _)| ripe < since) {
                            best = Some((id, parked, ripe, verdict == Verdict::Swap));
                        }
                    }
                }
            }
        }
        let must_let_go = matches!(best, Some((.., true)))
            || turn.is_some_and(|turn| turn.equal_waits && turn.quantum_end <= now);
        if must_let_go && let Some(until) = self.more_grace(now) {
            self.scheduler.extend_turn(until);
            self.look_again(until);
            self.catch_exit();
            return;
        }
        self.stop_catching();
        if let Some((id, parked, _, swap)) = best
            && self.take(id, parked, now)
            && swap
        {
            self.scheduler.yield_current();
        }
    }

    /// A vCPU that another core has parked.
    fn candidate(&self, id: VcpuId) -> Option<Candidate> {
        let place = self.machine.parking.get(id.index())?;
        let parked = place.slot.look()?;
        if parked.host == self.core {
            return None;
        }
        let band = *self.machine.bands.get(id.index())?;
        let host = self.machine.cores.get(parked.host.index())?;
        Some(Candidate {
            parked,
            band,
            ripe: place.slot.ripe(),
            is_cut_off: host.presence.is_above(band),
        })
    }

    fn look_again(&mut self, at: Ticks) {
        self.look_at = Some(self.look_at.map_or(at, |earlier| earlier.min(at)));
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

    /// Has the loaded vCPU come back when its kernel returns to a program, where the core can tell.
    fn catch_exit(&mut self) {
        if !self.catches_exit
            && let Some(tables) = self.loaded_guest().and_then(|guest| guest.vttbr_kernel)
        {
            self.catches_exit = true;
            exchange_stage2(tables);
        }
    }

    /// The loaded vCPU may run programs again.
    #[inline(always)]
    pub(super) fn stop_catching(&mut self) {
        if self.catches_exit {
            self.catches_exit = false;
            if let Some(guest) = self.loaded_guest() {
                exchange_stage2(guest.vttbr);
            }
        }
    }

    fn loaded_guest(&self) -> Option<&'static Guest> {
        let vcpu = self.vcpu(self.loaded?)?;
        Some(self.machine.guest(vcpu.guest))
    }

    /// Becomes the host of a vCPU that another core has parked, of a guest that runs. Returns whether that core, or a third,
    /// has not been faster.
    pub(super) fn take(&mut self, id: VcpuId, seen: Parked, now: Ticks) -> bool {
        let Some(token) = self
            .machine
            .parking
            .get(id.index())
            .and_then(|place| place.claim(seen))
        else {
            return false;
        };
        note(self.core, Event::Take, u64::from(id.0));
        let (guest, index, band) = (token.guest, token.index, token.band);
        // Whoever rings from here on kicks this core; what was rung before is seen when it is parked or loaded.
        let shared = self.machine.guest(guest);
        shared.gic.doorbell(index).settle(self.core);
        if !shared.config.interrupts.is_empty()
            && let Some(core) = self.machine.cores.get(self.core.index())
        {
            for physical in shared.gic.physical_spis_of(index) {
                self.machine.gic.route_spi(physical, core.mpidr);
            }
        }
        // Of an earlier stay.
        let _ = self.scheduler.remove(id);
        self.deadlines.clear(id);
        let mut state = match seen.rest {
            Rest::Runnable | Rest::InKernel => VcpuState::Suspend,
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
        self.alarm_changed = true;
        self.park(id);
        true
    }

    /// An interrupt was rung, or a start is asked, for a vCPU whose host hears nothing because it runs somebody more urgent: this core
    /// takes it, if it may. Returns whether it did.
    pub(super) fn summon(&mut self, guest: GuestId, id: VcpuId, host: PcpuId) -> bool {
        let Some(&band) = self.machine.bands.get(id.index()) else {
            return false;
        };
        let is_cut_off = self
            .machine
            .cores
            .get(host.index())
            .is_some_and(|core| core.presence.is_above(band));
        if !is_cut_off || !self.moves(guest) || !self.machine.guest(guest).may_run_on(self.core) {
            return false;
        }
        let waits = self
            .parked(id)
            .filter(|it| matches!(it.rest, Rest::Asleep | Rest::Off));
        let taken = waits.is_some_and(|seen| self.take(id, seen, now()));
        if taken {
            self.must_decide = true;
        }
        taken
    }

    /// Tells others whom this core runs.
    pub(super) fn publish(&mut self, band: Option<Band>) {
        if self.published != band {
            self.published = band;
            if let Some(core) = self.machine.cores.get(self.core.index()) {
                core.presence.publish(band);
            }
        }
    }

    /// After a decision: others learn whom this core runs, and of vCPUs that wait here and could run elsewhere.
    pub(super) fn offer(&mut self) {
        let band = self.scheduler.current_band();
        let was = self.published;
        self.publish(band);
        if self.has_parked == 0 || band.is_none() {
            return;
        }
        let is_above = band > Some(self.machine.moving_band);
        if is_above && was == band {
            return;
        }
        if is_above && self.loaded != self.running {
            // The vCPU that makes room is parked first.
            return;
        }
        let Some(id) = self.parked_here() else {
            return;
        };
        let Some(guest) = self.guest_of(id) else {
            return;
        };
        self.tell_others(guest, id, is_above);
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
                    let is_runnable = matches!(it.rest, Rest::Runnable | Rest::InKernel);
                    let is_cut_off = self.scheduler.current_band() > self.scheduler.band(id);
                    if is_runnable {
                        return Some(id);
                    }
                    if is_cut_off {
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
        let guest = self.machine.guest(self.guest_of(id)?);
        let index = guest.vcpus.iter().position(|&it| it == id)?;
        Some(guest.gic.doorbell(VcpuIndex(index as u8)).location())
    }

    pub(super) fn guest_of(&self, id: VcpuId) -> Option<GuestId> {
        let index = self
            .machine
            .guests
            .iter()
            .position(|guest| guest.vcpus.contains(&id))?;
        Some(GuestId(index as u8))
    }
}
