// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the console's core attends to the console: to what is typed, and to the hypervisor's answers.
//!
//! The UART's interrupt has the lowest band, so that nothing typed or printed disturbs an urgent guest.
//! A guest above the lowest band that keeps the core would lock the operator out; so would one of the
//! lowest band that storms the core with interrupts. So the core's alarm also rings for the console:
//!
//! - above the lowest band, when the core has been there for [`LOOK_US`] without a break. A real-time
//!   guest whose bursts are shorter is never disturbed. One that keeps the core pays a step now and then;
//! - in the lowest band, and while the core idles, every [`LOOK_US`] as well;
//! - while an answer is not yet out, every [`STEP_US`], whichever vCPU runs.
//!
//! The alarm leads to a [`Duty`]: a number of steps, each short, with a look for interrupts before each. More than
//! one is done only while none waits; and the first, too, is put off for a vCPU that has become runnable, but not
//! twice in a row, so that no storm of interrupts stops the console.

use crate::schedule::Ticks;

/// How long the core may be away from the console, in microseconds.
pub const LOOK_US: u32 = 40_000;
/// Time between two steps while an answer waits, in microseconds.
const STEP_US: u32 = 50;
/// The same while the UART is full: so long a slow one takes for a few bytes, in microseconds.
const FULL_US: u32 = 1_000;
/// How often lines without an end are looked for, in microseconds.
const IDLE_LINES_US: u32 = 100_000;
/// Steps of one duty in the lowest band, and while the core idles.
const STEPS_WHILE_LOW: usize = 128;
/// Steps of one duty above the lowest band.
const STEPS_WHILE_URGENT: usize = 1;

/// What a ring of the alarm asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duty {
    /// Steps at most.
    pub steps: usize,
    /// Lines without an end are to be looked for first.
    pub looks_for_idle_lines: bool,
}

/// What is left after a duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing that the operator waits for.
    Nothing,
    /// Input, or an answer.
    Some,
    /// The same, and the UART takes no more for now.
    UartFull,
}

/// When a core attends to the console. On all cores but the console's: never.
#[derive(Clone, Debug)]
pub struct Attendance {
    due: Ticks,
    /// When it is due in the lowest band: bursts of higher ones do not put that off.
    due_while_low: Ticks,
    /// The core has come from a higher band to the lowest or to idling, or the other way, when
    /// `is_low as u8` is this.
    turns_at: u8,
    /// The operator waits for something: `due` stands whatever band comes.
    is_pressing: bool,
    /// The last duty was left for a more urgent vCPU.
    has_yielded: bool,
    idle_lines_at: Ticks,
    look: Ticks,
    step: Ticks,
    full: Ticks,
    idle_lines: Ticks,
}

/// A value of `turns_at` that never comes.
const NO_TURN: u8 = 2;

impl Attendance {
    /// Of a core before its first decision. Only the console's core `attends`.
    pub const fn new(attends: bool, frequency_hz: u32) -> Self {
        Self {
            due: if attends { Ticks(0) } else { Ticks::NEVER },
            due_while_low: Ticks(0),
            turns_at: if attends { true as u8 } else { NO_TURN },
            is_pressing: false,
            has_yielded: false,
            idle_lines_at: Ticks(0),
            look: Ticks::from_micros(LOOK_US, frequency_hz),
            step: Ticks::from_micros(STEP_US, frequency_hz),
            full: Ticks::from_micros(FULL_US, frequency_hz),
            idle_lines: Ticks::from_micros(IDLE_LINES_US, frequency_hz),
        }
    }

    /// When the alarm is to ring for the console.
    #[inline(always)]
    pub const fn due(&self) -> Ticks {
        self.due
    }

