// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network frame of up to 64 KiB, from a buffer of one card to several of the other (Virtio 1.2, section 5.1.6.3.1,
//! "mergeable receive buffers"), in steps.
//!
//! Such frames are segments of TCP that the receiver's kernel would otherwise get in 45 pieces. The kernels have agreed on them with
//! their cards: the header, which says how to cut the frame and where its checksum is to be put, passes from one to the
//! other. A guest takes it for as good as one from any network card that may be broken; EL2 passes on only what both have agreed on.

use super::cursor::{self, Cursor, Fault};
use super::memory::{End, Memories};
use super::moved::Moved;
use super::queue::{Broken, Ring};

/// Bytes of `virtio_net_hdr`, and fields of it by their offsets.
const HEADER: u32 = 12;
const FLAGS: usize = 0;
const SEGMENTATION: usize = 1;
const BUFFERS: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is still to be computed.
const NEEDS_CHECKSUM: u8 = 1 << 0;
/// `VIRTIO_NET_HDR_GSO_NONE`, `_TCPV4`, `_TCPV6`.
const SEGMENTATIONS: [u8; 3] = [0, 1, 4];
/// Most bytes of a frame: the largest IP packet, addresses and type, and a VLAN tag; and the header.
const MAX_FRAME: u32 = HEADER + 65_535 + 18;
/// Most bytes that a step moves: about as many as of a frame without offloads, so it takes as long.
const MAX_STEP: u32 = 1536;

/// Whether the header asks for something that the receiver does not know if it has accepted no offloads.
pub(super) fn needs_offloads(header: [u8; HEADER as usize]) -> bool {
    header[FLAGS] & NEEDS_CHECKSUM != 0 || header[SEGMENTATION] != 0
}

/// Moves the next bytes of a frame, from where the last step has ended. `frame`: the first descriptor of the sender's buffer,
/// `buffer`: that of the receiver's next one.
pub(super) fn copy(
    (sender, frame): (&Ring<'_>, u16),
    (receiver, buffer): (&Ring<'_>, u16),
    memories: &mut impl Memories,
) -> Result<Moved, Fault> {
    let of_receiver = |broken| (End::Receiver, broken);
    let mut taken = sender.taken();
    let (mut source, mut target);
    let mut in_buffer = receiver.bytes_in_buffer();
    if taken == 0 {
        source = Cursor::new(End::Sender, sender, frame);
        target = Cursor::new(End::Receiver, receiver, buffer);
        let mut header = [0; HEADER as usize];
        if !source.read(&mut header, memories)? || !SEGMENTATIONS.contains(&header[SEGMENTATION]) {
            return Ok(Moved::DROPPED);
        }
        header[FLAGS] &= NEEDS_CHECKSUM;
        header[BUFFERS..].copy_from_slice(&1_u16.to_le_bytes());
        if !target.write(&header, memories)? {
            return Err((End::Receiver, Broken));
        }
        (taken, in_buffer) = (HEADER, HEADER);
    } else if taken != receiver.taken() {
        // The receiver's card was reset since the frame's beginning was moved.
        return Ok(Moved::DROPPED);
    } else {
        source = Cursor::resume(End::Sender, sender);
        target = match in_buffer {
            0 => Cursor::new(End::Receiver, receiver, buffer),
            _ => Cursor::resume(End::Receiver, receiver),
        };
    }
    let bytes = cursor::copy(&mut source, &mut target, MAX_STEP, memories)?;
    taken += bytes;
    in_buffer += bytes;
    if taken > MAX_FRAME {
        return Ok(Moved::DROPPED);
    }
    let filled = receiver.filled();
    let put = |memories: &mut _| receiver.put(filled, [buffer.into(), in_buffer], memories);
    if source.here(memories)? == 0 {
        put(memories).map_err(of_receiver)?;
        if filled > 0 {
            let first = receiver.nth(0, memories).map_err(of_receiver)?;
            let first = first.ok_or((End::Receiver, Broken))?;
            let mut header = Cursor::new(End::Receiver, receiver, first);
            let buffers = (filled + 1).to_le_bytes();
            // It had room for the header.
            let _ = header.skip(BUFFERS as u32, memories)? && header.write(&buffers, memories)?;
        }
        return Ok(Moved {
            buffers: filled + 1,
            taken: 0,
            is_refused: false,
        });
    }
    if target.here(memories)? == 0 {
        put(memories).map_err(of_receiver)?;
        receiver.set_filled(filled + 1, 0);
    } else {
        receiver.set_filled(filled, in_buffer);
        target.suspend((receiver, buffer));
    }
    source.suspend((sender, frame));
    receiver.set_taken(taken);
    Ok(Moved {
        buffers: 0,
        taken,
        is_refused: false,
    })
}
