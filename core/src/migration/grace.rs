// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a vCPU that has to give up the core does so: not while its guest's kernel may hold a lock.
//!
//! A vCPU in its kernel gets a little more time and is sampled again, until it is back in a program, or spins (it then waits
//! for another vCPU), or has used up its grace. Where the core can tell (FEAT_XNX), the return to a program is caught as well
//! ([`catch`](mod@super::catch)), and ends the grace at once.

use crate::schedule::Ticks;

/// A sample of a vCPU that was interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// In the guest's kernel (EL1), not in a program.
    pub in_kernel: bool,
    /// Program counter.
    pub pc: u64,
    /// Stack pointer of the kernel.
    pub stack: u64,
}

/// What two samples in a row show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Spin {
    last: Option<(u64, u64)>,
}

/// The longest loop that counts as spinning, in bytes.
const LOOP_BYTES: u64 = 64;

impl Spin {
    /// Whether the vCPU seems to spin: it is in the kernel, on the same stack and at the same few instructions as in
    /// the last sample.
    pub fn seen(&mut self, sample: Sample) -> bool {
        let now = sample.in_kernel.then_some((sample.pc, sample.stack));
        let before = core::mem::replace(&mut self.last, now);
        match (before, now) {
            (Some((pc, stack)), Some((now_pc, now_stack))) => {
                stack == now_stack && pc.abs_diff(now_pc) < LOOP_BYTES
            }
            _ => false,
        }
    }
}

/// When the vCPU that runs gives up the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// Now: it is in a program, or spins.
    Now,
    /// Not before this time, when it is sampled again.
    Later(Ticks),
    /// Its grace is used up, and it is in its kernel.
    InKernel,
}

/// The grace of the vCPU that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grace {
    step: Ticks,
    short_step: Ticks,
    steps: u8,
    used: u8,
    short_used: u8,
    spin: Spin,
    sees_spin: bool,
    /// Whether an interrupt has already voided a sample.
    is_voided: bool,
    /// Whether a short step was already repeated.
    is_repeated: bool,
}

impl Grace {
    /// At most `steps` steps of the length `step`. Where another vCPU waits with an interrupt, the first step has the length `short_step`, and each
    /// further one is twice as long as the one before, up to `step`. If `sees_spin`, a vCPU that spins gets none.
    pub const fn new(step: Ticks, short_step: Ticks, steps: u8, sees_spin: bool) -> Self {
        Self {
            step,
            short_step,
            steps,
            used: 0,
            short_used: 0,
            spin: Spin { last: None },
            sees_spin,
            is_voided: false,
            is_repeated: false,
        }
    }

    /// Makes all of the grace available again: another vCPU runs, or no vCPU waits for this vCPU's core any more.
    pub fn renew(&mut self) {
        self.used = 0;
        self.short_used = 0;
        self.spin = Spin::default();
        self.is_voided = false;
        self.is_repeated = false;
    }

    /// An interrupt was delivered to the running vCPU. If the vCPU spins, the interrupt takes it out of its loop first, so its last sample
    /// does not count. That happens once until the grace is [renewed](Self::renew): a storm of interrupts must not hide that a vCPU spins.
    #[inline(always)]
    pub fn interrupted(&mut self) {
        if !self.is_voided && self.spin.last.is_some() {
            self.is_voided = true;
            self.spin = Spin::default();
        }
    }

    /// The running vCPU has not entered its guest since the last sample, so it is where it was, and that sample shows nothing. Its next short step is as long as
    /// the last one. That happens once until the grace is [renewed](Self::renew): where the way to the guest takes longer than such a step, steps must become longer.
    pub fn has_not_run(&mut self) {
        self.spin = Spin::default();
        if !self.is_repeated && self.short_used > 0 {
            self.is_repeated = true;
            self.short_used -= 1;
        }
    }

    /// The running vCPU is to give up the core. `is_short`: to a vCPU with an interrupt.
    pub fn sample(&mut self, now: Ticks, sample: Sample, is_short: bool) -> Leaves {
        let spins = self.sees_spin && self.spin.seen(sample);
        if !sample.in_kernel || spins {
            return Leaves::Now;
        }
        if self.used >= self.steps {
            return Leaves::InKernel;
        }
        let step = match is_short {
            true => self.next_short_step(),
            false => self.step,
        };
        self.used += 1;
        Leaves::Later(now.saturating_add(step))
    }

