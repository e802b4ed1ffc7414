// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of a frame or packet, read from the sender's buffer part by part, and kept if the step stops within it or behind it: the next step does not
//! read that part again.

use super::cursor::Cursor;
use super::looks::{Looks, Stop};
use super::memory::{End, Memories};
use super::queue::Ring;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Words of the longest header.
const WORDS: usize = 11;

/// A header in which, or behind which, a step has stopped. How many bytes of it were read, and where the walk through the buffer goes
/// on, the transmit queue says, which a reset of the device clears. Only the core that has claimed the direction uses it.
#[derive(Debug)]
pub(super) struct Kept([AtomicU32; WORDS]);

impl Kept {
    constructor! {
        pub fn new() -> Self {
            Self([
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
                AtomicU32::new(0),
            ])
        }
    }

    /// The buffer of the sender with this first descriptor, where the last step has stopped, or its beginning.
    pub fn resume<'a, const BYTES: usize>(
        &self,
        (sender, first): (&'a Ring<'a>, u16),
    ) -> Source<'a, BYTES> {
        let mut header = [0; BYTES];
        if !sender.is_open() {
            return Source {
                header,
                read: 0,
                cursor: Cursor::new(End::Sender, sender, first),
            };
        }
        // At most 11 times: words of a header.
        for (bytes, word) in header.as_chunks_mut().0.iter_mut().zip(&self.0) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        Source {
            header,
            read: sender.bytes_in_buffer(),
            cursor: Cursor::resume(End::Sender, sender),
        }
    }

    /// The next step goes on here.
    pub fn keep<const BYTES: usize>(
        &self,
        source: &Source<'_, BYTES>,
        (sender, first): (&Ring<'_>, u16),
    ) {
        // At most 11 times: words of a header.
        for (bytes, word) in source.header.as_chunks().0.iter().zip(&self.0) {
            word.store(u32::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        sender.set_filled(0, source.read);
        source.cursor.suspend((sender, first));
    }
}

/// A buffer of the sender that begins with a header.
pub(super) struct Source<'a, const BYTES: usize> {
    pub header: [u8; BYTES],
    /// Bytes of the header that have been read, or skipped.
    pub read: u32,
    /// The rest of the buffer.
    pub cursor: Cursor<'a>,
}

impl<const BYTES: usize> Source<'_, BYTES> {
    /// Reads the rest of the header. Returns whether the buffer has all of it.
    pub fn read(
        &mut self,
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        let Self {
            header,
            read,
            cursor,
        } = self;
        cursor.read(header, read, memories, looks)
    }

    /// The same of a header that says nothing.
    pub fn skip(
        &mut self,
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        self.cursor
            .skip(BYTES as u32, &mut self.read, memories, looks)
    }
}
