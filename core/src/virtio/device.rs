// SPDX-License-Identifier: MIT OR Apache-2.0
//! A virtio device as its guest sees it: registers, and two or three queues.

use super::claim::Claim;
use super::kind::Kind;
use super::looks::Looks;
use super::memory::{End, Memories};
use super::queue::{Broken, MAX_SIZE, Queue, Ring};
use super::registers::*;
use crate::line;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

/// The queue of received frames, that of frames to transmit, and that of events, which only sockets have (sections 5.1.2 and
/// 5.10.2).
const RECEIVE: usize = 0;
const TRANSMIT: usize = 1;
const EVENT: usize = 2;
const QUEUES: usize = 3;
/// The only event, `VIRTIO_VSOCK_EVENT_TRANSPORT_RESET`: the peer's connections are gone (5.10.6.7).
const EVENT_CONTENT: [u8; EVENT_BYTES as usize] = [0; _];
/// Bytes of an event.
const EVENT_BYTES: u32 = 4;

/// What the caller has to do after a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Effect {
    /// Nothing.
    Nothing,
    /// The guest has frames to transmit, or a buffer for an event.
    Transmit,
    /// The guest has buffers for frames that it receives, or the queue of them has come or gone.
    Receive,
    /// The interrupt line may have changed: call [`Device::publish`].
    Line,
    /// The device has gone up or down: the peer's device must know ([`Device::peer_changed`]).
    Status,
    /// The device is down, and its queues are to be reset when no core moves frames any more: call
    /// [`Device::finish_reset`] then.
    Reset,
}

/// One device. The guest's vCPUs access it from several cores at once, so every register is an atomic; relaxed order
/// suffices where nothing else is said, since only `status` says whether the others are used.
#[derive(Debug)]
pub struct Device {
    kind: Kind,
    /// `Status`. Release when `DRIVER_OK` is set, acquire when a frame is moved: the queues are set up before. It is cleared
    /// before a reset looks whether a core moves frames ([`Direction::is_claimed`](super::Direction::is_claimed)).
    status: AtomicU32,
    /// What the driver has accepted.
    accepted: AtomicU64,
    features_sel: AtomicU32,
    accepted_sel: AtomicU32,
    queue_sel: AtomicU32,
    interrupts: AtomicU32,
    generation: AtomicU32,
    /// The peer's sockets are gone, and the driver is to be told by an event.
    is_reset_due: AtomicBool,
    /// The driver has no buffer for that event, and notifies the device of one. Set before a core looks at the queue; cleared if the queue has a
    /// buffer, and when the driver notifies the device. So a step looks at a queue without buffers once, and does not spend its first piece of work on it each time.
    awaits_event_buffer: AtomicBool,
    /// Whether a core uses the receive queue of a socket device: the peer's packets go there, and answers to this guest's own packets.
    is_receiving: AtomicBool,
    /// An answer waits for a buffer in the receive queue. Set before the queue is looked at again, taken when the driver notifies the
    /// device.
    is_answer_waiting: AtomicBool,
    queues: [Queue; QUEUES],
}

impl Device {
    constructor! {
        /// A device after reset.
        pub fn new(kind: Kind) -> Self {
            Self {
                kind,
                status: AtomicU32::new(0),
                accepted: AtomicU64::new(0),
                features_sel: AtomicU32::new(0),
                accepted_sel: AtomicU32::new(0),
                queue_sel: AtomicU32::new(0),
                interrupts: AtomicU32::new(0),
                generation: AtomicU32::new(0),
                is_reset_due: AtomicBool::new(false),
                awaits_event_buffer: AtomicBool::new(false),
                is_receiving: AtomicBool::new(false),
                is_answer_waiting: AtomicBool::new(false),
                queues: [Queue::new(), Queue::new(), Queue::new()],
            }
        }
    }

    /// What the device is.
    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Whether the driver uses the device.
    pub fn is_up(&self) -> bool {
        let status = self.status.load(Ordering::Acquire);
        status & DRIVER_OK != 0 && status & (NEEDS_RESET | FAILED) == 0
    }