    /// The next step where another vCPU waits with an interrupt.
    fn next_short_step(&mut self) -> Ticks {
        let doubled = self.short_step.0 << self.short_used;
        self.short_used += 1;
        self.step.min(Ticks(doubled))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn at(pc: u64) -> Sample {
        Sample {
            in_kernel: true,
            pc,
            stack: 1,
        }
    }

    #[test]
    fn a_program_gives_up_the_core_at_once() {
        let sample = Sample {
            in_kernel: false,
            ..at(0)
        };
        let mut grace = Grace::new(Ticks(5), Ticks(2), 3, true);
        assert_eq!(grace.sample(Ticks(1), sample, false), Leaves::Now);
    }

    #[test]
    fn a_kernel_gets_the_given_number_of_steps() {
        let mut grace = Grace::new(Ticks(5), Ticks(2), 3, true);
        for round in 0..3 {
            let now = Ticks(round * 5);
            let leaves = grace.sample(now, at(round * 4096), false);
            assert_eq!(leaves, Leaves::Later(Ticks(now.0 + 5)));
        }
        let leaves = grace.sample(Ticks(15), at(9 * 4096), false);
        assert_eq!(leaves, Leaves::InKernel);
        grace.renew();
        let leaves = grace.sample(Ticks(20), at(0), false);
        assert_eq!(leaves, Leaves::Later(Ticks(25)));
    }

    #[test]
    fn where_another_vcpu_waits_with_an_interrupt_steps_begin_short_and_double() {
        let mut grace = Grace::new(Ticks(10), Ticks(2), 6, true);
        let mut sampled = |pc, is_short| grace.sample(Ticks(100), at(pc), is_short);
        assert_eq!(sampled(0, false), Leaves::Later(Ticks(110)));
        let short = [102, 104, 108, 110, 110];
        for (at, until) in short.into_iter().enumerate() {
            let pc = 4096 * (1 + at as u64);
            assert_eq!(sampled(pc, true), Leaves::Later(Ticks(until)));
        }
        assert_eq!(sampled(0, true), Leaves::InKernel);
    }

    #[test]
    fn a_short_step_in_which_a_vcpu_has_not_run_is_repeated() {
        let mut grace = Grace::new(Ticks(10), Ticks(2), 4, true);
        let until = |at| Leaves::Later(Ticks(at));
        assert_eq!(grace.sample(Ticks(100), at(4096), true), until(102));
        grace.has_not_run();
        assert_eq!(grace.sample(Ticks(102), at(4096), true), until(104));
        assert_eq!(grace.sample(Ticks(104), at(8192), true), until(108));
        // Once.
        grace.has_not_run();
        assert_eq!(grace.sample(Ticks(108), at(8192), true), until(116));
        assert_eq!(grace.sample(Ticks(116), at(0), true), Leaves::InKernel);
    }

    #[test]
    fn a_vcpu_that_spins_gets_no_grace() {
        let mut grace = Grace::new(Ticks(5), Ticks(2), 3, true);
        let later = |at| Leaves::Later(Ticks(at));
        assert_eq!(grace.sample(Ticks(0), at(4096), false), later(5));
        assert_eq!(grace.sample(Ticks(5), at(4096 + 8), false), Leaves::Now);
        let mut without_spin = Grace::new(Ticks(5), Ticks(2), 3, false);
        assert_eq!(without_spin.sample(Ticks(0), at(4096), false), later(5));
        assert_eq!(
            without_spin.sample(Ticks(5), at(4096 + 8), false),
            later(10)
        );
    }

    #[test]
    fn of_a_storm_of_interrupts_one_voids_a_sample() {
        let mut grace = Grace::new(Ticks(5), Ticks(2), 5, true);
        let mut leaves = Vec::new();
        for round in 0..3 {
            leaves.push(grace.sample(Ticks(round * 5), at(4096), false) == Leaves::Now);
            grace.interrupted();
        }
        assert_eq!(leaves, [false, false, true]);
        grace.renew();
        grace.sample(Ticks(15), at(4096), false);
        grace.interrupted();
        assert_ne!(grace.sample(Ticks(20), at(4096), false), Leaves::Now);
    }

    #[test]
    fn the_same_function_on_another_stack_is_no_spin() {
        let mut spin = Spin::default();
        assert!(!spin.seen(at(4096)));
        assert!(!spin.seen(Sample {
            stack: 2,
            ..at(4096)
        }));
        assert!(spin.seen(Sample {
            stack: 2,
            ..at(4100)
        }));
    }
}
