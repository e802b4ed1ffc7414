// SPDX-License-Identifier: MIT OR Apache-2.0
//! One core at EL2, from what brings it there until its guest, or nobody, runs: the functions of [`migration`](super)
//! in the order in which `hypervisor/src/instance/` calls them.

use super::lives::Life;
use super::state::{SharedSnapshot, Timer, World};
use super::{HIGH, LOW, MOVING, QUANTUM, STARVED, System, rt_of};
use crate::migration::*;
use crate::schedule::{Band, Ticks};
use crate::sets::VcpuSet;
use crate::vgic::Doorbell;
use spumone_config::types::{PcpuId, VcpuId};

/// The right to touch a vCPU. A copy of a state has copies of its tokens: that each is there once is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(pub VcpuId);

/// What a core alone has, and its clock. Clocks of different cores are not compared: each goes as it likes.
#[derive(Clone)]
pub struct Own {
    pub state: CoreState<Token>,
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

/// A core at EL2.
pub struct Visit<'a> {
    pub(super) core: PcpuId,
    pub(super) state: CoreState<Token>,
    pub(super) machine: Machine<'a>,
}

/// The machine around it.
pub struct Machine<'a> {
    system: &'a System,
    core: PcpuId,
    now: Ticks,
    pub(super) world: World,
    /// The vCPU whose registers are on the core.
    loaded: Option<VcpuId>,
    /// What the alarm is set to.
    alarm: Ticks,
    /// An interrupt that arrives while the core is at EL2.
    pending: Option<(Interrupt, Point)>,
    /// The last of the points that the core has passed.
    passed: Option<Point>,
    /// The band whose interrupts and those above get through.
    mask: Option<Band>,
}

impl<'a> Visit<'a> {
    pub fn new(system: &'a System, core: u8, own: Own, shared: &SharedSnapshot) -> Self {
        let Own { state, now } = own;
        let core = PcpuId(core);
        Self {
            core,
            machine: Machine {
                system,
                core,
                now,
                world: shared.restore(system, now),
                loaded: state.loaded(),
                alarm: state.alarm(),
                pending: None,
                passed: None,
                mask: state.current_band(),
            },
            state,
        }
    }

    /// Until the core has come to rest.
    pub fn end(mut self) -> (Own, SharedSnapshot) {
        // Each round decides, saves or loads; none of that is undone for ever.
        for _ in 0..64 {
            match next_action(&mut self.state, &mut self.machine) {
                Next::Turn => {}
                Next::Idle => return self.rest(),
                Next::Run(_) => {
                    if self.state.must_refresh() {
                        refresh(&mut self.state, &mut self.machine);
                    }
                    return self.rest();
                }
                Next::Exchange(id) if self.is_loading(id) => return self.rest(),
                Next::Exchange(id) => exchange(&mut self.state, &mut self.machine, id),
                Next::Chore(_) => panic!("the model has no chores"),
            }
        }
        panic!("core {} does not come to rest", self.core.0);
    }

    fn rest(mut self) -> (Own, SharedSnapshot) {
        if let Some(id) = self.state.running().filter(|&id| moves(id)) {
            // From here on the guest does as it likes.
            self.machine.world.in_kernel[id.index()] = false;
            self.machine.world.timers[id.index()] = Timer::None;
        }
        let now = self.machine.now;
        let shared = self.machine.world.snapshot(now);
        let own = Own {
            state: self.state,
            now,
        };
        (own, shared)
    }

    /// Something has come for the real-time vCPU, or it waits again.
    pub fn rt(&mut self, wakes: bool) {
        if wakes {
            let interrupt = self.machine.rt_wakes();
            handle(&mut self.state, &mut self.machine, interrupt);
        } else {
            self.state.sleep_running();
        }
    }

    /// See `What::Between`.
    pub fn between(&mut self, interrupt: Interrupt, point: Point) {
        self.machine.pending = Some((interrupt, point));
        let rt = rt_of(self.core.0);
        let is_kicked = self.machine.world.kicked[self.core.index()] != 0;
        if self.state.scheduler.current() == Some(rt) {
            self.rt(false);
        } else if is_kicked && interrupt != Interrupt::Kick {
            self.take_kicks();
        } else {
            self.tick();
        }
        // That it has looked is what counts.
        self.state.decide_anew();
    }

