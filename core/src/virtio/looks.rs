// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks for interrupts between the pieces of work of a step.

use super::fault::Fault;

/// Why a walk through a buffer has stopped.
pub(super) enum Stop {
    /// A driver has broken the rules.
    Fault(Fault),
    /// The core has something else to do.
    Interrupted,
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// What tells a step that the core has something else to do.
///
/// A step consists of pieces of work: it reads a descriptor, copies a stretch, or gives a buffer back. It looks before each piece, and keeps the place
/// where it stops. So it gets on unless it is stopped before its first piece, and whatever parts the buffers have.
pub(super) struct Looks<P> {
    pause: P,
    /// Whether a piece of work was done.
    has_done: bool,
    /// Whether it has looked since then.
    has_looked: bool,
}

impl<P: FnMut() -> bool> Looks<P> {
    /// A step begins.
    pub const fn new(pause: P) -> Self {
        Self {
            pause,
            has_done: false,
            has_looked: false,
        }
    }

    /// Looks within a piece of work, if there was a piece before it.
    #[inline(always)]
    pub fn look(&mut self) -> Result<(), Stop> {
        match self.has_done && (self.pause)() {
            true => Err(Stop::Interrupted),
            false => Ok(()),
        }
    }

    /// Looks within a piece of work of which a part is done.
    #[inline(always)]
    pub fn stops(&mut self) -> bool {
        (self.pause)()
    }

    /// Looks now instead of before the piece of work that comes next.
    #[inline(always)]
    pub fn early(&mut self) -> Result<(), Stop> {
        if !self.has_looked && (self.pause)() {
            return Err(Stop::Interrupted);
        }
        self.has_looked = true;
        Ok(())
    }

    /// A piece of work comes. The caller has kept, or keeps if this stops it, what was done before.
    #[inline(always)]
    pub fn before_piece(&mut self) -> Result<(), Stop> {
        self.early()?;
        self.has_looked = false;
        self.has_done = true;
        Ok(())
    }
}
