// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which of its guest's links a vCPU serves next, when frames wait at several.

/// Serves the links in turn, so that frames at one link do not hold up those at another one. Each vCPU has its own.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// One more than the number of the link that was served last.
    next: u32,
}

impl Turn {
    /// Link 0 is the first.
    pub const fn new() -> Self {
        Self { next: 0 }
    }

    /// Returns the link to serve next, of those whose bit is set in `waiting` (bit n: link n); `None` if no bit is set.
    pub fn take(&mut self, waiting: u32) -> Option<usize> {
        if waiting == 0 {
            return None;
        }
        // `next` is 32 at most.
        let later = u64::from(waiting) >> self.next << self.next;
        let link = match later {
            0 => waiting.trailing_zeros(),
            later => later.trailing_zeros(),
        };
        self.next = link + 1;
        Some(link as usize)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn turns(turn: &mut Turn, waiting: u32, count: usize) -> Vec<usize> {
        (0..count).filter_map(|_| turn.take(waiting)).collect()
    }

    #[test]
    fn links_at_which_frames_wait_are_served_in_turn() {
        let mut turn = Turn::default();
        assert_eq!(turns(&mut turn, 0b1011, 7), [0, 1, 3, 0, 1, 3, 0]);
        assert_eq!(turns(&mut turn, 0b0100, 2), [2, 2]);
        assert_eq!(turns(&mut turn, 1 << 31 | 1, 4), [31, 0, 31, 0]);
        assert_eq!(turn.take(0), None);
        assert_eq!(turns(&mut turn, 0b11, 2), [1, 0]);
    }
}
