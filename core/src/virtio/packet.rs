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
pub(super) const HEADER: u32 = 44;
/// Fields of it by their offsets: the context identifiers of both guests (64 bits each), their ports, bytes of payload, type,
/// operation, and flags.
const SOURCE: usize = 0;
const TARGET: usize = 8;
const SOURCE_PORT: usize = 16;
const TARGET_PORT: usize = 20;
const BYTES: usize = 24;
const TYPE: usize = 28;
const OPERATION: usize = 30;
const FLAGS: usize = 32;
/// `VIRTIO_VSOCK_OP_REQUEST`, with which a connection begins, and `VIRTIO_VSOCK_OP_RST`, with which it ends or is refused (5.10.6.5).
const REQUEST: [u8; 2] = 1_u16.to_le_bytes();
const RESET: [u8; 2] = 3_u16.to_le_bytes();
/// `VIRTIO_VSOCK_TYPE_SEQPACKET`.
const SEQPACKET: [u8; 2] = 2_u16.to_le_bytes();
/// `VIRTIO_VSOCK_SEQ_EOM` and `_EOR`: a message, or a record, ends with this packet.
const MESSAGE_ENDS: u32 = 0b11;
/// Most bytes of a packet with its header: Linux's limit of the payload (`VIRTIO_VSOCK_MAX_PKT_BUF_SIZE`), and the header.
const MAX_PACKET: u32 = HEADER + 65_536;
/// Most bytes of the first stretch in a call that goes on: it reads the header again before, which takes about as long as the copy
/// of the bytes that this stretch is shorter.
const FIRST_STRETCH: u32 = 512;

/// A packet of which the header has been read, once in a call.
pub(super) struct Packet<'a> {
    header: [u8; HEADER as usize],
    /// The payload in the sender's buffer.
    source: Cursor<'a>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It goes to the peer.
    Passed,
    /// The sender is answered that there is no such socket.
    Answered,
    /// Nothing: it is of a connection of which the driver is told by an event that it is gone, it is itself an answer, or it is
    /// malformed.
    Dropped,
}

impl<'a> Packet<'a> {
    /// Reads the header from the sender's buffer with this first descriptor. `None`: the buffer is shorter.
    pub fn open(
        sender: &'a Ring<'a>,
        first: u16,
        memories: &impl Memories,
    ) -> Result<Option<Self>, Fault> {
        let mut source = Cursor::new(End::Sender, sender, first);
        let mut header = [0; HEADER as usize];
        let is_whole = source.read(&mut header, memories)?;
        Ok(is_whole.then_some(Self { header, source }))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.header[at + byte]))
    }

    fn half(&self, at: usize) -> [u8; 2] {
        [self.header[at], self.header[at + 1]]
    }

    /// Bytes of the packet, as it says.
    fn bytes(&self) -> u32 {
        HEADER.saturating_add(self.word(BYTES))
    }

    /// What becomes of the packet, of a guest whose peer has this context identifier. `is_peer_there`: the peer's device is up, and has
    /// not been reset since the packet's beginning was moved. The rest would be the end of a message of which its new life has no
    /// beginning.
    ///
    /// While the peer is down, only requests are answered. All connections are gone, of which an event tells the driver (5.10.6.7);
    /// Linux then has programs see `ECONNRESET`. It would show them an answer to a packet of a connection as the end of the stream,
    /// and handles the event and the answer in any order.
    pub fn verdict(&self, peer: u32, is_peer_there: bool) -> Verdict {
        // The upper half is reserved (5.10.6.2).
        if self.bytes() > MAX_PACKET || self.word(TARGET + 4) != 0 {
            return Verdict::Dropped;
        }
        let operation = self.half(OPERATION);
        match self.word(TARGET) == peer {
            true if is_peer_there => Verdict::Passed,
            true if operation == REQUEST => Verdict::Answered,
            false if operation != RESET => Verdict::Answered,
            _ => Verdict::Dropped,
        }
    }

    /// The answer that there is no such socket: from where the packet was to go, to the guest with this context identifier.
    pub fn answer(&self, own: u32) -> [u8; HEADER as usize] {
        let mut answer = [0; HEADER as usize];
        for (at, word) in [
            (SOURCE, self.word(TARGET)),
            (TARGET, own),
            (SOURCE_PORT, self.word(TARGET_PORT)),
            (TARGET_PORT, self.word(SOURCE_PORT)),
        ] {
            answer[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        answer[TYPE..TYPE + 2].copy_from_slice(&self.half(TYPE));
        answer[OPERATION..OPERATION + 2].copy_from_slice(&RESET);
        answer
    }
}

/// Moves a packet, or the rest of it where the last call has ended, in stretches: as much as the receiver's buffer has room for. The
/// call moves less if `pause`, which is asked after the header and after each stretch, says that the caller has something else to do.
/// The packet arrives with `own` as its source, whatever the sender has written. A packet is dropped if it has fewer bytes than its
/// header says.
pub(super) fn copy<'a>(
    own: u32,
    mut packet: Packet<'a>,
    (sender, first): (&'a Ring<'a>, u16),
    (receiver, buffer): (&Ring<'_>, u16),
    memories: &mut impl Memories,
    mut pause: impl FnMut() -> bool,
) -> Result<Moved, Fault> {
    let before = sender.taken();
    let all = packet.bytes();
    // Since the first part was moved, the sender may have changed the header.
    if all < before {
        return Ok(Moved::DROPPED);
    }
    if before > 0 {
        packet.source = Cursor::resume(End::Sender, sender);
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
    // At most once in all: then it asks whether to pause.
    loop {
        // Each call moves something, or ends a packet.
        if taken > before && pause() {
            packet.source.suspend((sender, first));
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
        let here = cursor::copy_stretch(&mut packet.source, &mut payload, most, memories)?;
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
    let flags = match has_more && packet.half(TYPE) == SEQPACKET {
        true => packet.word(FLAGS) & !MESSAGE_ENDS,
        false => packet.word(FLAGS),
    };
    let mut header = packet.header;
    let bytes = in_buffer - HEADER;
    header[SOURCE..SOURCE + 8].copy_from_slice(&u64::from(own).to_le_bytes());
    header[BYTES..BYTES + 4].copy_from_slice(&bytes.to_le_bytes());
    header[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_le_bytes());
    Cursor::new(End::Receiver, receiver, buffer).write(&header, memories)?;
    receiver
        .put(0, [buffer.into(), in_buffer], memories)
        .map_err(|broken| (End::Receiver, broken))?;
    receiver.set_head_next(false);
    if has_more {
        packet.source.suspend((sender, first));
        receiver.set_filled(0, 0);
        receiver.set_taken(taken);
    }
    Ok(Moved {
        buffers: 1,
        taken: if has_more { taken } else { 0 },
        ..Moved::DROPPED
    })
}
