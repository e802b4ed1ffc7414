// SPDX-License-Identifier: MIT OR Apache-2.0
//! A packet of a socket device, from a buffer of one guest to one of the other (Virtio 1.2, section 5.10.6).
//!
//! Packets may be larger than the receiver's buffer. Such a packet arrives as several, as section 5.10.6.3 allows: each has a part of
//! the payload.

use super::cursor::{self, Cursor};
use super::fault::Fault;
use super::kept::{Kept, Source};
use super::looks::{Looks, Stop};
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
/// In the receiver's `bytes_in_buffer`, above the bytes of the packet: one more than the bytes of the header that have been written, once
/// the payload has.
const WRITTEN: u32 = 24;
/// The value in those bits if all of the header and the element of the used ring have been written.
const HAS_ELEMENT: u32 = HEADER + 2;
const _: () = assert!(MAX_PACKET < 1 << WRITTEN && HAS_ELEMENT <= u32::MAX >> WRITTEN);

/// A packet that is moved, in the sender's buffer.
pub(super) struct Packet<'a>(pub Source<'a, { HEADER as usize }>);

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
    /// The packet in the sender's buffer with this first descriptor: the place where the last step has stopped, or its beginning.
    #[inline(always)]
    pub fn resume(kept: &'a Kept, buffer: (&'a Ring<'a>, u16)) -> Self {
        Self(kept.resume(buffer))
    }

    /// Reads the header, or the rest of it. Returns whether the buffer has all of it.
    #[inline(always)]
    pub fn read(
        &mut self,
        buffer: (&Ring<'_>, u16),
        memories: &impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        let is_whole = self.0.read(memories, looks);
        self.0.keep_if_stopped(is_whole, buffer)
    }

    fn word(&self, at: usize) -> u32 {
        self.0.word(at)
    }

    /// The type, and the operation.
    fn halves(&self) -> ([u8; 2], [u8; 2]) {
        let [a, b, c, d] = self.word(TYPE).to_le_bytes();
        ([a, b], [c, d])
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
        let (_, operation) = self.halves();
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
        answer[TYPE..TYPE + 2].copy_from_slice(&self.halves().0);
        answer[OPERATION..OPERATION + 2].copy_from_slice(&RESET);
        answer
    }
}

/// Moves a packet, or the rest of it where the last call has ended, in stretches: as much as the receiver's buffer has room for. The
/// call moves less if `looks` says that the caller has something else to do.
/// The packet arrives with `own` as its source, whatever the sender has written. A packet is dropped if it has fewer bytes than its
/// header says.
pub(super) fn copy<'a>(
    own: u32,
    packet: &mut Packet<'a>,
    (sender, first): (&'a Ring<'a>, u16),
    (receiver, buffer): (&Ring<'_>, u16),
    memories: &mut impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<Moved, Stop> {
    let before = sender.taken();
    let (target, bytes) = match sender.is_within_frame(receiver) {
        true => (
            Cursor::resume(End::Receiver, receiver),
            receiver.bytes_in_buffer(),
        ),
        false => {
            receiver.set_keeps_answer(false);
            (Cursor::new(End::Receiver, receiver, buffer), 0)
        }
    };
    let mut part = Part {
        receiver,
        buffer,
        target,
        taken: before.max(HEADER),
        in_buffer: bytes & ((1 << WRITTEN) - 1),
        written: bytes >> WRITTEN,
    };
    let filled = match part.written {
        0 if packet.bytes() > HEADER => part.fill(packet, memories, looks),
        0 => {
            part.begins_header(HEADER);
            Ok(true)
        }
        _ => Ok(true),
    };
    let ended = match filled {
        Ok(false) => return Ok(Moved::DROPPED),
        Ok(true) => part.end(own, packet, memories, looks),
        Err(stop) => Err(stop),
    };
    match ended {
        Ok(()) => {}
        Err(Stop::Interrupted) => {
            packet.0.keep((sender, first));
            return Ok(part.leave());
        }
        Err(fault) => return Err(fault),
    }
    let has_more = part.taken < packet.bytes();
    if has_more {
        packet.0.keep((sender, first));
        receiver.close();
        receiver.set_filled(0, 0);
        receiver.set_taken(part.taken);
    }
    Ok(Moved {
        buffers: 1,
        taken: if has_more { part.taken } else { 0 },
        ..Moved::DROPPED
    })
}

/// An answer has used the element of the used ring that was meant for a part of a packet. The next step writes another one.
pub(super) fn forget_element(receiver: &Ring<'_>) {
    let bytes = receiver.bytes_in_buffer();
    if bytes >> WRITTEN == HAS_ELEMENT {
        receiver.set_filled(0, bytes - (1 << WRITTEN));
    }
}

/// What of a packet goes to the receiver's present buffer.
struct Part<'a> {
    receiver: &'a Ring<'a>,
    /// The first descriptor of that buffer.
    buffer: u16,
    target: Cursor<'a>,
    /// Bytes of the packet that have been moved, the header among them.
    taken: u32,
    /// Bytes in the buffer, and one more than those of its header that have been written, which comes last.
    in_buffer: u32,
    written: u32,
}

