// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of a frame or packet, read from the sender's buffer part by part, and kept: a step that goes on does not read a part again.

use super::cursor::Cursor;
use super::looks::{Looks, Stop};
use super::memory::{End, Memories};
use super::queue::Ring;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Words of the longest header.
const WORDS: usize = 11;

/// The header of the frame or packet that is moved. How many bytes of it were read, and where the walk through the buffer goes
/// on when a step has stopped, the transmit queue says, which a reset of the device clears. Only the core that has claimed the direction uses it.
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
    #[inline(always)]
    pub fn resume<'a, const BYTES: usize>(
        &'a self,
        (sender, first): (&'a Ring<'a>, u16),
    ) -> Source<'a, BYTES> {
        let (read, cursor) = match sender.is_open() {
            true => (
                sender.bytes_in_buffer(),
                Cursor::resume(End::Sender, sender),
            ),
            false => (0, Cursor::new(End::Sender, sender, first)),
        };
        Source {
            kept: self,
            read,
            cursor,
        }
    }
}

/// A buffer of the sender that begins with a header of so many bytes.
pub(super) struct Source<'a, const BYTES: usize> {
    kept: &'a Kept,
    /// Bytes of the header that have been read, or skipped.
    pub read: u32,
    /// The rest of the buffer.
    pub cursor: Cursor<'a>,
}

impl<const BYTES: usize> Source<'_, BYTES> {
    /// The header, as far as it has been read.
    pub fn header(&self) -> [u8; BYTES] {
        let mut header = [0; BYTES];
        // At most 11 times: words of a header.
        for (bytes, word) in header.as_chunks_mut().0.iter_mut().zip(&self.kept.0) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        header
    }

    /// The little-endian word that begins with this byte of the header, a multiple of four.
    pub fn word(&self, at: usize) -> u32 {
        let word = self.kept.0.get(at / 4);
        word.map_or(0, |it| it.load(Ordering::Relaxed))
    }

    /// Reads the rest of the header. Returns whether the buffer has all of it.
    pub fn read(
        &mut self,
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        if self.read == BYTES as u32 {
            return Ok(true);
        }
        let mut header = self.header();
        let is_whole = self
            .cursor
            .read(&mut header, &mut self.read, memories, looks);
        // At most 11 times: words of a header.
        for (bytes, word) in header.as_chunks().0.iter().zip(&self.kept.0) {
            word.store(u32::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        let is_whole = is_whole?;
        looks.look()?;
        Ok(is_whole)
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

    /// If the step has stopped, a later one goes on here.
    #[inline(always)]
    pub fn keep_if_stopped<R>(
        &self,
        result: Result<R, Stop>,
        buffer: (&Ring<'_>, u16),
    ) -> Result<R, Stop> {
        if let Err(Stop::Interrupted) = result {
            self.keep(buffer);
        }
        result
    }

    /// The next step goes on here.
    pub fn keep(&self, (sender, first): (&Ring<'_>, u16)) {
        sender.set_filled(0, self.read);
        self.cursor.suspend((sender, first));
    }
}
