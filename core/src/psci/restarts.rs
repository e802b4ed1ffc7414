// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a guest that has ended starts again, as its description says (`on-stop`).

use super::lifecycle::StopReason;
use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spumone_config::packed::OnStop;

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

    /// A guest has ended at `now` for this reason. Returns whether it starts again, and counts that. `frequency_hz`: of the system counter.
    pub fn allow(
        &self,
        on_stop: OnStop,
        reason: StopReason,
        now: Ticks,
        frequency_hz: u32,
    ) -> bool {
        match (reason, on_stop) {
            (StopReason::Off, _) | (StopReason::Fault, OnStop::Stop | OnStop::MachineOff) => false,
            (StopReason::Reset, OnStop::Stop | OnStop::MachineOff) => true,
            (StopReason::Reset | StopReason::Fault, OnStop::Restart { most, within_us }) => {
                let within = Ticks::from_micros(within_us, frequency_hz);
                self.count(most, within, now)
            }
        }
    }

    fn count(&self, most: u8, within: Ticks, now: Ticks) -> bool {
        let since = Ticks(self.since.load(Ordering::Relaxed));
        let count = self.count.load(Ordering::Relaxed);
        if count == 0 || now.saturating_sub(since) > within {
            self.since.store(now.0, Ordering::Relaxed);
            self.count.store(1, Ordering::Relaxed);
            return true;
        }
        let allowed = count < u32::from(most);
        self.count
            .store(count + u32::from(allowed), Ordering::Relaxed);
        allowed
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use StopReason::{Fault, Off, Reset};

    /// Ticks in a microsecond: one.
    const FREQUENCY: u32 = 1_000_000;
    const RESTART: OnStop = OnStop::Restart {
        most: 2,
        within_us: 100,
    };

    fn allow(restarts: &Restarts, on_stop: OnStop, reason: StopReason, now: u64) -> bool {
        restarts.allow(on_stop, reason, Ticks(now), FREQUENCY)
    }

    #[test]
    fn a_reset_starts_a_guest_again_and_a_fault_only_if_it_says_so() {
        let restarts = Restarts::new();
        for on_stop in [OnStop::Stop, OnStop::MachineOff] {
            let again = [Off, Reset, Fault].map(|reason| allow(&restarts, on_stop, reason, 5));
            assert_eq!(again, [false, true, false]);
            // Without a limit.
            assert!((0..1000).all(|_| allow(&restarts, on_stop, Reset, 5)));
        }
        let again = [Off, Reset, Fault].map(|reason| allow(&restarts, RESTART, reason, 5));
        assert_eq!(again, [false, true, true]);
    }

    #[test]
    fn so_many_restarts_are_allowed_in_that_time() {
        let restarts = Restarts::new();
        let mut at = |now| allow(&restarts, RESTART, Fault, now);
        assert_eq!([1000, 1010, 1020].map(&mut at), [true, true, false]);
        // Counted from the first one.
        assert_eq!([1100, 1101, 1150].map(&mut at), [false, true, true]);
        assert_eq!([1160, 5000].map(&mut at), [false, true]);
    }
}
