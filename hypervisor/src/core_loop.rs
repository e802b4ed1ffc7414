// SPDX-License-Identifier: MIT OR Apache-2.0
//! The endless loop of a core, one iteration at a time.

/// What a core runs in an endless loop. On a host, tests call [`Self::iterate`].
pub trait CoreLoop: 'static {
    /// Runs before the first iteration.
    fn prepare(&mut self);

    /// One iteration of the loop. `enters_again` is what the iteration before has returned: whether the running vCPU is entered without another look at
    /// all else. It is `false` in the first iteration.
    fn iterate(&mut self, enters_again: bool) -> bool;
}
