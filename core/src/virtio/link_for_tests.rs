// SPDX-License-Identifier: MIT OR Apache-2.0
//! A link that cores share, for tests of what they do at the same time. Of the guests' memory it has the words that are
//! written meanwhile.

use super::registers::*;
use super::{Device, Direction, Effect, End, Kind, Memories, Step};
use crate::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use spumone_config::GuestAddr;
use std::sync::Arc;

const AVAILABLE: u64 = 0x2000;
const USED: u64 = 0x3000;
/// A network card.
pub const NETWORK_CARD: Kind = Kind::Network {
    mac: [0x02, 0x53, 0x50, 0, 0, 1],
    offloads: false,
};
/// Frames, and buffers for them, fit in one part each.
const BYTES: u64 = 60;

/// Two cards that are up, and the words of their rings that guests and cores write.
pub struct Link {
    pub devices: [Device; 2],
    direction: Direction,
    /// Buffers that each driver has made available.
    pub available: [AtomicU16; 2],
    pub used: [AtomicU16; 2],
    /// Flags of the receiver's used ring.
    pub flags: AtomicU16,
    /// The queues of this end may be reset: no core may use them.
    is_reset: [AtomicBool; 2],
}

fn index(end: End) -> usize {
    usize::from(end == End::Receiver)
}

/// What a driver does before it sets `DRIVER_OK`, with the other register values.
fn start(device: &Device, queue: u32) {
    for (register, value) in [
        (DRIVER_FEATURES_SEL, 1),
        (DRIVER_FEATURES, 1),
        (QUEUE_SEL, queue),
        (QUEUE_NUM, 4),
        (QUEUE_DRIVER_LOW, AVAILABLE as u32),
        (QUEUE_DEVICE_LOW, USED as u32),
        (QUEUE_READY, 1),
    ] {
        let _ = device.write(register, value);
    }
}

impl Link {
    /// So many frames and buffers are available.
    pub fn new(frames: u16, buffers: u16) -> Arc<Self> {
        let link = Self {
            devices: [Device::new(NETWORK_CARD), Device::new(NETWORK_CARD)],
            direction: Direction::new(),
            available: [AtomicU16::new(frames), AtomicU16::new(buffers)],
            used: [AtomicU16::new(0), AtomicU16::new(0)],
            // No notifications.
            flags: AtomicU16::new(1),
            is_reset: [AtomicBool::new(false), AtomicBool::new(false)],
        };
        for (device, queue) in link.devices.iter().zip([1, 0]) {
            start(device, queue);
            let _ = device.write(STATUS, 15);
        }
        Arc::new(link)
    }

    pub fn write_status(&self, end: usize, value: u32) -> Effect {
        self.devices[end].write(STATUS, value)
    }

    /// A core moves a frame.
    pub fn step(self: &Arc<Self>) -> Outcome {
        let [from, to] = &self.devices;
        match self
            .direction
            .step(from, to, &mut Words(Arc::clone(self)), || false)
        {
            Step::Idle => Outcome::Idle,
            Step::Moved { .. } => Outcome::Moved,
            Step::Claimed => Outcome::Claimed,
            // Of no use to these tests, whose drivers keep to the rules and accept the same.
            Step::Broken(_) | Step::Refused { .. } => Outcome::Other,
        }
    }

    /// The driver of `end` writes zero to `Status`, once. Returns whether the reset is done.
    pub fn reset(&self, end: usize) -> bool {
        assert_eq!(self.write_status(end, 0), Effect::Reset);
        self.finish(end)
    }

    /// No core may move a frame of `end` any more: resets the rest. Returns whether that is done.
    pub fn finish(&self, end: usize) -> bool {
        let is_done = !self.direction.is_claimed();
        if is_done {
            self.is_reset[end].store(true, Ordering::Relaxed);
            self.devices[end].finish_reset();
        }
        is_done
    }

    /// The receiver notifies its card.
    pub fn may_go_on(self: &Arc<Self>) -> bool {
        let words = Words(Arc::clone(self));
        self.direction.may_go_on(&self.devices[1], &words)
    }
}

/// What a step has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    Idle,
    Moved,
    Claimed,
    Other,
}

/// The memory of both guests, as a core sees it.
struct Words(Arc<Link>);

impl Words {
    /// A core uses the queue of `end`.
    fn check(&self, end: End) {
        let is_reset = &self.0.is_reset[index(end)];
        assert!(!is_reset.load(Ordering::Relaxed), "of a former life");
    }
}

impl Memories for Words {
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16> {
        Some(match at.0 - AVAILABLE {
            0 => 0,
            2 => self.0.available[index(end)].load(Ordering::Acquire),
            entry => (entry as u16 - 4) / 2,
        })
    }

    fn load64(&self, end: End, at: GuestAddr) -> Option<u64> {
        self.check(end);
        let flags = if end == End::Receiver { 2 } else { 0 };
        Some(match at.0 % 16 {
            0 => 0x1_0000,
            _ => BYTES | flags << 32,
        })
    }

    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()> {
        self.check(end);
        match at.0 - USED {
            0 => self.0.flags.store(value, Ordering::Release),
            _ => self.0.used[index(end)].store(value, Ordering::Release),
        }
        Some(())
    }

    fn store_pair(&mut self, end: End, _: GuestAddr, _: [u32; 2]) -> Option<()> {
        self.check(end);
        Some(())
    }

    fn read(&self, _: GuestAddr, _: &mut [u8]) -> Option<()> {
        self.check(End::Sender);
        Some(())
    }

    fn write(&mut self, end: End, _: GuestAddr, _: &[u8]) -> Option<()> {
        self.check(end);
        Some(())
    }

    fn copy(
        &mut self,
        _: GuestAddr,
        _: GuestAddr,
        bytes: u32,
        _: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        self.check(End::Receiver);
        Ok(bytes)
    }
}
