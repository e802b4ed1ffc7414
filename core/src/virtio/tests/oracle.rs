// SPDX-License-Identifier: MIT OR Apache-2.0
//! A second implementation of cards and of the move of a frame, with which the first one is compared. It was written from the
//! text of Virtio 1.2 (numbers in comments are its sections): split virtqueues (2.7), registers in memory (4.2.2), network
//! cards (5.1). It is simple and slow: whole chains are collected first, as a list of the addresses of their bytes.

use super::driver::{BASE, SIZE};
use crate::virtio::End;
use std::vec::Vec;

/// What the device offers (5.1.3, 6): `VIRTIO_NET_F_MAC`, `VIRTIO_NET_F_STATUS`; `VIRTIO_F_VERSION_1`.
const OFFERED: [u32; 2] = [1 << 5 | 1 << 16, 1 << 0];
const HEADER: usize = 12;
const MAX_FRAME: usize = 1518;
/// The largest number of descriptors of a queue, and of a chain (the project's own limits).
const MAX_QUEUE: u32 = 256;
pub const MAX_PARTS: usize = 24;
/// Longer buffers are as good as endless.
const ENOUGH: usize = 2048;

/// A queue, as its driver has set it up (4.2.2).
#[derive(Clone, Copy, Debug, Default)]
pub struct Queue {
    pub size: u32,
    pub is_ready: bool,
    /// Descriptor table, available ring (driver area), used ring (device area).
    pub areas: [u64; 3],
    /// Buffers that were taken from the available ring, and given back.
    pub done: u16,
}

impl Queue {
    pub fn is_usable(&self) -> bool {
        self.is_ready && self.size.is_power_of_two() && self.size <= MAX_QUEUE
    }
}

/// A card's registers.
#[derive(Clone, Debug, Default)]
pub struct Card {
    status: u32,
    accepted: [u32; 2],
    device_sel: u32,
    driver_sel: u32,
    queue_sel: u32,
    pub interrupts: u32,
    generation: u32,
    pub queues: [Queue; 2],
}

impl Card {
    /// 2.1: `DRIVER_OK` is set, neither `DEVICE_NEEDS_RESET` nor `FAILED` is.
    pub fn is_up(&self) -> bool {
        self.status & 4 != 0 && self.status & 0xc0 == 0
    }

    /// Table 4.1, all words that are read before the configuration.
    pub fn read(&self, offset: u64) -> u32 {
        let queue = self.queues.get(self.queue_sel as usize);
        match offset {
            0x000 => 0x7472_6976,
            0x004 => 2,
            0x008 => 1,
            0x00c => u32::from_le_bytes(*b"SPUM"),
            0x010 => OFFERED
                .get(self.device_sel as usize)
                .copied()
                .unwrap_or_default(),
            0x034 if queue.is_some() => MAX_QUEUE,
            0x044 => queue.map_or(0, |queue| queue.is_ready.into()),
            0x060 => self.interrupts,
            0x070 => self.status,
            // There is no shared memory: its length is -1.
            0x0b0 | 0x0b4 => u32::MAX,
            0x0fc => self.generation,
            _ => 0,
        }
    }

    pub fn write(&mut self, offset: u64, value: u32) {
        match offset {
            0x014 => self.device_sel = value,
            0x020 => {
                if let Some(word) = self.accepted.get_mut(self.driver_sel as usize) {
                    *word = value;
                }
            }
            0x024 => self.driver_sel = value,
            0x030 => self.queue_sel = value,
            0x064 => self.interrupts &= !value,
            0x070 if value == 0 => self.reset(),
            0x070 => self.write_status(value),
            _ => {
                if let Some(queue) = self.queues.get_mut(self.queue_sel as usize) {
                    write_queue(queue, offset, value);
                }
            }
        }
    }

    /// 2.2.2: the device refuses `FEATURES_OK` if it does not offer a feature, or `VERSION_1` (6.1) is missing.
    fn write_status(&mut self, value: u32) {
        let is_offered = (0..2).all(|half| self.accepted[half] & !OFFERED[half] == 0);
        let refused = match is_offered && self.accepted[1] & 1 != 0 {
            true => 0,
            false => 4 | 8,
        };
        let needs_reset = self.status & 64;
        self.status = value & 0xbf & !refused | needs_reset;
    }

    /// A reset begins: the card is down, the rest follows.
    pub fn go_down(&mut self) {
        self.status = 0;
    }

    pub fn reset(&mut self) {
        *self = Self::default();
    }

    /// 2.1.2: the device cannot go on.
    pub fn needs_reset(&mut self) {
        self.status |= 64;
        self.configuration_changed();
    }

    /// 4.2.2: the generation is another one whenever the configuration may be.
    pub fn configuration_changed(&mut self) {
        self.generation += 1;
        self.interrupts |= 2;
    }
}

