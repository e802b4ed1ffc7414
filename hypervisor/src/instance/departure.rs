//! vCPUs that leave their core before another one has asked: sent away, called home, taken back if nobody came.
//!
//! What `steal` does needs none of it. The policies that do say so in their `Conduct`.

use super::Instance;
use crate::cpu::exchange_stage2;
use crate::events::{Event, note};
use crate::machine::Guest;
use spumone_config::{PcpuId, VcpuId};
use spumone_core::migration::{Level, Rest};
use spumone_core::schedule::{Ticks, VcpuState};

/// Of what the loaded vCPU does, that which brings it back to EL2 though it is allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Catch {
    Nothing,
    /// Its kernel returns to a program.
    Exit,
    /// A program enters the kernel.
    Entry,
}

impl Instance {
    /// Before the core looks for work: who is to leave it, leaves.
    pub(super) fn see_off(&mut self, now: Ticks) {
        self.send_home();
        if let Some(stay) = self.conduct.restless
            && let Some(turn) = self.scheduler.turn()
            && let Some(id) = self.running.filter(|&id| self.moves(id))
        {
            let due = turn.since.saturating_add(stay);
            if due <= now {
                self.send_away(id, None);
            } else {
                self.look_at = self.look_at.min(due);
            }
        }
        // After the others: who was sent away just now must not be forgotten if this core idles from here on.
        self.take_back(now);
    }

    /// Parks a vCPU of this core that could run, to be run by another one: `to`, or any.
    pub(super) fn send_away(&mut self, id: VcpuId, to: Option<PcpuId>) {
        if !matches!(
            self.scheduler.state(id),
            Some(VcpuState::Running | VcpuState::Suspend)
        ) {
            return;
        }
        if self.loaded == Some(id) {
            self.save_loaded();
        }
        if !self.hold(id) {
            return;
        }
        note(self.core, Event::Send, u64::from(id.0));
        let _ = self.scheduler.remove(id);
        self.deadlines.clear(id);
        if self.running == Some(id) {
            self.running = None;
        }
        self.must_decide = true;
        self.to_park &= !(1 << id.0);
        self.sent |= 1 << id.0;
        self.lay_down(id, Rest::Sent);
        match to {
            Some(core) => self.machine.kick(core, id),
            None => self.tell_others(id, true),
        }
    }

