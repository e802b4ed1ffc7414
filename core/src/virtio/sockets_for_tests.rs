// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link of sockets that cores share, for tests of what they do at the same time: the first guest has sent a packet that reaches no
//! peer, and the second one a packet to the first one. Of the guests' memory it has the words that are written meanwhile.

#[cfg(loom)]
use super::Effect;
use super::link_for_tests::Outcome;
use super::registers::*;
use super::{Device, Direction, End, Kind, Memories, Step};
use crate::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use spumone_config::GuestAddr;
use std::sync::Arc;

/// Context identifiers of the guests, and of none of them.
const CIDS: [u32; 2] = [3, 4];
const OTHER: u8 = 2;
/// Queues of a guest, of which the areas are so far apart.
const RECEIVE: usize = 0;
const EVENTS: usize = 2;
const QUEUES: [usize; 2] = [RECEIVE, 1];
const QUEUE: u64 = 0x1_0000;
const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
/// Where the buffers begin, and how far they are apart.
const BUFFERS: u64 = 0x10_0000;
const BUFFER: u64 = 0x1000;
const SIZE: u16 = 4;
/// `VIRTIO_VSOCK_OP_REQUEST`, and where it is in a header. So is the lowest byte of the target.
const REQUEST: u8 = 1;
const OPERATION: usize = 30;
const TARGET: usize = 8;

/// Two socket devices that are up.
pub struct Sockets {
    pub devices: [Device; 2],
    directions: [Direction; 2],
    /// Receive buffers that the first guest has made available.
    pub available: AtomicU16,
    /// Buffers of its receive queue that were given back, and those that were written.
    pub used: AtomicU16,
    written: [AtomicBool; SIZE as usize],
    /// Flags of the used ring of that queue.
    pub flags: AtomicU16,
    /// Buffers for events that the first guest has made available, and those that were given back.
    pub events: AtomicU16,
    pub told: AtomicU16,
}

impl Sockets {
    /// So many receive buffers are available.
    pub fn new(buffers: u16) -> Arc<Self> {
        let [own, peer] = CIDS;
        let kinds = [(own, peer), (peer, own)].map(|(own, peer)| Kind::Socket { own, peer });
        let link = Self {
            devices: kinds.map(Device::new),
            directions: [Direction::new(), Direction::new()],
            available: AtomicU16::new(buffers),
            used: AtomicU16::new(0),
            written: [false; _].map(AtomicBool::new),
            // No notifications.
            flags: AtomicU16::new(1),
            events: AtomicU16::new(0),
            told: AtomicU16::new(0),
        };
        for device in &link.devices {
            let _ = device.write(DRIVER_FEATURES_SEL, 1);
            let _ = device.write(DRIVER_FEATURES, 1);
            for queue in QUEUES {
                start(device, queue);
            }
            let _ = device.write(STATUS, 15);
        }
        Arc::new(link)
    }

    /// A core moves a packet of this guest, or answers it.
    pub fn step(self: &Arc<Self>, sender: usize) -> Outcome {
        let (from, to) = (&self.devices[sender], &self.devices[1 - sender]);
        let mut words = Words(Arc::clone(self), sender);
        match self.directions[sender].step(from, to, &mut words, || false) {
            Step::Idle => Outcome::Idle,
            Step::Moved { .. } => Outcome::Moved,
            Step::Claimed => Outcome::Claimed,
            // Of no use to these tests, whose drivers keep to the rules.
            Step::Broken(_) | Step::Refused { .. } => Outcome::Other,
        }
    }
}

#[cfg(loom)]
impl Sockets {
    /// The first guest has a queue for events, and is to be told that the peer's sockets are gone.
    pub fn has_event(&self) {
        start(&self.devices[0], EVENTS);
        assert!(self.devices[0].peer_changed(false));
    }

    /// The first guest notifies its device of a buffer for an event. Returns whether a core is to move packets.
    pub fn notify_of_event_buffer(&self) -> bool {
        let effect = self.devices[0].write(QUEUE_NOTIFY, EVENTS as u32);
        effect == Effect::Transmit
    }
}

/// What a driver does to set a queue up.
fn start(device: &Device, queue: usize) {
    let base = QUEUE as u32 * (1 + queue as u32);
    for (register, value) in [
        (QUEUE_SEL, queue as u32),
        (QUEUE_NUM, SIZE.into()),
        (QUEUE_DESC_LOW, base),
        (QUEUE_DRIVER_LOW, base + AVAILABLE as u32),
        (QUEUE_DEVICE_LOW, base + USED as u32),
        (QUEUE_READY, 1),
    ] {
        let _ = device.write(register, value);
    }
}

/// The memory of both guests, as a core has it that moves a packet of this one.
struct Words(Arc<Sockets>, usize);

impl Words {
    /// Which guest's queue this is, which one of them, and where in its areas.
    fn queue(&self, end: End, at: GuestAddr) -> (usize, usize, u64) {
        let guest = match end {
            End::Sender => self.1,
            End::Receiver => 1 - self.1,
        };
        (guest, (at.0 / QUEUE) as usize - 1, at.0 % QUEUE)
    }
}

impl Memories for Words {
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16> {
        let (guest, queue, offset) = self.queue(end, at);
        Some(match offset - AVAILABLE {
            0 => 0,
            2 if (guest, queue) == (0, RECEIVE) => self.0.available.load(Ordering::Acquire),
            2 if queue == EVENTS => self.0.events.load(Ordering::Acquire),
            2 => u16::from(queue != RECEIVE),
            entry => (entry as u16 - 4) / 2,
        })
    }

    fn load64(&self, end: End, at: GuestAddr) -> Option<u64> {
        let (_, queue, offset) = self.queue(end, at);
        let flags = if [RECEIVE, EVENTS].contains(&queue) {
            2
        } else {
            0
        };
        Some(match offset % 16 {
            0 => BUFFERS + BUFFER * (offset / 16),
            _ => 44 | flags << 32,
        })
    }

    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()> {
        let (guest, queue, offset) = self.queue(end, at);
        match (guest, queue, offset - USED) {
            (0, RECEIVE, 0) => self.0.flags.store(value, Ordering::Release),
            (0, RECEIVE, _) => self.0.used.store(value, Ordering::Release),
            (_, EVENTS, _) => self.0.told.store(value, Ordering::Release),
            _ => {}
        }
        Some(())
    }

    fn store_pair(&mut self, _: End, _: GuestAddr, _: [u32; 2]) -> Option<()> {
        Some(())
    }

    fn read(&self, _: GuestAddr, into: &mut [u8]) -> Option<()> {
        into[TARGET] = [OTHER, CIDS[0] as u8][self.1];
        into[OPERATION] = REQUEST;
        Some(())
    }

    fn write(&mut self, _: End, at: GuestAddr, _: &[u8]) -> Option<()> {
        let buffer = ((at.0 - BUFFERS) / BUFFER) as usize;
        let is_written = self.0.written[buffer].swap(true, Ordering::Relaxed);
        assert!(!is_written, "a buffer is used twice");
        Some(())
    }

    fn copy(
        &mut self,
        _: GuestAddr,
        _: GuestAddr,
        _: u32,
        _: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        unreachable!("the packets have no payload")
    }
}
