// SPDX-License-Identifier: MIT OR Apache-2.0
//! The box between two cores.

use super::message::WORDS;
use super::{Full, Message};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A value in a cache line of its own, because different cores write different values.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Line<T>(pub(super) T);

/// The box between two cores: a ring with one producer and one consumer.
#[derive(Debug)]
pub(super) struct Ring<const SLOTS: usize> {
    /// Messages ever sent, modulo 2^32. Written by the producer.
    pub(super) sent: Line<AtomicU32>,
    /// Messages ever received, modulo 2^32. Written by the consumer.
    pub(super) received: Line<AtomicU32>,
    /// Message n is in slot n modulo `SLOTS`. A slot belongs to the producer until `sent` has
    /// passed it, then to the consumer until `received` has. Atomic words, because that is how
    /// memory is shared without `unsafe`; their order comes from the two counters.
    slots: [[AtomicU64; WORDS]; SLOTS],
}

impl<const SLOTS: usize> Ring<SLOTS> {
    /// The counters wrap at a power of two, and so must the slots.
    const SLOTS_IS_A_POWER_OF_TWO: () = assert!(SLOTS.is_power_of_two());

    constructor! {
        pub(super) fn new() -> Self {
            let () = Self::SLOTS_IS_A_POWER_OF_TWO;
            Self {
                sent: Line(AtomicU32::new(0)),
                received: Line(AtomicU32::new(0)),
                slots: atomics!(atomics!(AtomicU64::new(0))),
            }
        }
    }

    fn slot(&self, number: u32) -> &[AtomicU64; WORDS] {
        &self.slots[number as usize % SLOTS]
    }

    /// Only for the producer.
    pub(super) fn send(&self, message: Message) -> Result<(), Full> {
        // Relaxed: the producer's own counter.
        let sent = self.sent.0.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `receive`; the consumer has read the slot before it
        // is filled again.
        let received = self.received.0.load(Ordering::Acquire);
        if sent.wrapping_sub(received) as usize >= SLOTS {
            return Err(Full);
        }
        for (word, value) in self.slot(sent).iter().zip(message.encode()) {
            // Relaxed: published by the counter.
            word.store(value, Ordering::Relaxed);
        }
        // Release: a core that sees the counter sees the words.
        self.sent.0.store(sent.wrapping_add(1), Ordering::Release);
        Ok(())
    }

    /// Only for the consumer.
    pub(super) fn receive(&self) -> Option<Message> {
        // Relaxed: the consumer's own counter.
        let received = self.received.0.load(Ordering::Relaxed);
        // Acquire: pairs with the release in `send`, so the words are visible.
        if self.sent.0.load(Ordering::Acquire) == received {
            return None;
        }
        // Relaxed: ordered by the counter.
        let words = self.slot(received).each_ref();
        let words = words.map(|word| word.load(Ordering::Relaxed));
        // Release: the words have been read before the producer sees the slot free.
        self.received
            .0
            .store(received.wrapping_add(1), Ordering::Release);
        Some(Message::decode(words))
    }
}
