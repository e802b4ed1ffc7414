// SPDX-License-Identifier: MIT OR Apache-2.0
//! How long before the timer of a sleeping vCPU expires its core begins to switch to that vCPU.

use crate::schedule::Ticks;

/// When a core begins to switch to a sleeping vCPU because of the vCPU's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Early {
    /// When the timer expires.
    AtTimer,
    /// As long before that as a switch takes at least, as the core has measured it ([`Lead`]). The core needs that time for the switch
    /// in any case, so other vCPUs lose nothing.
    BySwitch,
    /// That long before.
    By(Ticks),
}

/// The shortest time in which this core switches from a running vCPU to another vCPU whose deadline is due. It counts from the decision until
/// the other vCPU is loaded.
///
/// A switch that was shorter replaces it, a longer one adds a sixteenth of the difference. So a core that began too early and had to wait begins later the
/// next time, and a switch that was interrupted changes little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// In sixteenths of a tick, so that a difference below 16 ticks counts too.
    sixteenths: u64,
    longest: Ticks,
}

impl Lead {
    /// No switch has been measured yet: as if one had taken `longest`, since any switch that is shorter counts at once. A switch that
    /// takes longer than `longest` counts as `longest`.
    pub const fn new(longest: Ticks) -> Self {
        Self {
            sixteenths: longest.0 * 16,
            longest,
        }
    }

    /// How long before its timer expires the core begins to switch to a vCPU.
    #[inline(always)]
    pub const fn of(&self, early: Early) -> Ticks {
        match early {
            Early::AtTimer => Ticks(0),
            Early::BySwitch => Ticks(self.sixteenths / 16),
            Early::By(time) => time,
        }
    }

    /// A switch took so long.
    #[inline(always)]
    pub fn learn(&mut self, took: Ticks) {
        let took = took.min(self.longest).0 * 16;
        if took < self.sixteenths {
            self.sixteenths = took;
        } else {
            self.sixteenths += (took - self.sixteenths) / 16;
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LONGEST: Ticks = Ticks(600);

    fn after(switches: &[u64]) -> Ticks {
        let mut lead = Lead::new(LONGEST);
        for &took in switches {
            lead.learn(Ticks(took));
        }
        lead.of(Early::BySwitch)
    }

    /// Else the first periods of a guest would be late, for as long as the core loads another guest: it stays loaded then, so no
    /// switch is measured.
    #[test]
    fn before_the_first_switch_a_vcpu_is_woken_as_early_as_it_can_be() {
        assert_eq!(after(&[]), LONGEST);
    }

    #[test]
    fn the_first_switch_and_each_shorter_one_count_at_once() {
        assert_eq!(after(&[200]), Ticks(200));
        assert_eq!(after(&[200, 180]), Ticks(180));
    }

    #[test]
    fn a_longer_switch_counts_a_sixteenth() {
        assert_eq!(after(&[200, 360]), Ticks(210));
        assert_eq!(after(&[200, u64::MAX]), Ticks(225));
    }

    /// Each by less than a sixteenth of a difference of 16 ticks.
    #[test]
    fn switches_that_all_take_slightly_longer_count_in_the_end() {
        let mut switches = [110; 60];
        switches[0] = 100;
        assert!(after(&switches) >= Ticks(109));
    }

    #[test]
    fn what_a_description_says_is_not_measured() {
        let mut lead = Lead::new(LONGEST);
        lead.learn(Ticks(300));
        assert_eq!(lead.of(Early::By(Ticks(7))), Ticks(7));
        assert_eq!(lead.of(Early::AtTimer), Ticks(0));
    }

    proptest! {

        #[test]
        fn it_is_between_the_shortest_and_the_longest_switch(
            switches in prop::collection::vec(0..2_000_u64, 1..100),
        ) {
            let lead = after(&switches);
            let shortest = switches.iter().copied().min().unwrap();
            let longest = switches.iter().copied().max().unwrap();
            prop_assert!(lead <= Ticks(longest.min(LONGEST.0)));
            prop_assert!(lead >= Ticks(shortest.min(LONGEST.0)));
        }
    }
}
