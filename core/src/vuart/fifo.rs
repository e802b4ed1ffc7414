// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receive FIFO: bytes from the console to the guest.

use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Size of the FIFO in bytes: a page of pasted text. The PL011's 32 bytes would suffice for a person who types to a
/// guest that runs; but a terminal may send faster than a serial line, and the guest may be preempted. (Smaller under
/// loom, which keeps a history of each byte.)
pub(super) const DEPTH: usize = if cfg!(loom) { 64 } else { 4096 };
/// How often a reader tries again when another vCPU has removed the byte that it was about to remove. A guest that
/// locks around the read never needs a second try.
const POP_TRIES: usize = 4;

/// A ring with one producer (the core that reads the terminal) and the guest's vCPUs as consumers.
pub(super) struct Fifo {
    bytes: [AtomicU8; DEPTH],
    /// The number of bytes ever pushed; wraps. Written by the producer only.
    head: AtomicU32,
    /// The number of bytes ever popped; wraps. Consumers increment it by compare-exchange.
    tail: AtomicU32,
}

impl Fifo {
    constructor! {
        pub(super) fn new() -> Self {
            Self {
                bytes: atomics!(AtomicU8::new(0)),
                head: AtomicU32::new(0),
                tail: AtomicU32::new(0),
            }
        }
    }

    /// The number of bytes in the FIFO, at most [`DEPTH`]. The tail is read first, so that it is never ahead of the
    /// head.
    pub(super) fn len(&self) -> usize {
        let tail = self.tail.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Acquire);
        (head.wrapping_sub(tail) as usize).min(DEPTH)
    }

    /// Pushes a byte; false if there is no room.
    pub(super) fn push(&self, byte: u8) -> bool {
        // Acquire: the byte that was in this place has been read.
        let tail = self.tail.load(Ordering::Acquire);
        let head = self.head.load(Ordering::Relaxed);
        if head.wrapping_sub(tail) as usize >= DEPTH {
            return false;
        }
        self.bytes[head as usize % DEPTH].store(byte, Ordering::Relaxed);
        // Release: a core that sees the new head sees the byte.
        self.head.store(head.wrapping_add(1), Ordering::Release);
        true
    }

    /// Pops the oldest byte.
    pub(super) fn pop(&self) -> Option<u8> {
        for _ in 0..POP_TRIES {
            let tail = self.tail.load(Ordering::Acquire);
            let head = self.head.load(Ordering::Acquire);
            if head == tail {
                return None;
            }
            let byte = self.bytes[tail as usize % DEPTH].load(Ordering::Relaxed);
            let next = tail.wrapping_add(1);
            let moved = self
                .tail
                .compare_exchange(tail, next, Ordering::AcqRel, Ordering::Relaxed);
            if moved.is_ok() {
                return Some(byte);
            }
        }
        None
    }

    /// Drops all bytes. No core may push or pop meanwhile.
    pub(super) fn clear(&self) {
        self.tail
            .store(self.head.load(Ordering::Acquire), Ordering::Release);
    }
}
