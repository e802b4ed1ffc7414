// SPDX-License-Identifier: MIT OR Apache-2.0
//! One direction of a link: frames from the transmit queue of one device to the receive queue of the other.
//!
//! A core moves one frame in a step, of about a thousand instructions. It claims the direction for the step. So two cores
//! that run vCPUs of the guest that transmits do not move frames at the same time: a core that finds the direction claimed
//! tries again in its next step.

use super::device::Device;
use super::memory::{End, Memories};
use super::queue::{Broken, Buffer, Ring};
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use spumone_config::GuestAddr;

/// `virtio_net_hdr` before each received frame (Virtio 1.2, section 5.1.6): nothing is left to do, and the frame is in one
/// buffer (`num_buffers`).
const HEADER_BYTES: [u8; HEADER as usize] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
/// Bytes of that header, which is before each transmitted frame, too.
const HEADER: u32 = 12;
/// The largest frame: 1,500 bytes of payload, 14 of addresses and type, 4 of a VLAN tag.
pub const MAX_FRAME: u32 = 1518;

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// There is nothing to move now. If the receiver has no buffer, it notifies the device when it has one
    /// ([`Direction::may_go_on`]).
    Idle,
    /// A frame was moved, or dropped because the receiver's device is down. There may be more.
    Moved {
        /// The sender's device must interrupt.
        interrupt_sender: bool,
        /// The receiver's device must interrupt.
        interrupt_receiver: bool,
    },
    /// Another core moves a frame now.
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
}

/// The claim of a direction; freed when it is dropped.
struct Claim<'a>(&'a Direction);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.is_claimed.store(false, Ordering::Release);
    }
}

impl Direction {
    constructor! {
        /// A direction in which nothing was moved yet.
        pub fn new() -> Self {
            Self {
                is_claimed: AtomicBool::new(false),
                is_blocked: AtomicBool::new(false),
            }
        }
    }

    /// Whether a core moves a frame now. A device is down before this is looked at; a step looks at the device after its
    /// claim. So when this is `false`, no core touches the queues of that device any more.
    pub fn is_claimed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.is_claimed.load(Ordering::Acquire)
    }

    /// The receiver may have made buffers available, or its device has gone down. Returns whether the sender is to go on:
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
            .is_some_and(|ring| ring.next(memories) == Ok(None));
        !is_in_vain && self.is_blocked.swap(false, Ordering::AcqRel)
    }

    /// Moves one frame.
    pub fn step(&self, from: &Device, to: &Device, memories: &mut impl Memories) -> Step {
        if self.is_claimed.swap(true, Ordering::Acquire) {
            return Step::Claimed;
        }
        let _claim = Claim(self);
        // The claim is written before the devices are looked at: see `is_claimed`.
        fence(Ordering::SeqCst);
        let Some(sender) = from.transmit_ring() else {
            return Step::Idle;
        };
        match self.move_frame(sender, to, memories) {
            Ok(step) => step,
            Err((end, Broken)) => {
                // While the direction is claimed: a reset of the device comes later.
                match end {
                    End::Sender => from.needs_reset(),
                    End::Receiver => to.needs_reset(),
                }
                Step::Broken(end)
            }
        }
    }

    fn move_frame(
        &self,
        sender: Ring<'_>,
        to: &Device,
        memories: &mut impl Memories,
    ) -> Result<Step, (End, Broken)> {
        let of_sender = |broken| (End::Sender, broken);
        let of_receiver = |broken| (End::Receiver, broken);
        let receiver = to.receive_ring();
        let Some(frame) = sender.next(memories).map_err(of_sender)? else {
            return Ok(Step::Idle);
        };
        let Some(receiver) = receiver else {
            return drop_frame(sender, frame, memories);
        };
        let mut buffer = receiver.next(memories).map_err(of_receiver)?;
        if buffer.is_none() {
            receiver
                .want_notifications(true, memories)
                .map_err(of_receiver)?;
            self.is_blocked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            // If it has gone down before it could see that a frame waits, nothing would have the sender go on.
            if !to.is_up() {
                return drop_frame(sender, frame, memories);
            }
            buffer = receiver.next(memories).map_err(of_receiver)?;
        }
        let Some(buffer) = buffer else {
            return Ok(Step::Idle);
        };
        if self.is_blocked.swap(false, Ordering::AcqRel) {
            receiver
                .want_notifications(false, memories)
                .map_err(of_receiver)?;
        }
        let written = copy_frame(
            sender.buffer(frame, false),
            receiver.buffer(buffer, true),
            memories,
        )?;
        let interrupt_receiver = match written {
            Some(bytes) => receiver
                .give_back(buffer, bytes, memories)
                .map_err(of_receiver)?,
            None => false,
        };
        let interrupt_sender = sender.give_back(frame, 0, memories).map_err(|broken| {
            // The receiver has the frame, and is to know of it: its line is published with the news of the link.
            if interrupt_receiver {
                let _ = to.raise();
            }
            of_sender(broken)
        })?;
        Ok(Step::Moved {
            interrupt_sender,
            interrupt_receiver,
        })
    }
}

