// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the console's core serves the console: reads what is typed, and prints the hypervisor's answers.
//!
//! The UART's interrupt has the lowest band, so that input and output do not interrupt a guest of a higher band. But
//! then a guest above the lowest band that never leaves the core would lock the operator out, and so would a guest of
//! the lowest band that keeps the core busy with interrupts. So the core's alarm also expires for the console:
//!
//! - above the lowest band, when the core has run there for [`LOOK_US`] without a break. A real-time guest whose bursts
//!   are shorter is never interrupted for it. A guest that never leaves the core is interrupted for one step each time;
//! - in the lowest band, and while the core idles, every [`LOOK_US`] as well;
//! - while an answer is not fully printed, about every [`STEP_US`], in any band.
//!
//! A guest above the lowest band often has a periodic timer. If a duty came with an interrupt of that timer, the guest's task would wait for
//! both. So duties come [`APART_US`] and a multiple of [`STEP_US`] after such an interrupt: at least [`APART_US`] before and after each one, if
//! the period is a multiple of 25 µs. The first duty after a guest has taken the core comes [`FIRST_APART_US`] and 40 ms later. A guest that has begun its life
//! has no timer yet: the first interrupt of its timer, if it comes while the guest runs, [moves the next duty](Attendance::timer_has_come).
//!
//! When the alarm expires, the core does a [`Duty`]: a number of short steps. It looks for interrupts before each one. It
//! does more than one only while no interrupt is pending. It defers even the first for a vCPU that has become runnable,
//! but not twice in a row, so that no storm of interrupts stops the console.

use crate::schedule::Ticks;

/// The time between two duties while the operator waits for nothing, in microseconds.
pub const LOOK_US: u32 = 40_000;
/// Time between two steps while an answer waits, in microseconds.
const STEP_US: u32 = 50;
/// The time between an interrupt of a guest's periodic timer and a duty, in microseconds. It is longer than a dispatch of the guest's task.
const APART_US: u32 = 12;
/// The same from when a guest takes the core: it may do so up to 10 µs before the interrupt, if the core has switched early. If `wake-early` is longer, the first
/// duty may come with an interrupt.
const FIRST_APART_US: u32 = 18;
/// Time between two steps while the UART is full, in microseconds: a slow UART takes this long for a few bytes.
const FULL_US: u32 = 1_000;
/// Time between two looks for unfinished lines, in microseconds.
const IDLE_LINES_US: u32 = 100_000;
/// Steps of one duty in the lowest band, and while the core idles.
const STEPS_WHILE_LOW: usize = 128;
/// Steps of one duty above the lowest band.
const STEPS_ABOVE_LOWEST_BAND: usize = 1;

/// What the core must do for the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duty {
    /// The largest number of steps.
    pub steps: usize,
    /// Whether the core looks for unfinished lines first.
    pub looks_for_idle_lines: bool,
}

/// What is left after a duty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing for which the operator waits.
    Nothing,
    /// Input to read, or an answer to print.
    Some,
    /// The same, and the UART is full.
    UartFull,
}

/// When a core serves the console. Cores other than the console's never do.
#[derive(Clone, Debug)]
pub struct Attendance {
    due: Ticks,
    /// When it is due in the lowest band. Bursts of higher bands do not delay that.
    due_while_low: Ticks,
    /// The value of `is_low as u8` at which the core has changed between the lowest band (or idling) and a higher one.
    turns_at: u8,
    /// Whether the operator waits for something, or the core [comes back](Attendance::come_back): then `due` does not depend on the band.
    is_operator_waiting: bool,
    /// When the timer of the guest above the lowest band interrupts or has interrupted; or a multiple of a step earlier.
    interrupt: Ticks,
    /// Whether `interrupt` is not known, since the guest's timer was not set.
    misses_interrupt: bool,
    /// Whether the last duty was deferred for a vCPU that had become runnable.
    was_deferred: bool,
    idle_lines_at: Ticks,
    look: Ticks,
    /// `look`, and what [`FIRST_APART_US`] says.
    first_look: Ticks,
    apart: Ticks,
    step: Ticks,
    full: Ticks,
    idle_lines: Ticks,
}

/// A value of `turns_at` that `is_low as u8` never has.
const NO_TURN: u8 = 2;

