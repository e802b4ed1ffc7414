// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a link: frames, or packets of sockets, from the transmit queue of one device to the receive queue of the
//! other. What is said of frames below holds for packets, too.
//!
//! A core moves one frame in a step, or a part of it: if an interrupt pends ([`looks`](super::looks)), the receiver has no buffer for the rest, or a buffer is full
//! of a packet. It claims the direction for the step. So two cores
//! that run vCPUs of the guest that transmits do not move frames at the same time: a core that finds the direction claimed
//! tries again in its next step.

use super::answer::{self, Answer};
use super::claim::Claim;
use super::device::Device;
use super::fault::Fault;
use super::frame::Frame;
use super::header::Form;
use super::kept::Kept;
use super::kind::Kind;
use super::looks::{Looks, Stop};
use super::memory::{End, Memories};
use super::moved::Moved;
use super::packet::{self, Packet, Verdict};
use super::queue::{Broken, Ring};
use crate::sync::atomic::{AtomicBool, Ordering, fence};

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// There is nothing to move now. If the receiver has no buffer, it notifies the device when it has one
    /// ([`Direction::may_go_on`]); so does the sender if an answer waits for a buffer ([`Device::may_answer`]).
    Idle,
    /// A piece of work was done, unless the core was interrupted before it: a part of a frame was moved or a frame was dropped, a part of an answer was
    /// written, or the sender's driver was told of an event. There may be more to do.
    Moved {
        /// The sender's device must interrupt.
        interrupt_sender: bool,
        /// The receiver's device must interrupt.
        interrupt_receiver: bool,
    },
    /// A frame was dropped because the receiver's driver has not accepted the offloads that the sender's has: it knows nothing of
    /// checksums that are to be computed, and frames of more than 1,500 bytes.
    Refused {
        /// The sender's device must interrupt.
        interrupt_sender: bool,
    },
    /// Another core moves a frame now, or uses a receive queue that is needed.
    Claimed,
    /// The driver of this guest has broken the rules, and its device needs a reset. The peer's device has changed, too
    /// ([`Device::peer_changed`]): it may have the frame, with an interrupt raised for it.
    Broken(End),
}

/// One direction of a link.
#[derive(Debug)]
pub struct Direction {
    /// Whether a core moves a frame. Acquire on claiming and release on freeing: the queues' indices, which
    /// the last claimant changed, are read by the next one.
    is_claimed: AtomicBool,
    /// The receiver had no buffer. Set before its ring is looked at again, taken when it notifies the device.
    is_blocked: AtomicBool,
    /// The header of the frame in which the last step has stopped.
    kept: Kept,
    /// The answer in which the last step has stopped.
    answer: answer::Begun,
}

/// A buffer of the receiver for the next bytes of a frame.
enum Room {
    Buffer(u16),
    /// It has none now.
    None,
    /// Its queue has gone.
    Down,
}

impl Direction {
    constructor! {
        /// A direction in which nothing was moved yet.
        pub fn new() -> Self {
            Self {
                is_claimed: AtomicBool::new(false),
                is_blocked: AtomicBool::new(false),
                kept: Kept::new(),
                answer: answer::Begun::new(),
            }
        }
    }

