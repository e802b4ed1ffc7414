// SPDX-License-Identifier: MIT OR Apache-2.0
//! A loop without end, in turns.

/// What runs for ever on a core. On a host, tests take the turns.
pub trait Turns: 'static {
    /// What comes before the first turn.
    fn prepare(&mut self);

    /// One turn of the loop.
    fn turn(&mut self);
}
