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
/// A step consists of pieces of work: it reads a descriptor, copies a stretch, or gives a buffer back. It looks before each piece but the first, and keeps the place
/// where it stops. So it gets on however often the core is interrupted, and whatever parts the buffers have.
pub(super) struct Looks<P> {
    pause: P,
    /// Whether a piece of work was done.
    has_done: bool,
}

impl<P: FnMut() -> bool> Looks<P> {
    /// A step begins.
    pub const fn new(pause: P) -> Self {
        Self {
            pause,
            has_done: false,
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

    /// A piece of work comes. The caller has kept, or keeps if this stops it, what was done before.
    #[inline(always)]
    pub fn before_piece(&mut self) -> Result<(), Stop> {
        self.look()?;
        self.has_done = true;
        Ok(())
    }
}
