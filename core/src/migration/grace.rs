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

/// The grace of the vCPU that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grace {
    step: Ticks,
    steps: u8,
    used: u8,
    spin: Spin,
    sees_spin: bool,
}

impl Grace {
    /// At most `steps` times `step`. If `sees_spin`, a vCPU that spins gets none.
    pub const fn new(step: Ticks, steps: u8, sees_spin: bool) -> Self {
        Self {
            step,
            steps,
            used: 0,
            spin: Spin { last: None },
            sees_spin,
        }
    }

    /// Makes all of the grace available again: another vCPU runs, or no vCPU waits for this vCPU's core any more.
    pub fn renew(&mut self) {
        self.used = 0;
        self.spin = Spin::default();
    }

    /// The running vCPU is to give up the core. `Some`: it has grace, and is to be sampled again at that time.
    pub fn more(&mut self, now: Ticks, sample: Sample) -> Option<Ticks> {
        let spins = self.sees_spin && self.spin.seen(sample);
        if !sample.in_kernel || spins || self.used >= self.steps {
            return None;
        }
        self.used += 1;
        Some(now.saturating_add(self.step))
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

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
        assert_eq!(Grace::new(Ticks(5), 3, true).more(Ticks(1), sample), None);
    }

    #[test]
    fn a_kernel_gets_the_given_number_of_steps() {
        let mut grace = Grace::new(Ticks(5), 3, true);
        for round in 0..3 {
            let now = Ticks(round * 5);
            assert_eq!(grace.more(now, at(round * 4096)), Some(Ticks(now.0 + 5)));
        }
        assert_eq!(grace.more(Ticks(15), at(9 * 4096)), None);
        grace.renew();
        assert!(grace.more(Ticks(20), at(0)).is_some());
    }

    #[test]
    fn a_vcpu_that_spins_gets_no_grace() {
        let mut grace = Grace::new(Ticks(5), 3, true);
        assert!(grace.more(Ticks(0), at(4096)).is_some());
        assert_eq!(grace.more(Ticks(5), at(4096 + 8)), None);
        let mut without_spin = Grace::new(Ticks(5), 3, false);
        assert!(without_spin.more(Ticks(0), at(4096)).is_some());
        assert!(without_spin.more(Ticks(5), at(4096 + 8)).is_some());
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
