//! What a core tells others of what it does.

use crate::schedule::Band;
use crate::sync::atomic::{AtomicU8, Ordering, fence};

/// Nobody runs.
const IDLE: u8 = 0;

/// Whom a core runs, for cores that look for one to give work to, or must know whether it can be reached.
#[derive(Debug)]
pub struct Presence {
    /// [`IDLE`], or the running band + 1. Written by the core alone. Relaxed: ordered against other words by the fence in
    /// [`Self::publish`], and where others look, by theirs.
    band: AtomicU8,
}

impl Presence {
    /// An idle core.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            band: AtomicU8::new(IDLE),
        }
    }

    /// As the constant constructor, which atomics under loom do not permit.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            band: AtomicU8::new(IDLE),
        }
    }

    /// The core itself: from now on `band` runs, or nobody. A look at other words that follows comes after it.
    pub fn publish(&self, band: Option<Band>) {
        let word = band.map_or(IDLE, |band| band.index() as u8 + 1);
        self.band.store(word, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether nobody runs there.
    pub fn is_idle(&self) -> bool {
        self.band.load(Ordering::Relaxed) == IDLE
    }

    /// Whether somebody more urgent than `band` runs there, so that nothing for `band` gets through.
    pub fn is_above(&self, band: Band) -> bool {
        usize::from(self.band.load(Ordering::Relaxed)) > band.index() + 1
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
        assert!(presence.is_idle());
        for &running in &bands {
            presence.publish(Some(running));
            assert!(!presence.is_idle());
            for &band in &bands {
                assert_eq!(presence.is_above(band), running > band);
            }
        }
        presence.publish(None);
        assert!(presence.is_idle() && !presence.is_above(Band::LOWEST));
    }
}
