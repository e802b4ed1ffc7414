// SPDX-License-Identifier: MIT OR Apache-2.0
//! `trap`: a guest's kernel does not run on a core that has a vCPU of a higher band, unless no other core claims the vCPU
//! for 500 µs. So no lock holder is preempted.
//!
//! ```text
//!                    core 0                               core 1
//!   v's program      system call or interrupt: stage 2
//!                    lets no kernel run here; sends v
//!                    away, notifies core 1                swaps w for v, once w's kernel returns to its
//!                    takes w                              program; notifies core 0
//!   rt wakes         w waits, in its program
//!                                                         an interrupt for w: takes it, so that w is not late
//! ```
//!
//! After *Solving the Lock Holder Preemption Problem* (2012), section 4.2. The paper patched the entries and returns of the
//! guest's kernel, and found the policy no better than `none`, because interrupts for a preempted vCPU were late. The
//! last line of the picture prevents that. In the paper each vCPU returned to its home core; here any program may run on
//! the core, so that an entry into the kernel costs one swap.

use super::rules::{Decide, PolicyRules};
use super::steal::Steal;
use super::view::{Candidate, Fetcher, Verdict};
use crate::migration::slot::ParkedState;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    /// The verdicts of cores on which kernels may run.
    elsewhere: Steal,
}

impl Trap {
    /// On a machine with this counter.
    pub const fn new(frequency_hz: u32) -> Self {
        Self {
            elsewhere: Steal::new(frequency_hz),
        }
    }
}

impl Decide for Trap {
    fn rules(&self) -> PolicyRules {
        PolicyRules {
            excludes_kernels: true,
            // A core on which another vCPU waits still takes a vCPU that enters its kernel on a core without kernels.
            leaves_shared_cores: false,
            ..self.elsewhere.rules()
        }
    }

    fn verdict(&self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        let is_program = candidate.parked.state == ParkedState::Runnable;
        match fetcher.running {
            None if is_program => Verdict::Take,
            _ if fetcher.excludes_kernels => Verdict::Leave,
            // A program preempted by a higher band waits.
            _ if is_program && candidate.is_cut_off => Verdict::Leave,
            Some(running) if candidate.parked.state == ParkedState::Sent => {
                match running.band <= candidate.band {
                    true => Verdict::Swap,
                    false => Verdict::Leave,
                }
            }
            _ => self.elsewhere.verdict(fetcher, candidate),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::tests::samples::{busy, candidate, idle};
    use super::*;

    const TRAP: Trap = Trap::new(100_000);

    #[test]
    fn a_preempted_program_waits_until_an_interrupt_comes_for_it() {
        let verdict = |state| TRAP.verdict(&busy(100, 0, 200), &candidate(state));
        assert_eq!(verdict(ParkedState::Runnable), Verdict::Leave);
        assert_eq!(verdict(ParkedState::Wanted), Verdict::Swap);
        let verdict = TRAP.verdict(&idle(0), &candidate(ParkedState::Runnable));
        assert_eq!(verdict, Verdict::Take);
    }

    #[test]
    fn a_vcpu_that_enters_its_kernel_runs_at_once_where_kernels_may_run() {
        let mut sent = candidate(ParkedState::Sent);
        sent.is_cut_off = false;
        let mut fetcher = busy(0, 0, 200);
        assert_eq!(TRAP.verdict(&fetcher, &sent), Verdict::Swap);
        fetcher.excludes_kernels = true;
        assert_eq!(TRAP.verdict(&fetcher, &sent), Verdict::Leave);
    }

    #[test]
    fn a_core_without_kernels_takes_programs() {
        let fetcher = Fetcher {
            excludes_kernels: true,
            ..idle(0)
        };
        let verdict = |state| {
            let mut candidate = candidate(state);
            candidate.is_cut_off = false;
            TRAP.verdict(&fetcher, &candidate)
        };
        assert_eq!(verdict(ParkedState::Runnable), Verdict::Take);
        assert_eq!(verdict(ParkedState::Wanted), Verdict::Leave);
    }
}
