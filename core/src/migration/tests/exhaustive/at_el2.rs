// SPDX-License-Identifier: MIT OR Apache-2.0
//! One core at EL2, from an exit to the next entry, or until the core idles: the functions of
//! [`migration`](crate::migration) in the order in which `hypervisor/src/instance/` calls them.

use super::lives::Life;
use super::state::{SharedSnapshot, Timer, World};
use super::{HIGH, MOVING, QUANTUM, STARVED, System, rt_of};
use crate::migration::interrupt::notify_vcpu;
use crate::migration::*;
use crate::schedule::{Band, Ticks};
use crate::sets::VcpuSet;
use crate::vgic::Doorbell;
use spumone_config::types::{PcpuId, VcpuId};

/// The token of a vCPU. A copy of a state has copies of its tokens; a check makes sure that each state has each token
/// once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token(pub VcpuId);

/// A core's own state, and its clock. Clocks of different cores are never compared: they advance independently.
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
    /// Kicks of other cores.
    Kick,
    /// One that asks for a chore of the hypervisor. The priority mask lets it through.
    Chore,
}

/// Where the core looks for interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// It has looked at the parking slots.
    Looked,
    /// It asks the policy about the vCPUs that other cores have parked.
    Asked,
    /// It has claimed a vCPU, and has not yet decided.
    Claimed,
    /// It has decided, and set the priority mask.
    Decided,
    /// It has parked a vCPU.
    Parked,
    /// It has decided, and saved the vCPU that ran before.
    Saved,
}

impl Point {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Looked,
        Self::Asked,
        Self::Claimed,
        Self::Decided,
        Self::Parked,
        Self::Saved,
    ];
}

/// A core at EL2.
pub struct AtEl2<'a> {
    pub(super) core: PcpuId,
    pub(super) state: CoreState<Token>,
    pub(super) machine: Machine<'a>,
}

/// The machine around it.
pub struct Machine<'a> {
    pub(super) system: &'a System,
    core: PcpuId,
    now: Ticks,
    pub(super) world: World,
    /// The vCPU whose registers are on the core.
    loaded: Option<VcpuId>,
    /// The time for which the alarm is armed.
    alarm: Ticks,
    /// An interrupt that arrives while the core is at EL2.
    pending: Option<(Interrupt, Point)>,
    /// Saving the registers of another vCPU rings the doorbell of this one.
    rung_by_save: Option<VcpuId>,
    /// The last of the points that the core has passed.
    passed: Option<Point>,
    /// The priority mask: interrupts of this band and above are let through.
    mask: Option<Band>,
    /// An interrupt was delivered to this vCPU while it was loaded.
    delivered: Option<VcpuId>,
}

