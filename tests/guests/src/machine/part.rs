// SPDX-License-Identifier: MIT OR Apache-2.0
//! A part of memory.

/// A part of memory: from an address up to another.
#[derive(Clone, Copy, Debug, Default)]
pub struct Part {
    /// First address.
    pub start: u64,
    /// First address after it.
    pub end: u64,
}

impl Part {
    /// Its 64-bit words, to read and to write.
    pub fn words(self) -> &'static mut [u64] {
        let count = ((self.end - self.start) / 8) as usize;
        // SAFETY: memory of this machine that nothing else uses, aligned to pages. Callers have
        // only one such slice of a part at a time.
        unsafe { core::slice::from_raw_parts_mut(self.start as *mut u64, count) }
    }
}
