// SPDX-License-Identifier: MIT OR Apache-2.0
//! A network frame, from a buffer of one card to a buffer of the other (Virtio 1.2, section 5.1.6).

use super::cursor::{self, Cursor, Fault};
use super::memory::Memories;

/// `virtio_net_hdr` before each received frame: nothing is left to do, and the frame is in one buffer (`num_buffers`).
const HEADER_BYTES: [u8; HEADER as usize] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// Bytes of that header, which is before each transmitted frame, too.
const HEADER: u32 = 12;
/// The largest frame: 1,500 bytes of payload, 14 of addresses and type, 4 of a VLAN tag.
const MAX_FRAME: u32 = 1518;

/// Copies a frame, with a header of our own: the guests have negotiated nothing that a header would say. Returns the bytes
/// written; `None`: the frame is larger than the buffer or than a frame may be, or it is no frame, and is dropped.
pub(super) fn copy(
    mut from: Cursor<'_>,
    mut to: Cursor<'_>,
    memories: &mut impl Memories,
) -> Result<Option<u32>, Fault> {
    if !from.skip(HEADER, memories)? || !to.write(&HEADER_BYTES, memories)? {
        return Ok(None);
    }
    let bytes = cursor::copy(&mut from, &mut to, MAX_FRAME, memories)?;
    let is_whole = from.here(memories)? == 0;
    Ok(is_whole.then_some(HEADER + bytes))
}
