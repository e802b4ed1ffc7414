// SPDX-License-Identifier: MIT OR Apache-2.0
//! Priorities as small consecutive numbers.
//!
//! Priorities in a description are numbers up to 255, of which a system uses few. Each distinct priority
//! becomes a band, an index into bitmaps, SGI numbers and GIC priorities.

use crate::types::{Band, MAX_PRIORITIES, Priority};
use core::fmt;

/// A system has more distinct priorities than [`MAX_PRIORITIES`]: give some vCPUs equal ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPriorities;

impl fmt::Display for TooManyPriorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the system has more than {MAX_PRIORITIES} distinct priorities: \
             give some vCPUs the same one"
        )
    }
}

/// The priorities of a system, as bands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bands {
    /// Distinct, rising.
    priorities: Vec<Priority>,
}

impl Bands {
    /// Ranks the priorities of all vCPUs of a system; order and repetition do not matter.
    ///
    /// # Errors
    ///
    /// [`TooManyPriorities`] where more than [`MAX_PRIORITIES`] distinct ones are given.
    pub fn from_priorities(
        given: impl IntoIterator<Item = Priority>,
    ) -> Result<Self, TooManyPriorities> {
        let mut priorities: Vec<_> = given.into_iter().collect();
        priorities.sort_unstable();
        priorities.dedup();
        match priorities.len() <= MAX_PRIORITIES {
            true => Ok(Self { priorities }),
            false => Err(TooManyPriorities),
        }
    }

    /// The band of a priority; `None` if no vCPU of the system has it.
    pub fn of(&self, priority: Priority) -> Option<Band> {
        let rank = self.priorities.binary_search(&priority).ok()?;
        Band::new(u8::try_from(rank).ok()?)
    }

    /// The number of bands in use.
    pub const fn count(&self) -> usize {
        self.priorities.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn bands_rank_priorities_whatever_their_order() {
        let bands = Bands::from_priorities([200, 100, 100, 255, 0].map(Priority)).unwrap();
        assert_eq!(bands.count(), 4);
        assert_eq!(bands.of(Priority(0)), Band::new(0));
        assert_eq!(bands.of(Priority(100)), Band::new(1));
        assert_eq!(bands.of(Priority(200)), Band::new(2));
        assert_eq!(bands.of(Priority(255)), Band::new(3));
        assert_eq!(bands.of(Priority(1)), None);
    }

    #[test]
    fn a_ninth_priority_is_refused() {
        let nine: Vec<_> = (0..9).map(Priority).collect();
        assert_eq!(Bands::from_priorities(nine.clone()), Err(TooManyPriorities));
        assert_eq!(
            Bands::from_priorities(nine[..8].to_vec()).map(|b| b.count()),
            Ok(8)
        );
    }

    proptest::proptest! {
        #[test]
        fn band_order_is_priority_order(given in proptest::collection::vec(0_u8..12, 0..30)) {
            let given: Vec<_> = given.into_iter().map(Priority).collect();
            let distinct: BTreeSet<_> = given.iter().copied().collect();
            match Bands::from_priorities(given.clone()) {
                Err(TooManyPriorities) => assert!(distinct.len() > MAX_PRIORITIES),
                Ok(bands) => {
                    let ranks: Vec<_> = distinct.iter().map(|&p| bands.of(p).unwrap().index()).collect();
                    let expected: Vec<_> = (0..distinct.len()).collect();
                    assert_eq!(ranks, expected);
                }
            }
        }
    }
}