    /// The running vCPU waits for an interrupt.
    pub fn wait(&mut self, id: VcpuId, timer: bool) {
        self.set_in_kernel(id, true);
        if timer {
            self.machine.world.timers[id.index()] = Timer::Armed;
        }
        self.state.sleep_running();
    }

    /// What the running vCPU was doing when it came here.
    pub fn set_in_kernel(&mut self, id: VcpuId, in_kernel: bool) {
        self.machine.world.in_kernel[id.index()] = in_kernel;
    }

    /// Something for a vCPU is sent from here.
    pub fn ring(&mut self, id: VcpuId) {
        let bell = &self.machine.world.bells[id.index()];
        bell.ring_spis(1);
        notify_vcpu(&mut self.state, &mut self.machine, id);
    }

    /// A kick arrives.
    pub fn take_kicks(&mut self) {
        let kicks = self.machine.take_kicks();
        handle(&mut self.state, &mut self.machine, kicks);
    }

    /// Time passes on this core.
    pub fn tick(&mut self) {
        self.machine.now.0 += 1;
        let world = &mut self.machine.world;
        for (id, timer) in (0..).map(VcpuId).zip(&mut world.timers) {
            let parked = world.shared.slot(id).parked();
            let is_parked_here = parked.is_some_and(|it| it.host == self.core);
            if *timer == Timer::Armed && (is_parked_here || self.state.here().contains(id)) {
                *timer = Timer::Due;
            }
        }
        if let Some(id) = self.state.loaded().filter(|&id| moves(id))
            && self.machine.world.timers[id.index()] == Timer::Due
        {
            self.state.refresh_before_entry();
            wake(&mut self.state, &mut self.machine, id);
        }
        if self.state.alarm() <= self.machine.now {
            alarm_rang(&mut self.state, &mut self.machine);
        }
    }

    /// What was to be caught of the running vCPU.
    pub fn caught(&mut self, id: VcpuId) {
        let in_kernel = self.state.catches() == Catch::Entry;
        self.set_in_kernel(id, in_kernel);
        caught(&mut self.state, &mut self.machine);
    }
}

/// Whether it is one of those that change cores.
pub fn moves(id: VcpuId) -> bool {
    MOVING >> id.0 & 1 != 0
}

impl Machine<'_> {
    /// The loaded vCPU gets what has come for it.
    fn hear(&mut self, id: VcpuId) {
        if moves(id) {
            self.world.bells[id.index()].reset();
            if self.world.timers[id.index()] == Timer::Due {
                self.world.timers[id.index()] = Timer::None;
            }
        }
    }

    /// The real-time vCPU's timer, which is in the hardware while it is loaded; else something for it.
    fn rt_wakes(&self) -> Taken {
        let rt = rt_of(self.core.0);
        if self.loaded == Some(rt) {
            Taken::Delivered(VcpuSet::EMPTY)
        } else {
            Taken::Kicks(VcpuSet::of(rt))
        }
    }

    fn take_kicks(&mut self) -> Taken {
        let ids = core::mem::take(&mut self.world.kicked[self.core.index()]);
        Taken::Kicks(VcpuSet::from_bits(ids))
    }
}

