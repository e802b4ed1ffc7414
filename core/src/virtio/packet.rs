// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet of a socket device, from a buffer of one guest to one of the other (Virtio 1.2, section 5.10.6).
//!
//! Packets may be larger than a step moves or than the receiver's buffer. Such a packet arrives as several, as section
//! 5.10.6.3 allows: each has a part of the payload.

use super::cursor::{self, Cursor, Fault};
use super::memory::{End, Memories};
use super::moved::Moved;
use super::queue::{Broken, Ring};

/// Bytes of `virtio_vsock_hdr`.
const HEADER: u32 = 44;
/// Fields of it by their offsets: the context identifiers of both guests (64 bits each), bytes of payload, type, and flags.
const SOURCE: usize = 0;
const TARGET: usize = 8;
const BYTES: usize = 24;
const TYPE: usize = 28;
const FLAGS: usize = 32;
/// `VIRTIO_VSOCK_TYPE_SEQPACKET`.
const SEQPACKET: [u8; 2] = 2_u16.to_le_bytes();
/// `VIRTIO_VSOCK_SEQ_EOM` and `_EOR`: a message, or a record, ends with this packet.
const MESSAGE_ENDS: u32 = 0b11;
/// Most bytes of payload that a step moves: about as many as of a network frame, so it takes as long.
const MAX_PAYLOAD: u32 = 1536;

/// Copies what comes behind the bytes of the payload that the sender's queue says were taken. The source is `own`, whatever the sender says; a packet that is not for
/// `peer` is dropped, as is one that is shorter than it says.
pub(super) fn copy(
    (own, peer): (u32, u32),
    (sender, packet): (&Ring<'_>, u16),
    (receiver, buffer): (&Ring<'_>, u16),
    memories: &mut impl Memories,
) -> Result<Moved, Fault> {
    let taken = sender.taken();
    let mut from = Cursor::new(End::Sender, sender, packet);
    let mut header = [0; HEADER as usize];
    if !from.read(&mut header, memories)? {
        return Ok(Moved::DROPPED);
    }
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
    let (target, bytes, flags) = ((word(TARGET), word(TARGET + 4)), word(BYTES), word(FLAGS));
    // The sender may have changed it since its first part was moved.
    let Some(left) = bytes.checked_sub(taken) else {
        return Ok(Moved::DROPPED);
    };
    // Nor may the rest of a packet reach a receiver that was reset since.
    if taken > 0 && taken != receiver.taken() {
        return Ok(Moved::DROPPED);
    }
    if target != (peer, 0) || !from.skip(taken, memories)? {
        return Ok(Moved::DROPPED);
    }
    let mut payload = Cursor::new(End::Receiver, receiver, buffer);
    if !payload.skip(HEADER, memories)? {
        return Err((End::Receiver, Broken));
    }
    let moved = cursor::copy(&mut from, &mut payload, left.min(MAX_PAYLOAD), memories)?;
    if moved == 0 && left > 0 {
        return match from.here(memories)? {
            0 => Ok(Moved::DROPPED),
            // The buffer has room for a header only.
            _ => Err((End::Receiver, Broken)),
        };
    }
    let has_more = moved < left;
    let flags = match has_more && header[TYPE..TYPE + 2] == SEQPACKET {
        true => flags & !MESSAGE_ENDS,
        false => flags,
    };
    header[SOURCE..SOURCE + 8].copy_from_slice(&u64::from(own).to_le_bytes());
    header[BYTES..BYTES + 4].copy_from_slice(&moved.to_le_bytes());
    header[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_le_bytes());
    Cursor::new(End::Receiver, receiver, buffer).write(&header, memories)?;
    let element = [buffer.into(), HEADER + moved];
    receiver
        .put(0, element, memories)
        .map_err(|broken| (End::Receiver, broken))?;
    receiver.set_taken(taken + moved);
    Ok(Moved {
        buffers: 1,
        taken: if has_more { taken + moved } else { 0 },
        is_refused: false,
    })
}