impl<'a> AtEl2<'a> {
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
                rung_by_save: None,
                passed: None,
                mask: state.current_band(),
                delivered: None,
            },
            state,
        }
    }

    /// Runs the core's loop until it enters a guest or idles.
    pub fn end(mut self) -> (Own, SharedSnapshot) {
        // Each iteration decides, saves or loads. More iterations than this are a livelock.
        for _ in 0..64 {
            match next_action(&mut self.state, &mut self.machine) {
                Next::Decide => {}
                Next::Idle => {
                    if !follow_wish(&mut self.state, &mut self.machine) {
                        return self.rest();
                    }
                }
                Next::Await => {
                    self.waits_rightly();
                    return self.rest_at_el2();
                }
                Next::Run(_) => {
                    if self.state.must_refresh() {
                        refresh(&mut self.state, &mut self.machine);
                    }
                    self.state.enters_guest();
                    return self.rest();
                }
                Next::Switch(id) if self.is_loading(id) => return self.rest(),
                Next::Switch(id) => switch(&mut self.state, &mut self.machine, id),
                // The chore is done, and no other one is due later.
                Next::Chore(now) => {
                    set_chore(&mut self.state, &self.machine, now, Ticks::NEVER);
                }
            }
        }
        panic!("core {} does not enter a guest or idle", self.core.0);
    }

    fn rest(mut self) -> (Own, SharedSnapshot) {
        if let Some(id) = self.state.running().filter(|&id| moves(id)) {
            // From now on the guest may do anything, so its former state does not count.
            self.machine.world.in_kernel[id.index()] = false;
            self.machine.world.timers[id.index()] = Timer::None;
        }
        self.rest_at_el2()
    }

    /// The running vCPU is not entered before an interrupt comes for it.
    fn waits_rightly(&self) {
        let Some(id) = self.state.running() else {
            panic!("core {} waits for no vCPU", self.core.0);
        };
        assert_ne!(
            self.machine.delivered,
            Some(id),
            "vCPU {id} waits, and has an interrupt"
        );
        let timer = self.machine.world.timers[id.index()];
        assert_eq!(timer, Timer::Armed, "vCPU {id} waits for no timer");
    }

    /// The core enters no guest, or the running vCPU's guest executes nothing.
    fn rest_at_el2(self) -> (Own, SharedSnapshot) {
        assert_eq!(
            self.machine.mask,
            self.state.current_band(),
            "core {} enters a guest, or idles, with the priority mask of another band",
            self.core.0
        );
        let now = self.machine.now;
        let shared = self.machine.world.snapshot(now);
        let own = Own {
            state: self.state,
            now,
        };
        (own, shared)
    }

    /// The real-time vCPU wakes, or sleeps again.
    pub fn rt(&mut self, wakes: bool) {
        if wakes {
            let interrupt = self.machine.rt_wakes();
            handle(&mut self.state, &mut self.machine, interrupt);
        } else {
            let now = self.machine.now;
            self.state.sleep_running(|| now);
        }
    }

    /// See `What::Between`.
    pub fn between(&mut self, interrupt: Interrupt, point: Point) {
        self.machine.pending = Some((interrupt, point));
        self.decide_anew(interrupt != Interrupt::Kick);
    }

    /// See `What::RungBySave`.
    pub fn ring_by_save(&mut self, id: VcpuId) {
        self.machine.rung_by_save = Some(id);
        self.decide_anew(true);
    }

    /// The real-time vCPU goes to sleep, kicks arrive if `takes_kicks` allows it, or time passes.
    fn decide_anew(&mut self, takes_kicks: bool) {
        let rt = rt_of(self.core.0);
        let is_kicked = self.machine.is_kicked();
        if self.state.scheduler.current() == Some(rt) {
            self.rt(false);
        } else if is_kicked && takes_kicks {
            self.take_kicks();
        } else {
            self.tick();
        }
        // Makes the core pass all points, even if the event calls for no decision.
        self.state.decide_anew();
    }

    /// The running vCPU waits for an interrupt.
    pub fn wait(&mut self, id: VcpuId, timer: bool) {
        self.set_in_kernel(id, true);
        if timer {
            self.machine.world.timers[id.index()] = Timer::Armed;
        }
        sleep(&mut self.state, &self.machine);
    }

    /// Whether the running vCPU was in its kernel at the exit.
    pub fn set_in_kernel(&mut self, id: VcpuId, in_kernel: bool) {
        self.machine.world.in_kernel[id.index()] = in_kernel;
    }

    /// This core sends an interrupt for a vCPU.
    pub fn ring(&mut self, id: VcpuId) {
        let doorbell = &self.machine.world.doorbells[id.index()];
        doorbell.ring_spis(1);
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
            if *timer == Timer::Armed && (is_parked_here || self.state.tokens().contains(id)) {
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
            alarm_expired(&mut self.state, &mut self.machine);
        }
    }

    /// The running vCPU does what is caught.
    pub fn caught(&mut self, id: VcpuId) {
        let in_kernel = self.state.catches() == Catch::Entry;
        self.set_in_kernel(id, in_kernel);
        caught(&mut self.state, &mut self.machine);
    }
}

/// Whether a vCPU is one that migrates.
pub fn moves(id: VcpuId) -> bool {
    MOVING >> id.0 & 1 != 0
}

