// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory of two guests of which at least one is hostile: each read of that guest's memory returns another value, and its other
//! vCPUs write registers between any two reads.

use super::random::Random;
use super::walk::{HEADER, MAX_FRAME, Stage, Walk, Word};
use crate::virtio::registers::*;
use crate::virtio::tests::driver::{BASE, number};
use crate::virtio::tests::oracle::{Card, Queue};
use crate::virtio::{Device, Direction, Effect, End, Memories, STRETCH, Step};
use spumone_config::GuestAddr;
use std::cell::RefCell;
use std::vec::Vec;

/// Bytes of each guest.
pub const SIZE: u64 = 0x1_0000;
/// What `virtio_net_hdr` says (5.1.6).
const HEADER_BYTES: [u8; HEADER as usize] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];

/// The cards of the link.
pub struct Cards {
    pub devices: [Device; 2],
    pub direction: Direction,
}

/// What changes while memory is read.
pub struct Guests {
    pub random: Random,
    pub is_hostile: [bool; 2],
    pub bytes: [Vec<u8>; 2],
    /// The registers as they are to be.
    pub cards: [Card; 2],
    pub walks: [Walk; 2],
    /// The driver has reset its card during the step.
    pub resets: [bool; 2],
    /// In this step, hostile drivers write registers between any two reads.
    pub changes_registers: bool,
    /// In this step, chains of the hostile guests do not end.
    pub is_endless: bool,
    /// Accesses of the step.
    pub accesses: u32,
}

/// The memory of both guests.
pub struct Memory<'a> {
    pub cards: &'a Cards,
    pub guests: RefCell<Guests>,
}

fn place(at: GuestAddr, bytes: u64, alignment: u64) -> Option<usize> {
    let offset = at.0.checked_sub(BASE)?;
    let is_inside = offset.checked_add(bytes)? <= SIZE;
    (is_inside && at.0.is_multiple_of(alignment)).then_some(offset as usize)
}

impl Guests {
    pub fn start_step(&mut self, up: [Option<Queue>; 2]) {
        self.walks = [Walk::new(0, up[0]), Walk::new(1, up[1])];
        self.is_endless = self.random.once_in(64);
        self.accesses = 0;
    }

    fn word(&mut self, end: usize, word: Word, at: usize) -> u16 {
        if !self.is_hostile[end] {
            return u16::from_le_bytes([self.bytes[end][at], self.bytes[end][at + 1]]);
        }
        let queue = self.walks[end].queue();
        let (done, size) = (queue.done, queue.size as u16);
        let any = self.random.any() as u16;
        match (word, self.random.below(32)) {
            (Word::Flags, _) | (_, 0) => any,
            (Word::Index, 1..4) => done,
            (Word::Index, 4) => done.wrapping_add(size + 1),
            (Word::Index, 5) => done.wrapping_add(size),
            (Word::Index, _) => done.wrapping_add(1 + any % size),
            (Word::Entry, 1) => size,
            (Word::Entry, _) => any % size,
        }
    }

    fn half(&mut self, end: usize, is_first: bool, at: usize) -> u64 {
        if !self.is_hostile[end] {
            let bytes = &self.bytes[end][at..][..8];
            return bytes
                .iter()
                .rev()
                .fold(0, |all, &byte| all << 8 | u64::from(byte));
        }
        let random = &mut self.random;
        let any = random.any();
        let small = any >> 40 & 0x3f;
        if is_first {
            return match random.below(128) {
                0 => any,
                1 => (BASE + SIZE).wrapping_sub(small),
                2 => BASE - small,
                3 => u64::MAX - small,
                _ => BASE + any % (SIZE - 0x800),
            };
        }
        let length = match random.below(16) {
            0..2 => 0,
            2..6 => any & 0xf,
            6..12 => any & 0x1ff,
            12..15 => any & 0x7ff,
            _ => any & 0xffff_ffff,
        };
        let length = if self.is_endless {
            length & 0x1f
        } else {
            length
        };
        let goes_on = self.is_endless || !random.once_in(4);
        let flags = match random.below(128) {
            0 => any >> 48,
            _ => [0, 2][end] | u64::from(goes_on),
        };
        let size = self.walks[end].queue().size.into();
        let next = match random.below(128) {
            0 => any >> 32 & 0xffff,
            _ => random.below(size),
        };
        length | flags << 32 | next << 48
    }