    /// Takes back what this core has sent away and nobody has taken for a while.
    fn take_back(&mut self, now: Ticks) {
        let mut left = self.sent;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            let Some(since) = self.sent_since(id) else {
                self.sent &= !(1 << id.0);
                continue;
            };
            let due = since.saturating_add(self.take_back_after);
            if now < due {
                self.look_at = self.look_at.min(due);
            } else if self.hold(id) {
                self.stays |= 1 << id.0;
                self.park(id);
            }
        }
    }

    /// Since when a vCPU that this core has sent away waits for somebody; `None`: it does not.
    fn sent_since(&self, id: VcpuId) -> Option<Ticks> {
        let slot = &self.machine.parking.get(id.index())?.slot;
        let seen = slot.look()?;
        (seen.host == self.core && seen.rest == Rest::Sent).then(|| slot.since())
    }

    /// Sends vCPUs home whose home core could run them.
    fn send_home(&mut self) {
        let mut left = self.strangers;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            if !self.has(id) {
                self.strangers &= !(1 << id.0);
            } else if let Some(home) = self.free_home(id) {
                self.send_away(id, Some(home));
            }
        }
    }

    /// The home core of a vCPU that is away, if it runs nobody more urgent.
    fn free_home(&self, id: VcpuId) -> Option<PcpuId> {
        let &band = self.machine.bands.get(id.index())?;
        let home = self.machine.home(id)?;
        let core = self.machine.cores.get(home.index())?;
        (!core.presence.is_above(band)).then_some(home)
    }

    /// This core, which ran somebody more urgent, could run its own vCPUs again: calls those that are elsewhere.
    pub(super) fn call_home(&mut self) {
        let mut left = self.at_home;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            if self.vcpu(id).is_some() {
                continue;
            }
            match self.parked(id) {
                // It is taken at the next look, or called when it wakes.
                Some(it) => self.must_decide |= it.rest.is_runnable(),
                None => {
                    if let Some(host) = self.host(id).filter(|&host| host != self.core) {
                        self.machine.kick(host, id);
                    }
                }
            }
        }
    }

    /// What is always caught of the loaded vCPU here.
    fn usual_catch(&self) -> Catch {
        match self.loaded {
            Some(id) if self.keeps_kernels_off && self.moves(id) && self.stays >> id.0 & 1 == 0 => {
                Catch::Entry
            }
            _ => Catch::Nothing,
        }
    }

    /// Has the loaded vCPU come back when it does this, where the core can tell.
    pub(super) fn catch(&mut self, catch: Catch) {
        if self.catches == catch {
            return;
        }
        let Some(guest) = self.loaded_guest() else {
            return;
        };
        let tables = match catch {
            Catch::Nothing => Some(guest.vttbr),
            Catch::Exit => guest.vttbr_kernel,
            Catch::Entry => guest.vttbr_programs,
        };
        if let Some(tables) = tables {
            self.catches = catch;
            exchange_stage2(tables);
        }
    }

    /// No more is caught of the loaded vCPU than always.
    #[inline(always)]
    pub(super) fn stop_catching(&mut self) {
        if self.catches != Catch::Nothing || self.keeps_kernels_off {
            self.catch(self.usual_catch());
        }
    }

    fn loaded_guest(&self) -> Option<&'static Guest> {
        let vcpu = self.vcpu(self.loaded?)?;
        Some(self.machine.guest(vcpu.guest))
    }

    /// The loaded vCPU `id` did what was to be caught.
    pub(super) fn caught(&mut self, id: VcpuId) {
        if self.catches == Catch::Entry {
            self.send_away(id, None);
        } else {
            self.stop_catching();
            self.must_decide = true;
        }
    }

    /// Whether a more urgent vCPU is put off, because the one that runs may hold a lock: for a while at most.
    pub(super) fn put_off(&mut self, now: Ticks, bound: Ticks) -> bool {
        let current = self.scheduler.current_band();
        let holder = self
            .scheduler
            .current()
            .filter(|&id| self.loaded == Some(id) && self.scheduler.highest_band() > current)
            .and_then(|id| self.vcpu(id))
            .filter(|vcpu| {
                let is_smp = self.machine.guest(vcpu.guest).vcpus.len() > 1;
                is_smp && self.may_hold_lock(vcpu)
            });
        let until = self.put_off_until.min(now.saturating_add(bound));
        if holder.is_none() || until <= now {
            self.put_off_until = Ticks::NEVER;
            self.look_at = Ticks::NEVER;
            self.catch(Catch::Nothing);
            return false;
        }
        self.put_off_until = until;
        self.look_at = until.min(now.saturating_add(self.put_off_step));
        // No equal has the core before: no alarm for the end of a turn that is over.
        self.scheduler.extend_turn(self.look_at);
        self.catch(Catch::Exit);
        true
    }

    /// All vCPUs of the gang wait while one of its cores runs somebody more urgent.
    pub(super) fn hold_gang(&mut self) {
        let Some((band, cores)) = self.machine.gang else {
            return;
        };
        let is_apart = (0..)
            .zip(&self.machine.cores)
            .any(|(core, it)| cores >> core & 1 != 0 && it.presence.is_above(band));
        self.scheduler.hold(is_apart.then_some(band));
    }

    /// This core runs somebody more urgent than the gang, or does no more: the others are told.
    pub(super) fn tell_gang(&mut self) {
        let Some((band, cores)) = self.machine.gang else {
            return;
        };
        let level = Level::of(self.scheduler.current_band());
        let was_above = self.own.presence.is_above(band);
        self.publish(level);
        if cores >> self.core.0 & 1 == 0 || was_above == self.own.presence.is_above(band) {
            return;
        }
        let others = (0..)
            .map(VcpuId)
            .zip(&self.machine.bands)
            .filter(|&(_, &it)| it == band);
        for (id, _) in others {
            if let Some(home) = self.machine.home(id).filter(|&home| home != self.core) {
                self.machine.kick(home, id);
            }
        }
        // It may have held its own for others that are back.
        self.must_decide |= !self.own.presence.is_above(band);
    }
}