    /// Whether a core moves a frame now. A device is down before this is looked at; a step looks at the device after its
    /// claim. So when this is `false`, no core touches the queues of that device any more.
    pub fn is_claimed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_claimed.load(Ordering::Acquire)
    }

    /// The receiver may have made buffers available, or its queue has come or gone. Returns whether the sender is to go on:
    /// frames wait, and there is a buffer for them, or they are to be dropped.
    pub fn may_go_on(&self, to: &Device, memories: &impl Memories) -> bool {
        // The driver's index is written before this is read; `move_frame` does the opposite.
        fence(Ordering::SeqCst);
        if !self.is_blocked.load(Ordering::Relaxed) {
            return false;
        }
        // A receiver that notifies without buffers must not wake the sender. Read without a claim: an index of before only
        // makes more buffers of it.
        let is_in_vain = to
            .receive_ring()
            .is_some_and(|ring| ring.nth(ring.filled(), memories) == Ok(None));
        !is_in_vain && self.is_blocked.swap(false, Ordering::AcqRel)
    }

    /// Moves one frame, or a part of it if `pause`, which is asked before each piece of work, says that the caller has something
    /// else to do: the next step goes on from there.
    pub fn step(
        &self,
        from: &Device,
        to: &Device,
        memories: &mut impl Memories,
        pause: impl FnMut() -> bool,
    ) -> Step {
        let Some(_claim) = Claim::of(&self.is_claimed) else {
            return Step::Claimed;
        };
        // The claim is written before the devices are looked at: see `is_claimed`.
        fence(Ordering::SeqCst);
        match self.move_next(from, to, memories, &mut Looks::new(pause)) {
            Ok(step) => step,
            // The next step goes on.
            Err(Stop::Interrupted) => NOTHING_YET,
            Err(Stop::Fault((end, Broken))) => {
                // While the direction is claimed: a reset of the device comes later.
                match end {
                    End::Sender => from.needs_reset(),
                    End::Receiver => to.needs_reset(),
                }
                Step::Broken(end)
            }
        }
    }

    fn move_next(
        &self,
        from: &Device,
        to: &Device,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<Step, Stop> {
        let told = from.tell_of_reset(memories, looks);
        if let Some(interrupt_sender) = told.map_err(of_sender)? {
            return Ok(Step::Moved {
                interrupt_sender,
                interrupt_receiver: false,
            });
        }
        let Some(sender) = &from.transmit_ring() else {
            return Ok(Step::Idle);
        };
        if let Some(first) = sender.to_give_back() {
            return Ok(drop_frame((sender, first), memories, looks)?);
        }
        match from.kind() {
            Kind::Network { offloads, .. } => {
                self.move_frame(offloads, sender, to, memories, looks)
            }
            Kind::Socket { own, peer } => {
                let devices = (from, to);
                self.move_packet((own, peer), sender, devices, memories, looks)
            }
        }
    }

    fn move_frame(
        &self,
        offloads: bool,
        sender: &Ring<'_>,
        to: &Device,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<Step, Stop> {
        let receiver = &to.receive_ring();
        let within = receiver.as_ref().filter(|it| sender.is_within_frame(it));
        let Some(frame) = next(sender, memories, looks)? else {
            return Ok(Step::Idle);
        };
        let form = match offloads && to.takes_large_frames() {
            true => Form::Large,
            false => Form::Plain { offloads },
        };
        let source = (sender, frame);
        let mut frame = Frame::resume(form, &self.kept, source);
        let target = if let Some(receiver) = within {
            (receiver, receiver.head())
        } else {
            let Some(receiver) = receiver else {
                return Ok(drop_frame(source, memories, looks)?);
            };
            if !frame.read(source, memories, looks)? {
                return Ok(drop_frame(source, memories, looks)?);
            }
            frame.source.keep_if_stopped(looks.before_piece(), source)?;
            match self.room(sender, receiver, to, memories)? {
                Room::Buffer(buffer) => (receiver, buffer),
                Room::None => return Ok(Step::Idle),
                Room::Down => return Ok(drop_frame(source, memories, looks)?),
            }
        };
        let moved = frame.copy(source, target, memories, looks)?;
        Ok(finish(moved, source, (target.0, to), memories, looks)?)
    }

    fn move_packet(
        &self,
        (own, peer): (u32, u32),
        sender: &Ring<'_>,
        (from, to): (&Device, &Device),
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<Step, Stop> {
        let Some(claim) = to.claim_receiving() else {
            return Ok(Step::Claimed);
        };
        let receiver = &to.receive_ring();
        let within = receiver.as_ref().filter(|it| sender.is_within_frame(it));
        let Some(first) = next(sender, memories, looks)? else {
            return Ok(Step::Idle);
        };
        let source = (sender, first);
        let mut packet = Packet::resume(&self.kept, source);
        let target = if let Some(receiver) = within {
            (receiver, receiver.head())
        } else {
            if !packet.read(source, memories, looks)? {
                return Ok(drop_frame(source, memories, looks)?);
            }
            let is_there = |it: &Ring<'_>| sender.taken() == 0 || sender.has_begun(it);
            let is_there = receiver.as_ref().is_some_and(is_there);
            match (packet.verdict(peer, is_there), receiver) {
                (Verdict::Passed, Some(receiver)) => {
                    packet.0.keep_if_stopped(looks.before_piece(), source)?;
                    match self.room(sender, receiver, to, memories)? {
                        Room::Buffer(buffer) => (receiver, buffer),
                        Room::None => return Ok(Step::Idle),
                        // The next step finds no queue.
                        Room::Down => return Ok(NOTHING_YET),
                    }
                }
                (Verdict::Answered, _) => {
                    drop(claim);
                    let answered = self.answer(own, &packet, source, (from, to), memories, looks);
                    return match answered? {
                        None if receiver.is_some() => Ok(Step::Idle),
                        None => Ok(self.wait_for_queue(to)),
                        Some(step) => Ok(step),
                    };
                }
                _ => return Ok(drop_frame(source, memories, looks)?),
            }
        };
        let packet = &mut packet;
        let moved = packet::copy(own, packet, source, target, memories, looks)?;
        Ok(finish(moved, source, (target.0, to), memories, looks)?)
    }

    /// Answers a packet that reaches no peer. `None`: the answer waits for a buffer.
    fn answer(
        &self,
        own: u32,
        packet: &Packet<'_>,
        source: (&Ring<'_>, u16),
        (from, to): (&Device, &Device),
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<Option<Step>, Stop> {
        let begun = &self.answer;
        let ends = (from, to);
        match answer::give(packet, own, source, begun, ends, memories, looks)? {
            Answer::Given { interrupt } => {
                let wanted = give_back(source, memories, looks)?;
                Ok(Some(Step::Moved {
                    interrupt_sender: interrupt || wanted,
                    interrupt_receiver: false,
                }))
            }
            Answer::Impossible => Ok(Some(drop_frame(source, memories, looks)?)),
            Answer::Claimed => Ok(Some(Step::Claimed)),
            Answer::Waiting => Ok(None),
        }
    }

    /// An answer waits for a buffer, and the receiver had no queue. If it gets one meanwhile, the packet is for it
    /// ([`may_go_on`](Self::may_go_on)).
    fn wait_for_queue(&self, to: &Device) -> Step {
        self.is_blocked.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        // A device that is up may have no queue for as long as its driver likes.
        match to.receive_ring() {
            Some(_) => NOTHING_YET,
            None => Step::Idle,
        }
    }

    /// Finds a buffer of the receiver for the next bytes of a frame.
    fn room(
        &self,
        sender: &Ring<'_>,
        receiver: &Ring<'_>,
        to: &Device,
        memories: &mut impl Memories,
    ) -> Result<Room, Fault> {
        if sender.taken() == 0 {
            receiver.begin_anew();
        }
        let mut buffer = receiver.next_to_fill(memories).map_err(of_receiver)?;
        if receiver.has_only(receiver.filled()) {
            // All buffers together are too small for the frame.
            return Ok(Room::Down);
        }
        if buffer.is_none() {
            receiver
                .want_notifications(true, memories)
                .map_err(of_receiver)?;
            self.is_blocked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // If its queue has gone before it could see that a frame waits, nothing would have the sender go on.
            if to.receive_ring().is_none() {
                return Ok(Room::Down);
            }
            buffer = receiver.next_to_fill(memories).map_err(of_receiver)?;
        }
        let Some(buffer) = buffer else {
            return Ok(Room::None);
        };
        // An answer that waits for a buffer of the same queue needs the notification, too.
        if self.is_blocked.swap(false, Ordering::AcqRel) && !to.has_answer() {
            receiver
                .want_notifications(false, memories)
                .map_err(of_receiver)?;
        }
        Ok(Room::Buffer(buffer))
    }
}

/// Nothing was moved, and the next step is to look again.
const NOTHING_YET: Step = Step::Moved {
    interrupt_sender: false,
    interrupt_receiver: false,
};

fn of_sender(broken: Broken) -> Fault {
    (End::Sender, broken)
}

fn of_receiver(broken: Broken) -> Fault {
    (End::Receiver, broken)
}

/// The first descriptor of the sender's buffer in which the last step has stopped, or of the next one.
fn next(
    sender: &Ring<'_>,
    memories: &impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<Option<u16>, Stop> {
    if let Some(first) = sender.begun() {
        return Ok(Some(first));
    }
    looks.before_piece()?;
    Ok(sender.next(memories).map_err(of_sender)?)
}

/// What was moved of a frame is the receiver's; the frame is given back when all of it was.
fn finish(
    moved: Moved,
    (sender, frame): (&Ring<'_>, u16),
    (receiver, to): (&Ring<'_>, &Device),
    memories: &mut impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<Step, Fault> {
    if moved.taken > 0 {
        sender.set_taken(moved.taken);
    }
    let interrupt_receiver = match moved.buffers {
        0 => false,
        buffers => receiver.publish(buffers, memories).map_err(of_receiver)?,
    };
    if moved.taken > 0 {
        return Ok(Step::Moved {
            interrupt_sender: false,
            interrupt_receiver,
        });
    }
    let interrupt_sender = give_back((sender, frame), memories, looks).inspect_err(|_| {
        // The receiver has the frame, and is to know of it: the caller passes its line on.
        if interrupt_receiver {
            let _ = to.raise();
        }
    })?;
    Ok(match moved.is_refused {
        true => Step::Refused { interrupt_sender },
        false => Step::Moved {
            interrupt_sender,
            interrupt_receiver,
        },
    })
}

/// Drops a frame, as a cable of which the other end is unplugged.
fn drop_frame(
    source: (&Ring<'_>, u16),
    memories: &mut impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<Step, Fault> {
    Ok(Step::Moved {
        interrupt_sender: give_back(source, memories, looks)?,
        interrupt_receiver: false,
    })
}

/// Gives a frame back of which nothing is left to move, unless the core is interrupted before that: then the next step does it. Returns whether the driver wants an
/// interrupt for it.
fn give_back(
    (sender, frame): (&Ring<'_>, u16),
    memories: &mut impl Memories,
    looks: &mut Looks<impl FnMut() -> bool>,
) -> Result<bool, Fault> {
    sender.begin_anew();
    if looks.before_piece().is_err() {
        sender.give_back_later(frame);
        return Ok(false);
    }
    sender.give_back(frame, 0, memories).map_err(of_sender)
}
