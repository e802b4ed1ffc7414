// SPDX-License-Identifier: MIT OR Apache-2.0
//! The driver at the other end of a hostile guest's link. It follows the rules, so its card never breaks.

use super::random::Random;
use crate::virtio::tests::driver::{AVAILABLE, BASE, BUFFERS, DESCRIPTORS, USED};
use std::collections::VecDeque;

/// Bytes of a buffer, and the number of different ones.
const BYTES: u64 = 1530;
const BUFFERS_HERE: u64 = 20;

/// Its queue.
#[derive(Default)]
pub struct Honest {
    end: usize,
    size: u16,
    /// The next descriptor, and those that the card has.
    next: u16,
    in_use: u16,
    available: u16,
    used: u16,
    /// First descriptor and number of descriptors of each buffer that the card has.
    buffers: VecDeque<(u16, u16)>,
}

fn write(memory: &mut [u8], at: u64, bytes: &[u8]) {
    memory[(at - BASE) as usize..][..bytes.len()].copy_from_slice(bytes);
}

fn word(memory: &[u8], at: u64) -> u16 {
    let place = (at - BASE) as usize;
    u16::from_le_bytes([memory[place], memory[place + 1]])
}

impl Honest {
    pub fn new(end: usize, size: u16, memory: &mut [u8]) -> Self {
        memory[..(BUFFERS - BASE) as usize].fill(0);
        Self {
            end,
            size,
            ..Self::default()
        }
    }

    /// Often makes a buffer available, of one to four parts.
    pub fn act(&mut self, random: &mut Random, memory: &mut [u8]) {
        if self.size == 0 || random.once_in(4) {
            return;
        }
        let count = (1 + random.below(4) as u16).min(self.size);
        if self.in_use + count > self.size {
            return;
        }
        let bytes = match self.end {
            0 => 12 + random.below(BYTES - 12),
            _ => BYTES,
        };
        let mut at = BUFFERS + BYTES * random.below(BUFFERS_HERE);
        let first = self.next;
        for part in 0..count {
            let is_last = part + 1 == count;
            let length = bytes / u64::from(count) + u64::from(is_last) * (bytes % u64::from(count));
            let number = self.next;
            self.next = (number + 1) % self.size;
            let flags = [0, 2][self.end] | u64::from(!is_last);
            let rest = length | flags << 32 | u64::from(self.next) << 48;
            let descriptor = DESCRIPTORS + 16 * u64::from(number);
            write(memory, descriptor, &at.to_le_bytes());
            write(memory, descriptor + 8, &rest.to_le_bytes());
            at += length;
        }
        self.in_use += count;
        self.buffers.push_back((first, count));
        let entry = AVAILABLE + 4 + 2 * u64::from(self.available % self.size);
        write(memory, entry, &first.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        write(memory, AVAILABLE + 2, &self.available.to_le_bytes());
    }

    /// Takes back the buffers that the card has used: so many in all, in order.
    pub fn check(&mut self, done: u16, memory: &[u8]) {
        let used = word(memory, USED + 2);
        assert_eq!(used, done, "the index of the used ring");
        while self.used != used {
            let entry = USED + 4 + 8 * u64::from(self.used % self.size);
            let (first, count) = self.buffers.pop_front().expect("a buffer that was offered");
            assert_eq!(word(memory, entry), first);
            assert!(u64::from(word(memory, entry + 4)) <= BYTES);
            self.in_use -= count;
            self.used = self.used.wrapping_add(1);
        }
    }
}