    /// Another vCPU of a hostile guest writes a register.
    pub fn meddle(&mut self, end: usize, cards: &Cards) {
        let random = &mut self.random;
        let (offset, value) = match random.below(8) {
            0 => (STATUS, random.one_of(&[0, 3, 15, 15, 0x4f, 0x8f, 0x100])),
            1 => (QUEUE_NUM, 1 << random.below(10)),
            2 => (QUEUE_READY, random.below(4) as u32),
            3 => (
                random.one_of(&[QUEUE_SEL, QUEUE_SEL, DRIVER_FEATURES]),
                random.below(3) as u32,
            ),
            4 => (INTERRUPT_ACK, random.below(4) as u32),
            5 => (QUEUE_NOTIFY, random.below(3) as u32),
            _ => {
                let area = random.one_of(&[QUEUE_DESC_LOW, QUEUE_DRIVER_LOW, QUEUE_DEVICE_LOW]);
                match random.below(8) {
                    0 => (area + 4, random.one_of(&[0, 0, u32::MAX])),
                    _ => (area, some_area(random) as u32),
                }
            }
        };
        match cards.devices[end].write(offset, value) {
            Effect::Reset => {
                self.resets[end] = true;
                self.cards[end].go_down();
            }
            _ => self.cards[end].write(offset, value),
        }
    }

    /// Something happens between two reads.
    fn meanwhile(&mut self, cards: &Cards) {
        assert!(cards.direction.is_claimed());
        let end = self.random.below(2) as usize;
        if self.is_hostile[end] && self.changes_registers {
            self.meddle(end, cards);
        }
        let [from, to] = &cards.devices;
        let step = cards
            .direction
            .step(from, to, &mut OnlyWords(None), || true);
        assert_eq!(step, Step::Claimed, "two cores move frames");
        let _ = cards
            .direction
            .may_go_on(to, &OnlyWords(Some(self.random.any() as u16)));
    }
}

/// Where an area of a queue is: anywhere, in most cases so that accesses are aligned, and inside.
pub fn some_area(random: &mut Random) -> u64 {
    let any = random.any();
    match random.below(64) {
        0 => any,
        1 => BASE + SIZE - (any & 0x3f),
        2 => BASE - (any & 0x3f),
        3 => u64::MAX - (any & 0xff),
        _ => BASE + ((any % (SIZE - 0x1000)) & !7),
    }
}

impl Memory<'_> {
    fn read(&self) -> core::cell::RefMut<'_, Guests> {
        let mut guests = self.guests.borrow_mut();
        guests.accesses += 1;
        if guests.random.once_in(32) {
            guests.meanwhile(self.cards);
        }
        guests
    }

    /// Notes whether these bytes may be accessed; else their guest has broken a rule.
    fn check(walk: &mut Walk, place: Option<usize>) -> Option<usize> {
        walk.is_broken |= place.is_none();
        place
    }
}