    /// The guest reads `size` bytes at `offset`, in the registers always 4. `is_peer_up`: whether the device of the peer
    /// is up. What is no register reads as zero.
    #[must_use]
    pub fn read(&self, offset: u64, size: u64, is_peer_up: bool) -> u64 {
        if offset >= CONFIG {
            return configuration(offset - CONFIG, size, self.kind.configuration(is_peer_up));
        }
        let load = |register: &AtomicU32| register.load(Ordering::Relaxed);
        let value = match offset {
            MAGIC_VALUE => MAGIC,
            VERSION => 2,
            DEVICE_ID => self.kind.device_id(),
            VENDOR_ID => VENDOR,
            DEVICE_FEATURES => half(self.kind.features(), load(&self.features_sel)),
            QUEUE_NUM_MAX => self.queue().map_or(0, |_| MAX_SIZE.into()),
            QUEUE_READY => self
                .queue()
                .is_some_and(|queue| queue.ready.load(Ordering::Relaxed))
                .into(),
            INTERRUPT_STATUS => load(&self.interrupts),
            STATUS => load(&self.status),
            SHM_LEN_LOW | SHM_LEN_HIGH => u32::MAX,
            CONFIG_GENERATION => load(&self.generation),
            _ => 0,
        };
        match size {
            4 => value.into(),
            _ => 0,
        }
    }

    /// The guest writes 32 bits at `offset`.
    pub fn write(&self, offset: u64, value: u32) -> Effect {
        let store = |register: &AtomicU32| register.store(value, Ordering::Relaxed);
        match offset {
            DEVICE_FEATURES_SEL => store(&self.features_sel),
            DRIVER_FEATURES_SEL => store(&self.accepted_sel),
            DRIVER_FEATURES => {
                let sel = self.accepted_sel.load(Ordering::Relaxed);
                set_half(&self.accepted, sel, value);
            }
            QUEUE_SEL => store(&self.queue_sel),
            INTERRUPT_ACK => {
                self.interrupts.fetch_and(!value, Ordering::Relaxed);
                return Effect::Line;
            }
            QUEUE_NOTIFY => {
                return match value as usize {
                    TRANSMIT => Effect::Transmit,
                    RECEIVE => Effect::Receive,
                    EVENT => {
                        // The driver's index is written before this; `tell_of_reset` does the opposite.
                        fence(Ordering::SeqCst);
                        self.awaits_event_buffer.store(false, Ordering::Relaxed);
                        match self.has_event() {
                            true => Effect::Transmit,
                            false => Effect::Nothing,
                        }
                    }
                    _ => Effect::Nothing,
                };
            }
            STATUS => return self.write_status(value),
            QUEUE_NUM | QUEUE_READY | QUEUE_DESC_LOW..=QUEUE_DEVICE_HIGH => {
                if let Some(queue) = self.queue() {
                    write_queue(queue, offset, value);
                }
                // Whether the queue is in use depends on these two registers. Frames may wait for it, or for its buffers.
                let is_receive = self.queue_sel.load(Ordering::Relaxed) as usize == RECEIVE;
                if is_receive && matches!(offset, QUEUE_NUM | QUEUE_READY) && self.is_up() {
                    return Effect::Receive;
                }
            }
            _ => {}
        }
        Effect::Nothing
    }

    fn write_status(&self, value: u32) -> Effect {
        if value == 0 {
            self.status.store(0, Ordering::Relaxed);
            return Effect::Reset;
        }
        let accepts = self.accepted.load(Ordering::Relaxed);
        let is_acceptable = accepts & !self.kind.features() == 0 && accepts & VERSION_1 != 0;
        // Without `FEATURES_OK` the driver knows that the device does not work with these features.
        let value = match is_acceptable {
            true => value,
            false => value & !(FEATURES_OK | DRIVER_OK),
        };
        // `NEEDS_RESET` is the device's alone, which may set it at this moment.
        let value = value & 0xff & !NEEDS_RESET;
        let before = self
            .status
            .fetch_and(value | NEEDS_RESET, Ordering::Relaxed);
        self.status.fetch_or(value, Ordering::Release);
        match (before ^ value) & (DRIVER_OK | FAILED) {
            0 => Effect::Nothing,
            _ => Effect::Status,
        }
    }

    /// The device is down, and no core moves frames: resets what is left of it.
    pub fn finish_reset(&self) {
        self.status.store(0, Ordering::Relaxed);
        self.accepted.store(0, Ordering::Relaxed);
        for register in [
            &self.features_sel,
            &self.accepted_sel,
            &self.queue_sel,
            &self.interrupts,
            &self.generation,
        ] {
            register.store(0, Ordering::Relaxed);
        }
        for flag in [
            &self.is_reset_due,
            &self.awaits_event_buffer,
            &self.is_answer_waiting,
        ] {
            flag.store(false, Ordering::Relaxed);
        }
        self.queues.iter().for_each(Queue::reset);
    }

