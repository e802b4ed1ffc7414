//! One core at EL2, from what brings it there until its guest, or nobody, runs: the functions of [`migration`](super)
//! in the order in which `hypervisor/src/instance/` calls them.

use super::lives::Life;
use super::state::{Shared, Timer, World};
use super::{HIGH, LOW, MOVING, QUANTUM, STARVED, System, VCPUS, rt_of};
use crate::migration::*;
use crate::schedule::{Action, Band, Ticks, VcpuState};
use spumone_config::types::{PcpuId, VcpuId};

/// The right to touch a vCPU. A copy of a state has copies of its tokens: that each is there once is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(pub VcpuId);

/// What a core alone has, and its clock. Clocks of different cores are not compared: each goes as it likes.
#[derive(Clone)]
pub struct Own {
    pub local: Local<Token>,
    pub now: Ticks,
}

/// A core at work.
pub struct Visit<'a> {
    system: &'a System,
    pub(super) core: PcpuId,
    pub(super) own: Own,
    pub(super) world: World,
    /// The loaded vCPU looks at its doorbell before it goes on.
    interrupts_changed: bool,
    /// The real-time vCPU wakes after the next look for work.
    rt_is_near: bool,
}

impl<'a> Visit<'a> {
    pub fn new(system: &'a System, core: u8, own: Own, shared: &Shared) -> Self {
        let world = shared.restore(own.now);
        Self {
            system,
            core: PcpuId(core),
            own,
            world,
            interrupts_changed: false,
            rt_is_near: false,
        }
    }

    /// Until the core has come to rest.
    pub fn end(mut self) -> (Own, Shared) {
        // Each round decides, saves or loads; none of that is undone for ever.
        for _ in 0..64 {
            let local = &self.own.local;
            if local.must_decide {
                self.decide();
                continue;
            }
            match local.running {
                None => return self.rest(),
                Some(id) if local.loaded == Some(id) => {
                    if self.interrupts_changed {
                        self.hear(id);
                    }
                    return self.rest();
                }
                Some(id) if self.is_loading(id) => return self.rest(),
                Some(id) => self.exchange(id),
            }
        }
        panic!("core {} does not come to rest", self.core.0);
    }

    fn rest(mut self) -> (Own, Shared) {
        if let Some(id) = self.own.local.running.filter(|&id| moves(id)) {
            // From here on the guest does as it likes.
            self.world.in_kernel[id.index()] = false;
            self.world.timers[id.index()] = Timer::None;
        }
        let shared = self.world.shared(self.own.now);
        (self.own, shared)
    }

    /// See `Instance::decide`.
    fn decide(&mut self) {
        let now = self.own.now;
        wake_due(self, now);
        let has_looked = look_for_work(self, now);
        if core::mem::take(&mut self.rt_is_near) {
            self.rt(true);
        }
        if has_looked == Some(true) {
            wake_due(self, now);
        }
        if holds_back(self, now) {
            return;
        }
        let mut decision = self.own.local.scheduler.decide(now);
        decision = hold_current(self, now, decision);
        self.own.local.must_decide = false;
        if let Action::Switch { to } = decision.action {
            hand_over(self, to);
        }
        offer(self, now);
    }

    /// See `Instance::prepare_vcpu` and `Instance::exchange`.
    fn exchange(&mut self, id: VcpuId) {
        if self.own.local.token(id).is_none() {
            self.own.local.running = None;
            self.own.local.must_decide = true;
            return;
        }
        if let Some(last) = self.own.local.loaded {
            self.save_loaded();
            give_up(self, last);
            if self.own.local.must_decide {
                return;
            }
        }
        self.own.local.loaded = Some(id);
        self.hear(id);
        if self.own.local.keeps_kernels_off {
            stop_catching(self);
        }
    }

    /// The loaded vCPU gets what has come for it.
    fn hear(&mut self, id: VcpuId) {
        self.interrupts_changed = false;
        if moves(id) {
            self.world.bells[id.index()].reset();
            if self.world.timers[id.index()] == Timer::Due {
                self.world.timers[id.index()] = Timer::None;
            }
        }
    }

    /// Something has come for the real-time vCPU, or it waits again.
    pub fn rt(&mut self, wakes: bool) {
        if wakes {
            let rt = rt_of(self.core.0);
            if self.own.local.loaded == Some(rt) {
                wake(self, rt);
            } else {
                kicked(self, rt);
            }
        } else {
            self.sleep();
        }
    }

