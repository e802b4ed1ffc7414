// SPDX-License-Identifier: MIT OR Apache-2.0
//! One core at EL2, from what brings it there until its guest, or nobody, runs: the functions of [`migration`](super)
//! in the order in which `hypervisor/src/instance/` calls them.

use super::lives::Life;
use super::state::{Shared, Timer, World};
use super::{HIGH, LOW, MOVING, QUANTUM, STARVED, System, VCPUS, rt_of};
use crate::migration::*;
use crate::schedule::{Band, Ticks, Turn, VcpuState};
use crate::sets::CoreSet;
use spumone_config::types::{PcpuId, VcpuId};

/// The right to touch a vCPU. A copy of a state has copies of its tokens: that each is there once is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(pub VcpuId);

/// What a core alone has, and its clock. Clocks of different cores are not compared: each goes as it likes.
#[derive(Clone)]
pub struct Own {
    pub local: CoreState<Token>,
    pub now: Ticks,
}

/// An interrupt that arrives while the core is at EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interrupt {
    /// The real-time vCPU of the core wakes.
    Rt,
    /// What other cores have kicked it for.
    Kick,
}

/// Where the core looks for interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// It has looked what other cores have parked, and has not yet decided.
    Looked,
    /// It has decided.
    Decided,
    /// It has decided, and saved the vCPU that ran before.
    Saved,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Looked, Self::Decided, Self::Saved];
}

/// A core at work.
pub struct Visit<'a> {
    system: &'a System,
    pub(super) core: PcpuId,
    pub(super) own: Own,
    pub(super) world: World,
    /// The loaded vCPU looks at its doorbell before it goes on.
    interrupts_changed: bool,
    /// An interrupt that arrives while the core is at EL2.
    pending: Option<(Interrupt, Point)>,
    /// The last of the points that the core has passed.
    passed: Option<Point>,
    /// The band whose interrupts and those above get through.
    mask: Option<Band>,
}

impl<'a> Visit<'a> {
    pub fn new(system: &'a System, core: u8, own: Own, shared: &Shared) -> Self {
        let world = shared.restore(own.now);
        let mask = own.local.scheduler.current_band();
        Self {
            system,
            core: PcpuId(core),
            own,
            world,
            interrupts_changed: false,
            pending: None,
            passed: None,
            mask,
        }
    }