    /// Takes the device down, as at the end of a life. [`finish_reset`](Self::finish_reset) follows when no core moves frames.
    pub fn go_down(&self) {
        self.status.store(0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether the driver takes frames of up to 64 KiB in several buffers.
    pub(super) fn takes_large_frames(&self) -> bool {
        self.accepted.load(Ordering::Relaxed) & TAKES_LARGE == TAKES_LARGE
    }

    /// The driver has broken the rules: the device does nothing until it is reset. Call [`publish`](Self::publish) then.
    pub fn needs_reset(&self) {
        self.status.fetch_or(NEEDS_RESET, Ordering::Relaxed);
        self.configuration_changed();
    }

    /// The peer's device has gone up or down. Returns whether the driver is to know: then call [`publish`](Self::publish), and have a
    /// core move frames if it [`has_event`](Self::has_event).
    pub fn peer_changed(&self, is_peer_up: bool) -> bool {
        match self.kind {
            Kind::Network { .. } => self.configuration_changed(),
            Kind::Socket { .. } if is_peer_up => return false,
            Kind::Socket { .. } => self.is_reset_due.store(true, Ordering::Relaxed),
        }
        // The peer's status is written before this one is read; a driver that comes up at the same time does the opposite.
        fence(Ordering::SeqCst);
        self.is_up()
    }

    /// Whether the driver is to be told of an event.
    pub fn has_event(&self) -> bool {
        self.is_reset_due.load(Ordering::Relaxed)
    }

    /// Tells the driver that the peer's sockets are gone, if it is to know and has a buffer for that. If the core is interrupted, the next step goes on:
    /// it writes the event, or gives the buffer back. Returns whether the driver wants an interrupt now; `None`: there was nothing to tell.
    pub(super) fn tell_of_reset(
        &self,
        memories: &mut impl Memories,
        looks: &mut Looks<impl FnMut() -> bool>,
    ) -> Result<Option<bool>, Broken> {
        if !self.has_event() || self.awaits_event_buffer.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(ring) = self.ring(EVENT, End::Sender) else {
            return Ok(None);
        };
        let first = match ring.to_give_back() {
            Some(first) => first,
            None => {
                if looks.before_piece().is_err() {
                    return Ok(Some(false));
                }
                self.awaits_event_buffer.store(true, Ordering::Relaxed);
                fence(Ordering::SeqCst);
                let Some(first) = ring.next(memories)? else {
                    return Ok(None);
                };
                self.awaits_event_buffer.store(false, Ordering::Relaxed);
                Self::write_event(&ring, first, memories)?;
                first
            }
        };
        if looks.before_piece().is_err() {
            ring.give_back_later(first);
            return Ok(Some(false));
        }
        self.is_reset_due.store(false, Ordering::Relaxed);
        ring.begin_anew();
        ring.give_back(first, EVENT_BYTES, memories).map(Some)
    }

    /// Writes an event to the buffer with this first descriptor.
    fn write_event(
        ring: &Ring<'_>,
        first: u16,
        memories: &mut impl Memories,
    ) -> Result<(), Broken> {
        let part = ring.buffer(first, true).next(memories)?;
        let Some((at, EVENT_BYTES..)) = part else {
            return Err(Broken);
        };
        // Of any alignment: Linux's is at an odd address.
        let written = memories.write(End::Sender, at, &EVENT_CONTENT);
        written.ok_or(Broken)
    }

    fn configuration_changed(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.interrupts.fetch_or(CONFIGURATION, Ordering::Relaxed);
    }

    /// A vCPU of the guest is to run, although no buffer was given back: raises the interrupt as for a change of the configuration.
    /// Linux would disable an interrupt that says of used buffers so often that there are none; a peer decides how often.
    /// Returns whether it was not raised before: then call [`publish`](Self::publish).
    #[must_use]
    pub fn wake(&self) -> bool {
        self.interrupts.fetch_or(CONFIGURATION, Ordering::Relaxed) & CONFIGURATION == 0
    }

    /// A buffer was given back to the driver: raises the interrupt. Returns whether it was not raised before: then call
    /// [`publish`](Self::publish).
    #[must_use]
    pub fn raise(&self) -> bool {
        self.interrupts.fetch_or(USED_BUFFER, Ordering::Relaxed) & USED_BUFFER == 0
    }

    /// Passes the level of the interrupt line to `set`, so that the last level passed is the present one. `set` may be called
    /// up to four times.
    pub fn publish(&self, set: impl FnMut(bool)) {
        line::publish(|| self.interrupts.load(Ordering::Relaxed) != 0, set);
    }

    /// The queue of frames to transmit; `None`: the device is down, or has no such queue.
    pub(super) fn transmit_ring(&self) -> Option<Ring<'_>> {
        self.ring(TRANSMIT, End::Sender)
    }

    /// The queue of received frames; `None`: the device is down, or has no such queue, as one that is up may.
    pub(super) fn receive_ring(&self) -> Option<Ring<'_>> {
        self.ring(RECEIVE, End::Receiver)
    }

