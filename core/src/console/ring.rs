// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes that a source has written and that are not yet printed.
//!
//! There is a ring for each *source* and not for each core, because the vCPUs of one guest write from several cores,
//! and what they write under their own console lock must be printed in that order. Also, a guest that floods its
//! console does not take room from others.
//!
//! It has many producers and one consumer, and neither retries. A producer takes a ticket with one `fetch_add` and
//! fills the slot of that ticket; the consumer empties slots in ticket order and stops at one that is not yet filled.
//!
//! Why tickets cannot lap the consumer: a producer reads head and tail first, and takes a ticket only if fewer than
//! `SLOTS - MAX_PCPUS` are not yet consumed. Other producers may take tickets in between, so its ticket may be beyond
//! that limit; but then it sees a head beyond the limit the next time (a core sees its own `fetch_add`), and is
//! refused. So each core has at most one ticket beyond the limit, and `MAX_PCPUS` slots are spare.

use super::token::UartToken;
use crate::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use spumone_config::types::MAX_PCPUS;

/// The ring has no room; the byte was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Marks a slot as filled, so that a zero byte differs from an empty slot.
const FILLED: u16 = 0x100;
/// Slots that stay free for producers that have read head and tail at the same time.
const SLACK: usize = MAX_PCPUS;

/// A ring of `SLOTS` bytes (a power of two, more than [`MAX_PCPUS`]), of which
/// [`OutputRing::CAPACITY`] are used. Tickets are 64 bits wide, so that they never wrap.
pub struct OutputRing<const SLOTS: usize> {
    slots: [AtomicU16; SLOTS],
    /// The next ticket.
    head: AtomicU64,
    /// The oldest ticket not yet consumed; written by the consumer only.
    tail: AtomicU64,
    /// The first ticket that is not released. It only grows. Shared because every producer may end a line. Raised
    /// with release after the byte is in its slot, read with acquire before the slots are looked at.
    released: AtomicU64,
    /// The value of `head` at the last [`OutputRing::release_if_idle`]. Relaxed: it publishes nothing.
    looked: AtomicU64,
}

impl<const SLOTS: usize> OutputRing<SLOTS> {
    /// The room of an empty ring, in bytes.
    pub const CAPACITY: usize = {
        assert!(SLOTS.is_power_of_two() && SLOTS > SLACK && SLOTS <= 1 << 16);
        SLOTS - SLACK
    };

    constructor! {
        /// An empty ring.
        pub fn new() -> Self {
            Self {
                slots: atomics!(AtomicU16::new(0)),
                head: AtomicU64::new(0),
                tail: AtomicU64::new(0),
                released: AtomicU64::new(0),
                looked: AtomicU64::new(0),
            }
        }
    }

