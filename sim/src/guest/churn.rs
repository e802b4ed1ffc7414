// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest whose vCPUs compute, sleep and send each other SGIs, each for some microseconds, so that they move all the time.

use super::{Doing, Exit, RESCHEDULE, Vcpu};
use crate::random::Random;
use crate::time::us;
use spumone_core::schedule::Ticks;

/// The guest.
#[derive(Debug)]
pub struct Churn {
    random: Random,
    /// How long a vCPU sleeps on average.
    nap: Ticks,
    /// Of sixteen steps, so many are followed by that.
    naps: u64,
}

impl Churn {
    /// A guest whose steps follow from a seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self {
            random: Random::new(seed, stream),
            nap: us(20),
            naps: 1,
        }
    }

    /// The same with more and longer pauses: most of the time a vCPU sleeps.
    pub fn with_naps(seed: u64, stream: u64) -> Self {
        Self {
            nap: us(500),
            naps: 10,
            ..Self::new(seed, stream)
        }
    }

    pub(super) fn advance(&mut self, index: usize, now: Ticks, vcpus: &mut [Vcpu]) -> Exit {
        let count = vcpus.len() as u64;
        let vcpu = &mut vcpus[index];
        vcpu.irqs = 0;
        let choice = self.random.below(16);
        if choice == 0 || choice > 16 - self.naps {
            vcpu.timer = Ticks(now.0 + self.random.around(self.nap.0));
            vcpu.begin(Doing::Wait, 0);
            return Exit::Wfi;
        }
        let doing = match choice {
            1..=4 => Doing::Kernel,
            _ => Doing::User,
        };
        vcpu.begin(doing, self.random.around(us(20).0));
        match self.random.below(count) {
            other if choice <= 2 && other != index as u64 => Exit::Sgi(1 << other, RESCHEDULE),
            _ => Exit::None,
        }
    }
}