    /// The queue of received frames, for an answer to the guest that transmits; `None`: the device is down, or has no such queue.
    pub(super) fn answer_ring(&self) -> Option<Ring<'_>> {
        self.ring(RECEIVE, End::Sender)
    }

    /// Claims the receive queue of a socket device; `None`: another core uses it now. A reset need not look at it, since a core that has
    /// claimed it has claimed a direction, too.
    pub(super) fn claim_receiving(&self) -> Option<Claim<'_>> {
        Claim::of(&self.is_receiving)
    }

    /// An answer waits for a buffer. The queue must be looked at afterwards.
    pub(super) fn wait_with_answer(&self) {
        self.is_answer_waiting.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether an answer waits for a buffer.
    pub(super) fn has_answer(&self) -> bool {
        self.is_answer_waiting.load(Ordering::Relaxed)
    }

    /// The driver may have made receive buffers available. Returns whether an answer waits for one: then have a core move frames.
    #[must_use]
    pub fn may_answer(&self) -> bool {
        // The driver's index is written before this is read; `answer` does the opposite.
        fence(Ordering::SeqCst);
        self.has_answer() && self.is_answer_waiting.swap(false, Ordering::AcqRel)
    }

    fn ring(&self, queue: usize, end: End) -> Option<Ring<'_>> {
        let queue = self.queues.get(queue)?;
        self.is_up().then(|| queue.ring(end)).flatten()
    }

    fn queue(&self) -> Option<&Queue> {
        let selected = self.queue_sel.load(Ordering::Relaxed) as usize;
        let queues = self.queues.get(..self.kind.queues())?;
        queues.get(selected)
    }
}

fn write_queue(queue: &Queue, offset: u64, value: u32) {
    let (register, upper) = match offset {
        QUEUE_NUM => {
            let size = u16::try_from(value).unwrap_or(0);
            return queue.size.store(size, Ordering::Relaxed);
        }
        QUEUE_READY => return queue.ready.store(value & 1 != 0, Ordering::Relaxed),
        QUEUE_DESC_LOW => (&queue.descriptors, 0),
        QUEUE_DESC_HIGH => (&queue.descriptors, 1),
        QUEUE_DRIVER_LOW => (&queue.available, 0),
        QUEUE_DRIVER_HIGH => (&queue.available, 1),
        QUEUE_DEVICE_LOW => (&queue.used, 0),
        QUEUE_DEVICE_HIGH => (&queue.used, 1),
        _ => return,
    };
    set_half(register, upper, value);
}

/// The 32 bits of `value` that `sel` selects.
const fn half(value: u64, sel: u32) -> u32 {
    match sel {
        0 => value as u32,
        1 => (value >> 32) as u32,
        _ => 0,
    }
}

/// Sets the 32 bits that `sel` selects. Two vCPUs that do so at once harm their own guest only.
fn set_half(register: &AtomicU64, sel: u32, value: u32) {
    let before = register.load(Ordering::Relaxed);
    let after = match sel {
        0 => before & !0xffff_ffff | u64::from(value),
        1 => before & 0xffff_ffff | u64::from(value) << 32,
        _ => before,
    };
    register.store(after, Ordering::Relaxed);
}

/// `size` bytes of the configuration.
fn configuration(offset: u64, size: u64, bytes: [u8; 8]) -> u64 {
    let at = |n| bytes.get((offset + n) as usize).copied().unwrap_or(0);
    (0..size.min(8)).fold(0, |value, n| value | u64::from(at(n)) << (8 * n))
}
