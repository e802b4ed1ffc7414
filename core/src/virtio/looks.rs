// SPDX-License-Identifier: MIT OR Apache-2.0
//! Looks for interrupts on the way through the parts of buffers, of which a driver may make many.

use super::fault::Fault;

/// Parts between two looks: as many as a usual header and the buffer that it goes to have, so a usual frame costs no look.
const MOST_PARTS: u32 = 3;

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
/// A step goes through a stretch, or through [`MOST_PARTS`] parts, before it looks for the first time, and keeps the place where it stops. So it moves something however often the
/// core is interrupted, and whatever parts the buffers have. An answer alone is begun anew: see [`answer`](super::answer).
pub(super) struct Looks<P> {
    pause: P,
    /// Parts since the last look; with as many as may be, the core looks before each further one.
    parts: u32,
}

impl<P: FnMut() -> bool> Looks<P> {
    /// A step begins.
    pub const fn new(pause: P) -> Self {
        Self { pause, parts: 0 }
    }

    /// Looks, between two stretches. Returns whether the step is to stop.
    pub fn stops(&mut self) -> bool {
        self.parts = 0;
        (self.pause)()
    }

    /// A further part comes, and the core looks before it if there were enough.
    pub fn before_part(&mut self) -> Result<(), Stop> {
        if self.parts < MOST_PARTS {
            self.parts += 1;
        } else if (self.pause)() {
            return Err(Stop::Interrupted);
        }
        Ok(())
    }
}