    /// After a decision: whether [`duty`](Self::duty) is due; `is_low`: the core idles, or
    /// runs the lowest band, from here on.
    // Inlined, because it is on the way to each real-time dispatch.
    #[inline(always)]
    pub fn is_concerned(&mut self, now: Ticks, is_low: bool) -> bool {
        if is_low as u8 == self.turns_at {
            self.turns_at = !is_low as u8;
            if !self.is_pressing {
                self.due = if is_low {
                    self.due_while_low
                } else {
                    // The console's interrupt was free to come until now.
                    now.saturating_add(self.look)
                };
            }
        }
        now >= self.due
    }

    /// What is due now. When it is done, call [`done`](Self::done).
    pub fn duty(&mut self, now: Ticks, is_low: bool) -> Duty {
        let looks_for_idle_lines = is_low && now >= self.idle_lines_at;
        if looks_for_idle_lines {
            self.idle_lines_at = now.saturating_add(self.idle_lines);
        }
        Duty {
            steps: if is_low {
                STEPS_WHILE_LOW
            } else {
                STEPS_WHILE_URGENT
            },
            looks_for_idle_lines,
        }
    }

    /// A more urgent vCPU may wait: whether the duty is left for the time of a step. Of two in a row one is not, so
    /// that no storm stops the console.
    pub fn yields(&mut self, now: Ticks) -> bool {
        self.has_yielded = !self.has_yielded;
        if self.has_yielded {
            self.due = now.saturating_add(self.step);
        }
        self.has_yielded
    }

    /// The duty is done, up to this.
    pub fn done(&mut self, now: Ticks, left: Left) {
        self.has_yielded = false;
        self.is_pressing = left != Left::Nothing;
        self.due_while_low = now.saturating_add(self.look);
        self.due = now.saturating_add(match left {
            Left::Nothing => self.look,
            Left::Some => self.step,
            Left::UartFull => self.full,
        });
    }

    /// The operator has asked for something: it is due at once. On the console's core only.
    pub fn press(&mut self) {
        self.is_pressing = true;
        self.due = Ticks(0);
    }

    /// Whether the operator waits for something.
    pub const fn is_pressing(&self) -> bool {
        self.is_pressing
    }

