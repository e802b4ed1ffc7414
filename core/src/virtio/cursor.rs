// SPDX-License-Identifier: MIT OR Apache-2.0
//! A place in a buffer, which goes on from part to part.

use super::looks::{Looks, Stop};
use super::memory::{End, Memories};
use super::queue::{Broken, Buffer, Place, Ring};
use spumone_config::GuestAddr;

/// A place in a buffer of one guest. Every part is checked when bytes of it are used. A walk through the buffer is bounded,
/// because the number of its parts is. A walk that has stopped for an interrupt goes on with the part before which it has.
pub(super) struct Cursor<'a> {
    end: End,
    buffer: Buffer<'a>,
    /// What is left of the present part.
    at: u64,
    bytes: u32,
}

impl<'a> Cursor<'a> {
    /// The beginning of the buffer with this first descriptor.
    pub fn new(end: End, ring: &'a Ring<'a>, first: u16) -> Self {
        Self {
            end,
            buffer: ring.buffer(first, end == End::Receiver),
            at: 0,
            bytes: 0,
        }
    }

    /// The beginning of a buffer that the sender has offered for what it receives.
    pub fn of_answer(ring: &'a Ring<'a>, first: u16) -> Self {
        Self {
            end: End::Sender,
            buffer: ring.buffer(first, true),
            at: 0,
            bytes: 0,
        }
    }

    /// The place at which [`keep`](Self::keep) has left such a buffer.
    pub fn resume_answer(ring: &'a Ring<'a>, place: &Place) -> Self {
        let (buffer, at, bytes) = place.resume(ring, true);
        Self {
            end: End::Sender,
            buffer,
            at,
            bytes,
        }
    }

    /// The walk goes on here in a later step.
    pub fn keep(&self, place: &Place) {
        place.keep(&self.buffer, self.at, self.bytes);
    }

    /// The place at which [`suspend`](Self::suspend) has left a buffer of this ring.
    pub fn resume(end: End, ring: &'a Ring<'a>) -> Self {
        let (buffer, at, bytes) = ring.resume(end == End::Receiver);
        Self {
            end,
            buffer,
            at,
            bytes,
        }
    }

    /// The walk through the buffer with this first descriptor goes on here in a later step.
    pub fn suspend(&self, (ring, first): (&Ring<'_>, u16)) {
        ring.suspend(first, &self.buffer, self.at, self.bytes);
    }

    /// Bytes of the present part that are left; zero: the buffer has ended.
    #[inline(always)]
    pub fn here(
        &mut self,
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<u32, Stop> {
        if self.bytes == 0 && self.buffer.goes_on() {
            self.open_part(memories, looks)?;
        }
        Ok(self.bytes)
    }

    /// Opens the next part that has bytes, if there is one.
    #[inline(never)]
    fn open_part(
        &mut self,
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<(), Stop> {
        // At most once: then it looks.
        while self.bytes == 0 && self.buffer.goes_on() {
            looks.before_piece()?;
            match self.buffer.next(memories).map_err(|it| (self.end, it))? {
                Some((at, bytes)) => (self.at, self.bytes) = (at.0, bytes),
                None => break,
            }
        }
        Ok(())
    }

    /// Goes on by so many bytes of the present part.
    fn advance(&mut self, bytes: u32) {
        self.at = self.at.wrapping_add(u64::from(bytes));
        self.bytes -= bytes;
    }

    /// Goes on by so many bytes, of which `done` are done. Returns whether the buffer has them.
    pub fn skip(
        &mut self,
        bytes: u32,
        done: &mut u32,
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        // At most 2 times: the rest of a part, and a part; then it looks.
        while *done < bytes {
            let here = self.here(memories, looks)?.min(bytes - *done);
            if here == 0 {
                return Ok(false);
            }
            self.advance(here);
            *done += here;
        }
        Ok(true)
    }

    /// Reads bytes of the sender, of which `done` are done. Returns whether the buffer has as many.
    pub fn read(
        &mut self,
        into: &mut [u8],
        done: &mut u32,
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        // At most once: then it looks.
        while let Some(rest @ [_, ..]) = into.get_mut(*done as usize..) {
            let here = self.here(memories, looks)? as usize;
            let most = here.min(rest.len());
            let Some(part @ [_, ..]) = rest.get_mut(..most) else {
                return Ok(false);
            };
            looks.before_piece()?;
            let read = memories.read(GuestAddr(self.at), part);
            read.ok_or((self.end, Broken))?;
            self.advance(most as u32);
            *done += most as u32;
        }
        Ok(true)
    }

    /// Writes bytes, of which `done` are done. Returns whether there was room.
    pub fn write(
        &mut self,
        from: &[u8],
        done: &mut u32,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        // At most once: then it looks.
        while let Some(rest @ [_, ..]) = from.get(*done as usize..) {
            let here = self.here(memories, looks)? as usize;
            let most = here.min(rest.len());
            let Some(part @ [_, ..]) = rest.get(..most) else {
                return Ok(false);
            };
            looks.before_piece()?;
            let written = memories.write(self.end, GuestAddr(self.at), part);
            written.ok_or((self.end, Broken))?;
            self.advance(most as u32);
            *done += most as u32;
        }
        Ok(true)
    }
}

/// Copies from the sender to the receiver: up to `most` bytes, and no further than the present part of either buffer, or until the core has something else to
/// do. Returns how many bytes; zero: one of the buffers has ended, or `most` is zero.
pub(super) fn copy(
    from: &mut Cursor<'_>,
    to: &mut Cursor<'_>,
    most: u32,
    memories: &mut impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<u32, Stop> {
    let room = to.here(memories, looks)?;
    let here = from.here(memories, looks)?;
    let bytes = here.min(room).min(most);
    if bytes == 0 {
        return Ok(0);
    }
    looks.before_piece()?;
    let (source, target) = (GuestAddr(from.at), GuestAddr(to.at));
    let copied = memories.copy(source, target, bytes, || looks.stops());
    let bytes = copied.map_err(|end| (end, Broken))?;
    from.advance(bytes);
    to.advance(bytes);
    Ok(bytes)
}