/// Drops a frame, as a cable of which the other end is unplugged.
fn drop_frame(
    sender: Ring<'_>,
    frame: u16,
    memories: &mut impl Memories,
) -> Result<Step, (End, Broken)> {
    let given_back = sender.give_back(frame, 0, memories);
    Ok(Step::Moved {
        interrupt_sender: given_back.map_err(|broken| (End::Sender, broken))?,
        interrupt_receiver: false,
    })
}

/// Copies a frame, with a header of our own: the guests have negotiated nothing that a header would say. Returns the bytes
/// written; `None`: the frame is larger than the buffer or than a frame may be, and is dropped.
fn copy_frame(
    mut from: Buffer<Ring<'_>>,
    mut to: Buffer<Ring<'_>>,
    memories: &mut impl Memories,
) -> Result<Option<u32>, (End, Broken)> {
    let sender = |broken| (End::Sender, broken);
    let receiver = |broken| (End::Receiver, broken);
    let mut source = Part::default();
    let mut skip = HEADER;
    while skip > 0 {
        if source.bytes == 0 {
            match from.next(memories).map_err(sender)? {
                Some((at, bytes)) => source = Part { at: at.0, bytes },
                // Less than a header is no frame.
                None => return Ok(None),
            }
        }
        skip -= source.advance(skip);
    }
    let mut target = Part::default();
    let mut written = 0;
    loop {
        if target.bytes == 0 && written < HEADER + MAX_FRAME {
            match to.next(memories).map_err(receiver)? {
                Some((at, bytes)) => {
                    target = Part { at: at.0, bytes };
                    continue;
                }
                // There is no room, unless the frame has ended.
                None if written < HEADER => return Ok(None),
                None => {}
            }
        }
        if written < HEADER {
            written += write_header(&mut target, written, memories).map_err(receiver)?;
            continue;
        }
        if source.bytes == 0 {
            match from.next(memories).map_err(sender)? {
                Some((at, bytes)) => source = Part { at: at.0, bytes },
                None => return Ok(Some(written)),
            }
            continue;
        }
        let bytes = source
            .bytes
            .min(target.bytes)
            .min(HEADER + MAX_FRAME - written);
        if bytes == 0 {
            // More of the frame is there than of the buffer, or than a frame may have.
            return Ok(None);
        }
        let (at, place) = (GuestAddr(source.at), GuestAddr(target.at));
        if !memories.has(End::Sender, at, bytes) {
            return Err((End::Sender, Broken));
        }
        memories
            .copy(at, place, bytes)
            .ok_or((End::Receiver, Broken))?;
        let _ = (source.advance(bytes), target.advance(bytes));
        written += bytes;
    }
}

/// Writes the header from offset `written` on, as far as it fits. Returns how many bytes that were.
fn write_header(
    target: &mut Part,
    written: u32,
    memories: &mut impl Memories,
) -> Result<u32, Broken> {
    let rest = HEADER_BYTES.get(written as usize..).unwrap_or_default();
    let here = rest.get(..target.bytes as usize).unwrap_or(rest);
    memories.write(GuestAddr(target.at), here).ok_or(Broken)?;
    Ok(target.advance(here.len() as u32))
}

/// What is left of a part of a buffer.
#[derive(Clone, Copy, Default)]
struct Part {
    at: u64,
    bytes: u32,
}

impl Part {
    /// Goes on by `bytes` at most; returns by how many.
    fn advance(&mut self, bytes: u32) -> u32 {
        let bytes = bytes.min(self.bytes);
        self.at = self.at.wrapping_add(u64::from(bytes));
        self.bytes -= bytes;
        bytes
    }
}
