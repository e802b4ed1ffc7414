// SPDX-License-Identifier: MIT OR Apache-2.0
//! A signal from one guest to another.

use crate::line;
use crate::sync::atomic::{AtomicBool, Ordering};

/// The signal at one end of a memory link: given by the peer, taken back by the guest at this end.
#[derive(Debug)]
pub struct Signal {
    /// Set by cores of the peer, cleared by cores of the guest. Release on setting and acquire on clearing: the guest sees
    /// what the peer wrote to the memory before it signalled.
    given: AtomicBool,
}

impl Signal {
    constructor! {
        /// A signal that is not given.
        pub fn new() -> Self {
            Self {
                given: AtomicBool::new(false),
            }
        }
    }

    /// The peer gives the signal. Returns whether it was not given before: then call [`publish`](Self::publish).
    #[must_use]
    pub fn give(&self) -> bool {
        !self.given.swap(true, Ordering::AcqRel)
    }

    /// The guest takes the signal back. Returns whether it was given: then call [`publish`](Self::publish).
    #[must_use]
    pub fn take(&self) -> bool {
        self.given.swap(false, Ordering::AcqRel)
    }

    /// Whether the signal is given: the level of the guest's interrupt.
    pub fn is_given(&self) -> bool {
        self.given.load(Ordering::Acquire)
    }

    /// Passes the level of the interrupt to `set`, so that the last level passed is the present one. `set` may be called up
    /// to four times.
    pub fn publish(&self, set: impl FnMut(bool)) {
        line::publish(|| self.is_given(), set);
    }

    /// The guest begins a new life: nothing that was signalled before is delivered.
    pub fn reset(&self) {
        self.given.store(false, Ordering::Relaxed);
    }
}