impl Attendance {
    /// For a core before its first decision. Only the console's core `attends`.
    pub const fn new(attends: bool, frequency_hz: u32) -> Self {
        Self {
            due: if attends { Ticks(0) } else { Ticks::NEVER },
            due_while_low: Ticks(0),
            turns_at: if attends { true as u8 } else { NO_TURN },
            is_operator_waiting: false,
            interrupt: Ticks(0),
            misses_interrupt: false,
            was_deferred: false,
            idle_lines_at: Ticks(0),
            look: Ticks::from_micros(LOOK_US, frequency_hz),
            first_look: Ticks::from_micros(LOOK_US + FIRST_APART_US, frequency_hz),
            apart: Ticks::from_micros(APART_US, frequency_hz),
            step: Ticks::from_micros(STEP_US, frequency_hz),
            full: Ticks::from_micros(FULL_US, frequency_hz),
            idle_lines: Ticks::from_micros(IDLE_LINES_US, frequency_hz),
        }
    }

    /// When the alarm is to expire for the console.
    #[inline(always)]
    pub const fn due(&self) -> Ticks {
        self.due
    }

    /// The core has decided; `is_low`: it idles, or runs the lowest band, from now on. [`due`](Self::due) follows.
    // Inlined, because it is on the path of each real-time dispatch.
    #[inline(always)]
    pub fn decided(&mut self, now: Ticks, is_low: bool) {
        if is_low as u8 == self.turns_at {
            self.turns_at = !is_low as u8;
            if !is_low {
                self.interrupt = now;
            }
            if !self.is_operator_waiting {
                self.due = if is_low {
                    self.due_while_low
                } else {
                    // The priority mask has let the console's interrupt through until now.
                    now.saturating_add(self.first_look)
                };
            }
        }
    }

    /// The duty that is due now. To be followed by [`done`](Self::done).
    pub fn duty(&mut self, now: Ticks, is_low: bool) -> Duty {
        let looks_for_idle_lines = is_low && now >= self.idle_lines_at;
        if looks_for_idle_lines {
            self.idle_lines_at = now.saturating_add(self.idle_lines);
        }
        Duty {
            steps: if is_low {
                STEPS_WHILE_LOW
            } else {
                STEPS_ABOVE_LOWEST_BAND
            },
            looks_for_idle_lines,
        }
    }

    /// A vCPU has become runnable: returns whether the duty is deferred by the time of a step. It is not deferred twice
    /// in a row, so that no storm of interrupts stops the console.
    pub fn yields(&mut self, now: Ticks) -> bool {
        self.was_deferred = !self.was_deferred;
        if self.was_deferred {
            self.due = now.saturating_add(self.step);
        }
        self.was_deferred
    }

    /// The core comes back for something else after the time of a step.
    pub fn come_back(&mut self, now: Ticks) {
        self.is_operator_waiting = true;
        self.due = self.due.min(self.about(now, self.step));
    }

    /// The duty is done, except for what is left. `timer`: when the first timer of the loaded vCPU expires, or has expired.
    pub fn done(&mut self, now: Ticks, left: Left, timer: Option<Ticks>) {
        match timer {
            Some(timer) => self.set_interrupt(timer),
            None => self.misses_interrupt = !self.is_low(),
        }
        self.was_deferred = false;
        self.is_operator_waiting = left != Left::Nothing;
        self.due_while_low = now.saturating_add(self.look);
        let time = match left {
            Left::Nothing => self.look,
            Left::Some => self.step,
            Left::UartFull => self.full,
        };
        self.due = self.about(now, time);
    }

    /// About `time` after `now`, at most half a step earlier or later: above the lowest band apart from the interrupts of the guest's timer.
    fn about(&self, now: Ticks, time: Ticks) -> Ticks {
        let after = now.saturating_add(time);
        if self.is_low() || self.step == Ticks(0) {
            return after;
        }
        let earliest = Ticks(after.0.saturating_sub(self.step.0 / 2));
        let first = self.interrupt.saturating_add(self.apart);
        let steps = earliest.saturating_sub(first).0.div_ceil(self.step.0);
        first.saturating_add(Ticks(steps.saturating_mul(self.step.0)))
    }

    /// Whether the core idles, or runs the lowest band.
    const fn is_low(&self) -> bool {
        self.turns_at == false as u8
    }

    /// The guest's timer interrupts or has interrupted at this time.
    fn set_interrupt(&mut self, timer: Ticks) {
        self.misses_interrupt = false;
        if self.step > Ticks(0) {
            self.interrupt = Ticks(timer.0 % self.step.0);
        }
    }

    /// A vCPU is turned on on this core: its timer is not set.
    pub fn forget_timer(&mut self) {
        self.misses_interrupt = true;
    }

    /// The running guest is interrupted by its timer, which has expired at `timer()`. If that was not known, the next duty comes later by less than a step. The alarm is
    /// not armed anew for this: when it expires, the duty is not due yet, and the core is ready sooner than after a duty.
    #[inline(always)]
    pub fn timer_has_come(&mut self, timer: impl FnOnce() -> Option<Ticks>) {
        if self.misses_interrupt
            && let Some(timer) = timer()
        {
            self.move_due(timer);
        }
    }

