// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet of a socket device, from a buffer of one guest to one of the other (Virtio 1.2, section 5.10.6).
//!
//! Packets may be larger than the receiver's buffer. Such a packet arrives as several, as section 5.10.6.3 allows: each has a part of
//! the payload.

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
/// Most bytes of a packet with its header: Linux's limit of the payload (`VIRTIO_VSOCK_MAX_PKT_BUF_SIZE`), and the header.
const MAX_PACKET: u32 = HEADER + 65_536;
/// Most bytes of the first stretch in a call that goes on: it reads the header again before, which takes about as long as the copy
/// of the bytes that this stretch is shorter.
const FIRST_STRETCH: u32 = 512;

/// Moves a packet, or the rest of it where the last call has ended, in stretches: as much as the receiver's buffer has room for. The
/// call moves less if `pause`, which is asked after the header and after each stretch, says that the caller has something else to do.
/// The packet arrives with `own` as its source, whatever the sender has written. A packet is dropped if it is not for `peer`, if it
/// has fewer bytes than its header says, or if it has more than [`MAX_PACKET`].
pub(super) fn copy(
    (own, peer): (u32, u32),
    (sender, packet): (&Ring<'_>, u16),
    (receiver, buffer): (&Ring<'_>, u16),
    memories: &mut impl Memories,
    mut pause: impl FnMut() -> bool,
) -> Result<Moved, Fault> {
    let before = sender.taken();
    let mut source = Cursor::new(End::Sender, sender, packet);
    let mut header = [0; HEADER as usize];
    if !source.read(&mut header, memories)? {
        return Ok(Moved::DROPPED);
    }
    let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
    let (target, bytes, flags) = ((word(TARGET), word(TARGET + 4)), word(BYTES), word(FLAGS));
    let all = HEADER.saturating_add(bytes);
    if all > MAX_PACKET || target != (peer, 0) {
        return Ok(Moved::DROPPED);
    }
    // Since the first part was moved, the sender may have changed the header, and the receiver may have been reset: the rest would be
    // the end of a message of which its new life has no beginning.
    if before > 0 && (all < before || before != receiver.taken()) {
        return Ok(Moved::DROPPED);
    }
    if before > 0 {
        source = Cursor::resume(End::Sender, sender);
    }
    let (mut taken, mut in_buffer) = (before.max(HEADER), receiver.bytes_in_buffer());
    let mut payload = match in_buffer {
        0 => Cursor::new(End::Receiver, receiver, buffer),
        _ => Cursor::resume(End::Receiver, receiver),
    };
    if in_buffer == 0 {
        // The header comes last.
        if !payload.skip(HEADER, memories)? {
            return Err((End::Receiver, Broken));
        }
        in_buffer = HEADER;
    }
    loop {
        // Each call moves something, or ends a packet.
        if taken > before && pause() {
            source.suspend((sender, packet));
            payload.suspend((receiver, buffer));
            receiver.set_filled(0, in_buffer);
            receiver.set_taken(taken);
            return Ok(Moved {
                taken,
                ..Moved::DROPPED
            });
        }
        if taken == all || payload.here(memories)? == 0 {
            break;
        }
        let most = match taken == before {
            true => FIRST_STRETCH,
            false => u32::MAX,
        };
        let most = most.min(all - taken);
        let here = cursor::copy_stretch(&mut source, &mut payload, most, memories)?;
        if here == 0 {
            return Ok(Moved::DROPPED);
        }
        taken += here;
        in_buffer += here;
    }
    let has_more = taken < all;
    if has_more && in_buffer == HEADER {
        // The buffer has room for a header only.
        return Err((End::Receiver, Broken));
    }
    let flags = match has_more && header[TYPE..TYPE + 2] == SEQPACKET {
        true => flags & !MESSAGE_ENDS,
        false => flags,
    };
    let bytes = in_buffer - HEADER;
    header[SOURCE..SOURCE + 8].copy_from_slice(&u64::from(own).to_le_bytes());
    header[BYTES..BYTES + 4].copy_from_slice(&bytes.to_le_bytes());
    header[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_le_bytes());
    Cursor::new(End::Receiver, receiver, buffer).write(&header, memories)?;
    receiver
        .put(0, [buffer.into(), in_buffer], memories)
        .map_err(|broken| (End::Receiver, broken))?;
    if has_more {
        source.suspend((sender, packet));
        receiver.set_filled(0, 0);
        receiver.set_taken(taken);
    }
    Ok(Moved {
        buffers: 1,
        taken: if has_more { taken } else { 0 },
        ..Moved::DROPPED
    })
}
