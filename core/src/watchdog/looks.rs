// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the core of the console looks whether watchdogs have expired.
//!
//! One core looks after the watchdogs of all guests, so that turning one on and petting it sends no core a message. That core finds out at its
//! regular looks ([`LOOK_US`]), which are closer together than the shortest timeout, and arms its alarm for the first end of a timeout. Other
//! cores have nothing to do for watchdogs.

use crate::console::LOOK_US;
use crate::schedule::Ticks;

/// Shortest time between two looks for which the alarm is armed, in microseconds. If a vCPU waits for a core when the timeout would end, the
/// end moves on with the time.
const STEP_US: u32 = 500;

/// When a core looks.
#[derive(Clone, Copy, Debug)]
pub struct Looks {
    /// When the first watchdog expires, by the last look.
    due: Ticks,
    /// When the core looks again if it does something for the console then.
    again: Ticks,
    look: Ticks,
    step: Ticks,
}

impl Looks {
    /// For a core before its first look. Only one core `looks`, if a guest has a watchdog.
    pub const fn new(looks: bool, frequency_hz: u32) -> Self {
        Self {
            due: Ticks::NEVER,
            again: if looks { Ticks(0) } else { Ticks::NEVER },
            look: Ticks::from_micros(LOOK_US, frequency_hz),
            step: Ticks::from_micros(STEP_US, frequency_hz),
        }
    }

    /// When the alarm is to expire for a watchdog.
    #[inline(always)]
    pub const fn due(&self) -> Ticks {
        self.due
    }

    /// Whether the core, which serves the console or was interrupted by the alarm, is to look.
    pub fn are_due(&self, now: Ticks) -> bool {
        now >= self.due || now >= self.again
    }

    /// The core begins to look: it has found no watchdog that is on yet.
    pub fn begin(&mut self, now: Ticks) {
        self.due = Ticks::NEVER;
        self.again = now.saturating_add(self.look);
    }

    /// The core has found a watchdog that is on and has not expired, with so much time left.
    pub fn found(&mut self, now: Ticks, left: Ticks) {
        self.due = self.due.min(now.saturating_add(left.max(self.step)));
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// One tick is a microsecond.
    const HZ: u32 = 1_000_000;

    #[test]
    fn the_alarm_is_for_the_first_watchdog() {
        let mut looks = Looks::new(true, HZ);
        assert!(looks.are_due(Ticks(0)) && looks.due() == Ticks::NEVER);
        looks.begin(Ticks(10));
        looks.found(Ticks(10), Ticks(2_000_000));
        looks.found(Ticks(10), Ticks(1_000_000));
        assert_eq!(looks.due(), Ticks(1_000_010));
        assert!(!looks.are_due(Ticks(40_009)) && looks.are_due(Ticks(40_010)));
        // All are off.
        looks.begin(Ticks(50_000));
        assert_eq!(looks.due(), Ticks::NEVER);
    }

    #[test]
    fn the_alarm_does_not_expire_again_and_again_while_a_vcpu_waits() {
        let mut looks = Looks::new(true, HZ);
        looks.begin(Ticks(0));
        looks.found(Ticks(0), Ticks(1));
        assert_eq!(looks.due(), Ticks(u64::from(STEP_US)));
    }

    #[test]
    fn other_cores_never_look() {
        let looks = Looks::new(false, HZ);
        assert!(!looks.are_due(Ticks(u64::MAX - 1)));
    }
}