fn write_queue(queue: &mut Queue, offset: u64, value: u32) {
    match offset {
        0x038 => queue.size = value,
        0x044 => queue.is_ready = value & 1 == 1,
        0x080 | 0x084 | 0x090 | 0x094 | 0x0a0 | 0x0a4 => {
            let area = &mut queue.areas[(offset as usize - 0x80) / 0x10];
            let shift = 8 * (offset & 4);
            *area = *area & !(0xffff_ffff << shift) | u64::from(value) << shift;
        }
        _ => {}
    }
}

/// What a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Idle,
    /// A frame waits for a buffer.
    Waits,
    /// A frame was moved or dropped.
    Done,
    /// One of these ends has broken the rules. If both have, either may be found first.
    Broken(Vec<End>),
}

#[derive(Clone, Debug)]
pub struct Verdict {
    pub what: What,
    /// Which ends are to be told of a used buffer.
    pub interrupts: [bool; 2],
    /// Places of the receiver of which nothing is said.
    pub undefined: Vec<u64>,
    /// The drivers of these ends break the rules in descriptors that the device need not read: those behind the end of a frame, and
    /// those of a dropped frame. The device may report that or not.
    pub may_break: Vec<End>,
}

struct Bad;

/// Both cards, and what both guests have in memory.
#[derive(Default)]
pub struct Oracle {
    pub cards: [Card; 2],
    pub memory: [Vec<u8>; 2],
    /// The receiver is asked to notify the card: a frame waits for a buffer.
    pub asks: bool,
}

