// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a step may do to the memory of one guest. The values that the step has read so far determine its next access; any other
//! access is a failure. So a value that the step reads twice, or uses without a check, shows at once.

use crate::virtio::tests::oracle::{MAX_PARTS, Queue};

/// Bytes of a header, and of the largest frame.
pub const HEADER: u32 = 12;
pub const MAX_FRAME: u32 = 1518;

/// How far a buffer is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Taken,
    Element,
    Index,
    /// The driver's wish for an interrupt was read.
    Done(bool),
}

/// One guest's memory in one step.
#[derive(Clone, Debug)]
pub struct Walk {
    /// The queue as it was at the beginning of the step; `None`: it must not be touched.
    pub queue: Option<Queue>,
    /// Bits that the flags of each descriptor must have, and must not have.
    write: u16,
    /// Buffers that are available, as the index said that was read last; and how often it was read.
    pub waiting: Option<u16>,
    index_reads: u32,
    /// The first descriptor.
    pub head: Option<u16>,
    /// The descriptor that is to be read next, and the address that was read from its first half.
    next: Option<u16>,
    place: Option<u64>,
    parts: [(u64, u32); MAX_PARTS],
    count: usize,
    /// The part at which the walk is, and its bytes that are done.
    part: usize,
    offset: u32,
    /// Bytes of all parts so far, and those that are done.
    pub total: u64,
    pub done: u32,
    pub stage: Stage,
    /// The driver has broken a rule: nothing may be accessed any more.
    pub is_broken: bool,
}

impl Walk {
    pub fn new(end: usize, queue: Option<Queue>) -> Self {
        Self {
            queue,
            write: [0, 2][end],
            waiting: None,
            index_reads: 0,
            head: None,
            next: None,
            place: None,
            parts: [(0, 0); MAX_PARTS],
            count: 0,
            part: 0,
            offset: 0,
            total: 0,
            done: 0,
            stage: Stage::Taken,
            is_broken: false,
        }
    }

    pub fn queue(&self) -> Queue {
        assert!(!self.is_broken, "an access after a rule was broken");
        self.queue.expect("the card is down")
    }

    fn limit(&self) -> usize {
        MAX_PARTS.min(self.queue().size as usize)
    }

    pub fn has_ended(&self) -> bool {
        self.count > 0 && self.next.is_none()
    }

    /// Which word of the available ring this is.
    pub fn available_word(&self, at: u64) -> Word {
        let queue = self.queue();
        match at - queue.areas[1] {
            0 => Word::Flags,
            2 => Word::Index,
            offset => {
                let slot = u64::from(queue.done) % u64::from(queue.size);
                assert_eq!(offset, 4 + 2 * slot, "no word of the available ring");
                Word::Entry
            }
        }
    }

    /// A word of the available ring was read.
    pub fn read_word(&mut self, word: Word, value: u16, most_reads: u32) {
        let queue = self.queue();
        match word {
            Word::Flags => {
                assert_eq!(self.stage, Stage::Index, "the wish is read last");
                self.stage = Stage::Done(value & 1 == 0);
            }
            Word::Index => {
                self.index_reads += 1;
                assert!(self.index_reads <= most_reads, "the index is read again");
                assert!(matches!(self.waiting, None | Some(0)));
                let waiting = value.wrapping_sub(queue.done);
                self.waiting = Some(waiting);
                self.is_broken = u32::from(waiting) > queue.size;
            }
            Word::Entry => {
                assert!(self.waiting.is_some_and(|it| it > 0), "nothing is there");
                assert_eq!(self.head, None, "the entry is read again");
                self.head = Some(value);
                self.next = Some(value);
            }
        }
    }

    /// Whether the next half of a descriptor is here; `true`: the first half.
    pub fn is_first_half(&self, at: u64) -> bool {
        let queue = self.queue();
        let next = self.next.expect("no descriptor is to be read");
        assert!(u32::from(next) < queue.size, "no descriptor of the table");
        assert!(self.count < self.limit(), "the chain is too long");
        let half = if self.place.is_some() { 8 } else { 0 };
        assert_eq!(at - queue.areas[0], 16 * u64::from(next) + half);
        half == 0
    }

    pub fn read_half(&mut self, value: u64) {
        let Some(place) = self.place.take() else {
            self.place = Some(value);
            return;
        };
        let (flags, next) = ((value >> 32) as u16, (value >> 48) as u16);
        self.is_broken = flags & !1 != self.write;
        self.parts[self.count] = (place, value as u32);
        self.count += 1;
        self.total += value & 0xffff_ffff;
        self.next = (flags & 1 != 0).then_some(next);
    }

    /// Where the next byte of the buffer is, and how many follow in the same part.
    fn position(&mut self) -> (u64, u32) {
        while self.part < self.count && self.offset == self.parts[self.part].1 {
            self.part += 1;
            self.offset = 0;
        }
        assert!(self.part < self.count, "behind what was read of the chain");
        let (at, bytes) = self.parts[self.part];
        (at.wrapping_add(u64::from(self.offset)), bytes - self.offset)
    }

    /// These bytes must be the next ones.
    pub fn expect(&mut self, at: u64, bytes: u32) {
        assert!(!self.is_broken, "an access after a rule was broken");
        let (place, left) = self.position();
        assert!(at == place && (1..=left).contains(&bytes), "another place");
    }

    pub fn advance(&mut self, bytes: u32) {
        self.offset += bytes;
        self.done += bytes;
    }

    /// The sender's header is not read.
    pub fn skip_header(&mut self) {
        while self.done < HEADER {
            let (_, left) = self.position();
            self.advance(left.min(HEADER - self.done));
        }
    }

    /// The element of the used ring is written.
    pub fn write_element(&mut self, at: u64, element: [u32; 2], bytes: u32) {
        let queue = self.queue();
        let slot = u64::from(queue.done) % u64::from(queue.size);
        assert_eq!(at - queue.areas[2], 4 + 8 * slot, "another element");
        let head = self.head.map(u32::from);
        assert_eq!((Some(element[0]), element[1]), (head, bytes));
        assert_eq!(self.stage, Stage::Taken, "given back twice");
        self.stage = Stage::Element;
    }

    /// The index of the used ring is written.
    pub fn write_index(&mut self, value: u16) {
        assert_eq!(self.stage, Stage::Element, "the index comes after");
        self.stage = Stage::Index;
        let queue = self.queue.as_mut().expect("it was there");
        queue.done = queue.done.wrapping_add(1);
        assert_eq!(value, queue.done, "a step gives one buffer back");
    }

    /// Whether the driver has broken a rule that is seen without an access.
    pub fn has_broken_silently(&self) -> bool {
        let Some(queue) = self.queue else {
            return false;
        };
        let wraps = queue
            .areas
            .iter()
            .any(|it| it.checked_add(0x2000).is_none());
        let is_too_long = self.count == MAX_PARTS.min(queue.size as usize);
        let is_next_bad = self
            .next
            .is_some_and(|next| u32::from(next) >= queue.size || is_too_long);
        wraps || is_next_bad
    }
}

/// A word of the available ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Word {
    Flags,
    Index,
    Entry,
}