    fn move_due(&mut self, timer: Ticks) {
        self.set_interrupt(timer);
        if self.due != Ticks::NEVER {
            self.due = self.about(self.due, Ticks(self.step.0 / 2));
        }
    }

    /// The operator has asked for something: the next duty is due at once. Only on the console's core.
    pub fn request(&mut self) {
        self.is_operator_waiting = true;
        self.due = Ticks(0);
    }

    /// Defers a duty that is due by the time of a step, because the core defers a preemption.
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
    const APART: u64 = APART_US as u64;
    const FIRST_APART: u64 = FIRST_APART_US as u64;

    fn decided(attendance: &mut Attendance, now: u64, is_low: bool) -> Option<Duty> {
        let now = Ticks(now);
        attendance.decided(now, is_low);
        (attendance.due() <= now).then(|| attendance.duty(now, is_low))
    }

    /// Served at time 0, in the lowest band.
    fn attended() -> Attendance {
        let mut attendance = Attendance::new(true, HZ);
        assert!(decided(&mut attendance, 0, true).is_some());
        attendance.done(Ticks(0), Left::Nothing, None);
        attendance
    }

    #[test]
    fn other_cores_never_attend() {
        let mut attendance = Attendance::new(false, HZ);
        for now in 0..3 {
            for is_low in [true, false] {
                attendance.decided(Ticks(now * LOOK), is_low);
                attendance.put_off(Ticks(now * LOOK));
                assert_eq!(attendance.due(), Ticks::NEVER);
            }
        }
    }

    #[test]
    fn a_short_burst_is_not_interrupted() {
        let mut attendance = attended();
        assert_eq!(decided(&mut attendance, LOOK - 1, false), None);
        assert_eq!(attendance.due(), Ticks(2 * LOOK - 1 + FIRST_APART));
        assert_eq!(decided(&mut attendance, 2 * LOOK - 2, false), None);
        // A duty that is due in the lowest band is done when the core is back in that band.
        assert!(decided(&mut attendance, 2 * LOOK - 2, true).is_some());
    }

    #[test]
    fn a_long_burst_is_interrupted_for_one_step_each_time() {
        let mut attendance = attended();
        assert_eq!(decided(&mut attendance, 5, false), None);
        for look in 1..4 {
            let now = attendance.due().0;
            assert!(now.abs_diff(look * LOOK) < STEP);
            assert_eq!(decided(&mut attendance, now - 1, false), None);
            let duty = decided(&mut attendance, now, false);
            assert_eq!(duty.map(|duty| duty.steps), Some(STEPS_ABOVE_LOWEST_BAND));
            attendance.done(Ticks(now), Left::Nothing, None);
        }
    }

    /// Such a guest takes the core with an interrupt of its timer, and keeps it. The core takes different times to come to a duty.
    #[test]
    fn no_duty_comes_with_an_interrupt_of_the_guests_timer() {
        for period in [25, 50, 75, 100, 125, 200, 250, 500, 625, 1_000, 10_000] {
            let mut attendance = attended();
            // The core has switched early.
            let begin = 7_003;
            assert_eq!(decided(&mut attendance, begin - 8, false), None);
            let duties = [Left::Nothing, Left::Some, Left::Some, Left::UartFull];
            for (count, left) in duties.into_iter().cycle().take(400).enumerate() {
                let since_interrupt = (attendance.due().0 - begin) % period;
                let apart = if count == 0 { 7 } else { APART };
                let is_apart = since_interrupt >= apart && period - since_interrupt >= apart;
                assert!(
                    is_apart,
                    "period {period}, {since_interrupt} after an interrupt"
                );
                let now = attendance.due().0 + [1, 2, 9][count % 3];
                assert!(decided(&mut attendance, now, false).is_some());
                let next = now - (now - begin) % period + period;
                attendance.done(Ticks(now), left, Some(Ticks(next)));
                if count % 7 == 0 {
                    attendance.come_back(Ticks(now + 1));
                }
                assert!(attendance.due().0 >= now + STEP / 2);
            }
        }
    }

