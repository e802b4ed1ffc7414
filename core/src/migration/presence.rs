// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a core tells others of what it does.

use crate::schedule::Band;
use crate::sync::atomic::{AtomicU8, Ordering, fence};

/// Whom a core runs, as a number: the higher, the more urgent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// Nobody.
    pub const IDLE: Self = Self(0);

    /// Of the band that runs.
    #[inline(always)]
    pub const fn of(band: Option<Band>) -> Self {
        match band {
            Some(band) => Self(band.index() as u8 + 1),
            None => Self::IDLE,
        }
    }
}

/// Whom a core runs, for cores that look for one to give work to, or must know whether it can be reached.
#[derive(Debug)]
pub struct Presence {
    /// A [`Level`]. Written by the core alone. Relaxed: ordered against other words by the fence in
    /// [`Self::publish`], and where others look, by theirs.
    level: AtomicU8,
}

impl Presence {
    constructor! {
        /// An idle core.
        pub fn new() -> Self {
            Self {
                level: AtomicU8::new(Level::IDLE.0),
            }
        }
    }

    /// The core itself: that runs from now on. A look at other words that follows comes after it.
    #[inline(always)]
    pub fn publish(&self, level: Level) {
        self.level.store(level.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether somebody more urgent than `band` runs there, so that nothing for `band` gets through.
    pub fn is_above(&self, band: Band) -> bool {
        self.level() > Level::of(Some(band))
    }

    /// Whom it runs.
    #[inline(always)]
    pub fn level(&self) -> Level {
        Level(self.level.load(Ordering::Relaxed))
    }
}

impl Default for Presence {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_core_is_idle_below_above_or_at_a_band() {
        let presence = Presence::new();
        let bands: std::vec::Vec<_> = (0..Band::COUNT as u8).filter_map(Band::new).collect();
        assert!(presence.level() == Level::IDLE);
        for &running in &bands {
            presence.publish(Level::of(Some(running)));
            assert!(presence.level() != Level::IDLE);
            for &band in &bands {
                assert_eq!(presence.is_above(band), running > band);
            }
        }
        presence.publish(Level::IDLE);
        assert!(presence.level() == Level::IDLE && !presence.is_above(Band::LOWEST));
    }
}
