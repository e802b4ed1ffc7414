// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of two guests, and a driver as Linux's; it can also break the rules.

use crate::virtio::link_for_tests::NETWORK_CARD;
use crate::virtio::registers::*;
use crate::virtio::{Device, Direction, End, Kind, Memories, STRETCH, Step};
use spumone_config::GuestAddr;
use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::vec;
use std::vec::Vec;

/// Where the memory of each guest begins, and its size.
pub const BASE: u64 = 0x4000_0000;
pub const SIZE: u64 = 0x4_0000;

/// The queues of a driver.
pub const RECEIVE: u32 = 0;
pub const TRANSMIT: u32 = 1;

/// Areas of a queue, and where buffers begin.
pub const DESCRIPTORS: u64 = BASE;
pub const AVAILABLE: u64 = BASE + 0x2000;
pub const USED: u64 = BASE + 0x3000;
pub const BUFFERS: u64 = BASE + 0x8000;
const QUEUE_AREAS: u64 = 0x4000;
/// Bytes in which buffers begin.
const BUFFERS_SIZE: u64 = 0x2_8000;
/// The areas of the second queue of a guest are so far behind those of the first one, and its buffers are here.
pub const SECOND: u64 = 0x3_C000;
const SECOND_BUFFERS: u64 = BASE + 0x3_4000;
const SECOND_BUFFERS_SIZE: u64 = 0x6000;

/// The memory of both guests.
pub struct Memory {
    pub of: [Vec<u8>; 2],
    /// Accesses so far, reads among them.
    pub accesses: Rc<Cell<usize>>,
}

pub fn number(end: End) -> usize {
    match end {
        End::Sender => 0,
        End::Receiver => 1,
    }
}

impl Memory {
    pub fn new() -> Self {
        Self {
            of: [vec![0; SIZE as usize], vec![0; SIZE as usize]],
            accesses: Rc::default(),
        }
    }

    /// Where these bytes are, of which one access is made.
    fn place(&self, at: GuestAddr, bytes: u64, alignment: u64) -> Option<usize> {
        self.accesses.set(self.accesses.get() + 1);
        let offset = at.0.checked_sub(BASE)?;
        let is_inside = offset.checked_add(bytes)? <= SIZE;
        (is_inside && at.0.is_multiple_of(alignment)).then_some(offset as usize)
    }

    pub fn bytes(&self, end: End, at: u64, bytes: usize) -> &[u8] {
        &self.of[number(end)][(at - BASE) as usize..][..bytes]
    }