impl Oracle {
    fn get(&self, end: usize, at: u64, bytes: usize) -> Result<u64, Bad> {
        let is_aligned = at.is_multiple_of(bytes as u64);
        if !is_aligned || (0..bytes as u64).any(|byte| !is_inside(at.wrapping_add(byte))) {
            return Err(Bad);
        }
        let place = (at - BASE) as usize;
        let bytes = &self.memory[end][place..][..bytes];
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |all, &byte| all << 8 | u64::from(byte)))
    }

    fn put(&mut self, end: usize, at: u64, bytes: &[u8]) -> Result<(), Bad> {
        if (0..bytes.len() as u64).any(|byte| !is_inside(at.wrapping_add(byte))) {
            return Err(Bad);
        }
        self.memory[end][(at - BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn queue(&self, end: usize) -> Option<Queue> {
        // 5.1.2: queue 0 receives, queue 1 transmits.
        let queue = self.cards[end].queues[1 - end];
        (self.cards[end].is_up() && queue.is_usable()).then_some(queue)
    }

    /// 2.7.6: the head of the next buffer in the available ring.
    fn next(&self, end: usize, queue: Queue) -> Result<Option<u64>, Bad> {
        let available = queue.areas[1];
        let index = self.get(end, available.wrapping_add(2), 2)? as u16;
        let waiting = index.wrapping_sub(queue.done);
        if waiting == 0 {
            return Ok(None);
        }
        if u32::from(waiting) > queue.size {
            return Err(Bad);
        }
        let entry = 4 + 2 * (u64::from(queue.done) % u64::from(queue.size));
        self.get(end, available.wrapping_add(entry), 2).map(Some)
    }

    /// 2.7.5: the places of the bytes of a chain; and whether it breaks no rule.
    fn chain(&self, end: usize, queue: Queue, head: u64) -> (Vec<u64>, bool) {
        let (mut bytes, mut number) = (Vec::new(), head);
        for _ in 0..MAX_PARTS.min(queue.size as usize) {
            if number >= u64::from(queue.size) {
                return (bytes, false);
            }
            let at = queue.areas[0].wrapping_add(16 * number);
            let (Ok(place), Ok(rest)) =
                (self.get(end, at, 8), self.get(end, at.wrapping_add(8), 8))
            else {
                return (bytes, false);
            };
            let flags = rest >> 32 & 0xffff;
            // `VIRTQ_DESC_F_WRITE` exactly in buffers for the device to write; no `INDIRECT`, nor anything unknown.
            if flags & !1 != [0, 2][end] {
                return (bytes, false);
            }
            let length = (rest & 0xffff_ffff).min(ENOUGH as u64);
            bytes.extend((0..length).map(|byte| place.wrapping_add(byte)));
            if flags & 1 == 0 {
                return (bytes, true);
            }
            number = rest >> 48;
        }
        (bytes, false)
    }

    /// 2.7.8: gives a buffer back. Returns whether the driver is to be told (2.7.7).
    fn give_back(
        &mut self,
        end: usize,
        queue: Queue,
        head: u64,
        bytes: usize,
    ) -> Result<bool, Bad> {
        let used = queue.areas[2];
        let entry = 4 + 8 * (u64::from(queue.done) % u64::from(queue.size));
        let element = head | (bytes as u64) << 32;
        self.put(end, used.wrapping_add(entry), &element.to_le_bytes())?;
        let done = queue.done.wrapping_add(1);
        self.put(end, used.wrapping_add(2), &done.to_le_bytes())?;
        self.cards[end].queues[1 - end].done = done;
        Ok(self.get(end, queue.areas[1], 2)? & 1 == 0)
    }

    /// 2.7.10: `VIRTQ_USED_F_NO_NOTIFY` is clear while the device wants to be notified.
    fn ask(&mut self, queue: Queue, asks: bool) -> Result<(), Bad> {
        // A wish that cannot be written ends, and does not begin.
        self.asks &= asks;
        self.put(1, queue.areas[2], &u16::from(!asks).to_le_bytes())?;
        self.asks = asks;
        Ok(())
    }

    /// Moves one frame.
    pub fn step(&mut self) -> Verdict {
        let mut verdict = Verdict {
            what: What::Idle,
            interrupts: [false; 2],
            undefined: Vec::new(),
            may_break: Vec::new(),
        };
        verdict.what = match self.move_frame(&mut verdict) {
            Ok(what) => what,
            Err(end) => What::Broken([end].into()),
        };
        for (card, interrupt) in self.cards.iter_mut().zip(verdict.interrupts) {
            card.interrupts |= u32::from(interrupt);
        }
        verdict
    }

    fn move_frame(&mut self, verdict: &mut Verdict) -> Result<What, End> {
        let of_sender = |_| End::Sender;
        let of_receiver = |_| End::Receiver;
        let Some(sender) = self.queue(0) else {
            return Ok(What::Idle);
        };
        let Some(frame) = self.next(0, sender).map_err(of_sender)? else {
            return Ok(What::Idle);
        };
        let Some(receiver) = self.queue(1) else {
            verdict.interrupts[0] = self.give_back(0, sender, frame, 0).map_err(of_sender)?;
            return Ok(What::Done);
        };
        let (source, is_source_good) = self.chain(0, sender, frame);
        let Some(content) = source.get(HEADER..) else {
            // Shorter than a header: it is dropped, whether the receiver has a buffer or not.
            if !is_source_good {
                return Err(End::Sender);
            }
            verdict.interrupts[0] = self.give_back(0, sender, frame, 0).map_err(of_sender)?;
            return Ok(What::Done);
        };
        let Some(buffer) = self.next(1, receiver).map_err(of_receiver)? else {
            self.ask(receiver, true).map_err(of_receiver)?;
            return Ok(What::Waits);
        };
        if self.asks {
            self.ask(receiver, false).map_err(of_receiver)?;
        }
        let (target, is_target_good) = self.chain(1, receiver, buffer);
        let room = target.len().checked_sub(HEADER);
        let fits = room.is_some_and(|room| content.len() <= room.min(MAX_FRAME));
        let needed = (HEADER + content.len()).min(HEADER + MAX_FRAME);
        let used = &target[..target.len().min(needed)];
        let are_inside = |places: &[u64]| places.iter().all(|&at| is_inside(at));
        // What is behind the frame need not be looked at, nor what does not fit; it may be.
        let mut bad = Vec::new();
        let must_break = fits && (!is_source_good || !are_inside(content));
        if must_break {
            bad.push(End::Sender);
        } else if !is_source_good || !are_inside(&source) {
            verdict.may_break.push(End::Sender);
        }
        let is_read_to_its_end = target.len() < needed;
        let must_break = !is_target_good && is_read_to_its_end || fits && !are_inside(used);
        if must_break {
            bad.push(End::Receiver);
        } else if !is_target_good || !are_inside(&target) {
            verdict.may_break.push(End::Receiver);
        }
        if !fits || !bad.is_empty() {
            verdict.undefined.clone_from(&target);
        }
        if !bad.is_empty() {
            return Ok(What::Broken(bad));
        }
        if fits {
            // 5.1.6.4.1: all of the header is zero but `num_buffers`, which is 1.
            let header = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
            let content: Vec<u8> = content
                .iter()
                .map(|at| self.memory[0][(at - BASE) as usize])
                .collect();
            for (at, byte) in target.iter().zip(header.into_iter().chain(content.clone())) {
                self.memory[1][(at - BASE) as usize] = byte;
            }
            let bytes = HEADER + content.len();
            verdict.interrupts[1] = self
                .give_back(1, receiver, buffer, bytes)
                .map_err(of_receiver)?;
        }
        verdict.interrupts[0] = self.give_back(0, sender, frame, 0).map_err(of_sender)?;
        Ok(What::Done)
    }

    /// Whether a notification of the receiver is to have the sender go on, if a frame of it waits: there is a buffer for
    /// it, or it is to be dropped.
    pub fn may_go_on(&self) -> bool {
        match self.queue(1) {
            Some(queue) => !matches!(self.next(1, queue), Ok(None)),
            None => true,
        }
    }
}

fn is_inside(at: u64) -> bool {
    (BASE..BASE + SIZE).contains(&at)
}
