// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which band a core runs, and whether another vCPU of that band waits there, as other cores see it.

use crate::schedule::{Band, Level};
use crate::sync::atomic::{AtomicU8, Ordering, fence};

/// The level of a core, for other cores that have parked a vCPU, or must know whether the priority mask holds back an
/// interrupt there.
#[derive(Debug)]
pub struct Presence {
    /// The number of a [`Level`], and [`OTHERS_WAIT`]. Only the core itself writes it. Relaxed: it is ordered against other words by the
    /// fence in [`Self::publish`] and by the fence of the core that looks.
    published: AtomicU8,
}

/// A bit of [`Presence::published`] that no level has.
const OTHERS_WAIT: u8 = 1 << 7;
const _: () = assert!(Level::OFF.number() < OTHERS_WAIT);

/// What a core has published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its level.
    pub level: Level,
    /// Whether another vCPU of the band that it runs waits there for its turn; above the lowest band that moves always `false`.
    pub others_wait: bool,
}

impl Presence {
    constructor! {
        /// An idle core.
        pub fn new() -> Self {
            Self {
                published: AtomicU8::new(Level::IDLE.number()),
            }
        }
    }

    /// Publishes the core's own level; no other vCPU of its band waits there. Only the core itself calls this. What it reads afterwards is
    /// read after the level is published.
    #[inline(always)]
    pub fn publish(&self, level: Level) {
        self.publish_all(Published {
            level,
            others_wait: false,
        });
    }

    /// As [`Self::publish`], with whether other vCPUs wait.
    #[inline(always)]
    pub fn publish_all(&self, now: Published) {
        let others = if now.others_wait { OTHERS_WAIT } else { 0 };
        self.published
            .store(now.level.number() | others, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the core runs a band above `band`, so that its priority mask holds back interrupts for `band`.
    pub fn is_above(&self, band: Band) -> bool {
        self.level() > Level::of(Some(band))
    }

    /// Its level.
    #[inline(always)]
    pub fn level(&self) -> Level {
        self.published().level
    }

    /// What it has published.
    #[inline(always)]
    pub fn published(&self) -> Published {
        let published = self.published.load(Ordering::Relaxed);
        Published {
            level: Level::from_number(published & !OTHERS_WAIT),
            others_wait: published & OTHERS_WAIT != 0,
        }
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
        let shared = Published {
            level: Level::OFF,
            others_wait: true,
        };
        presence.publish_all(shared);
        assert_eq!(presence.published(), shared);
        presence.publish(Level::IDLE);
        assert!(!presence.published().others_wait);
        assert!(presence.level() == Level::IDLE && !presence.is_above(Band::LOWEST));
    }
}
