// SPDX-License-Identifier: MIT OR Apache-2.0
//! The endless loop of a core, one iteration at a time.

/// What a core runs in an endless loop. On a host, tests call [`Self::turn`].
pub trait Turns: 'static {
    /// Runs before the first turn.
    fn prepare(&mut self);

    /// One iteration of the loop.
    fn turn(&mut self);
}
