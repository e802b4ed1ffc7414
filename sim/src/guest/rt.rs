// SPDX-License-Identifier: MIT OR Apache-2.0
//! The real-time guest: a task with a period, and the tick of its system.

use super::{Doing, ENDLESS, Exit, TIMER, Vcpu};
use crate::setup::Rt;
use spumone_core::schedule::Ticks;

/// Instructions of its handler and scheduler for each tick.
const TICK: u64 = 300;

/// The guest.
#[derive(Debug)]
pub struct RtTask {
    rt: Rt,
    /// How much of the first period has passed at the start.
    phase: Ticks,
    /// When the timer that is set, or has just expired, was due.
    due: Ticks,
    /// The longest time from the timer to the first instruction of the handler.
    pub longest_wait: Ticks,
    /// How often it was woken.
    pub activations: u64,
}

impl RtTask {
    /// A guest whose first period has lasted for `phase` at the start.
    pub fn new(rt: Rt, phase: Ticks) -> Self {
        Self {
            rt,
            phase,
            due: Ticks(0),
            longest_wait: Ticks(0),
            activations: 0,
        }
    }

    /// How long the task will still be busy in this period.
    fn busy_for(&self, now: Ticks) -> u64 {
        let passed = (now.0 + self.phase.0) % self.rt.period.0;
        self.rt.busy.0.saturating_sub(passed)
    }

    /// When its timer is due next.
    fn next_timer(&self, now: Ticks) -> Ticks {
        let next_of = |length: Ticks| now.0 + length.0 - (now.0 + self.phase.0) % length.0;
        let tick = self.rt.tick.map_or(u64::MAX, next_of);
        Ticks(tick.min(next_of(self.rt.period)))
    }

    /// Its step, or its work, is over.
    pub fn advance(&mut self, now: Ticks, vcpu: &mut Vcpu) -> Exit {
        if vcpu.timer == Ticks::NEVER {
            vcpu.timer = self.next_timer(now);
            self.due = vcpu.timer;
        }
        let busy = self.busy_for(now);
        if busy != 0 {
            vcpu.begin(Doing::User, busy);
            return Exit::None;
        }
        vcpu.begin(Doing::Wait, 0);
        Exit::Wfi
    }

    /// Its timer has expired, and it runs.
    pub fn deliver(&mut self, now: Ticks, vcpu: &mut Vcpu) {
        debug_assert!(vcpu.left != ENDLESS);
        if vcpu.irqs & TIMER != 0 && vcpu.is_open() {
            vcpu.irqs = 0;
            self.activations += 1;
            self.longest_wait = self.longest_wait.max(now.saturating_sub(self.due));
            vcpu.begin(Doing::Masked, TICK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::us;

    #[test]
    fn it_is_busy_at_the_start_of_each_period_and_ticks() {
        let rt = Rt {
            period: us(500),
            busy: us(100),
            tick: Some(us(200)),
        };
        let task = RtTask::new(rt, us(50));
        assert_eq!(task.busy_for(us(0)), us(50).0);
        assert_eq!(task.busy_for(us(50)), 0);
        assert_eq!(task.busy_for(us(450)), us(100).0);
        assert_eq!(task.next_timer(us(0)), us(150));
        assert_eq!(task.next_timer(us(150)), us(350));
        assert_eq!(task.next_timer(us(350)), us(450));
    }
}
