// SPDX-License-Identifier: MIT OR Apache-2.0
//! What becomes of a guest that has ended, as its description says (`on-stop`).

use super::lifecycle::StopReason;
use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spumone_config::packed::{OnStop, RestartLimit};

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

/// The restarts of a guest that count towards the limit of its `on-stop`.
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
        on_stop: OnStop,
        reason: StopReason,
        now: Ticks,
        frequency_hz: u32,
    ) -> Ending {
        let restarts_itself = matches!(reason, StopReason::Reset | StopReason::Operator);
        let may_restart =
            restarts_itself | matches!(reason, StopReason::Fault | StopReason::Watchdog);
        match (reason, on_stop) {
            (_, OnStop::Restart(limit)) if may_restart => {
                match self.is_allowed(limit, now, frequency_hz) {
                    true => Ending::Restarts,
                    false => Ending::StaysAtLimit,
                }
            }
            (_, OnStop::Stop | OnStop::MachineOff) if restarts_itself => Ending::Restarts,
            (_, OnStop::MachineOff) => Ending::MachineGoesOff,
            (_, OnStop::Stop | OnStop::Restart(_)) => Ending::Stays,
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
    use StopReason::{Fault, Off, Reset, Unverified, Watchdog};

    /// Ticks in a microsecond: one.
    const FREQUENCY: u32 = 1_000_000;
    const RESTART: OnStop = OnStop::Restart(RestartLimit {
        most: 2,
        within_us: 100,
    });

    fn ending(restarts: &Restarts, on_stop: OnStop, reason: StopReason, now: u64) -> Ending {
        restarts.ending(on_stop, reason, Ticks(now), FREQUENCY)
    }

    #[test]
    fn a_reset_starts_a_guest_again_and_a_fault_only_if_it_says_so() {
        for (on_stop, expected) in [
            (OnStop::Stop, [Stays, Again, Stays, Stays, Stays]),
            (
                OnStop::MachineOff,
                [
                    MachineGoesOff,
                    Again,
                    MachineGoesOff,
                    MachineGoesOff,
                    MachineGoesOff,
                ],
            ),
            // What does not verify would not the next time either.
            (RESTART, [Stays, Again, Again, Again, Stays]),
        ] {
            let endings = [Off, Reset, Fault, Watchdog, Unverified]
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
