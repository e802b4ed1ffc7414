// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ideal: what the cores left by the real-time guest can achieve.

use crate::setup::Setup;
use crate::simulate::{Failed, simulate};

/// What one guest achieves on bare machines, in messages per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bare {
    /// On all cores.
    pub all: f64,
    /// On one core less than all.
    pub one_less: f64,
}

impl Bare {
    /// Simulates both.
    ///
    /// # Errors
    ///
    /// See [`Failed`].
    pub fn of(setup: &Setup) -> Result<Self, Failed> {
        let cores = setup.guest_cores;
        let all = simulate(&setup.bare(cores))?.throughput();
        let one_less = match cores {
            1 => 0.0,
            _ => simulate(&setup.bare(cores - 1))?.throughput(),
        };
        Ok(Self { all, one_less })
    }

    /// What is possible beside a real-time guest that is busy for this share of the time, as `spm bench lhp` defines it: all
    /// cores while the real-time guest sleeps, one core less while it is busy.
    pub fn ideal(&self, busy_percent: u8) -> f64 {
        let free = 1.0 - f64::from(busy_percent) / 100.0;
        self.one_less + free * (self.all - self.one_less)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ideal_goes_from_all_cores_to_one_less() {
        let bare = Bare {
            all: 4.0,
            one_less: 3.0,
        };
        assert_eq!(bare.ideal(0), 4.0);
        assert_eq!(bare.ideal(50), 3.5);
        assert_eq!(bare.ideal(100), 3.0);
    }
}
