// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to packets of sockets that reach no peer: `VIRTIO_VSOCK_OP_RST`, as the driver of a guest gives it that has no such socket
//! (Virtio 1.2, section 5.10.6.5). So a program that connects to a guest that is down need not wait for its timeout.
//!
//! The core that found the packet writes its answer to a receive buffer of the same guest, and gives the packet back in the same step:
//! each packet has one answer at most. If the guest offers no receive buffer, the packet waits, and those behind it: section 5.10.6.1
//! lets a device stop that has no resources left for answers, until the driver processes the queue that it has neglected. The guest
//! holds up itself only.
//!
//! If an interrupt comes while the answer is written, it is begun anew, in whatever buffer is the next one then: nothing of it has been given
//! to the driver. The packet's header is kept. So three parts are written each time, which is enough for an answer in a usual buffer; a guest
//! that cuts its own receive buffers into smaller parts holds up itself only.
//!
//! The peer's packets go to the same queue. If a part of one is in its next buffer, the answer uses the buffer behind that.

use super::cursor::Cursor;
use super::device::Device;
use super::looks::{Looks, Stop};
use super::memory::{End, Memories};
use super::packet::{HEADER, Packet};
use super::queue::{Broken, Ring};

/// What has become of an answer.
pub(super) enum Answer {
    /// The guest has it, and wants an interrupt or not.
    Given {
        /// Whether it wants one.
        interrupt: bool,
    },
    /// The guest has no receive queue.
    Impossible,
    /// There is no buffer for it. The driver notifies the device when there is one ([`Device::may_answer`]).
    Waiting,
    /// Another core uses the receive queue.
    Claimed,
}

/// Answers a packet that `from` has transmitted, whose guest has the context identifier `own`. The caller has claimed the direction
/// to the peer `to`, and not the peer's receive queue: no core has two of them, so none waits for another one without end.
pub(super) fn give(
    packet: &Packet<'_>,
    own: u32,
    from: &Device,
    to: &Device,
    memories: &mut impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<Answer, Stop> {
    let Some(_claim) = from.claim_receiving() else {
        return Ok(Answer::Claimed);
    };
    let Some(ring) = from.answer_ring() else {
        return Ok(Answer::Impossible);
    };
    let packets = to.transmit_ring();
    let has_begun = packets.is_some_and(|it| it.has_begun(&ring));
    let is_within = has_begun && ring.is_open();
    let of_sender = |broken| (End::Sender, broken);
    let next = next(&ring, is_within, from, memories).map_err(of_sender)?;
    let Some(buffer) = next else {
        return Ok(Answer::Waiting);
    };
    let (mut target, answer) = (Cursor::of_answer(&ring, buffer), packet.answer(own));
    if !target.write(&answer, &mut 0, memories, looks)? {
        return Err(of_sender(Broken).into());
    }
    let given = ring.give_back(buffer, HEADER, memories);
    let interrupt = given.map_err(of_sender)?;
    ring.set_head_next(is_within);
    if !has_begun {
        // A peer that goes on with a packet of which this buffer had the beginning must not find its place.
        ring.begin_anew();
    }
    Ok(Answer::Given { interrupt })
}

/// The first descriptor of the next buffer for an answer; `None`: there is none. `is_within`: the next buffer has a part of a packet.
fn next(
    ring: &Ring<'_>,
    is_within: bool,
    from: &Device,
    memories: &mut impl Memories,
) -> Result<Option<u16>, Broken> {
    let look = |memories: &_| match is_within {
        true => ring.nth(1, memories),
        false => ring.next_to_fill(memories),
    };
    let buffer = look(memories)?;
    if buffer.is_some() {
        return Ok(buffer);
    }
    ring.want_notifications(true, memories)?;
    from.wait_with_answer();
    look(memories)
}
