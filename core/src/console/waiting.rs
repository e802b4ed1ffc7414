// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which sources may have output, so that the core that drains does not look at all of them.

use super::SOURCES;
use crate::sync::atomic::{AtomicU32, Ordering};

const _: () = assert!(SOURCES <= u32::BITS as usize);

/// A set of sources: all that have output, and possibly some that no longer have.
#[derive(Debug)]
pub struct Waiting {
    /// Bit n: source n has pushed since its bit was last taken. Shared because every core pushes. Set with release after
    /// the byte is in its ring, taken with acquire before the ring is looked at: either the byte is seen
    /// in the ring, or its bit is set later. The load that chooses which bit to take is relaxed, so it may miss a bit.
    /// It does not miss that of a producer that has [asked](super::UartSlot) before the holder took the token or last
    /// cleared the mark, because that word orders it; for any other producer the holder drains again.
    sources: AtomicU32,
}

impl Waiting {
    constructor! {
        /// The empty set.
        pub fn new() -> Self {
            Self { sources: AtomicU32::new(0) }
        }
    }

    /// Adds `source`: there are bytes in its ring.
    #[inline(always)]
    pub fn add(&self, source: usize) {
        self.sources.fetch_or(1 << source, Ordering::Release);
    }

    fn take(&self, source: usize) {
        self.sources.fetch_and(!(1 << source), Ordering::Acquire);
    }

    /// Removes and returns the next source after `last`, in a circle.
    pub fn take_after(&self, last: usize) -> Option<usize> {
        let sources = self.sources.load(Ordering::Relaxed);
        let later = sources & u32::MAX.checked_shl(last as u32 + 1).unwrap_or(0);
        let first = if later == 0 { sources } else { later };
        if first == 0 {
            return None;
        }
        let source = first.trailing_zeros() as usize;
        self.take(source);
        Some(source)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn sources_take_turns() {
        let waiting = Waiting::new();
        for source in [0, 3, SOURCES - 1] {
            waiting.add(source);
        }
        assert_eq!(waiting.take_after(0), Some(3));
        waiting.add(3);
        assert_eq!(waiting.take_after(3), Some(SOURCES - 1));
        assert_eq!(waiting.take_after(SOURCES - 1), Some(0));
        assert_eq!(waiting.take_after(0), Some(3));
        assert_eq!(waiting.take_after(3), None);
    }
}
