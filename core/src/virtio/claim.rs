// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one core at a time may use.

use crate::sync::atomic::{AtomicBool, Ordering};

/// The claim of a flag; freed when it is dropped. Acquire on claiming and release on freeing: what the last claimant has changed is
/// read by the next one.
pub(super) struct Claim<'a>(&'a AtomicBool);

impl<'a> Claim<'a> {
    /// Claims the flag; `None`: another core has it now.
    pub fn of(flag: &'a AtomicBool) -> Option<Self> {
        let claimed = flag.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed);
        claimed.is_ok().then(|| Self(flag))
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}