    /// Bytes that may be pushed before the ring is full. At any time other producers may reduce it and the consumer may
    /// increase it.
    pub fn room(&self) -> usize {
        // Acquire: the consumer has emptied a slot before it is filled again. The tail is read first, so that the head
        // is never behind it.
        let tail = self.tail.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Relaxed);
        Self::CAPACITY.saturating_sub((head - tail) as usize)
    }

    /// Takes one byte. The caller then asks for the UART token (see [`super::Console::serve`]);
    /// otherwise the byte waits for the next output of any source. All bytes up to this one are released if `at_once`,
    /// or if it ends a line, or if the ring is half full.
    ///
    /// # Errors
    /// [`Full`] when the ring has no room.
    pub fn push(&self, byte: u8, at_once: bool) -> Result<(), Full> {
        let room = self.room();
        if room == 0 {
            return Err(Full);
        }
        let ticket = self.head.fetch_add(1, Ordering::Relaxed);
        // Release: a core that sees the slot filled sees what was written before the byte.
        self.slot(ticket)
            .store(FILLED | u16::from(byte), Ordering::Release);
        if at_once || byte == b'\n' || room <= Self::CAPACITY / 2 {
            self.released.fetch_max(ticket + 1, Ordering::Release);
        }
        Ok(())
    }

    /// Releases all bytes.
    pub fn release(&self) {
        let head = self.head.load(Ordering::Relaxed);
        self.released.fetch_max(head, Ordering::Release);
    }

    /// Releases all bytes if none was pushed since the last call. Returns whether it did.
    pub fn release_if_idle(&self) -> bool {
        let head = self.head.load(Ordering::Relaxed);
        let is_idle = self.looked.swap(head, Ordering::Relaxed) == head;
        is_idle && self.released.fetch_max(head, Ordering::Release) < head
    }

    /// The number of bytes released so far.
    pub fn released(&self) -> u64 {
        self.released.load(Ordering::Acquire)
    }

    /// Whether at least this many bytes have been removed, a value of [`released`](Self::released) at some time.
    pub fn has_read(&self, released: u64) -> bool {
        self.tail.load(Ordering::Relaxed) >= released
    }

    /// Whether there are released bytes.
    pub fn is_ready(&self) -> bool {
        !self.has_read(self.released())
    }

    /// The oldest byte; `None` if there is none, or if its producer has a ticket and has not filled the slot. That
    /// producer asks for the token once the slot is filled.
    pub fn peek(&self, _token: &UartToken) -> Option<u8> {
        let tail = self.tail.load(Ordering::Relaxed);
        let [byte, filled] = self.slot(tail).load(Ordering::Acquire).to_le_bytes();
        (filled != 0).then_some(byte)
    }

    /// Removes the oldest byte. The token proves that there is one consumer.
    pub fn pop(&self, token: &mut UartToken) -> Option<u8> {
        let byte = self.peek(token)?;
        let tail = self.tail.load(Ordering::Relaxed);
        self.slot(tail).store(0, Ordering::Relaxed);
        self.tail.store(tail + 1, Ordering::Release);
        Some(byte)
    }

    fn slot(&self, ticket: u64) -> &AtomicU16 {
        &self.slots[ticket as usize % SLOTS]
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::super::UartSlot;
    use super::*;
    use std::thread;
    use std::vec::Vec;

    #[test]
    fn bytes_are_popped_in_order_and_a_full_ring_refuses_more() {
        let slot = UartSlot::new();
        let mut token = slot.take().unwrap();
        let ring = OutputRing::<16>::new();
        for round in 0..100u8 {
            assert_eq!(ring.peek(&token), None);
            assert_eq!(ring.room(), OutputRing::<16>::CAPACITY);
            for byte in 0..8 {
                assert_eq!(ring.push(byte ^ round, false), Ok(()));
            }
            assert_eq!((ring.room(), ring.push(0, false)), (0, Err(Full)));
            for byte in 0..8 {
                assert_eq!(ring.pop(&mut token), Some(byte ^ round));
            }
            assert_eq!(ring.pop(&mut token), None);
        }
        slot.leave(token);
    }

    #[test]
    fn bytes_are_released_with_their_line() {
        let ring = OutputRing::<1024>::new();
        let write = |text: &[u8]| text.iter().for_each(|&it| ring.push(it, false).unwrap());
        write(b"ab");
        assert!(!ring.is_ready());
        write(b"\nc");
        assert_eq!((ring.is_ready(), ring.released()), (true, 3));
        // Bytes are also released at once, when the source is idle, or when there are many.
        ring.push(b'd', true).unwrap();
        assert_eq!(ring.released(), 5);
        write(b"e");
        assert!(!ring.release_if_idle());
        write(b"f");
        assert!(!ring.release_if_idle());
        assert!(ring.release_if_idle() && !ring.release_if_idle());
        assert_eq!(ring.released(), 7);
        write(&[b'x'; OutputRing::<1024>::CAPACITY / 2]);
        assert!(ring.released() > 500);
    }

    /// As many producers as there can be cores, on the smallest ring: no producer overwrites another's byte, and the
    /// bytes of each stay in order.
    #[test]
    fn many_producers_lose_no_byte() {
        const EACH: usize = 4096;
        let ring = OutputRing::<16>::new();
        let slot = UartSlot::new();
        let mut token = slot.take().unwrap();
        let mut next = [0u8; MAX_PCPUS];
        let mut consume = |token: &mut UartToken| {
            let Some(byte) = ring.pop(token) else {
                return false;
            };
            let (core, number) = (usize::from(byte >> 5), byte & 31);
            assert_eq!(number, next[core], "of core {core}");
            next[core] = (number + 1) & 31;
            true
        };
        let mut consumed = 0;
        thread::scope(|scope| {
            let cores: Vec<_> = (0..MAX_PCPUS)
                .map(|core| {
                    let ring = &ring;
                    scope.spawn(move || {
                        for number in 0..EACH {
                            let byte = (core << 5 | number & 31) as u8;
                            while ring.push(byte, true).is_err() {
                                thread::yield_now();
                            }
                        }
                    })
                })
                .collect();
            while !cores.iter().all(|core| core.is_finished()) {
                if consume(&mut token) {
                    consumed += 1;
                } else {
                    thread::yield_now();
                }
            }
        });
        while consume(&mut token) {
            consumed += 1;
        }
        assert_eq!(consumed, EACH * MAX_PCPUS);
        slot.leave(token);
    }
}
