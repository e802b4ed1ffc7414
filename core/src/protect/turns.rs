// SPDX-License-Identifier: MIT OR Apache-2.0
//! In which order a core checks the protected memory of several guests.

use crate::bits::bits;
use spumone_config::GuestId;
use spumone_config::types::MAX_GUESTS;

/// Whose turn it is on a core: a guest with much protected memory keeps no other one from being checked.
#[derive(Clone, Copy, Debug)]
pub struct Turns {
    next: u8,
}

impl Turns {
    /// The first guest is the first.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self { next: 0 }
    }

    /// The guests of `protected` (bit n for guest n), in the order of their turns.
    pub fn order(self, protected: u32) -> impl Iterator<Item = GuestId> {
        let later = protected & u32::MAX << self.next;
        let guests = bits(later).chain(bits(protected & !later));
        guests.map(|id| GuestId(id as u8))
    }

    /// The core has checked leaves of `guest`, and some may be left. `has_begun`: it has begun one, which it finishes first.
    pub fn checked(&mut self, guest: GuestId, has_begun: bool) {
        self.next = match has_begun {
            true => guest.0,
            false => (guest.0 + 1) % MAX_GUESTS as u8,
        };
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn guests_take_turns_and_a_leaf_that_is_begun_is_finished_first() {
        let mut turns = Turns::new();
        let first = |turns: Turns| turns.order(0b1000_0101).next().map(|it| it.0);
        let mut seen = Vec::new();
        for has_begun in [false, true, false, false, false] {
            let guest = first(turns).unwrap();
            seen.push(guest);
            turns.checked(GuestId(guest), has_begun);
        }
        assert_eq!(seen, [0, 2, 2, 7, 0]);
        let order: Vec<_> = turns.order(0b1000_0101).map(|it| it.0).collect();
        assert_eq!(order, [2, 7, 0]);
    }
}
