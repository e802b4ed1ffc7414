// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which band a core runs, as other cores see it.

use crate::schedule::{Band, Level};
use crate::sync::atomic::{AtomicU8, Ordering, fence};

/// The level of a core, for other cores that have parked a vCPU, or must know whether the priority mask holds back an
/// interrupt there.
#[derive(Debug)]
pub struct Presence {
    /// A [`Level`]. Only the core itself writes it. Relaxed: it is ordered against other words by the fence in
    /// [`Self::publish`] and by the fence of the core that looks.
    level: AtomicU8,
}

impl Presence {
    constructor! {
        /// An idle core.
        pub fn new() -> Self {
            Self {
                level: AtomicU8::new(Level::IDLE.number()),
            }
        }
    }

    /// Publishes the core's own level. Only the core itself calls this. What it reads afterwards is read after the level is
    /// published.
    #[inline(always)]
    pub fn publish(&self, level: Level) {
        self.level.store(level.number(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the core runs a band above `band`, so that its priority mask holds back interrupts for `band`.
    pub fn is_above(&self, band: Band) -> bool {
        self.level() > Level::of(Some(band))
    }

    /// Its level.
    #[inline(always)]
    pub fn level(&self) -> Level {
        Level::from_number(self.level.load(Ordering::Relaxed))
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