    /// See `What::RtBetween`.
    pub fn rt_between(&mut self) {
        self.rt_is_near = true;
        let rt = rt_of(self.core.0);
        if self.own.local.scheduler.current() == Some(rt) {
            self.rt(false);
        } else if self.world.kicked[self.core.index()] != 0 {
            self.take_kicks();
        } else {
            self.tick();
        }
        // That it has looked is what counts.
        self.own.local.must_decide = true;
    }

    fn sleep(&mut self) {
        self.own.local.scheduler.sleep_current();
        self.own.local.must_decide = true;
    }

    /// The running vCPU waits for an interrupt.
    pub fn wait(&mut self, id: VcpuId, timer: bool) {
        self.set_in_kernel(id, true);
        if timer {
            self.world.timers[id.index()] = Timer::Armed;
        }
        self.sleep();
    }

    /// What the running vCPU was doing when it came here.
    pub fn set_in_kernel(&mut self, id: VcpuId, in_kernel: bool) {
        self.world.in_kernel[id.index()] = in_kernel;
    }

    /// Something for a vCPU is sent from here. See `Instance::kick_each`.
    pub fn ring(&mut self, id: VcpuId) {
        let bell = &self.world.bells[id.index()];
        bell.ring_spis(1);
        let host = bell.location();
        if host == self.core {
            self.kicked(id);
        } else if !summon(self, id, host) {
            self.kick(host, id);
        }
    }

    /// See `Instance::take_kicks`.
    pub fn take_kicks(&mut self) {
        let kicked = core::mem::take(&mut self.world.kicked[self.core.index()]);
        for id in crate::bits::bits(kicked) {
            self.kicked(VcpuId(id as u8));
        }
    }

    /// See `Instance::kicked`.
    fn kicked(&mut self, id: VcpuId) {
        if self.own.local.is_called(id) {
            self.own.local.must_decide = true;
        }
        if self.own.local.loaded == Some(id) {
            if self.own.local.scheduler.state(id) == Some(VcpuState::Running) {
                self.hear(id);
            } else {
                self.interrupts_changed = true;
            }
            wake(self, id);
        } else {
            kicked(self, id);
        }
    }

    /// Time passes on this core.
    pub fn tick(&mut self) {
        self.own.now.0 += 1;
        let local = &self.own.local;
        for (id, timer) in (0..).map(VcpuId).zip(&mut self.world.timers) {
            let hosts = self.world.slots[id.index()]
                .look()
                .is_some_and(|it| it.host == self.core);
            if *timer == Timer::Armed && (hosts || local.token(id).is_some()) {
                *timer = Timer::Due;
            }
        }
        if let Some(id) = local.loaded.filter(|&id| moves(id))
            && self.world.timers[id.index()] == Timer::Due
        {
            self.interrupts_changed = true;
            wake(self, id);
        }
        if alarm(&self.own.local) <= self.own.now {
            self.own.local.must_decide = true;
        }
    }

    /// What was to be caught of the running vCPU.
    pub fn caught(&mut self, id: VcpuId) {
        let in_kernel = self.own.local.catches == Catch::Entry;
        self.set_in_kernel(id, in_kernel);
        caught(self, id);
    }
}

/// See `Instance::set_alarm`.
pub fn alarm<T>(local: &Local<T>) -> Ticks {
    let deadline = local.deadlines.next_alarm(local.scheduler.turn());
    deadline.unwrap_or(Ticks::NEVER).min(local.next_look())
}

/// Whether it is one of those that change cores.
pub fn moves(id: VcpuId) -> bool {
    MOVING >> id.0 & 1 != 0
}

