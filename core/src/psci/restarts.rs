// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of a guest that has ended, as its description says (`on-stop`, `on-tamper`).

use super::lifecycle::StopReason;
use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spumone_config::packed::{OnStop, OnTamper, RestartLimit};

/// What becomes of a guest that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It starts again.
    Restarts,
    /// It stays stopped.
    Stays,
    /// It stays stopped, because it has ended more often than its limit allows.
    StaysAtLimit,
    /// It stays stopped, and the machine goes off.
    MachineGoesOff,
}

/// What the description says about the ends of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// After any end but the next.
    pub on_stop: OnStop,
    /// If its protected memory has changed.
    pub on_tamper: OnTamper,
}

/// The restarts of a guest that count towards its limit.
///
/// Only the core that has stopped the guest uses it, between two lives; so relaxed order suffices. Those cores are not always the same, and
/// [`Lifecycle::finish_stop`](super::Lifecycle::finish_stop) orders what one does before what the next one does.
#[derive(Debug)]
pub struct Restarts {
    /// When the first of them was, in ticks.
    since: AtomicU64,
    /// How many there were since.
    count: AtomicU32,
}

impl Restarts {
    constructor! {
        /// No restarts yet.
        pub fn new() -> Self {
            Self {
                since: AtomicU64::new(0),
                count: AtomicU32::new(0),
            }
        }
    }

    /// A guest has ended at `now` for this reason. Returns what becomes of it, and counts a restart that is limited. `frequency_hz`: of the
    /// system counter.
    pub fn ending(
        &self,
        wishes: Wishes,
        reason: StopReason,
        now: Ticks,
        frequency_hz: u32,
    ) -> Ending {
        let limit = match (reason, wishes.on_stop, wishes.on_tamper) {
            (StopReason::Reset | StopReason::Operator, OnStop::Stop | OnStop::MachineOff, _) => {
                return Ending::Restarts;
            }
            (
                StopReason::Reset | StopReason::Operator | StopReason::Fault | StopReason::Watchdog,
                OnStop::Restart(limit),
                _,
            )
            | (StopReason::Tampered, _, OnTamper::Restart(limit)) => Some(limit),
            _ => None,
        };
        match (limit, wishes.on_stop) {
            (Some(limit), _) if self.is_allowed(limit, now, frequency_hz) => Ending::Restarts,
            (_, OnStop::MachineOff) => Ending::MachineGoesOff,
            (Some(_), _) => Ending::StaysAtLimit,
            (None, _) => Ending::Stays,
        }
    }

    fn is_allowed(&self, limit: RestartLimit, now: Ticks, frequency_hz: u32) -> bool {
        let within = Ticks::from_micros(limit.within_us, frequency_hz);
        let since = Ticks(self.since.load(Ordering::Relaxed));
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 || now.saturating_sub(since) > within {
            self.since.store(now.0, Ordering::Relaxed);
            self.count.store(1, Ordering::Relaxed);
            return true;
        }
        let is_allowed = count < u32::from(limit.most);
        self.count
            .store(count + u32::from(is_allowed), Ordering::Relaxed);
        is_allowed
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use Ending::{MachineGoesOff, Restarts as Again, Stays, StaysAtLimit};
    use StopReason::{Fault, Off, Reset, Tampered, Unverified, Watchdog};

    /// Ticks in a microsecond: one.
    const FREQUENCY: u32 = 1_000_000;
    const LIMIT: RestartLimit = RestartLimit {
        most: 2,
        within_us: 100,
    };
    const RESTART: OnStop = OnStop::Restart(LIMIT);

    fn ending(restarts: &Restarts, on_stop: OnStop, reason: StopReason, now: u64) -> Ending {
        let wishes = Wishes {
            on_stop,
            on_tamper: OnTamper::Stop,
        };
        restarts.ending(wishes, reason, Ticks(now), FREQUENCY)
    }

    #[test]
    fn a_guest_whose_memory_has_changed_starts_again_up_to_its_limit() {
        for (on_stop, at_limit) in [
            (OnStop::Stop, StaysAtLimit),
            (OnStop::MachineOff, MachineGoesOff),
            (RESTART, StaysAtLimit),
        ] {
            let restarts = Restarts::new();
            let wishes = Wishes {
                on_stop,
                on_tamper: OnTamper::Restart(LIMIT),
            };
            let endings = [(); 3].map(|()| restarts.ending(wishes, Tampered, Ticks(7), FREQUENCY));
            assert_eq!(endings, [Again, Again, at_limit], "{on_stop:?}");
        }
    }

    #[test]
    fn a_reset_starts_a_guest_again_and_a_fault_only_if_it_says_so() {
        for (on_stop, expected) in [
            (OnStop::Stop, [Stays, Again, Stays, Stays, Stays, Stays]),
            (
                OnStop::MachineOff,
                [
                    MachineGoesOff,
                    Again,
                    MachineGoesOff,
                    MachineGoesOff,
                    MachineGoesOff,
                    MachineGoesOff,
                ],
            ),
            // What does not verify would not the next time either; `on-tamper` is `stop` here.
            (RESTART, [Stays, Again, Again, Again, Stays, Stays]),
        ] {
            let endings = [Off, Reset, Fault, Watchdog, Unverified, Tampered]
                .map(|reason| ending(&Restarts::new(), on_stop, reason, 5));
            assert_eq!(endings, expected, "{on_stop:?}");
        }
    }

    #[test]
    fn resets_are_limited_only_where_a_limit_is() {
        let restarts = Restarts::new();
        let mut endings = (0..1000).map(|_| ending(&restarts, OnStop::Stop, Reset, 5));
        assert!(endings.all(|it| it == Again));
    }

    #[test]
    fn so_many_restarts_are_allowed_in_that_time() {
        let restarts = Restarts::new();
        let mut at = |now| ending(&restarts, RESTART, Fault, now);
        assert_eq!(
            [1000, 1010, 1020].map(&mut at),
            [Again, Again, StaysAtLimit]
        );
        // Counted from the first one.
        assert_eq!(
            [1100, 1101, 1150].map(&mut at),
            [StaysAtLimit, Again, Again]
        );
        assert_eq!([1160, 5000].map(&mut at), [StaysAtLimit, Again]);
    }
}
