//! `trap`: a guest's kernel never runs on a core that has a more urgent vCPU, so none of its lock holders is preempted.
//!
//! ```text
//!                    core 0                               core 1
//!   v's program      system call or interrupt: stage 2
//!                    lets no kernel run here. sends v
//!                    away, tells core 1                   takes v in exchange for w, once w's kernel has no lock
//!                                                         v's kernel returns: stage 2 lets no program run
//!                    takes v                              sends v home, goes on with w
//!   rt wakes         v waits, in its program
//!                                                         an interrupt for v: takes it, so that v is not late
//! ```
//!
//! As in *Solving the Lock Holder Preemption Problem* (2012), section 4.2, which did it by patching the guest's entries and
//! returns, and found it no better than `none`: interrupts for a preempted vCPU were late. The last line is the cure. A
//! vCPU whose home core is taken stays where it is, also in its program.

use super::{Candidate, Conduct, Decide, Here, Return, Verdict};
use crate::migration::Rest;
use crate::schedule::Ticks;

/// In microseconds.
const PATIENCE_US: u32 = 100;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct Trap {
    patience: Ticks,
}

impl Trap {
    /// On a machine with this counter.
    pub const fn new(frequency_hz: u32) -> Self {
        Self {
            patience: Ticks::from_micros(PATIENCE_US, frequency_hz),
        }
    }
}

impl Decide for Trap {
    fn conduct(&self) -> Conduct {
        Conduct {
            patience: Some(self.patience),
            returns: Some(Return::FromProgram),
            keeps_kernels_off: true,
            ..Conduct::default()
        }
    }

    fn verdict(&self, here: &Here, candidate: &Candidate) -> Verdict {
        if here.is_too_urgent_for(candidate) {
            return Verdict::Leave;
        }
        let is_home = candidate.home == here.core;
        let leaves_home = candidate.home == candidate.parked.host;
        match candidate.parked.rest {
            Rest::Sent if is_home => Verdict::Take,
            Rest::Sent if leaves_home => Verdict::Swap,
            Rest::InKernel if candidate.is_cut_off => Verdict::Swap,
            Rest::Asleep | Rest::Off if candidate.is_cut_off => Verdict::Take,
            _ => Verdict::Leave,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::samples::{HOME, OTHER, busy, candidate, idle};
    use super::*;

    const TRAP: Trap = Trap {
        patience: Ticks(10),
    };

    #[test]
    fn a_preempted_program_waits_until_an_interrupt_comes_for_it() {
        let here = busy(100, 0, 200);
        let verdict = |rest| TRAP.verdict(&here, &candidate(rest));
        assert_eq!(verdict(Rest::Runnable), Verdict::Leave);
        assert_eq!(verdict(Rest::InKernel), Verdict::Swap);
    }

    #[test]
    fn who_enters_its_kernel_is_let_in_at_once() {
        let mut sent = candidate(Rest::Sent);
        sent.is_cut_off = false;
        assert_eq!(TRAP.verdict(&busy(0, 0, 200), &sent), Verdict::Swap);
    }

    #[test]
    fn who_goes_home_is_taken_there_only() {
        let mut away = candidate(Rest::Sent);
        away.parked.host = OTHER;
        away.is_cut_off = false;
        assert_eq!(TRAP.verdict(&idle(0), &away), Verdict::Leave);
        let home = Here {
            core: HOME,
            ..idle(0)
        };
        assert_eq!(TRAP.verdict(&home, &away), Verdict::Take);
    }
}
