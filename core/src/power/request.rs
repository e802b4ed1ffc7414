// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the governor is asked for: the mode, and a decision before its next window ends.

use crate::sync::atomic::{AtomicU8, Ordering};
use spumone_config::packed::PowerMode;

/// The bit that is set while a decision is asked for; the others are the mode.
const ASKED: u8 = 1 << 7;

/// The mode, and whether a decision is asked for. Any core asks; the core with the governor sees to it.
#[derive(Debug)]
pub struct Request {
    /// The number of the mode, and [`ASKED`]. One word, so that a mode is never seen without the request that comes with it. Each change is one
    /// read-modify-write: release, after the wish was changed, so that the governor's acquire shows it that wish. A core that finds the bit set
    /// need not call the governor's core, since the core that set it does so, after a barrier (DSB). Reading the mode alone is relaxed:
    /// with an old one, a core that waits brings a core back, or does not, as it would have done a moment earlier; the governor decides anew.
    word: AtomicU8,
}

impl Request {
    constructor! {
        /// In this mode; nothing is asked for.
        pub fn new(mode: PowerMode) -> Self {
            Self {
                word: AtomicU8::new(mode as u8),
            }
        }
    }

    /// The mode.
    pub fn mode(&self) -> PowerMode {
        mode_of(self.word.load(Ordering::Relaxed))
    }

    /// Whether a decision is asked for.
    #[inline(always)]
    pub fn is_asked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & ASKED != 0
    }

    /// Asks for a decision: the wish was changed, or a vCPU waits. Returns whether the caller is to call the governor's core.
    pub fn ask(&self) -> bool {
        self.word.fetch_or(ASKED, Ordering::Release) & ASKED == 0
    }

    /// Changes the mode, and asks for a decision if it was another one. Returns the mode before, and whether the caller is to call the governor's core.
    pub fn set_mode(&self, mode: PowerMode) -> (PowerMode, bool) {
        if self.mode() == mode {
            return (mode, false);
        }
        let before = self.word.swap(mode as u8 | ASKED, Ordering::Release);
        (mode_of(before), before & ASKED == 0)
    }

    /// The governor begins a decision: takes the request, and returns the mode.
    pub fn take(&self) -> PowerMode {
        mode_of(self.word.fetch_and(!ASKED, Ordering::Acquire))
    }
}

fn mode_of(word: u8) -> PowerMode {
    const PERFORMANCE: u8 = PowerMode::Performance as u8;
    const SAVING: u8 = PowerMode::Saving as u8;
    match word & !ASKED {
        PERFORMANCE => PowerMode::Performance,
        SAVING => PowerMode::Saving,
        _ => PowerMode::Balanced,
    }
}
