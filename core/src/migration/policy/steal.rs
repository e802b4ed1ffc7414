// SPDX-License-Identifier: MIT OR Apache-2.0
//! `steal`: a preempted vCPU stays where it is until another core has a use for it.
//!
//! ```text
//!                      core 0                       core 1
//!   rt wakes       keeps v
//!                  runs rt                      if rt sleeps soon, no vCPU has migrated
//!                  … for 100 µs: parks v,
//!                  notifies core 1              swaps w for v, once w's kernel holds no lock
//!                     ⋮                         parks w, notifies core 2, which takes w at the end of a time slice …
//!   rt sleeps      takes the vCPU that has been parked longest, of the highest band
//! ```
//!
//! If `rt` ran for longer than 100 µs the last time, core 0 parks `v` before `rt`'s timer expires, or else after 16 µs.
//!
//! So the cores that are left share all vCPUs in time slices. While `rt` runs, one vCPU is parked, normally in a program,
//! where it holds no lock of its kernel. An idle core takes any parked vCPU.

use super::rules::{Decide, PolicyRules};
use super::view::{Candidate, Fetcher, Verdict};
use crate::migration::slot::ParkedState;
use crate::schedule::Ticks;

/// In microseconds: longer than a short periodic task, for which no vCPU needs to migrate, and short beside a quantum.
const PARK_DELAY_US: u32 = 100;
/// In microseconds: for how long a vCPU has the core while another one is wanted, on this core or on another one: long beside two switches.
const SHORT_TURN_US: u32 = 100;
/// In microseconds: a vCPU that has been cut off for so long goes even to a core where another vCPU of its band waits
/// already. While one core runs a higher band, no vCPU of a guest with as many vCPUs as cores waits for so long.
const STARVED_US: u32 = 5_000;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Steal {
    park_delay: Ticks,
    short_turn: Ticks,
    starved: Ticks,
}

impl Steal {
    /// On a machine with this counter.
    pub const fn new(frequency_hz: u32) -> Self {
        Self {
            park_delay: Ticks::from_micros(PARK_DELAY_US, frequency_hz),
            short_turn: Ticks::from_micros(SHORT_TURN_US, frequency_hz),
            starved: Ticks::from_micros(STARVED_US, frequency_hz),
        }
    }
}

impl Decide for Steal {
    fn rules(&self) -> PolicyRules {
        PolicyRules {
            park_delay: self.park_delay,
            short_turn: Some(self.short_turn),
            leaves_shared_cores: true,
            ..PolicyRules::default()
        }
    }

    fn verdict(&self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        if fetcher.runs_higher_band_than(candidate) {
            return Verdict::Leave;
        }
        let is_runnable = candidate.parked.state.is_runnable();
        if !is_runnable && !candidate.is_cut_off {
            return Verdict::Leave;
        }
        let Some(running) = fetcher.running else {
            return Verdict::Take;
        };
        if !is_runnable {
            return Verdict::Take;
        }
        if running.band < candidate.band {
            return Verdict::Take;
        }
        if fetcher.same_band_waits {
            // Another vCPU of its band waits here already.
            let due = candidate.since.saturating_add(self.starved);
            return match candidate.is_cut_off {
                false => Verdict::Leave,
                true if fetcher.now < due => Verdict::Later(due),
                true => Verdict::Take,
            };
        }
        // Another vCPU may wait for a lock that a wanted one holds.
        let due = match candidate.parked.state {
            ParkedState::Wanted => running
                .slice_end
                .min(running.since.saturating_add(self.short_turn)),
            _ => running.slice_end,
        };
        fetcher.swap_at(due)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::samples::{HIGH, busy, candidate, idle};
    use super::*;

    const POLICY: Steal = Steal {
        park_delay: Ticks(20),
        short_turn: Ticks(10),
        starved: Ticks(1_000),
    };

    #[test]
    fn an_idle_core_takes_every_vcpu_that_it_can_help() {
        for state in [
            ParkedState::Runnable,
            ParkedState::Wanted,
            ParkedState::Asleep,
            ParkedState::Off,
        ] {
            assert_eq!(POLICY.verdict(&idle(100), &candidate(state)), Verdict::Take);
        }
    }

    #[test]
    fn a_program_waits_for_the_end_of_a_time_slice_a_wanted_vcpu_does_not() {
        let fetcher = busy(100, 95, 200);
        let of = |state| POLICY.verdict(&fetcher, &candidate(state));
        assert_eq!(of(ParkedState::Runnable), Verdict::Later(Ticks(200)));
        assert_eq!(of(ParkedState::Wanted), Verdict::Later(Ticks(105)));
        let fetcher = busy(105, 95, 200);
        let verdict = POLICY.verdict(&fetcher, &candidate(ParkedState::Wanted));
        assert_eq!(verdict, Verdict::Swap);
        let fetcher = busy(200, 95, 200);
        let verdict = POLICY.verdict(&fetcher, &candidate(ParkedState::Runnable));
        assert_eq!(verdict, Verdict::Swap);
    }

    #[test]
    fn a_sleeping_vcpu_is_taken_only_where_it_is_cut_off() {
        for state in [ParkedState::Asleep, ParkedState::Off] {
            let cut_off = candidate(state);
            let reachable = Candidate {
                is_cut_off: false,
                ..cut_off
            };
            assert_eq!(POLICY.verdict(&busy(100, 0, 200), &cut_off), Verdict::Take);
            assert_eq!(POLICY.verdict(&idle(100), &reachable), Verdict::Leave);
        }
    }

    #[test]
    fn a_core_takes_a_vcpu_of_a_higher_band_and_leaves_one_of_a_lower() {
        let mut fetcher = busy(100, 95, 200);
        let higher = Candidate {
            band: HIGH,
            ..candidate(ParkedState::Runnable)
        };
        assert_eq!(POLICY.verdict(&fetcher, &higher), Verdict::Take);
        if let Some(running) = &mut fetcher.running {
            running.band = HIGH;
        }
        let verdict = POLICY.verdict(&fetcher, &candidate(ParkedState::Wanted));
        assert_eq!(verdict, Verdict::Leave);
    }

    #[test]
    fn a_core_with_a_waiting_vcpu_takes_only_one_that_starves() {
        let verdict = |now, is_cut_off| {
            let mut fetcher = busy(now, 0, 200);
            fetcher.same_band_waits = true;
            let candidate = Candidate {
                is_cut_off,
                ..candidate(ParkedState::Runnable)
            };
            POLICY.verdict(&fetcher, &candidate)
        };
        assert_eq!(verdict(300, false), Verdict::Leave);
        assert_eq!(verdict(300, true), Verdict::Later(Ticks(1_000)));
        assert_eq!(verdict(1_000, true), Verdict::Take);
    }
}
