// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network frame, from a buffer of one card to a buffer of the other, or to several (Virtio 1.2, section 5.1.6), in stretches
//! between which the core looks for interrupts.

use super::cursor::{self, Cursor, Fault};
use super::header::{self, Form, HEADER, Verdict};
use super::memory::{End, Memories};
use super::moved::Moved;
use super::queue::{Broken, Ring};

/// Moves a frame, or the rest of it where the last call has ended. `frame`: the first descriptor of the sender's buffer, `buffer`:
/// that of the receiver's next one. The call moves a part only if `pause`, which is asked after the header and after each stretch, says
/// that the caller has something else to do, or if the receiver has no buffer for the rest. A frame is dropped if it is shorter than a
/// header, if it is larger than [`Form::most_bytes`], or if the receiver's buffers have no room for it.
pub(super) fn copy(
    form: Form,
    (sender, frame): (&Ring<'_>, u16),
    (receiver, buffer): (&Ring<'_>, u16),
    memories: &mut impl Memories,
    mut pause: impl FnMut() -> bool,
) -> Result<Moved, Fault> {
    let taken = sender.taken();
    let mut rest = Rest {
        receiver,
        buffer,
        source: Cursor::new(End::Sender, sender, frame),
        target: Cursor::new(End::Receiver, receiver, buffer),
        taken,
        filled: receiver.filled(),
        in_buffer: receiver.bytes_in_buffer(),
    };
    if taken == 0 {
        match header::pass(form, &mut rest.source, &mut rest.target, memories)? {
            Verdict::Passed => (rest.taken, rest.in_buffer) = (HEADER, HEADER),
            Verdict::Dropped => return Ok(Moved::DROPPED),
            Verdict::Refused => return Ok(Moved::REFUSED),
        }
    } else if taken != receiver.taken() {
        // The receiver's card was reset since the frame's beginning was moved.
        return Ok(Moved::DROPPED);
    } else {
        rest.source = Cursor::resume(End::Sender, sender);
        if rest.in_buffer > 0 {
            rest.target = Cursor::resume(End::Receiver, receiver);
        }
    }
    // Before it pauses, each call moves something, opens a further buffer, or ends the frame.
    let mut has_done = rest.taken > taken;
    loop {
        if has_done && pause() {
            break;
        }
        has_done = true;
        if rest.source.here(memories)? == 0 {
            return rest.finish(memories);
        }
        let left = form.most_bytes().saturating_sub(rest.taken);
        if left == 0 {
            return Ok(Moved::DROPPED);
        }
        if rest.target.here(memories)? == 0 {
            if form != Form::Large {
                return Ok(Moved::DROPPED);
            }
            rest.put(memories)?;
            (rest.filled, rest.in_buffer) = (rest.filled + 1, 0);
            let next = receiver.nth(rest.filled, memories);
            match next.map_err(|broken| (End::Receiver, broken))? {
                Some(next) => rest.buffer = next,
                None => break,
            }
            rest.target = Cursor::new(End::Receiver, receiver, rest.buffer);
        }
        let (source, target) = (&mut rest.source, &mut rest.target);
        let bytes = cursor::copy_stretch(source, target, left, memories)?;
        rest.taken += bytes;
        rest.in_buffer += bytes;
    }
    rest.source.suspend((sender, frame));
    Ok(rest.leave())
}

/// What is left of a frame, and where it goes.
struct Rest<'a> {
    receiver: &'a Ring<'a>,
    /// The first descriptor of the receiver's present buffer.
    buffer: u16,
    source: Cursor<'a>,
    target: Cursor<'a>,
    /// Bytes that have been moved, the header among them.
    taken: u32,
    /// Buffers that are full, and bytes in the present one.
    filled: u16,
    in_buffer: u32,
}

impl Rest<'_> {
    /// Writes the element of the used ring for the present buffer.
    fn put(&self, memories: &mut impl Memories) -> Result<(), Fault> {
        let element = [self.buffer.into(), self.in_buffer];
        let put = self.receiver.put(self.filled, element, memories);
        put.map_err(|broken| (End::Receiver, broken))
    }

    /// Leaves the rest for a later call.
    fn leave(&self) -> Moved {
        if self.in_buffer > 0 {
            self.target.suspend((self.receiver, self.buffer));
        }
        self.receiver.set_filled(self.filled, self.in_buffer);
        self.receiver.set_taken(self.taken);
        Moved {
            taken: self.taken,
            ..Moved::DROPPED
        }
    }

    /// All bytes have been moved.
    fn finish(&self, memories: &mut impl Memories) -> Result<Moved, Fault> {
        self.put(memories)?;
        let buffers = self.filled + 1;
        if buffers > 1 {
            // It is there: the frame's beginning was written to it.
            let first = self.receiver.nth(0, memories).ok().flatten();
            let first = first.ok_or((End::Receiver, Broken))?;
            let header = Cursor::new(End::Receiver, self.receiver, first);
            header::write_number_of_buffers(header, buffers, memories)?;
        }
        Ok(Moved {
            buffers,
            ..Moved::DROPPED
        })
    }
}
