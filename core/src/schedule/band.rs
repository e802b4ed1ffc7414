// SPDX-License-Identifier: MIT OR Apache-2.0
//! Priorities as small consecutive numbers.
//!
//! A user spreads priorities over 0 to 255 as he likes; a system has few distinct ones. Each
//! becomes a band, an index into bitmaps, SGI numbers and GIC priorities.

use core::fmt;
use spumone_config::types::{MAX_PRIORITIES, Priority};

/// The rank of a priority among those of the system: 0 is the lowest, the higher number wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Band(u8);

impl Band {
    /// Number of bands a system can have.
    pub const COUNT: usize = MAX_PRIORITIES;

    /// The band that yields to all others.
    pub const LOWEST: Self = Self(0);

    /// The most urgent there can be.
    pub const HIGHEST: Self = Self(Self::COUNT as u8 - 1);

    /// The band of this rank; `None` from [`COUNT`](Self::COUNT) on.
    pub const fn new(rank: u8) -> Option<Self> {
        if (rank as usize) < Self::COUNT {
            Some(Self(rank))
        } else {
            None
        }
    }

    /// The rank as an index into a table of [`COUNT`](Self::COUNT) entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Band {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bands {
    /// Distinct, rising; the first `count` are valid.
    priorities: [Priority; MAX_PRIORITIES],
    count: usize,
}

impl Bands {
    /// Ranks the priorities of all vCPUs of a system; order and repetition do not matter.
    ///
    /// # Errors
    ///
    /// [`TooManyPriorities`] where more than [`MAX_PRIORITIES`] distinct ones are given.
    pub const fn from_priorities(given: &[Priority]) -> Result<Self, TooManyPriorities> {
        let mut bands = Self {
            priorities: [Priority(0); MAX_PRIORITIES],
            count: 0,
        };
        let mut i = 0;
        while i < given.len() {
            if bands.insert(given[i]).is_err() {
                return Err(TooManyPriorities);
            }
            i += 1;
        }
        Ok(bands)
    }

    /// The band of a priority; `None` if no vCPU of the system has it.
    pub const fn of(&self, priority: Priority) -> Option<Band> {
        let mut i = 0;
        while i < self.count {
            if self.priorities[i].0 == priority.0 {
                return Some(Band(i as u8));
            }
            i += 1;
        }
        None
    }

    /// The number of bands in use.
    pub const fn count(&self) -> usize {
        self.count
    }

    const fn insert(&mut self, priority: Priority) -> Result<(), TooManyPriorities> {
        if self.of(priority).is_some() {
            return Ok(());
        }
        if self.count == MAX_PRIORITIES {
            return Err(TooManyPriorities);
        }
        let mut at = self.count;
        while at > 0 && self.priorities[at - 1].0 > priority.0 {
            self.priorities[at] = self.priorities[at - 1];
            at -= 1;
        }
        self.priorities[at] = priority;
        self.count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::vec::Vec;

    #[test]
    fn bands_rank_priorities_whatever_their_order() {
        const BANDS: Result<Bands, TooManyPriorities> = Bands::from_priorities(&[
            Priority(200),
            Priority(100),
            Priority(100),
            Priority(255),
            Priority(0),
        ]);
        let bands = BANDS.unwrap();
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
        assert_eq!(Bands::from_priorities(&nine), Err(TooManyPriorities));
        assert_eq!(Bands::from_priorities(&nine[..8]).map(|b| b.count()), Ok(8));
    }

    proptest::proptest! {
        #[test]
        fn band_order_is_priority_order(given in proptest::collection::vec(0_u8..12, 0..30)) {
            let given: Vec<_> = given.into_iter().map(Priority).collect();
            let distinct: BTreeSet<_> = given.iter().copied().collect();
            match Bands::from_priorities(&given) {
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
