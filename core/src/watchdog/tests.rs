// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the watchdog's call and clock.

use super::*;
use proptest::prelude::*;

/// Ticks in a second.
const HZ: u64 = 1000;
const OK: u64 = SUCCESS;
const NOT_SUPPORTED: u64 = -1_i64 as u64;
const INVALID: u64 = -2_i64 as u64;
const DISABLED: u64 = -8_i64 as u64;

struct Guest {
    watchdog: Watchdog,
    stolen: [Stolen; 2],
}

impl Guest {
    fn new() -> Self {
        Self {
            watchdog: Watchdog::new(),
            stolen: [const { Stolen::new() }; 2],
        }
    }

    /// Calls at `now`; returns x0 to x2. The longest timeout is 10 s.
    fn call(&self, now: u64, command: u32, argument: u32) -> [u64; 3] {
        let caller = Caller {
            longest_s: 10,
            frequency_hz: HZ,
            now: Ticks(now),
            stolen: &self.stolen,
        };
        let [status, first, second, third] = self.watchdog.call(command, argument, caller);
        assert_eq!(third, 0);
        [status, first, second]
    }

    fn left(&self, now: u64) -> Option<u64> {
        let left = self.watchdog.left(Ticks(now), &self.stolen);
        left.map(|left| left.0)
    }
}

#[test]
fn the_calls_answer_as_the_driver_of_linux_expects() {
    let guest = Guest::new();
    // What the driver's probe does: 0, 4, 1.
    assert_eq!(guest.call(0, 0, 0), [OK, 1, 10]);
    assert_eq!(guest.call(0, 4, 0), [DISABLED, 0, 0]);
    assert_eq!(guest.call(0, 3, 0), [DISABLED, 0, 0]);
    assert_eq!(guest.call(0, 1, 0), [INVALID, 0, 0]);
    assert_eq!(guest.call(0, 1, 11), [INVALID, 0, 0]);
    assert_eq!(guest.call(0, 1, 4), [OK, 0, 0]);
    assert_eq!(guest.left(0), None);
    assert_eq!(guest.call(500, 2, 1), [OK, 0, 0]);
    assert_eq!(guest.left(500), Some(4000));
    assert_eq!(guest.call(1500, 4, 0), [OK, 3, 0]);
    assert_eq!(guest.call(1501, 4, 0), [OK, 2, 0]);
    assert_eq!(guest.call(3000, 3, 0), [OK, 0, 0]);
    assert_eq!(guest.left(6999), Some(1));
    assert_eq!(guest.left(7000), Some(0));
    assert_eq!(guest.call(7000, 2, 0), [OK, 0, 0]);
    assert_eq!(guest.left(8000), None);
    assert_eq!(guest.call(8000, 2, 2), [INVALID, 0, 0]);
    assert_eq!(guest.call(8000, 5, 0), [NOT_SUPPORTED, 0, 0]);
}

#[test]
fn a_new_timeout_begins_at_once_and_the_first_one_is_the_longest() {
    let guest = Guest::new();
    guest.call(0, 2, 1);
    assert_eq!(guest.left(0), Some(10_000));
    guest.call(2000, 1, 3);
    assert_eq!(guest.left(2000), Some(3000));
    guest.watchdog.reset();
    assert_eq!(guest.left(2000), None);
    guest.call(2000, 2, 1);
    assert_eq!(guest.left(2000), Some(10_000));
}

#[test]
fn a_guest_without_a_watchdog_has_no_such_call() {
    let guest = Guest::new();
    let caller = Caller {
        longest_s: 0,
        frequency_hz: HZ,
        now: Ticks(0),
        stolen: &guest.stolen,
    };
    //
    for command in 0..6 {
        assert_eq!(guest.watchdog.call(command, 1, caller)[0], NOT_SUPPORTED);
    }
    assert_eq!(guest.left(0), None);
}

#[test]
fn time_that_was_taken_from_a_vcpu_does_not_count() {
    let guest = Guest::new();
    guest.call(0, 1, 1);
    guest.stolen[1].waits(Ticks(0));
    guest.call(300, 2, 1);
    assert_eq!(guest.left(300), Some(1000));
    // It waits on.
    assert_eq!(guest.left(900), Some(1000));
    guest.stolen[1].runs(Ticks(1000));
    assert_eq!(guest.left(1000), Some(1000));
    assert_eq!(guest.left(1400), Some(600));
    // The other one waits, and has had more time by then.
    guest.stolen[0].waits(Ticks(1400));
    assert_eq!(guest.left(1600), Some(400));
    assert_eq!(guest.left(2500), Some(0));
}

proptest! {
    /// It expires at once when each vCPU has had the timeout, and not before.
    #[test]
    fn it_expires_when_each_vcpu_has_had_the_timeout(
        steps in prop::collection::vec((0_u64..400, 0_usize..2, any::<bool>()), 1..40),
    ) {
        let guest = Guest::new();
        guest.call(0, 1, 1);
        guest.call(0, 2, 1);
        let (mut now, mut had, mut waits) = (0, [0, 0], [false, false]);
        for (passed, vcpu, waits_now) in steps {
            now += passed;
            for vcpu in 0..2 {
                had[vcpu] += if waits[vcpu] { 0 } else { passed };
            }
            let least = had[0].min(had[1]);
            prop_assert_eq!(guest.left(now), Some(HZ.saturating_sub(least)));
            match (waits[vcpu], waits_now) {
                (false, true) => guest.stolen[vcpu].waits(Ticks(now)),
                (true, false) => { guest.stolen[vcpu].runs(Ticks(now)); }
                _ => {}
            }
            waits[vcpu] = waits_now;
        }
    }
}