impl Memories for Memory<'_> {
    fn load16(&self, end: End, at: GuestAddr) -> Option<u16> {
        let guests = &mut *self.read();
        let end = number(end);
        let word = guests.walks[end].available_word(at.0);
        if word == Word::Flags {
            assert_eq!(guests.walks[end].stage, Stage::Index);
        }
        let place = Self::check(&mut guests.walks[end], place(at, 2, 2))?;
        let value = guests.word(end, word, place);
        let most_reads = [1, 2][end];
        guests.walks[end].read_word(word, value, most_reads);
        Some(value)
    }

    fn load64(&self, end: End, at: GuestAddr) -> Option<u64> {
        let guests = &mut *self.read();
        let end = number(end);
        let is_first = guests.walks[end].is_first_half(at.0);
        let place = Self::check(&mut guests.walks[end], place(at, 8, 8))?;
        let value = guests.half(end, is_first, place);
        guests.walks[end].read_half(value);
        Some(value)
    }

    fn store16(&mut self, end: End, at: GuestAddr, value: u16) -> Option<()> {
        let guests = self.guests.get_mut();
        guests.accesses += 1;
        let end = number(end);
        let walk = &mut guests.walks[end];
        let offset = at.0 - walk.queue().areas[2];
        let place = Self::check(walk, place(at, 2, 2))?;
        match offset {
            // Whether the device wants to be notified: exactly while there is no buffer.
            0 => {
                assert_eq!((end, walk.stage), (1, Stage::Taken));
                assert_eq!(value == 0, walk.waiting == Some(0));
                assert!(value <= 1);
            }
            2 => walk.write_index(value),
            _ => panic!("no word of the used ring that is written"),
        }
        guests.bytes[end][place..][..2].copy_from_slice(&value.to_le_bytes());
        Some(())
    }

    fn store_pair(&mut self, end: End, at: GuestAddr, pair: [u32; 2]) -> Option<()> {
        let guests = self.guests.get_mut();
        guests.accesses += 1;
        let [sender, receiver] = &guests.walks;
        let end = number(end);
        match end {
            1 => {
                assert!(sender.has_ended(), "only a part of the frame was moved");
                assert_eq!(u64::from(sender.done.max(HEADER)), sender.total);
                assert_eq!(receiver.done, sender.done.max(HEADER));
            }
            _ if receiver.waiting == Some(0) => {
                // It had a queue, which has gone while it had no buffer.
                let queue = self.cards.devices[1].receive_ring();
                assert!(queue.is_none(), "a frame is lost");
            }
            _ => assert_frame_is_done(sender, receiver),
        }
        let written = [0, receiver.done][end];
        let walk = &mut guests.walks[end];
        walk.write_element(at.0, pair, written);
        let place = Self::check(walk, place(at, 8, 4))?;
        for (index, word) in pair.into_iter().enumerate() {
            guests.bytes[end][place + 4 * index..][..4].copy_from_slice(&word.to_le_bytes());
        }
        Some(())
    }

    fn read(&self, _: GuestAddr, _: &mut [u8]) -> Option<()> {
        unreachable!("a frame's bytes are not looked at")
    }

    fn write(&mut self, end: End, at: GuestAddr, bytes: &[u8]) -> Option<()> {
        assert_eq!(end, End::Receiver);
        let guests = self.guests.get_mut();
        guests.accesses += 1;
        let walk = &mut guests.walks[1];
        walk.expect(at.0, bytes.len() as u32);
        assert_eq!(bytes, &HEADER_BYTES[walk.done as usize..][..bytes.len()]);
        let place = Self::check(walk, place(at, bytes.len() as u64, 1))?;
        walk.advance(bytes.len() as u32);
        guests.bytes[1][place..][..bytes.len()].copy_from_slice(bytes);
        Some(())
    }

    fn copy(
        &mut self,
        from: GuestAddr,
        to: GuestAddr,
        most: u32,
        mut stops: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        let mut bytes = most.min(STRETCH);
        while bytes < most && !stops() {
            bytes = most.min(bytes + STRETCH);
        }
        let guests = self.guests.get_mut();
        guests.accesses += 1;
        let [sender, receiver] = &mut guests.walks;
        sender.skip_header();
        sender.expect(from.0, bytes);
        receiver.expect(to.0, bytes);
        assert!(receiver.done >= HEADER && receiver.done == sender.done);
        let source = Self::check(sender, place(from, bytes.into(), 1)).ok_or(End::Sender)?;
        let target = Self::check(receiver, place(to, bytes.into(), 1)).ok_or(End::Receiver)?;
        sender.advance(bytes);
        receiver.advance(bytes);
        assert!(receiver.done <= HEADER + MAX_FRAME);
        let [theirs, ours] = &mut guests.bytes;
        let count = bytes as usize;
        ours[target..][..count].copy_from_slice(&theirs[source..][..count]);
        Ok(bytes)
    }
}

/// A frame that the receiver has not got must be one that is to be dropped.
fn assert_frame_is_done(sender: &Walk, receiver: &Walk) {
    if receiver.queue.is_none() || matches!(receiver.stage, Stage::Done(_)) {
        return;
    }
    let header = u64::from(HEADER);
    let is_short = sender.has_ended() && sender.total < header;
    let is_large = sender.total > header + u64::from(MAX_FRAME);
    let has_no_room = receiver.has_ended() && receiver.total < sender.total.max(header);
    assert!(is_short || is_large || has_no_room, "a frame is lost");
    assert_eq!(receiver.stage, Stage::Taken);
}

/// Memory of which only words of rings may be read, each with this value; `None`: nothing may be touched.
pub struct OnlyWords(pub Option<u16>);

impl Memories for OnlyWords {
    fn load16(&self, _: End, _: GuestAddr) -> Option<u16> {
        assert!(self.0.is_some(), "memory is touched");
        self.0
    }
    fn load64(&self, _: End, _: GuestAddr) -> Option<u64> {
        unreachable!()
    }
    fn store16(&mut self, _: End, _: GuestAddr, _: u16) -> Option<()> {
        unreachable!()
    }
    fn store_pair(&mut self, _: End, _: GuestAddr, _: [u32; 2]) -> Option<()> {
        unreachable!()
    }
    fn read(&self, _: GuestAddr, _: &mut [u8]) -> Option<()> {
        unreachable!()
    }
    fn write(&mut self, _: End, _: GuestAddr, _: &[u8]) -> Option<()> {
        unreachable!()
    }
    fn copy(
        &mut self,
        _: GuestAddr,
        _: GuestAddr,
        _: u32,
        _: impl FnMut() -> bool,
    ) -> Result<u32, End> {
        unreachable!()
    }
}
