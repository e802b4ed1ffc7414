//! The hypervisor on one core: what `hypervisor/src/instance/` does around the decisions of `spumone-core`, function by
//! function and by the same names, without registers, guests' lives and devices.
//!
//! Each call of [`Instance::step`] is one turn of the hypervisor's loop. It takes effect at its begin, and the core
//! is back when its cost has passed; what arrives meanwhile is seen then.

mod departure;
mod interrupts;
mod migration;
mod switch;

use crate::setup::Setup;
use crate::time::us;
use crate::world::{RT, Token, World};
use departure::Catch;
pub use departure::TAKE_BACK_AFTER;
use spumone_config::types::{MAX_VCPUS, PcpuId, VcpuId};
use spumone_core::migration::{Conduct, Grace};
use spumone_core::schedule::{Action, Deadlines, Scheduler, Ticks, VcpuState};

/// See `GRACE_STEP_US` of the hypervisor.
const GRACE_STEP: Ticks = us(50);
/// See `GRACE_STEPS` of the hypervisor.
const GRACE_STEPS: u8 = 5;

/// One core's hypervisor. Fields are those of the hypervisor's `Instance`.
#[derive(Debug)]
pub struct Instance {
    core: PcpuId,
    scheduler: Scheduler,
    deadlines: Deadlines,
    vcpus: [Option<Token>; MAX_VCPUS],
    running: Option<VcpuId>,
    loaded: Option<VcpuId>,
    must_decide: bool,
    alarm: Ticks,
    moving: u32,
    at_home: u32,
    strangers: u32,
    sent: u32,
    stays: u32,
    conduct: Conduct,
    keeps_kernels_off: bool,
    patience: Ticks,
    put_off_until: Ticks,
    has_parked: u32,
    to_park: u32,
    tell_at: Ticks,
    look_at: Ticks,
    grace: Grace,
    catches: Catch,
    /// vCPUs for which interrupts get through: the priority mask.
    mask: u32,
    /// When the step under way began.
    begun: Ticks,
    /// Instructions of the step under way.
    spent: u64,
    /// The core is at EL2 until then.
    busy_until: Ticks,
}

impl Instance {
    /// The instance of `core`, with the vCPUs that have their home there.
    pub fn new(core: PcpuId, setup: &Setup, world: &mut World) -> Self {
        let conduct = world.deciding.conduct();
        let at_home = (0..world.vcpus.len() as u8)
            .map(VcpuId)
            .filter(|&id| world.home(id) == core)
            .fold(0, |mask, id| mask | 1 << id.0);
        let mut own = Self {
            core,
            scheduler: Scheduler::new(setup.quantum),
            deadlines: Deadlines::new(),
            vcpus: [const { None }; MAX_VCPUS],
            running: None,
            loaded: None,
            must_decide: true,
            alarm: Ticks::NEVER,
            moving: world.moving,
            at_home: world.moving & at_home,
            strangers: 0,
            sent: 0,
            stays: 0,
            conduct,
            keeps_kernels_off: world.keeps_kernels_off(core),
            patience: conduct.patience.unwrap_or(Ticks(0)),
            put_off_until: Ticks::NEVER,
            has_parked: 0,
            to_park: 0,
            tell_at: Ticks::NEVER,
            look_at: Ticks::NEVER,
            grace: Grace::new(GRACE_STEP, GRACE_STEPS, true),
            catches: Catch::Nothing,
            mask: u32::MAX,
            begun: Ticks(0),
            spent: 0,
            busy_until: Ticks(0),
        };
        for index in 0..world.vcpus.len() {
            let id = VcpuId(index as u8);
            if world.home(id) == core && (id != RT || setup.rt.is_some()) {
                own.adopt(id, world);
                // Others may start it, as with a vCPU that is turned on.
                own.park(world, id);
            }
        }
        own.spent = 0;
        own
    }

    fn adopt(&mut self, id: VcpuId, world: &mut World) {
        world.location[id.index()] = self.core;
        let band = world.band(id);
        let admitted = self.scheduler.admit(id, band, VcpuState::Suspend);
        debug_assert!(admitted.is_ok(), "each vCPU is placed once");
        self.vcpus[id.index()] = Some(Token { id, band });
    }

    /// The time within the step.
    fn now(&self) -> Ticks {
        Ticks(self.begun.0 + self.spent)
    }

    fn spend(&mut self, instructions: u64) {
        self.spent += instructions;
    }

    /// One turn of the loop, at the time that [`Self::next_event`] told.
    pub fn step(&mut self, w: &mut World, now: Ticks) {
        self.begun = now;
        self.spent = 0;
        if !self.must_decide {
            match self.running {
                None => self.idle(w),
                Some(id) if self.loaded == Some(id) => self.run_vcpu(w, id),
                Some(id) => self.exchange(w, id),
            }
        }
        // A step that has cost something is over: what arrived meanwhile comes first.
        if self.must_decide && self.spent <= w.costs.exit {
            if self.interrupt_pending(w) {
                self.take_interrupts(w);
            }
            self.decide(w);
        }
        self.set_alarm();
        w.counters.el2 += self.spent;
        self.busy_until = self.now();
        if let Some(id) = self.in_guest()
            && w.vcpus[id.index()].on.is_none()
        {
            w.enter(id, self.core, self.busy_until);
        }
    }

