// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network frame, from a buffer of one card to a buffer of the other (Virtio 1.2, section 5.1.6).

use super::cursor::{self, Cursor, Fault};
use super::large;
use super::memory::{End, Memories};
use super::moved::Moved;
use super::queue::Ring;

/// `virtio_net_hdr` before each received frame: nothing is left to do, and the frame is in one buffer (`num_buffers`).
const HEADER_BYTES: [u8; HEADER as usize] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// Bytes of that header, which is before each transmitted frame, too.
const HEADER: u32 = 12;
/// The largest frame: 1,500 bytes of payload, 14 of addresses and type, 4 of a VLAN tag.
const MAX_FRAME: u32 = 1518;

/// Copies a frame, with a header of our own: the receiver has accepted nothing that a header would say. A frame is dropped
/// if it is larger than the buffer or than a frame may be, or if it is no frame. `offloads`: the sender may have accepted more than the
/// receiver; then a frame that needs it is refused.
pub(super) fn copy(
    offloads: bool,
    (sender, frame): (&Ring<'_>, u16),
    (receiver, buffer): (&Ring<'_>, u16),
    memories: &mut impl Memories,
) -> Result<Moved, Fault> {
    let mut from = Cursor::new(End::Sender, sender, frame);
    let mut to = Cursor::new(End::Receiver, receiver, buffer);
    if offloads {
        let mut header = [0; HEADER as usize];
        let is_frame = from.read(&mut header, memories)?;
        if !is_frame || sender.taken() > 0 || large::needs_offloads(header) {
            return Ok(Moved {
                is_refused: is_frame,
                ..Moved::DROPPED
            });
        }
    } else if !from.skip(HEADER, memories)? {
        return Ok(Moved::DROPPED);
    }
    if !to.write(&HEADER_BYTES, memories)? {
        return Ok(Moved::DROPPED);
    }
    let bytes = cursor::copy(&mut from, &mut to, MAX_FRAME, memories)?;
    if from.here(memories)? > 0 {
        return Ok(Moved::DROPPED);
    }
    let element = [buffer.into(), HEADER + bytes];
    receiver
        .put(0, element, memories)
        .map_err(|broken| (End::Receiver, broken))?;
    Ok(Moved {
        buffers: 1,
        ..Moved::DROPPED
    })
}