    pub fn write(&mut self, end: End, at: u64, bytes: &[u8]) {
        self.of[number(end)][(at - BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    fn store(&mut self, end: End, at: GuestAddr, bytes: &[u8]) -> Option<()> {
        let place = self.place(at, bytes.len() as u64, bytes.len() as u64)?;
        self.of[number(end)][place..][..bytes.len()].copy_from_slice(bytes);
        Some(())
    }
}

impl Memories for Memory {
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16> {
        let place = self.place(at, 2, 2)?;
        let bytes = self.of[number(end)][place..][..2].try_into().ok()?;
        Some(u16::from_le_bytes(bytes))
    }

    fn load64(&self, end: End, at: GuestAddr) -> Option<u64> {
        let place = self.place(at, 8, 8)?;
        let bytes = self.of[number(end)][place..][..8].try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()> {
        self.store(end, at, &value.to_le_bytes())
    }

    fn store_pair(&mut self, end: End, at: GuestAddr, pair: [u32; 2]) -> Option<()> {
        let value = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        let place = self.place(at, 8, 4)?;
        self.of[number(end)][place..][..8].copy_from_slice(&value.to_le_bytes());
        Some(())
    }

    fn read(&self, at: GuestAddr, into: &mut [u8]) -> Option<()> {
        let place = self.place(at, into.len() as u64, 1)?;
        into.copy_from_slice(&self.of[0][place..][..into.len()]);
        Some(())
    }

    fn write(&mut self, end: End, at: GuestAddr, bytes: &[u8]) -> Option<()> {
        let place = self.place(at, bytes.len() as u64, 1)?;
        self.of[number(end)][place..][..bytes.len()].copy_from_slice(bytes);
        Some(())
    }

    fn copy(
        &mut self,
        from: GuestAddr,
        to: GuestAddr,
        bytes: u32,
        mut stops: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        let from = self.place(from, bytes.into(), 1).ok_or(End::Sender)?;
        let to = self.place(to, bytes.into(), 1).ok_or(End::Receiver)?;
        let [sender, receiver] = &mut self.of;
        let mut done = 0;
        loop {
            let next = STRETCH.min(bytes - done) as usize;
            let (from, to) = (from + done as usize, to + done as usize);
            receiver[to..][..next].copy_from_slice(&sender[from..][..next]);
            done += next as u32;
            if stops() || done == bytes {
                return Ok(done);
            }
        }
    }
}

/// Two cards, and the direction from the first one to the second.
pub struct Link {
    pub memory: Memory,
    pub devices: [Device; 2],
    pub direction: Direction,
}

impl Link {
    /// Two network cards.
    pub fn new() -> Self {
        Self::between([NETWORK_CARD; 2])
    }

    /// Two devices of these kinds.
    pub fn between(kinds: [Kind; 2]) -> Self {
        Self {
            memory: Memory::new(),
            devices: kinds.map(Device::new),
            direction: Direction::new(),
        }
    }

    /// A step that does not pause.
    pub fn step(&mut self) -> Step {
        self.step_until(|| false)
    }

    /// A step that pauses after its first piece of work. One that pauses before that changes nothing.
    pub fn short_step(&mut self) -> Step {
        let before = self.memory.accesses.get();
        let _ = self.step_until(|| true);
        assert_eq!(self.memory.accesses.get(), before, "it has not paused");
        self.step_until(after_a_piece(true))
    }

    /// Steps that pause after their first piece of work, until there is nothing to do.
    pub fn short_steps(&mut self) {
        while let Step::Moved { .. } = self.short_step() {}
    }

    pub fn step_until(&mut self, pause: impl FnMut() -> bool) -> Step {
        let [from, to] = &self.devices;
        self.direction.step(from, to, &mut self.memory, pause)
    }

    pub fn may_go_on(&self) -> bool {
        self.direction.may_go_on(&self.devices[1], &self.memory)
    }
}

/// The driver of one queue of a card.
pub struct Driver {
    end: End,
    queue: u32,
    /// How far its areas are behind those of the first queue.
    offset: u64,
    size: u16,
    /// Descriptors that are free.
    free: VecDeque<u16>,
    next_available: u16,
    next_used: u16,
    next_buffer: u64,
    /// The parts of each buffer that the device has, by its first descriptor.
    buffers: Vec<Option<Vec<(u16, u64, u32)>>>,
    /// The descriptors of the buffer that was made available last.
    last: Vec<u16>,
    /// The device was told another size of the queue: what it gives back is found at other places.
    pub is_misled: bool,
}

/// What a driver does against the rules.
#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// More buffers are available than there are descriptors.
    Index,
    /// The first descriptor is none.
    Head,
    /// The first descriptor is empty, and its own next one.
    Circle,
    /// The first descriptor is empty, and the next one is none.
    Next,
    Indirect,
    /// The device is to write what it reads, or to read what it writes.
    Way,
    /// The last part is at this place.
    Place(u64),
}

impl Driver {
    /// Sets the card of this guest up for one queue.
    pub fn start(link: &mut Link, end: End, size: u16) -> Self {
        let device = &link.devices[number(end)];
        for (register, value) in Self::registers(device.kind(), end, size) {
            let _ = device.write(register, value);
            if (register, value) == (STATUS, 0) {
                device.finish_reset();
            }
        }
        assert!(device.is_up());
        Self::new(link, end, size)
    }

    /// The registers that a driver writes for one queue of this many descriptors.
    pub fn registers(kind: Kind, end: End, size: u16) -> [(u64, u32); 15] {
        [
            (STATUS, 0),
            (STATUS, 1),
            (STATUS, 3),
            (DRIVER_FEATURES_SEL, 0),
            (DRIVER_FEATURES, kind.features() as u32),
            (DRIVER_FEATURES_SEL, 1),
            (DRIVER_FEATURES, 1),
            (STATUS, 11),
            (QUEUE_SEL, Self::queue_of(end)),
            (QUEUE_NUM, size.into()),
            (QUEUE_DESC_LOW, DESCRIPTORS as u32),
            (QUEUE_DRIVER_LOW, AVAILABLE as u32),
            (QUEUE_DEVICE_LOW, USED as u32),
            (QUEUE_READY, 1),
            (STATUS, 15),
        ]
    }

    fn queue_of(end: End) -> u32 {
        match end {
            End::Sender => TRANSMIT,
            End::Receiver => RECEIVE,
        }
    }

    /// A driver whose card is set up; clears its rings.
    pub fn new(link: &mut Link, end: End, size: u16) -> Self {
        link.memory.of[number(end)][..QUEUE_AREAS as usize].fill(0);
        Self {
            end,
            queue: Self::queue_of(end),
            offset: 0,
            size,
            free: (0..size).collect(),
            next_available: 0,
            next_used: 0,
            next_buffer: 0,
            buffers: vec![None; size.into()],
            last: Vec::new(),
            is_misled: false,
        }
    }

    /// The driver of the other queue of frames of a card that has started.
    pub fn second(link: &mut Link, end: End, size: u16) -> Self {
        let queue = match end {
            End::Sender => RECEIVE,
            End::Receiver => TRANSMIT,
        };
        let device = &link.devices[number(end)];
        for (register, value) in [
            (QUEUE_SEL, queue),
            (QUEUE_NUM, size.into()),
            (QUEUE_DESC_LOW, (DESCRIPTORS + SECOND) as u32),
            (QUEUE_DRIVER_LOW, (AVAILABLE + SECOND) as u32),
            (QUEUE_DEVICE_LOW, (USED + SECOND) as u32),
            (QUEUE_READY, 1),
        ] {
            let _ = device.write(register, value);
        }
        link.memory.of[number(end)][SECOND as usize..].fill(0);
        let buffers = vec![None; size.into()];
        Self {
            end,
            queue,
            offset: SECOND,
            size,
            free: (0..size).collect(),
            next_available: 0,
            next_used: 0,
            next_buffer: 0,
            buffers,
            last: Vec::new(),
            is_misled: false,
        }
    }

    /// Breaks a rule in the buffer that was made available last.
    pub fn spoil(&mut self, link: &mut Link, fault: Fault) {
        let (Some(&first), Some(&last)) = (self.last.first(), self.last.last()) else {
            return;
        };
        let [first, last] = [first, last].map(|it| self.offset + DESCRIPTORS + 16 * u64::from(it));
        let write = if self.queue == RECEIVE { 2 } else { 0 };
        let entry = self.offset
            + AVAILABLE
            + 4
            + 2 * u64::from(self.next_available.wrapping_sub(1) % self.size);
        match fault {
            Fault::Index => self.write16(
                link,
                self.offset + AVAILABLE + 2,
                self.next_used + self.size + 1,
            ),
            Fault::Head => self.write16(link, entry, self.size),
            Fault::Circle => {
                self.write16(link, first + 14, self.last[0]);
                self.write16(link, first + 12, 1 | write);
                link.memory.write(self.end, first + 8, &[0; 4]);
            }
            Fault::Next => {
                self.write16(link, first + 14, self.size);
                self.write16(link, first + 12, 1 | write);
                link.memory.write(self.end, first + 8, &[0; 4]);
            }
            Fault::Indirect => self.write16(link, first + 12, 4 | write),
            Fault::Way => self.write16(link, first + 12, 2 - write),
            Fault::Place(at) => link.memory.write(self.end, last, &at.to_le_bytes()),
        }
    }

    pub fn queue(&self) -> u32 {
        self.queue
    }

    fn write16(&self, link: &mut Link, at: u64, value: u16) {
        link.memory.write(self.end, at, &value.to_le_bytes());
    }

    fn read16(&self, link: &Link, at: u64) -> u16 {
        u16::from_le_bytes(link.memory.bytes(self.end, at, 2).try_into().unwrap())
    }

    /// Whether the device wants to be notified.
    pub fn must_notify(&self, link: &Link) -> bool {
        self.read16(link, self.offset + USED) == 0
    }

    /// Buffers that the device has given back so far.
    pub fn used(&self, link: &Link) -> u16 {
        self.read16(link, self.offset + USED + 2)
    }

    /// Whether the driver wants interrupts.
    pub fn want_interrupts(&self, link: &mut Link, wants: bool) {
        self.write16(link, self.offset + AVAILABLE, u16::from(!wants));
    }

    /// Makes a buffer of parts with these sizes available, with these bytes in it. `false`: there is no room.
    pub fn add(&mut self, link: &mut Link, sizes: &[u32], content: &[u8]) -> bool {
        if self.free.len() < sizes.len() {
            return false;
        }
        let mut parts = Vec::new();
        let mut rest = content;
        for &bytes in sizes {
            let number = self.free.pop_front().unwrap();
            let (buffers, size) = match self.offset {
                0 => (BUFFERS, BUFFERS_SIZE),
                _ => (SECOND_BUFFERS, SECOND_BUFFERS_SIZE),
            };
            let at = buffers + self.next_buffer;
            self.next_buffer = (self.next_buffer + u64::from(bytes) + 3) % size;
            let here = rest.len().min(bytes as usize);
            link.memory.write(self.end, at, &rest[..here]);
            rest = &rest[here..];
            parts.push((number, at, bytes));
        }
        assert!(rest.is_empty());
        let write = if self.queue == RECEIVE { 2 } else { 0 };
        for (index, &(number, at, bytes)) in parts.iter().enumerate() {
            let next = parts.get(index + 1);
            let flags = write | u16::from(next.is_some());
            let descriptor = self.offset + DESCRIPTORS + 16 * u64::from(number);
            link.memory.write(self.end, descriptor, &at.to_le_bytes());
            link.memory
                .write(self.end, descriptor + 8, &bytes.to_le_bytes());
            self.write16(link, descriptor + 12, flags);
            self.write16(link, descriptor + 14, next.map_or(0, |it| it.0));
        }
        let first = parts[0].0;
        self.last = parts.iter().map(|it| it.0).collect();
        self.buffers[usize::from(first)] = Some(parts);
        let entry = self.offset + AVAILABLE + 4 + 2 * u64::from(self.next_available % self.size);
        self.write16(link, entry, first);
        self.next_available = self.next_available.wrapping_add(1);
        self.write16(link, self.offset + AVAILABLE + 2, self.next_available);
        true
    }

    /// Takes back a buffer that the device has used; returns the bytes that the device has written. `None`: there is none, or
    /// it was none of the driver (which has broken a rule before).
    pub fn take(&mut self, link: &Link) -> Option<Vec<u8>> {
        if self.read16(link, self.offset + USED + 2) == self.next_used {
            return None;
        }
        let entry = self.offset + USED + 4 + 8 * u64::from(self.next_used % self.size);
        let element = link.memory.bytes(self.end, entry, 8);
        let word = |at: usize| u32::from_le_bytes(element[at..][..4].try_into().unwrap());
        let (first, mut left) = (word(0) as usize, word(4));
        self.next_used = self.next_used.wrapping_add(1);
        let parts = self.buffers.get_mut(first)?.take()?;
        let mut content = Vec::new();
        for (number, at, bytes) in parts {
            self.free.push_back(number);
            let here = bytes.min(left);
            content.extend_from_slice(link.memory.bytes(self.end, at, here as usize));
            left -= here;
        }
        assert!(
            left == 0 || self.is_misled,
            "more was written than the buffer holds"
        );
        Some(content)
    }
}

/// Has a step do its first piece of work, and pause then, or not at all.
pub fn after_a_piece(pauses: bool) -> impl FnMut() -> bool {
    let mut is_after = false;
    move || core::mem::replace(&mut is_after, true) && pauses
}