    /// The vCPU that runs in its guest when the core is not at EL2.
    #[inline]
    pub fn in_guest(&self) -> Option<VcpuId> {
        self.running
            .filter(|_| self.running == self.loaded && !self.must_decide)
    }

    /// When something happens here next if nobody else does anything.
    pub fn next_event(&self, w: &World) -> Ticks {
        if self.must_decide || self.running.is_some() && self.running != self.loaded {
            return self.busy_until;
        }
        if self.in_guest().is_some_and(|id| self.is_caught(w, id)) {
            return self.busy_until;
        }
        let mut next = self.alarm;
        let shared = &w.cores[self.core.index()];
        if shared.kicked & self.mask != 0 {
            next = next.min(shared.arrives);
        }
        if let Some(id) = self.loaded {
            // Of one that sleeps, the timer is still in the hardware.
            let vcpu = &w.vcpus[id.index()];
            next = next.min(vcpu.timer).min(vcpu.end());
        }
        next.max(self.busy_until)
    }

    /// Asks the scheduler who runs now, and makes it so.
    fn decide(&mut self, w: &mut World) {
        w.counters.decisions += 1;
        self.spend(w.costs.decide);
        let mut now = self.now();
        self.wake_due(w, now);
        if self.moving != 0 && self.look_for_work(w, now) {
            now = self.now();
            self.wake_due(w, now);
        }
        if self.holds_back(w, now) {
            return;
        }
        let mut decision = self.scheduler.decide(now);
        if self.moving != 0 {
            decision = self.hold_current(w, now, decision);
        }
        self.must_decide = false;
        if let Action::Switch { to } = decision.action {
            self.switch_to(w, to);
        }
        if self.moving != 0 {
            self.offer(w, now);
        } else if self.conduct.gang {
            self.tell_gang(w);
        }
        self.mask = w.at_least(decision.turn.map(|turn| turn.band));
    }

    /// What the policies `delay` and `cosched` do before a decision. Returns whether the last one stands.
    fn holds_back(&mut self, w: &World, now: Ticks) -> bool {
        if self.conduct.gang {
            self.hold_gang(w);
        }
        let is_put_off = match self.conduct.delay {
            Some(bound) => self.put_off(w, now, bound),
            None => false,
        };
        if is_put_off {
            self.must_decide = false;
            self.mask = w.at_least(self.scheduler.current_band());
        }
        is_put_off
    }

    /// Wakes the vCPUs whose timers have run out, but not those that would not get the core.
    fn wake_due(&mut self, w: &mut World, now: Ticks) {
        let running = self.scheduler.current_band();
        while let Some(id) = self.deadlines.take_due(now, running) {
            if self.moving == 0 {
                self.scheduler.wake(id);
            } else if self.has(w, id) {
                self.wake(w, id);
            }
        }
    }

    /// Sets the alarm to the next time at which something must be decided.
    fn set_alarm(&mut self) {
        let turn = self.scheduler.turn();
        let deadline = self.deadlines.next_alarm(turn).unwrap_or(Ticks::NEVER);
        self.alarm = deadline.min(self.look_at).min(self.tell_at);
    }

    /// Nobody has the core, and something has happened.
    fn idle(&mut self, w: &mut World) {
        if self.alarm <= self.begun {
            self.alarm_rang();
        } else {
            self.take_interrupts(w);
        }
    }

    /// The vCPU that runs was interrupted, or its step is over.
    fn run_vcpu(&mut self, w: &mut World, id: VcpuId) {
        let now = self.begun;
        if self.interrupt_pending(w) {
            w.leave(id, now);
            self.spend(w.costs.exit);
            self.take_interrupts(w);
        } else if self.alarm <= now {
            w.leave(id, now);
            self.spend(w.costs.exit);
            self.alarm_rang();
        } else if self.is_caught(w, id) {
            self.come_back(w, id);
        } else {
            self.end_of_step(w, id);
        }
    }

    /// The vCPU does what is to be caught.
    fn come_back(&mut self, w: &mut World, id: VcpuId) {
        w.leave(id, self.begun);
        self.spend(w.costs.exit);
        self.caught(w, id);
    }

    /// Whose tokens the core has, of the first `count` vCPUs; bit n for vCPU n.
    #[inline]
    pub fn holds(&self, count: usize) -> u32 {
        let mut held = 0;
        for (index, token) in self.vcpus.iter().take(count).enumerate() {
            held |= u32::from(token.is_some()) << index;
        }
        held
    }

    /// Whose registers are on the core.
    pub fn loaded(&self) -> Option<VcpuId> {
        self.loaded
    }

    /// Whether nobody runs here and nothing is being decided.
    pub fn is_idle(&self) -> bool {
        self.running.is_none() && !self.must_decide
    }

    /// Whether a vCPU more urgent than those of the SMP guest runs here.
    pub fn is_cut_off(&self) -> bool {
        self.mask != u32::MAX
    }
}
