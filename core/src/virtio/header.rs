// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header before each network frame, `virtio_net_hdr` (Virtio 1.2, section 5.1.6), and what of it passes from one guest to the
//! other.
//!
//! Frames of up to 64 KiB are segments of TCP that the receiver's kernel would otherwise get in 45 pieces. The kernels have agreed
//! on them with their devices: the header, which says how to cut the frame and where its checksum is to be put, passes. The
//! receiving guest checks such a header as it does one from a network card that may be broken; EL2 passes on only what the
//! receiver has accepted.

use super::cursor::Cursor;
use super::kept::Source;
use super::looks::{Looks, Stop};
use super::memory::{End, Memories};
use super::queue::Broken;

/// Bytes of the header, and fields of it by their offsets.
pub(super) const HEADER: u32 = 12;
const FLAGS: usize = 0;
const SEGMENTATION: usize = 1;
const BUFFERS: usize = 10;
/// `VIRTIO_NET_HDR_F_NEEDS_CSUM`: the checksum is still to be computed.
const NEEDS_CHECKSUM: u8 = 1 << 0;
/// `VIRTIO_NET_HDR_GSO_NONE`, `_TCPV4`, `_TCPV6`.
const SEGMENTATIONS: [u8; 3] = [0, 1, 4];
/// The header of a frame of which nothing is left to do, in one buffer (`num_buffers`).
const PLAIN: [u8; HEADER as usize] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// What the receiver has accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// Frames of 1,500 bytes of payload, each in one buffer. `offloads`: the sender may have accepted more; then a frame that
    /// needs it is refused.
    Plain { offloads: bool },
    /// Frames of up to 64 KiB, each in as many buffers as it needs ("mergeable receive buffers", 5.1.6.3.1), with checksums that
    /// are still to be computed.
    Large,
}

impl Form {
    /// Most bytes of a frame with its header: of an IP packet, 14 of addresses and type, and 4 of a VLAN tag.
    pub fn most_bytes(self) -> u32 {
        let packet = match self {
            Self::Plain { .. } => 1500,
            Self::Large => 65_535,
        };
        HEADER + packet + 14 + 4
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its header has been passed on.
    Passed,
    /// The frame is dropped: its header asks for a segmentation that EL2 does not pass on, or the receiver's buffer has no room for the header.
    Dropped,
    /// It needs what the receiver has not accepted.
    Refused,
}

/// Passes the header, which has been read, or what is left of it, to the beginning of another buffer. `written`: its bytes that this one has.
pub(super) fn pass(
    form: Form,
    source: &Source<'_, { HEADER as usize }>,
    (target, written): (&mut Cursor<'_>, &mut u32),
    memories: &mut impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<Verdict, Stop> {
    let mut header = match form {
        Form::Plain { offloads: false } => PLAIN,
        _ => source.header(),
    };
    let needs_offloads = header[FLAGS] & NEEDS_CHECKSUM != 0 || header[SEGMENTATION] != 0;
    match form {
        Form::Plain { .. } if needs_offloads => return Ok(Verdict::Refused),
        Form::Plain { .. } => header = PLAIN,
        Form::Large if !SEGMENTATIONS.contains(&header[SEGMENTATION]) => {
            return Ok(Verdict::Dropped);
        }
        Form::Large => {
            header[FLAGS] &= NEEDS_CHECKSUM;
            header[BUFFERS..].copy_from_slice(&1_u16.to_le_bytes());
        }
    }
    match (target.write(&header, written, memories, looks)?, form) {
        (true, _) => looks.look().map(|()| Verdict::Passed),
        (false, Form::Plain { .. }) => Ok(Verdict::Dropped),
        // The device never uses such a buffer, so every later frame would be dropped, too.
        (false, Form::Large) => Err((End::Receiver, Broken).into()),
    }
}

/// Writes how many buffers the frame has. `header`: the first one, which had room for the header, of which `done` bytes are done.
pub(super) fn write_number_of_buffers(
    header: &mut Cursor<'_>,
    done: &mut u32,
    buffers: u16,
    memories: &mut impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<(), Stop> {
    let mut bytes = PLAIN;
    bytes[BUFFERS..].copy_from_slice(&buffers.to_le_bytes());
    let _ = header.skip(BUFFERS as u32, done, memories, looks)?
        && header.write(&bytes, done, memories, looks)?;
    Ok(())
}
