// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work that takes long comes after a pending interrupt, but is not held up by a storm of interrupts.

/// Whether the work was deferred the last time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deferral(bool);

impl Deferral {
    /// Whether the core takes the interrupt, if one is pending, before the work. Not twice in a row.
    pub const fn defers(&mut self, is_interrupted: bool) -> bool {
        self.0 = is_interrupted && !self.0;
        self.0
    }
}