    #[test]
    fn the_first_interrupt_of_a_guests_timer_moves_the_next_duty() {
        for phase in 0..STEP {
            let mut attendance = attended();
            // The guest is loaded, and what is printed meanwhile ends.
            assert_eq!(decided(&mut attendance, 100, false), None);
            attendance.done(Ticks(1_000), Left::Nothing, None);
            let timer = Ticks(10 * STEP + phase);
            let before = attendance.due();
            attendance.timer_has_come(|| Some(timer));
            let due = attendance.due();
            assert_eq!(due.0 % STEP, (phase + APART) % STEP, "{phase}");
            assert!((before.0..before.0 + STEP).contains(&due.0));
            attendance.timer_has_come(|| Some(Ticks(timer.0 + 1)));
            assert_eq!(attendance.due(), due, "it was known");
        }
        // The same where nothing was done while the guest was loaded.
        let mut attendance = attended();
        assert_eq!(decided(&mut attendance, 100, false), None);
        attendance.forget_timer();
        attendance.timer_has_come(|| None);
        attendance.timer_has_come(|| Some(Ticks(700)));
        assert_eq!(attendance.due().0 % STEP, APART);
        let mut other_core = Attendance::new(false, HZ);
        other_core.forget_timer();
        other_core.timer_has_come(|| Some(Ticks(700)));
        assert_eq!(other_core.due(), Ticks::NEVER);
    }

    #[test]
    fn what_the_operator_waits_for_is_due_in_every_band() {
        let mut attendance = attended();
        attendance.request();
        assert!(decided(&mut attendance, 10, false).is_some());
        attendance.done(Ticks(10), Left::Some, None);
        assert_eq!(decided(&mut attendance, 11, true), None);
        assert_eq!(decided(&mut attendance, 12, false), None);
        // A guest has taken the core at 10.
        assert_eq!(attendance.due(), Ticks(10 + APART + STEP));
    }

    #[test]
    fn idle_lines_wait_for_the_lowest_band() {
        let mut attendance = Attendance::new(true, HZ);
        let looks = |duty: Option<Duty>| duty.is_some_and(|duty| duty.looks_for_idle_lines);
        assert!(looks(decided(&mut attendance, 0, true)));
        attendance.done(Ticks(0), Left::Nothing, None);
        decided(&mut attendance, 1, false);
        assert!(!looks(decided(&mut attendance, 4 * LOOK, false)));
        attendance.done(Ticks(4 * LOOK), Left::Nothing, None);
        assert!(!looks(decided(&mut attendance, 4 * LOOK + 1, true)));
        assert!(looks(decided(&mut attendance, 5 * LOOK, true)));
    }

    #[test]
    fn a_deferred_preemption_defers_a_duty_by_a_step() {
        let mut attendance = attended();
        attendance.put_off(Ticks(LOOK - 1));
        assert_eq!(attendance.due(), Ticks(LOOK));
        attendance.put_off(Ticks(LOOK));
        assert_eq!(attendance.due(), Ticks(LOOK + STEP));
    }

    #[test]
    fn a_vcpu_that_has_become_runnable_defers_a_duty_once() {
        let mut attendance = attended();
        for _ in 1..4 {
            let due = attendance.due().0;
            assert!(decided(&mut attendance, due, true).is_some());
            assert!(attendance.yields(Ticks(due)));
            assert_eq!(decided(&mut attendance, due + STEP - 1, true), None);
            assert!(decided(&mut attendance, due + STEP, true).is_some());
            assert!(!attendance.yields(Ticks(due + STEP)));
            attendance.done(Ticks(due + STEP), Left::Nothing, None);
            assert_eq!(attendance.due(), Ticks(due + STEP + LOOK));
        }
    }

    proptest! {
        /// For any sequence of bands: a core that decides when its alarm expires serves the console every `LOOK`, or has
        /// been in the lowest band since, where the mask lets the console's interrupt through; in the lowest band, too,
        /// it serves the console every `LOOK` if it decides there.
        #[test]
        fn the_operator_is_never_locked_out(
            bursts in proptest::collection::vec((1_u64..2 * LOOK, any::<bool>()), 1..60)
        ) {
            let mut attendance = attended();
            let (mut now, mut attended_at, mut low_at) = (0, 0, 0);
            for (length, is_low) in bursts {
                let end = now + length;
                while now < end {
                    prop_assert!(attended_at.max(low_at) + LOOK + STEP / 2 >= now);
                    prop_assert!(!is_low || attended_at + LOOK >= now || now == low_at || end - now == length);
                    if let Some(duty) = decided(&mut attendance, now, is_low) {
                        prop_assert!(is_low || now >= low_at + LOOK, "a short burst is interrupted");
                        prop_assert!(duty.steps > 0);
                        attendance.done(Ticks(now), Left::Nothing, None);
                        attended_at = now;
                    }
                    if is_low {
                        prop_assert!(attended_at + LOOK > now);
                    }
                    let due = attendance.due().0;
                    prop_assert!(due > now, "the alarm would expire forever");
                    now = due.min(end);
                    if is_low {
                        low_at = now;
                    }
                }
            }
        }
    }
}
