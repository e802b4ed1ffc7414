// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a step has moved, as the file of each kind of link tells it to the direction.

/// What of a frame was moved.
pub(super) struct Moved {
    /// Buffers of the receiver that are to be published.
    pub buffers: u16,
    /// Bytes of the frame that have been moved, if there are more; else zero.
    pub taken: u32,
    /// The frame was dropped because the receiver has not accepted what it needs.
    pub is_refused: bool,
}

impl Moved {
    /// Nothing, and nothing more will be.
    pub const DROPPED: Self = Self {
        buffers: 0,
        taken: 0,
        is_refused: false,
    };

    /// Nothing, because the receiver has not accepted what the frame needs.
    pub const REFUSED: Self = Self {
        is_refused: true,
        ..Self::DROPPED
    };
}
