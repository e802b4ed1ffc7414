//! vCPUs that leave their core before another one has asked: `hypervisor/src/instance/departure.rs`, function by function.

use super::Instance;
use crate::time::us;
use crate::world::{RT, SMP_BAND, World};
use spumone_config::types::{PcpuId, VcpuId};
use spumone_core::migration::{Level, Rest};
use spumone_core::schedule::{Ticks, VcpuState};

/// See `TAKE_BACK_US` of the hypervisor.
pub const TAKE_BACK_AFTER: Ticks = us(500);
/// See `PUT_OFF_STEP_US` of the hypervisor.
const PUT_OFF_STEP: Ticks = us(20);

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
    pub(super) fn see_off(&mut self, w: &mut World, now: Ticks) {
        self.send_home(w);
        if let Some(stay) = self.conduct.restless
            && let Some(turn) = self.scheduler.turn()
            && let Some(id) = self.running.filter(|&id| self.moves(id))
        {
            let due = turn.since.saturating_add(stay);
            if due <= now {
                self.send_away(w, id, None);
            } else {
                self.look_at = self.look_at.min(due);
            }
        }
        // After the others: whoever was sent away just now must not be forgotten if this core idles from here on.
        self.take_back(w, now);
    }

    fn send_away(&mut self, w: &mut World, id: VcpuId, to: Option<PcpuId>) {
        if !matches!(
            self.scheduler.state(id),
            Some(VcpuState::Running | VcpuState::Suspend)
        ) {
            return;
        }
        if self.loaded == Some(id) {
            self.save_loaded(w);
        }
        if !self.hold(w, id) {
            return;
        }
        w.counters.sendings += 1;
        let _ = self.scheduler.remove(id);
        self.deadlines.clear(id);
        if self.running == Some(id) {
            self.running = None;
        }
        self.must_decide = true;
        self.to_park &= !(1 << id.0);
        self.sent |= 1 << id.0;
        self.lay_down(w, id, Rest::Sent);
        match to {
            Some(core) => {
                self.spend(w.costs.kick);
                w.kick(core, id, self.now());
            }
            None => self.tell_others(w, id, true),
        }
    }

    fn take_back(&mut self, w: &mut World, now: Ticks) {
        let mut left = self.sent;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            let Some(since) = self.sent_since(w, id) else {
                self.sent &= !(1 << id.0);
                continue;
            };
            let due = since.saturating_add(TAKE_BACK_AFTER);
            if now < due {
                self.look_at = self.look_at.min(due);
            } else if self.hold(w, id) {
                self.stays |= 1 << id.0;
                self.park(w, id);
            }
        }
    }

    /// Whether the core idles without an alarm though nobody has taken a vCPU that it has sent away: for the invariants.
    pub fn has_forgotten(&self, w: &World) -> bool {
        let is_sent = |id| self.sent >> id & 1 != 0 && self.sent_since(w, VcpuId(id)).is_some();
        self.is_idle()
            && self.sent != 0
            && self.alarm == Ticks::NEVER
            && (0..w.vcpus.len() as u8).any(is_sent)
    }

    fn sent_since(&self, w: &World, id: VcpuId) -> Option<Ticks> {
        let slot = &w.parking[id.index()].slot;
        let seen = slot.look()?;
        (seen.host == self.core && seen.rest == Rest::Sent).then(|| slot.since())
    }

    fn send_home(&mut self, w: &mut World) {
        let mut left = self.strangers;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            if !self.has(w, id) {
                self.strangers &= !(1 << id.0);
            } else if let Some(home) = free_home(w, id) {
                self.send_away(w, id, Some(home));
            }
        }
    }

    /// This core, which ran somebody more urgent, could run its own vCPUs again: calls those that are elsewhere.
    pub(super) fn call_home(&mut self, w: &mut World) {
        let mut left = self.at_home;
        while left != 0 {
            let id = VcpuId(left.trailing_zeros() as u8);
            left &= left - 1;
            if self.vcpu(id).is_some() {
                continue;
            }
            match self.parked(w, id) {
                Some(it) => self.must_decide |= it.rest.is_runnable(),
                None => {
                    let host = w.location[id.index()];
                    if host != self.core {
                        self.spend(w.costs.kick);
                        w.kick(host, id, self.now());
                    }
                }
            }
        }
    }

    fn usual_catch(&self) -> Catch {
        match self.loaded {
            Some(id) if self.keeps_kernels_off && self.moves(id) && self.stays >> id.0 & 1 == 0 => {
                Catch::Entry
            }
            _ => Catch::Nothing,
        }
    }

    /// Has the loaded vCPU come back when it does this, where the core can tell.
    pub(super) fn catch(&mut self, w: &World, catch: Catch) {
        let Some(id) = self.loaded else {
            return;
        };
        let can = match catch {
            Catch::Nothing => true,
            Catch::Exit => id != RT && w.catches_exit,
            Catch::Entry => id != RT,
        };
        if can {
            self.catches = catch;
        }
    }

    /// No more is caught of the loaded vCPU than always.
    pub(super) fn stop_catching(&mut self, w: &World) {
        if self.catches != Catch::Nothing || self.keeps_kernels_off {
            self.catch(w, self.usual_catch());
        }
    }

    /// Whether the loaded vCPU `id`, as it is now, does what is to be caught.
    pub(super) fn is_caught(&self, w: &World, id: VcpuId) -> bool {
        match self.catches {
            Catch::Nothing => false,
            Catch::Exit => !w.vcpus[id.index()].is_in_kernel(),
            Catch::Entry => w.vcpus[id.index()].is_in_kernel(),
        }
    }

    /// The loaded vCPU `id`, which has left its guest, did what was to be caught.
    pub(super) fn caught(&mut self, w: &mut World, id: VcpuId) {
        if self.catches == Catch::Entry {
            self.send_away(w, id, None);
        } else {
            self.stop_catching(w);
            self.must_decide = true;
        }
    }

    /// Whether a more urgent vCPU is put off, because the one that runs may hold a lock: for a while at most.
    pub(super) fn put_off(&mut self, w: &World, now: Ticks, bound: Ticks) -> bool {
        let current = self.scheduler.current_band();
        let holder = self
            .scheduler
            .current()
            .filter(|&id| self.loaded == Some(id) && self.scheduler.highest_band() > current)
            .filter(|&id| w.is_smp(id) && w.vcpus[id.index()].is_in_kernel());
        let until = self.put_off_until.min(now.saturating_add(bound));
        if holder.is_none() || until <= now {
            self.put_off_until = Ticks::NEVER;
            self.look_at = Ticks::NEVER;
            self.catch(w, Catch::Nothing);
            return false;
        }
        self.put_off_until = until;
        self.look_at = until.min(now.saturating_add(PUT_OFF_STEP));
        self.scheduler.extend_turn(self.look_at);
        self.catch(w, Catch::Exit);
        true
    }

    /// All vCPUs of the gang wait while one of its cores runs somebody more urgent.
    pub(super) fn hold_gang(&mut self, w: &World) {
        let is_apart = w.cores.iter().any(|it| it.presence.is_above(SMP_BAND));
        self.spend(w.costs.ask * w.cores.len() as u64);
        self.scheduler.hold(is_apart.then_some(SMP_BAND));
    }

    /// This core runs somebody more urgent than the gang, or does no more: the others are told.
    pub(super) fn tell_gang(&mut self, w: &mut World) {
        let level = Level::of(self.scheduler.current_band());
        let is_above = |w: &World| w.cores[self.core.index()].presence.is_above(SMP_BAND);
        let was_above = is_above(w);
        self.publish(w, level);
        let is_above = is_above(w);
        if was_above == is_above {
            return;
        }
        for id in (1..w.vcpus.len()).map(|id| VcpuId(id as u8)) {
            let home = w.home(id);
            if home != self.core {
                self.spend(w.costs.kick);
                w.kick(home, id, self.now());
            }
        }
        self.must_decide |= !is_above;
    }
}

/// The home core of a vCPU, if it runs nobody more urgent.
fn free_home(w: &World, id: VcpuId) -> Option<PcpuId> {
    let home = w.home(id);
    (!w.cores[home.index()].presence.is_above(w.band(id))).then_some(home)
}