impl Site for Visit<'_> {
    type Token = Token;

    fn local(&self) -> &Local<Token> {
        &self.own.local
    }

    fn local_mut(&mut self) -> &mut Local<Token> {
        &mut self.own.local
    }

    fn core(&self) -> PcpuId {
        self.core
    }

    fn now(&self) -> Ticks {
        self.own.now
    }

    fn slot(&self, id: VcpuId) -> &ParkingSlot {
        // Nobody parks a vCPU that stays.
        &self.world.slots[id.index().min(VCPUS)]
    }

    fn lay(&mut self, id: VcpuId, token: Token, parked: Parked) {
        assert_eq!(id, token.0);
        let lies = self.world.lying[id.index()].replace(token);
        assert_eq!(lies, None, "a second token");
        self.world.slots[id.index()].park(parked, self.own.now);
    }

    fn claim(&mut self, id: VcpuId, seen: Parked) -> Option<Token> {
        self.world.slots[id.index()].claim(seen).then_some(())?;
        self.world.lying[id.index()].take()
    }

    fn own_presence(&self) -> &Presence {
        &self.world.presences[self.core.index()]
    }

    fn presence(&self, core: PcpuId) -> Option<&Presence> {
        self.world.presences.get(core.index())
    }

    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.world.kicked[core.index()] |= 1 << id.0;
    }

    fn band(&self, id: VcpuId) -> Option<Band> {
        Some(if moves(id) { LOW } else { HIGH })
    }

    fn home(&self, id: VcpuId) -> Option<PcpuId> {
        Some(PcpuId(id.0 % VCPUS as u8))
    }

    fn host(&self, id: VcpuId) -> Option<PcpuId> {
        Some(self.world.bells.get(id.index())?.location())
    }

    fn cores_of(&self, _: VcpuId) -> u32 {
        MOVING
    }

    fn guest_runs(&self, _: VcpuId) -> bool {
        self.world.life == Life::Running
    }

    fn is_rung(&self, id: VcpuId) -> bool {
        !self.world.bells[id.index()].is_silent()
    }

    fn moving_level(&self) -> Level {
        Level::of(Some(LOW))
    }

    fn moving_floor(&self) -> Level {
        Level::of(Some(LOW))
    }

    fn keeps_kernels_off(&self, core: PcpuId) -> bool {
        self.system.keeps_kernels_off(core.0)
    }

    fn gang(&self) -> Option<(Band, u32)> {
        None
    }

    fn verdict(&mut self, here: &Here, candidate: &Candidate) -> Verdict {
        let mut candidate = *candidate;
        // Of all times the one after which a vCPU starves is far longer than a tick.
        if candidate.since < here.now {
            candidate.since = here.now.saturating_sub(STARVED);
        }
        match self.system.policy.verdict(here, &candidate) {
            Verdict::Later(at) => Verdict::Later(at.min(here.now.saturating_add(QUANTUM))),
            verdict => verdict,
        }
    }

    fn was_in_kernel(&self, token: &Token) -> bool {
        self.world.in_kernel[token.0.index()]
    }

    fn next_timer(&self, token: &Token, now: Ticks) -> Option<Ticks> {
        match self.world.timers[token.0.index()] {
            Timer::None => None,
            Timer::Armed => Some(now.saturating_add(Ticks(1))),
            Timer::Due => Some(now),
        }
    }

    fn settle(&mut self, token: &Token) {
        self.world.bells[token.0.index()].settle(self.core);
    }

    /// See `Instance::save`.
    fn save_loaded(&mut self) {
        catch(self, Catch::Nothing);
        let Some(id) = self.own.local.loaded.take().filter(|&id| moves(id)) else {
            return;
        };
        self.interrupts_changed = false;
        let timer = self.world.timers[id.index()];
        let local = &mut self.own.local;
        if timer == Timer::Armed {
            let at = self.own.now.saturating_add(Ticks(1));
            local.deadlines.set(id, LOW, at);
        }
        if local.scheduler.state(id) == Some(VcpuState::Sleep)
            && (timer == Timer::Due || !self.world.bells[id.index()].is_silent())
        {
            local.scheduler.wake(id);
            local.must_decide |= Some(LOW) > local.scheduler.current_band();
        }
    }

    fn sample(&self, id: VcpuId) -> Option<Sample> {
        // One that stays in its kernel spins there.
        Some(Sample {
            in_kernel: self.world.in_kernel[id.index()],
            pc: 0,
            stack: 0,
        })
    }

    fn may_hold_lock(&self, id: VcpuId) -> bool {
        moves(id) && self.world.in_kernel[id.index()]
    }

    fn set_catch(&mut self, catch: Catch) -> bool {
        let loaded = self.own.local.loaded;
        loaded.is_some_and(moves) || catch == Catch::Nothing && loaded.is_some()
    }

    fn mark(&mut self, _: Mark) {}
}