impl Part<'_> {
    /// Moves payload until the buffer is full, or the packet ends. Returns whether the packet has as many bytes as it says.
    fn fill(
        &mut self,
        packet: &mut Packet<'_>,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        let all = packet.bytes();
        let room = &mut self.in_buffer;
        if *room < HEADER && !self.target.skip(HEADER, room, memories, looks)? {
            return Err((End::Receiver, Broken).into());
        }
        // At most 2 times: a piece of work; then it looks.
        loop {
            if self.taken == all || self.target.here(memories, looks)? == 0 {
                break;
            }
            let (from, to) = (&mut packet.0.cursor, &mut self.target);
            let here = cursor::copy(from, to, all - self.taken, memories, looks)?;
            if here == 0 {
                return Ok(false);
            }
            self.taken += here;
            self.in_buffer += here;
        }
        if self.taken < all && self.in_buffer == HEADER {
            // The buffer has room for a header only.
            return Err((End::Receiver, Broken).into());
        }
        self.target = Cursor::new(End::Receiver, self.receiver, self.buffer);
        self.begins_header(self.in_buffer);
        Ok(true)
    }

    /// The buffer has so many bytes, and its header comes next.
    fn begins_header(&mut self, in_buffer: u32) {
        (self.in_buffer, self.written) = (in_buffer, 1);
    }

    /// Writes the header before the payload, and the element of the used ring. Publishing it is the next piece of work.
    fn end(
        &mut self,
        own: u32,
        packet: &Packet<'_>,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<(), Stop> {
        if self.written <= HEADER {
            looks.look()?;
            self.write_header(own, packet, memories, looks)?;
        }
        if self.written != HAS_ELEMENT {
            looks.before_piece()?;
            self.put(memories)?;
        }
        looks.before_piece()?;
        self.receiver.set_head_next(false);
        Ok(())
    }

    /// Writes the element of the used ring.
    fn put(&mut self, memories: &mut impl Memories) -> Result<(), Fault> {
        let element = [self.buffer.into(), self.in_buffer];
        let put = self.receiver.put(0, element, memories);
        put.map_err(|broken| (End::Receiver, broken))?;
        self.written = HAS_ELEMENT;
        Ok(())
    }

    fn write_header(
        &mut self,
        own: u32,
        packet: &Packet<'_>,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<(), Stop> {
        let has_more = self.taken < packet.bytes();
        let flags = match has_more && packet.halves().0 == SEQPACKET {
            true => packet.word(FLAGS) & !MESSAGE_ENDS,
            false => packet.word(FLAGS),
        };
        let mut header = packet.0.header();
        let bytes = self.in_buffer - HEADER;
        header[SOURCE..SOURCE + 8].copy_from_slice(&u64::from(own).to_le_bytes());
        header[BYTES..BYTES + 4].copy_from_slice(&bytes.to_le_bytes());
        header[FLAGS..FLAGS + 4].copy_from_slice(&flags.to_le_bytes());
        let mut done = self.written - 1;
        let written = self.target.write(&header, &mut done, memories, looks);
        self.written = done + 1;
        match written? {
            true => Ok(()),
            false => Err((End::Receiver, Broken).into()),
        }
    }

    /// Leaves the rest for a later call.
    fn leave(&self) -> Moved {
        self.target.suspend((self.receiver, self.buffer));
        let bytes = self.in_buffer | self.written << WRITTEN;
        self.receiver.set_filled(0, bytes);
        self.receiver.set_taken(self.taken);
        Moved {
            taken: self.taken,
            ..Moved::DROPPED
        }
    }
}