impl Machine<'_> {
    /// Delivers to the loaded vCPU what its doorbell and its timer have for it.
    fn deliver_all(&mut self, id: VcpuId) {
        if moves(id) {
            self.world.doorbells[id.index()].reset();
            if self.world.timers[id.index()] == Timer::Due {
                self.world.timers[id.index()] = Timer::None;
            }
        }
    }

    /// What wakes the real-time vCPU: its timer while it is loaded, else a kick.
    fn rt_wakes(&self) -> Taken {
        let rt = rt_of(self.core.0);
        if self.loaded == Some(rt) {
            Taken::Delivered(VcpuSet::EMPTY)
        } else {
            Taken::Kicks(VcpuSet::of(rt))
        }
    }

    /// Whether the priority mask lets a kick through. A kick has the band of its vCPU.
    fn is_kicked(&self) -> bool {
        let kicked = VcpuSet::from_bits(self.world.kicked[self.core.index()]);
        kicked
            .iter()
            .any(|id| self.mask <= Some(self.system.band(id)))
    }

    /// With one kick, a core takes all that are pending, also those that the priority mask holds back.
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
        self.world.doorbells.get(id.index())
    }

    fn guest_runs(&self, _: VcpuId) -> bool {
        self.world.life == Life::Running
    }

    fn verdict(&mut self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        let mut candidate = *candidate;
        // The time after which a vCPU starves is many ticks, and one tick since parking stands for it.
        if candidate.since < fetcher.now {
            candidate.since = fetcher.now.saturating_sub(STARVED);
        }
        match self.system.policy.verdict(fetcher, &candidate) {
            Verdict::Later(at) => Verdict::Later(at.min(fetcher.now.saturating_add(QUANTUM))),
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
            // The priority mask never holds back a timer of the loaded vCPU.
            Interrupt::Rt => self.mask <= Some(HIGH) || self.loaded == Some(rt_of(self.core.0)),
            Interrupt::Kick => self.is_kicked(),
            Interrupt::Chore => true,
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
            Some((Interrupt::Chore, _)) => Taken::Chore,
        }
    }

    fn deliver(&mut self, loaded: &mut Token, what: Delivery) -> VcpuSet {
        if !matches!(what, Delivery::LateTimer(_)) {
            self.delivered = Some(loaded.0);
            self.deliver_all(loaded.0);
        }
        VcpuSet::EMPTY
    }

    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.world.kicked[core.index()] |= 1 << id.0;
    }

    fn route_devices(&mut self, _: &Token) {}

    fn store_token(&mut self, token: Token) {
        let former = self.world.tokens[token.0.index()].replace(token);
        assert_eq!(former, None, "a second token");
    }

    fn take_token(&mut self, claim: Claim) -> Option<Token> {
        self.world.tokens[claim.vcpu().index()].take()
    }

    fn load_registers(&mut self, _: &mut Token) {}

    fn load_interrupts(&mut self, vcpu: &mut Token, _: Ticks) -> (VcpuSet, bool) {
        self.loaded = Some(vcpu.0);
        self.deliver_all(vcpu.0);
        (VcpuSet::EMPTY, true)
    }

    fn save(&mut self, loaded: &mut Token, _: Option<Ticks>, is_asleep: bool, _: bool) -> Saved {
        let id = loaded.0;
        self.loaded = None;
        let rung = match self.rung_by_save.take_if(|it| *it != id) {
            Some(other) => {
                self.world.doorbells[other.index()].ring_spis(1);
                VcpuSet::of(other)
            }
            None => VcpuSet::EMPTY,
        };
        let (timer, is_rung) = match moves(id) {
            true => {
                let doorbell = &self.world.doorbells[id.index()];
                (self.world.timers[id.index()], !doorbell.is_silent())
            }
            false => (Timer::None, false),
        };
        Saved {
            deadline: (timer == Timer::Armed).then(|| self.now.saturating_add(Ticks(1))),
            wakes: is_asleep && (timer == Timer::Due || is_rung),
            rung,
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

    fn loaded_timer(&self) -> Option<Ticks> {
        let id = self.loaded.filter(|&id| moves(id))?;
        match self.world.timers[id.index()] {
            Timer::None => None,
            Timer::Armed => Some(self.now.saturating_add(Ticks(1))),
            Timer::Due => Some(self.now),
        }
    }

    fn sample(&self, loaded: &Token) -> Sample {
        // A vCPU that stays in its kernel spins there.
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

    fn is_wanted(&self, core: PcpuId) -> bool {
        self.system.is_wanted(core.0, &self.world)
    }

    fn next_chore(&mut self, _: Ticks, _: Option<Band>, _: bool) -> Ticks {
        self.passed = Some(Point::Decided);
        Ticks::NEVER
    }

    fn trace(&mut self, point: TracePoint) {
        match point {
            TracePoint::Decide => self.passed = None,
            // The core has looked at the parking slots.
            TracePoint::Peeked(_) => self.passed = Some(Point::Looked),
            TracePoint::Look => self.passed = Some(Point::Asked),
            TracePoint::Taken => self.passed = Some(Point::Claimed),
            TracePoint::Parked => self.passed = Some(Point::Parked),
            TracePoint::Saved => self.passed = Some(Point::Saved),
            _ => {}
        }
    }
}
