// SPDX-License-Identifier: MIT OR Apache-2.0
//! Answers to packets of sockets that reach no peer: `VIRTIO_VSOCK_OP_RST`, as the driver of a guest gives it that has no such socket
//! (Virtio 1.2, section 5.10.6.5). So a program that connects to a guest that is down need not wait for its timeout.
//!
//! The core that found the packet writes its answer to a receive buffer of the same guest, and then gives the packet back: each packet has
//! one answer at most. If the guest offers no receive buffer, the packet waits, and those behind it: section 5.10.6.1
//! lets a device stop that has no resources left for answers, until the driver processes the queue that it has neglected. The guest
//! holds up itself only.
//!
//! If an interrupt comes while the answer is written, the next step goes on with it ([`Begun`]), unless the peer has used the queue
//! meanwhile. Then the answer is begun anew, in whatever buffer is the next one: nothing of it has been given to the driver.
//!
//! The peer's packets go to the same queue. If a part of one is in its next buffer, the answer uses the buffer behind that.

use super::cursor::Cursor;
use super::device::Device;
use super::looks::{Looks, Stop};
use super::memory::{End, Memories};
use super::packet::{self, HEADER, Packet};
use super::queue::{Broken, Place, Ring};
use crate::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// What is kept of an answer if a step stops before the answer is given to the driver. Only the core that has claimed the direction reads and writes it.
#[derive(Debug)]
pub(super) struct Begun {
    /// How many buffers of the receive queue had been used then, and whether its next buffer had a part of a packet.
    used: AtomicU64,
    is_within: AtomicBool,
    /// The first descriptor of the answer's buffer, and where the walk through it goes on.
    first: AtomicU16,
    place: Place,
    /// Bytes of the answer that have been written.
    written: AtomicU32,
}

impl Begun {
    constructor! {
        pub fn new() -> Self {
            Self {
                used: AtomicU64::new(0),
                is_within: AtomicBool::new(false),
                first: AtomicU16::new(0),
                place: Place::new(),
                written: AtomicU32::new(0),
            }
        }
    }

    /// Whether the answer's buffer is as the step has left it, and is the next one for an answer.
    fn goes_on(&self, ring: &Ring<'_>, is_within: bool) -> bool {
        ring.keeps_answer()
            && self.used.load(Ordering::Relaxed) == ring.used_buffers()
            && self.is_within.load(Ordering::Relaxed) == is_within
    }

    /// Goes on in that buffer.
    fn resume<'a>(&self, ring: &'a Ring<'a>) -> Target<'a> {
        Target {
            first: self.first.load(Ordering::Relaxed),
            cursor: Cursor::resume_answer(ring, &self.place),
            written: self.written.load(Ordering::Relaxed),
        }
    }

    fn keep(&self, target: &Target<'_>, ring: &Ring<'_>, is_within: bool) {
        self.used.store(ring.used_buffers(), Ordering::Relaxed);
        self.is_within.store(is_within, Ordering::Relaxed);
        self.first.store(target.first, Ordering::Relaxed);
        target.cursor.keep(&self.place);
        self.written.store(target.written, Ordering::Relaxed);
    }
}

/// A buffer to which an answer is written.
struct Target<'a> {
    first: u16,
    cursor: Cursor<'a>,
    written: u32,
}

impl Target<'_> {
    /// Writes the rest of the answer. Returns whether there was room.
    fn write(
        &mut self,
        packet: &Packet<'_>,
        own: u32,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<bool, Stop> {
        if self.written < HEADER {
            self.cursor.here(memories, looks)?;
            looks.look()?;
            let (answer, written) = (packet.answer(own), &mut self.written);
            if !self.cursor.write(&answer, written, memories, looks)? {
                return Ok(false);
            }
        }
        looks.before_piece()?;
        Ok(true)
    }
}

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

/// Answers a packet that the device `from` has transmitted. `own`: the context identifier of that device's guest. `source`: the transmit queue, and the
/// packet's first descriptor. `begun`: what the last step has kept of the answer, if that step has begun one to this packet. The caller has claimed the direction to the peer `to`,
/// and not the peer's receive queue: no core has two of them, so none waits for another one without end.
pub(super) fn give(
    packet: &Packet<'_>,
    own: u32,
    source: (&Ring<'_>, u16),
    begun: &Begun,
    (from, to): (&Device, &Device),
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
    let has_part = packets.is_some_and(|it| it.has_begun(&ring));
    let is_within = has_part && ring.is_open();
    let of_sender = |broken| (End::Sender, broken);
    if !has_part {
        // A peer that goes on with a packet of which this buffer has the beginning must not find its place.
        ring.begin_anew();
    }
    let mut target = if source.0.has_begun_answer() && begun.goes_on(&ring, is_within) {
        // What the last step has kept is as it was.
        looks.early()?;
        begun.resume(&ring)
    } else {
        packet.0.keep_if_stopped(looks.before_piece(), source)?;
        let next = next(&ring, is_within, from, memories).map_err(of_sender)?;
        let Some(first) = next else {
            return Ok(Answer::Waiting);
        };
        Target {
            first,
            cursor: Cursor::of_answer(&ring, first),
            written: 0,
        }
    };
    let written = target.write(packet, own, memories, looks);
    if let Err(Stop::Interrupted) = written {
        begun.keep(&target, &ring, is_within);
        ring.set_keeps_answer(true);
        packet.0.keep(source);
        source.0.set_begun_answer();
    }
    if !written? {
        return Err(of_sender(Broken).into());
    }
    let given = ring.give_back(target.first, HEADER, memories);
    let interrupt = given.map_err(of_sender)?;
    ring.set_head_next(is_within);
    if is_within {
        packet::forget_element(&ring);
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