impl Platform for Machine<'_> {
    type Token = Token;

    fn shared(&self) -> &Shared {
        &self.world.shared
    }

    fn doorbell(&self, id: VcpuId) -> Option<&Doorbell> {
        self.world.bells.get(id.index())
    }

    fn guest_runs(&self, _: VcpuId) -> bool {
        self.world.life == Life::Running
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

    fn now(&self) -> Ticks {
        self.now
    }

    fn set_alarm(&mut self, at: Ticks) {
        self.alarm = at;
    }

    fn set_priority_mask(&mut self, band: Option<Band>) {
        self.mask = band;
    }

    fn is_interrupted(&self) -> bool {
        let arrives = |(interrupt, point)| match interrupt {
            _ if self.passed != Some(point) => false,
            // A timer of the loaded vCPU is never held back.
            Interrupt::Rt => self.mask <= Some(HIGH) || self.loaded == Some(rt_of(self.core.0)),
            Interrupt::Kick => self.world.kicked[self.core.index()] != 0 && self.mask <= Some(LOW),
        };
        self.alarm <= self.now || self.pending.is_some_and(arrives)
    }

    fn take_interrupt(&mut self, _: Option<&mut Token>) -> Taken {
        if self.alarm <= self.now {
            self.alarm = Ticks::NEVER;
            return Taken::Alarm;
        }
        if !self.is_interrupted() {
            return Taken::Nothing;
        }
        match self.pending.take() {
            None => Taken::Nothing,
            Some((Interrupt::Rt, _)) => self.rt_wakes(),
            Some((Interrupt::Kick, _)) => self.take_kicks(),
        }
    }

    fn deliver(&mut self, loaded: &mut Token, what: Delivery) -> VcpuSet {
        if !matches!(what, Delivery::LateTimer(_)) {
            self.hear(loaded.0);
        }
        VcpuSet::EMPTY
    }

    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.world.kicked[core.index()] |= 1 << id.0;
    }

    fn route_devices(&mut self, _: &Token) {}

    fn store_token(&mut self, id: VcpuId, token: Token) {
        assert_eq!(id, token.0);
        let lies = self.world.lying[id.index()].replace(token);
        assert_eq!(lies, None, "a second token");
    }

    fn take_token(&mut self, id: VcpuId) -> Option<Token> {
        self.world.lying[id.index()].take()
    }

    fn load_registers(&mut self, _: &mut Token) {}

    fn load_interrupts(&mut self, vcpu: &mut Token) -> (VcpuSet, bool) {
        self.loaded = Some(vcpu.0);
        self.hear(vcpu.0);
        (VcpuSet::EMPTY, true)
    }

    fn save(&mut self, loaded: &mut Token, is_asleep: bool) -> Saved {
        let id = loaded.0;
        self.loaded = None;
        let (timer, is_rung) = match moves(id) {
            true => {
                let bell = &self.world.bells[id.index()];
                (self.world.timers[id.index()], !bell.is_silent())
            }
            false => (Timer::None, false),
        };
        Saved {
            deadline: (timer == Timer::Armed).then(|| self.now.saturating_add(Ticks(1))),
            wakes: is_asleep && (timer == Timer::Due || is_rung),
            rung: VcpuSet::EMPTY,
        }
    }

    fn was_in_kernel(&self, vcpu: &Token) -> bool {
        self.world.in_kernel[vcpu.0.index()]
    }

    fn next_timer(&self, vcpu: &Token) -> Option<Ticks> {
        match self.world.timers[vcpu.0.index()] {
            Timer::None => None,
            Timer::Armed => Some(self.now.saturating_add(Ticks(1))),
            Timer::Due => Some(self.now),
        }
    }

    fn sample(&self, loaded: &Token) -> Sample {
        // One that stays in its kernel spins there.
        Sample {
            in_kernel: self.world.in_kernel[loaded.0.index()],
            pc: 0,
            stack: 0,
        }
    }

    fn may_hold_lock(&self, loaded: &Token) -> bool {
        moves(loaded.0) && self.world.in_kernel[loaded.0.index()]
    }

    fn set_catch(&mut self, loaded: &Token, catch: Catch) -> bool {
        moves(loaded.0) || catch == Catch::Nothing
    }

    fn next_chore(&mut self, _: Ticks, _: Option<Band>, _: bool) -> Ticks {
        self.passed = Some(Point::Decided);
        Ticks::NEVER
    }

    fn trace(&mut self, point: TracePoint) {
        match point {
            TracePoint::Decide => self.passed = None,
            // The core has looked what other cores have parked.
            TracePoint::Peeked(_) => self.passed = Some(Point::Looked),
            TracePoint::Saved => self.passed = Some(Point::Saved),
            _ => {}
        }
    }
}