    /// No duty can be done now, since the core holds its last decision for another reason.
    pub fn put_off(&mut self, now: Ticks) {
        if now >= self.due {
            self.due = now.saturating_add(self.step);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One tick is a microsecond.
    const HZ: u32 = 1_000_000;
    const LOOK: u64 = LOOK_US as u64;
    const STEP: u64 = STEP_US as u64;

    fn decided(attendance: &mut Attendance, now: u64, is_low: bool) -> Option<Duty> {
        let now = Ticks(now);
        attendance
            .is_concerned(now, is_low)
            .then(|| attendance.duty(now, is_low))
    }

    /// Attended to at 0, in the lowest band.
    fn attended() -> Attendance {
        let mut attendance = Attendance::new(true, HZ);
        assert!(decided(&mut attendance, 0, true).is_some());
        attendance.done(Ticks(0), Left::Nothing);
        attendance
    }

    #[test]
    fn other_cores_never_attend() {
        let mut attendance = Attendance::new(false, HZ);
        for now in 0..3 {
            for is_low in [true, false] {
                assert!(!attendance.is_concerned(Ticks(now * LOOK), is_low));
                attendance.put_off(Ticks(now * LOOK));
                assert_eq!(attendance.due(), Ticks::NEVER);
            }
        }
    }

    #[test]
    fn a_short_burst_is_not_disturbed() {
        let mut attendance = attended();
        assert_eq!(decided(&mut attendance, LOOK - 1, false), None);
        assert_eq!(attendance.due(), Ticks(2 * LOOK - 1));
        assert_eq!(decided(&mut attendance, 2 * LOOK - 2, false), None);
        // What is due in the lowest band comes when that band does.
        assert!(decided(&mut attendance, 2 * LOOK - 2, true).is_some());
    }

    #[test]
    fn a_long_burst_pays_one_step_now_and_then() {
        let mut attendance = attended();
        assert_eq!(decided(&mut attendance, 5, false), None);
        for look in 1..4 {
            let now = look * LOOK + 5;
            assert_eq!(decided(&mut attendance, now - 1, false), None);
            let duty = decided(&mut attendance, now, false);
            assert_eq!(duty.map(|duty| duty.steps), Some(STEPS_WHILE_URGENT));
            attendance.done(Ticks(now), Left::Nothing);
        }
    }

    #[test]
    fn what_the_operator_waits_for_is_due_in_every_band() {
        let mut attendance = attended();
        attendance.press();
        assert!(decided(&mut attendance, 10, false).is_some());
        attendance.done(Ticks(10), Left::Some);
        assert_eq!(decided(&mut attendance, 11, true), None);
        assert_eq!(decided(&mut attendance, 12, false), None);
        assert_eq!(attendance.due(), Ticks(10 + STEP));
    }

    #[test]
    fn idle_lines_wait_for_the_lowest_band() {
        let mut attendance = Attendance::new(true, HZ);
        let looks = |duty: Option<Duty>| duty.is_some_and(|duty| duty.looks_for_idle_lines);
        assert!(looks(decided(&mut attendance, 0, true)));
        attendance.done(Ticks(0), Left::Nothing);
        decided(&mut attendance, 1, false);
        assert!(!looks(decided(&mut attendance, 4 * LOOK, false)));
        attendance.done(Ticks(4 * LOOK), Left::Nothing);
        assert!(!looks(decided(&mut attendance, 4 * LOOK + 1, true)));
        assert!(looks(decided(&mut attendance, 5 * LOOK, true)));
    }

    #[test]
    fn a_decision_that_stands_puts_a_duty_off_for_a_step() {
        let mut attendance = attended();
        attendance.put_off(Ticks(LOOK - 1));
        assert_eq!(attendance.due(), Ticks(LOOK));
        attendance.put_off(Ticks(LOOK));
        assert_eq!(attendance.due(), Ticks(LOOK + STEP));
    }

    #[test]
    fn a_more_urgent_vcpu_goes_first_once() {
        let mut attendance = attended();
        for round in 1..4 {
            assert!(decided(&mut attendance, round * LOOK, true).is_some());
            assert!(attendance.yields(Ticks(round * LOOK)));
            assert_eq!(
                decided(&mut attendance, round * LOOK + STEP - 1, true),
                None
            );
            assert!(decided(&mut attendance, round * LOOK + STEP, true).is_some());
            assert!(!attendance.yields(Ticks(round * LOOK + STEP)));
            attendance.done(Ticks(round * LOOK), Left::Nothing);
        }
    }

    proptest! {
        /// Whatever bands come, and however short: a core that decides when its alarm rings attends every
        /// `LOOK`; or it was in the lowest band since, where the interrupt comes through; and there, too, it
        /// attends every `LOOK` if it decides there.
        #[test]
        fn the_operator_is_never_locked_out(
            bursts in proptest::collection::vec((1_u64..2 * LOOK, any::<bool>()), 1..60)
        ) {
            let mut attendance = attended();
            let (mut now, mut attended_at, mut low_at) = (0, 0, 0);
            for (length, is_low) in bursts {
                let end = now + length;
                while now < end {
                    prop_assert!(attended_at.max(low_at) + LOOK >= now);
                    prop_assert!(!is_low || attended_at + LOOK >= now || now == low_at || end - now == length);
                    if let Some(duty) = decided(&mut attendance, now, is_low) {
                        prop_assert!(is_low || now >= low_at + LOOK, "a short burst is disturbed");
                        prop_assert!(duty.steps > 0);
                        attendance.done(Ticks(now), Left::Nothing);
                        attended_at = now;
                    }
                    if is_low {
                        prop_assert!(attended_at + LOOK > now);
                    }
                    let rings = attendance.due().0;
                    prop_assert!(rings > now, "it would ring for ever");
                    now = rings.min(end);
                    if is_low {
                        low_at = now;
                    }
                }
            }
        }
    }
}
