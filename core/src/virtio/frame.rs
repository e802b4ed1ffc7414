// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network frame, from a buffer of one card to a buffer of the other, or to several (Virtio 1.2, section 5.1.6), in stretches
//! between which the core looks for interrupts.

use super::cursor::{self, Cursor};
use super::fault::Fault;
use super::header::{self, Form, HEADER, Verdict};
use super::kept::{Kept, Source};
use super::looks::{Looks, Stop};
use super::memory::{End, Memories};
use super::moved::Moved;
use super::queue::{Broken, Ring};

/// In `in_buffer`, beside the bytes of the first buffer's header that are done: all buffers are full, and their number is written there.
const ENDS: u32 = 1 << 31;

/// A frame that is moved, in the sender's buffer.
pub(super) struct Frame<'a> {
    form: Form,
    pub source: Source<'a, { HEADER as usize }>,
}

impl<'a> Frame<'a> {
    /// The frame in the sender's buffer with this first descriptor: the place where the last step has stopped, or its beginning.
    #[inline(always)]
    pub fn resume(form: Form, kept: &'a Kept, buffer: (&'a Ring<'a>, u16)) -> Self {
        Self {
            form,
            source: kept.resume(buffer),
        }
    }

    /// Reads the header, or the rest of it. Returns whether the buffer has all of it.
    #[inline(always)]
    pub fn read(
        &mut self,
        buffer: (&Ring<'_>, u16),
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        let is_whole = match self.form {
            // It says nothing, since the sender has accepted nothing.
            Form::Plain { offloads: false } => self.source.skip(memories, looks),
            _ => self.source.read(memories, looks),
        };
        self.source.keep_if_stopped(is_whole, buffer)
    }

    /// Moves the frame, or the rest of it where the last call has ended, once its header has been read. `frame`: the first descriptor of the
    /// sender's buffer, `buffer`: that of the receiver's next one. The call moves a part only if `looks` says that the caller has something
    /// else to do, or if the receiver has no buffer for the rest. A frame is dropped if it is larger than [`Form::most_bytes`], or if the
    /// receiver's buffers have no room for it.
    pub fn copy(
        &mut self,
        (sender, frame): (&Ring<'_>, u16),
        (receiver, buffer): (&Ring<'_>, u16),
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<Moved, Stop> {
        let taken = sender.taken();
        if taken > 0 && taken != receiver.taken() {
            // The receiver's card was reset since the frame's beginning was moved.
            return Ok(Moved::DROPPED);
        }
        let Self { form, source } = self;
        let mut rest = Rest {
            receiver,
            has_buffer: true,
            buffer,
            target: match sender.is_within_frame(receiver) {
                true => Cursor::resume(End::Receiver, receiver),
                false => Cursor::new(End::Receiver, receiver, buffer),
            },
            taken: taken.max(HEADER),
            filled: receiver.filled(),
            in_buffer: receiver.bytes_in_buffer(),
        };
        let passed = match rest.filled == 0 && rest.in_buffer < HEADER {
            true => {
                let target = (&mut rest.target, &mut rest.in_buffer);
                header::pass(*form, source, target, memories, looks)
            }
            false => Ok(Verdict::Passed),
        };
        match passed {
            Ok(Verdict::Passed) => {}
            Ok(Verdict::Dropped) => return Ok(Moved::DROPPED),
            Ok(Verdict::Refused) => return Ok(Moved::REFUSED),
            Err(Stop::Interrupted) => {
                source.keep((sender, frame));
                return Ok(rest.leave());
            }
            Err(fault) => return Err(fault),
        }
        // At most 2 times: a piece of work; then it looks.
        loop {
            match rest.go_on(*form, &mut source.cursor, memories, looks) {
                Ok(None) if rest.has_buffer => {}
                Ok(None) | Err(Stop::Interrupted) => break,
                Ok(Some(moved)) => return Ok(moved),
                Err(fault) => return Err(fault),
            }
        }
        source.keep((sender, frame));
        Ok(rest.leave())
    }
}

/// What is left of a frame, and where it goes.
struct Rest<'a> {
    receiver: &'a Ring<'a>,
    /// Whether the receiver has a buffer for it.
    has_buffer: bool,
    /// The first descriptor of the receiver's present buffer.
    buffer: u16,
    target: Cursor<'a>,
    /// Bytes that have been moved, the header among them.
    taken: u32,
    /// Buffers that are full, and bytes in the present one, or [`ENDS`].
    filled: u16,
    in_buffer: u32,
}

impl Rest<'_> {
    /// Copies bytes, opens a further buffer before that if need be, or ends the frame. Returns what was moved when it has ended.
    fn go_on(
        &mut self,
        form: Form,
        source: &mut Cursor<'_>,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<Option<Moved>, Stop> {
        if self.in_buffer & ENDS != 0 {
            return self.write_number(memories, looks).map(Some);
        }
        if source.here(memories, looks)? == 0 {
            looks.before_piece()?;
            return Ok(self.finish(memories)?);
        }
        let left = form.most_bytes().saturating_sub(self.taken);
        if left == 0 {
            return Ok(Some(Moved::DROPPED));
        }
        if self.target.here(memories, looks)? == 0 {
            if form != Form::Large {
                return Ok(Some(Moved::DROPPED));
            }
            looks.before_piece()?;
            self.put(memories)?;
            (self.filled, self.in_buffer) = (self.filled + 1, 0);
            let next = self.receiver.nth(self.filled, memories);
            let Some(next) = next.map_err(|broken| (End::Receiver, broken))? else {
                self.has_buffer = false;
                return Ok(None);
            };
            self.buffer = next;
            self.target = Cursor::new(End::Receiver, self.receiver, next);
        }
        let bytes = cursor::copy(source, &mut self.target, left, memories, looks)?;
        self.taken += bytes;
        self.in_buffer += bytes;
        Ok(None)
    }

    /// Writes the element of the used ring for the present buffer.
    fn put(&self, memories: &mut impl Memories) -> Result<(), Fault> {
        let element = [self.buffer.into(), self.in_buffer];
        let put = self.receiver.put(self.filled, element, memories);
        put.map_err(|broken| (End::Receiver, broken))
    }

    /// Leaves the rest for a later call.
    fn leave(&self) -> Moved {
        match self.has_buffer {
            true => self.target.suspend((self.receiver, self.buffer)),
            false => self.receiver.close(),
        }
        self.receiver.set_filled(self.filled, self.in_buffer);
        self.receiver.set_taken(self.taken);
        Moved {
            taken: self.taken,
            ..Moved::DROPPED
        }
    }

    /// All bytes have been moved. Returns what was moved, unless the number of buffers is to be written.
    fn finish(&mut self, memories: &mut impl Memories) -> Result<Option<Moved>, Fault> {
        self.put(memories)?;
        if self.filled == 0 {
            return Ok(Some(Moved {
                buffers: 1,
                ..Moved::DROPPED
            }));
        }
        // It is there: the frame's beginning was written to it.
        let first = self.receiver.nth(0, memories).ok().flatten();
        self.buffer = first.ok_or((End::Receiver, Broken))?;
        self.target = Cursor::new(End::Receiver, self.receiver, self.buffer);
        self.in_buffer = ENDS;
        Ok(None)
    }

    /// Writes to the first buffer how many they are, and ends the frame.
    #[inline(never)]
    fn write_number(
        &mut self,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<Moved, Stop> {
        let (buffers, mut done) = (self.filled + 1, self.in_buffer & !ENDS);
        let header = &mut self.target;
        let written = header::write_number_of_buffers(header, &mut done, buffers, memories, looks);
        self.in_buffer = ENDS | done;
        written?;
        looks.before_piece()?;
        Ok(Moved {
            buffers,
            ..Moved::DROPPED
        })
    }
}