    /// Until the core has come to rest.
    pub fn end(mut self) -> (Own, Shared) {
        // Each round decides, saves or loads; none of that is undone for ever.
        for _ in 0..64 {
            match next_action(&mut self) {
                Next::Turn => {}
                Next::Idle => return self.rest(),
                Next::Run(id) => {
                    if self.interrupts_changed {
                        self.hear(id);
                    }
                    return self.rest();
                }
                Next::Exchange(id) if self.is_loading(id) => return self.rest(),
                Next::Exchange(id) => self.exchange(id),
            }
        }
        panic!("core {} does not come to state", self.core.0);
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

    /// See `Instance::prepare_vcpu` and `Instance::exchange`.
    fn exchange(&mut self, id: VcpuId) {
        if self.own.local.token(id).is_none() {
            self.own.local.running = None;
            self.own.local.must_decide = true;
            return;
        }
        if let Some(last) = self.own.local.loaded {
            self.save_loaded();
            release_preempted(self, last);
            arm_stale_alarm(self);
            self.passed = Some(Point::Saved);
            if self.is_interrupted() {
                take_interrupts(self);
            }
            if self.own.local.must_decide {
                return;
            }
        }
        self.own.local.loaded = Some(id);
        self.hear(id);
        if self.own.local.excludes_kernels {
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

    /// See `What::Between`.
    pub fn between(&mut self, interrupt: Interrupt, point: Point) {
        self.pending = Some((interrupt, point));
        let rt = rt_of(self.core.0);
        let is_kicked = self.world.kicked[self.core.index()] != 0;
        if self.own.local.scheduler.current() == Some(rt) {
            self.rt(false);
        } else if is_kicked && interrupt != Interrupt::Kick {
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
        notify_vcpu(self, id);
    }

    /// See `Instance::take_kicks`.
    pub fn take_kicks(&mut self) {
        let ids = core::mem::take(&mut self.world.kicked[self.core.index()]);
        for id in crate::bits::bits(ids) {
            kicked(self, VcpuId(id as u8));
        }
    }

    /// Time passes on this core.
    pub fn tick(&mut self) {
        self.own.now.0 += 1;
        let local = &self.own.local;
        for (id, timer) in (0..).map(VcpuId).zip(&mut self.world.timers) {
            let hosts = self.world.slots[id.index()]
                .parked()
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
        if self.own.local.alarm <= self.own.now {
            alarm_rang(self);
        }
    }

    /// What was to be caught of the running vCPU.
    pub fn caught(&mut self, id: VcpuId) {
        let in_kernel = self.own.local.catches == Catch::Entry;
        self.set_in_kernel(id, in_kernel);
        caught(self, id);
    }
}

/// Whether it is one of those that change cores.
pub fn moves(id: VcpuId) -> bool {
    MOVING >> id.0 & 1 != 0
}

impl Platform for Visit<'_> {
    type Token = Token;

    fn local(&self) -> &CoreState<Token> {
        &self.own.local
    }

    fn local_mut(&mut self) -> &mut CoreState<Token> {
        &mut self.own.local
    }

    fn core(&self) -> PcpuId {
        self.core
    }

    fn now(&self) -> Ticks {
        self.own.now
    }

    fn is_interrupted(&self) -> bool {
        let arrives = |(interrupt, point)| match interrupt {
            _ if self.passed != Some(point) => false,
            // A timer of the loaded vCPU is never held back.
            Interrupt::Rt => {
                self.mask <= Some(HIGH) || self.own.local.loaded == Some(rt_of(self.core.0))
            }
            Interrupt::Kick => self.world.kicked[self.core.index()] != 0 && self.mask <= Some(LOW),
        };
        self.own.local.alarm <= self.own.now || self.pending.is_some_and(arrives)
    }

    fn take_interrupt(&mut self) -> Taken {
        let local = &self.own.local;
        // That an equal waits since an interrupt woke it is left to the decision that follows.
        let turn = local.scheduler.turn().map(|turn| Turn {
            equal_waits: turn.equal_waits && !local.must_decide,
            ..turn
        });
        let deadline = local.deadlines.next_alarm(turn);
        let due = deadline
            .unwrap_or(Ticks::NEVER)
            .min(local.next_own_deadline());
        assert!(
            local.alarm <= due || local.alarm_rang,
            "an interrupt is taken, the alarm is at {:?}, too late for {due:?}",
            local.alarm,
        );
        if local.alarm <= self.own.now {
            return Taken::Alarm;
        }
        if !self.is_interrupted() {
            return Taken::Nothing;
        }
        match self.pending.take() {
            None => return Taken::Nothing,
            Some((Interrupt::Rt, _)) => self.rt(true),
            Some((Interrupt::Kick, _)) => self.take_kicks(),
        }
        Taken::Other
    }

    /// See `Instance::deliver_to_loaded`.
    fn deliver_to_loaded(&mut self, id: VcpuId) {
        if self.own.local.scheduler.state(id) == Some(VcpuState::Running) {
            self.hear(id);
        } else {
            self.interrupts_changed = true;
        }
        wake(self, id);
    }

    fn set_priority_mask(&mut self, band: Option<Band>) {
        self.mask = band;
    }

    fn set_alarm(&mut self, _: Ticks) {}

    fn next_chore(&self) -> Ticks {
        Ticks::NEVER
    }

    fn decided(&mut self, _: Ticks) {
        self.passed = Some(Point::Decided);
    }

    fn slot(&self, id: VcpuId) -> &ParkingSlot {
        // Nobody parks a vCPU that stays.
        &self.world.slots[id.index().min(VCPUS)]
    }

    fn store_parked(&mut self, id: VcpuId, token: Token, parked: Parked) {
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

    fn cores_of(&self, _: VcpuId) -> CoreSet {
        CoreSet::from_bits(MOVING)
    }

    fn guest_runs(&self, _: VcpuId) -> bool {
        self.world.life == Life::Running
    }

    fn is_rung(&self, id: VcpuId) -> bool {
        !self.world.bells[id.index()].is_silent()
    }

    fn highest_movable(&self) -> Level {
        Level::of(Some(LOW))
    }

    fn lowest_movable(&self) -> Level {
        Level::of(Some(LOW))
    }

    fn excludes_kernels(&self, core: PcpuId) -> bool {
        self.system.excludes_kernels(core.0)
    }

    fn gang(&self) -> Option<(Band, CoreSet)> {
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
            local.alarm_is_stale |= Some(LOW) >= local.scheduler.current_band();
        }
        if local.scheduler.state(id) == Some(VcpuState::Sleep)
            && (timer == Timer::Due || !self.world.bells[id.index()].is_silent())
        {
            local.scheduler.wake(id);
            let current = local.scheduler.current_band();
            local.must_decide |= Some(LOW) > current;
            local.alarm_is_stale |= Some(LOW) == current;
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

    fn trace(&mut self, mark: TracePoint) {
        match mark {
            TracePoint::Decide => self.passed = None,
            // The core has looked what other cores have parked.
            TracePoint::Peeked(_) => self.passed = Some(Point::Looked),
            _ => {}
        }
    }
}
