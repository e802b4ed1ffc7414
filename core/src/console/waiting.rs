// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which sources may have output, so that whoever drains does not look at all of them.

use super::SOURCES;
use crate::sync::atomic::{AtomicU32, Ordering};

const _: () = assert!(SOURCES <= u32::BITS as usize);

/// A set of sources: all that have output, and perhaps some that have none any more.
#[derive(Debug)]
pub struct Waiting {
    /// Bit n: source n has pushed since its bit was last taken. Shared because every core pushes. Set with release after
    /// the byte is in its ring, taken with acquire before the ring is looked at: a byte is in the ring that is looked at,
    /// or its bit is still to come. The look that says which bit to take is relaxed, so it may miss a bit: not one whose
    /// producer has [asked](super::UartSlot) before the holder took the token or last heard of it, which is ordered by
    /// that word, and for any other the holder drains again.
    sources: AtomicU32,
}

impl Waiting {
    constructor! {
        /// Nobody.
        pub fn new() -> Self {
            Self { sources: AtomicU32::new(0) }
        }
    }

    /// There is something in the ring of `source`.
    #[inline(always)]
    pub fn add(&self, source: usize) {
        self.sources.fetch_or(1 << source, Ordering::Release);
    }

    fn take(&self, source: usize) {
        self.sources.fetch_and(!(1 << source), Ordering::Acquire);
    }

    /// Takes out the next source after `last`, around.
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
