// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a vCPU that has both an interrupt to handle and frames to move handles the interrupt first.

/// The interrupt comes first, because the peer chooses when frames that have waited can go on. At the next exit it is a frame, even if
/// there is an interrupt again: else a vCPU that exits only by its own tick would never move one. If the core is interrupted then, the frame comes first
/// again. Each vCPU has its own.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Precedence {
    has_frame_waited: bool,
}

impl Precedence {
    /// An interrupt comes first.
    pub const fn new() -> Self {
        Self {
            has_frame_waited: false,
        }
    }

    /// The vCPU notifies its device although it cannot take an interrupt now, since it masks interrupts: a frame comes first.
    pub fn notified_while_masked(&mut self) {
        self.has_frame_waited = true;
    }

    /// There is no interrupt to handle, so no frame waits for one.
    pub fn has_no_interrupt(&mut self) {
        self.has_frame_waited = false;
    }

    /// A frame came first, but the core was interrupted, and perhaps nothing of the frame was moved: a frame comes first again.
    pub fn frame_still_waits(&mut self) {
        self.has_frame_waited = true;
    }

    /// There are both. Returns whether a frame comes first.
    #[must_use]
    pub fn is_frame_first(&mut self) -> bool {
        self.has_frame_waited = !self.has_frame_waited;
        !self.has_frame_waited
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_frame_waits_for_one_interrupt() {
        let mut precedence = Precedence::new();
        let frames = [(); 4].map(|()| precedence.is_frame_first());
        assert_eq!(frames, [false, true, false, true]);
        assert!(!precedence.is_frame_first());
        precedence.has_no_interrupt();
        assert!(!precedence.is_frame_first());
    }

    #[test]
    fn a_vcpu_that_masks_its_interrupts_moves_the_frame_that_it_notifies() {
        let mut precedence = Precedence::new();
        precedence.notified_while_masked();
        let frames = [(); 2].map(|()| precedence.is_frame_first());
        assert_eq!(frames, [true, false]);
    }

    #[test]
    fn a_frame_that_was_interrupted_comes_first_again() {
        let mut precedence = Precedence::new();
        precedence.notified_while_masked();
        assert!(precedence.is_frame_first());
        precedence.frame_still_waits();
        let frames = [(); 2].map(|()| precedence.is_frame_first());
        assert_eq!(frames, [true, false]);
    }
}
