//! `steal`: a preempted vCPU stays where it is until another core has a use for it.
//!
//! ```text
//!                      core 0                       core 1
//!   rt wakes       keeps v
//!                  runs rt                      rt sleeps soon: nothing has happened
//!                  … for 100 µs: parks v,
//!                  tells core 1                 takes v in exchange for w, once w's kernel has no lock
//!                     ⋮                         parks w, tells core 2, which takes w when a turn is over …
//!   rt sleeps      takes who is parked longest
//! ```
//!
//! So the cores that are left share all vCPUs in turns of a quantum, one of them is always parked, and it is parked where
//! it holds no lock. An idle core takes whoever is parked.

use super::{Candidate, Conduct, Decide, Here, Verdict};
use crate::migration::Rest;
use crate::schedule::Ticks;

/// In microseconds: longer than a short periodic task, for which nobody need move, and short beside a turn.
const PATIENCE_US: u32 = 100;
/// In microseconds: after that long on a core that is taken, a vCPU goes where others wait already. With as many vCPUs as cores
/// none waits for so long.
const STARVED_US: u32 = 5_000;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Steal {
    patience: Ticks,
    starved: Ticks,
}

impl Steal {
    /// On a machine with this counter.
    pub const fn new(frequency_hz: u32) -> Self {
        Self {
            patience: Ticks::from_micros(PATIENCE_US, frequency_hz),
            starved: Ticks::from_micros(STARVED_US, frequency_hz),
        }
    }
}

impl Decide for Steal {
    fn conduct(&self) -> Conduct {
        Conduct {
            moves: true,
            patience: self.patience,
            ..Conduct::default()
        }
    }

    fn verdict(&self, here: &Here, candidate: &Candidate) -> Verdict {
        if here.is_too_urgent_for(candidate) {
            return Verdict::Leave;
        }
        let is_runnable = candidate.parked.rest.is_runnable();
        if !is_runnable && !candidate.is_cut_off {
            return Verdict::Leave;
        }
        let Some(running) = here.running else {
            return Verdict::Take;
        };
        if !is_runnable {
            return Verdict::Take;
        }
        if running.band < candidate.band {
            return Verdict::Take;
        }
        if here.equal_waits {
            // There are enough here already.
            let due = candidate.since.saturating_add(self.starved);
            return match candidate.is_cut_off {
                false => Verdict::Leave,
                true if here.now < due => Verdict::Later(due),
                true => Verdict::Take,
            };
        }
        // Somebody may be waiting for a lock that it holds.
        let due = match candidate.parked.rest {
            Rest::InKernel => running
                .turn_end
                .min(running.since.saturating_add(self.patience)),
            _ => running.turn_end,
        };
        here.swap_from(due)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::samples::{HIGH, busy, candidate, idle};
    use super::*;

    const POLICY: Steal = Steal {
        patience: Ticks(10),
        starved: Ticks(1_000),
    };

    #[test]
    fn an_idle_core_takes_whom_it_can_help() {
        for rest in [Rest::Runnable, Rest::InKernel, Rest::Asleep, Rest::Off] {
            assert_eq!(POLICY.verdict(&idle(100), &candidate(rest)), Verdict::Take);
        }
    }

    #[test]
    fn a_program_waits_for_the_end_of_a_turn_a_kernel_does_not() {
        let here = busy(100, 95, 200);
        let of = |rest| POLICY.verdict(&here, &candidate(rest));
        assert_eq!(of(Rest::Runnable), Verdict::Later(Ticks(200)));
        assert_eq!(of(Rest::InKernel), Verdict::Later(Ticks(105)));
        let here = busy(105, 95, 200);
        let verdict = POLICY.verdict(&here, &candidate(Rest::InKernel));
        assert_eq!(verdict, Verdict::Swap);
        let here = busy(200, 95, 200);
        let verdict = POLICY.verdict(&here, &candidate(Rest::Runnable));
        assert_eq!(verdict, Verdict::Swap);
    }

    #[test]
    fn a_sleeper_is_taken_only_from_a_core_that_hears_nothing() {
        for rest in [Rest::Asleep, Rest::Off] {
            let cut_off = candidate(rest);
            let reachable = Candidate {
                is_cut_off: false,
                ..cut_off
            };
            assert_eq!(POLICY.verdict(&busy(100, 0, 200), &cut_off), Verdict::Take);
            assert_eq!(POLICY.verdict(&idle(100), &reachable), Verdict::Leave);
        }
    }

    #[test]
    fn a_core_takes_what_its_vcpu_must_yield_to_and_nothing_else() {
        let mut here = busy(100, 95, 200);
        let urgent = Candidate {
            band: HIGH,
            ..candidate(Rest::Runnable)
        };
        assert_eq!(POLICY.verdict(&here, &urgent), Verdict::Take);
        if let Some(running) = &mut here.running {
            running.band = HIGH;
        }
        let verdict = POLICY.verdict(&here, &candidate(Rest::InKernel));
        assert_eq!(verdict, Verdict::Leave);
    }

    #[test]
    fn a_core_does_not_collect_but_who_starves() {
        let verdict = |now, is_cut_off| {
            let mut here = busy(now, 0, 200);
            here.equal_waits = true;
            let candidate = Candidate {
                is_cut_off,
                ..candidate(Rest::Runnable)
            };
            POLICY.verdict(&here, &candidate)
        };
        assert_eq!(verdict(300, false), Verdict::Leave);
        assert_eq!(verdict(300, true), Verdict::Later(Ticks(1_000)));
        assert_eq!(verdict(1_000, true), Verdict::Take);
    }
}
