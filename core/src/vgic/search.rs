// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search for the pending interrupts of the highest priority, where there are more than list registers.

use super::MAX_LIST_REGISTERS;
use super::rank::Rank;
use spumone_config::types::IntId;

/// The interrupts of the highest priority out of many.
#[derive(Clone, Copy)]
pub(super) struct HighestPriority {
    /// Rank in the upper half, INTID in the lower half: a smaller key is a higher priority. The highest priority comes first.
    keys: [u32; MAX_LIST_REGISTERS],
    len: usize,
    capacity: usize,
    /// Whether more interrupts were inserted than there is room for.
    overflow: bool,
}

impl HighestPriority {
    pub const fn new(capacity: usize) -> Self {
        Self {
            keys: [0; MAX_LIST_REGISTERS],
            len: 0,
            capacity,
            overflow: false,
        }
    }

    pub fn key(intid: IntId, rank: Rank) -> u32 {
        u32::from(rank.0) << 16 | u32::from(intid.0)
    }

    pub const fn intid(key: u32) -> IntId {
        IntId(key as u16)
    }

    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether more interrupts were inserted than there is room for.
    pub const fn overflows(&self) -> bool {
        self.overflow
    }

    /// Adds an interrupt that is not there yet; returns the interrupt for which there is no room.
    pub fn insert(&mut self, key: u32) -> Option<IntId> {
        let last = self.keys.get(self.len.wrapping_sub(1));
        if self.len >= self.capacity && last.is_none_or(|&last| last < key) {
            self.overflow = true;
            return Some(Self::intid(key));
        }
        let mut rest = key;
        for held in self.keys.iter_mut().take(self.len) {
            if rest < *held {
                core::mem::swap(&mut rest, held);
            }
        }
        match self.keys.get_mut(self.len) {
            Some(free) if self.len < self.capacity => {
                *free = rest;
                self.len += 1;
                None
            }
            _ => {
                self.overflow = true;
                Some(Self::intid(rest))
            }
        }
    }

    /// The key of this interrupt, if it is there.
    pub fn key_of(&self, intid: IntId) -> Option<u32> {
        // At most 16 times: list registers.
        self.keys().find(|&key| Self::intid(key) == intid)
    }

    /// The interrupts, those of the highest priority first.
    pub fn keys(&self) -> impl Iterator<Item = u32> {
        self.keys.iter().copied().take(self.len)
    }
}

/// What the search for pending SPIs has found until the core was interrupted. Other vCPUs may have changed these SPIs since.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// Words that were searched, and not rung since; bits as in the doorbell.
    searched: u32,
    /// Words that were rung after they were searched, so that their SPIs may be among `found`.
    again: u32,
    /// Words with pending SPIs that are not among `found`.
    pub left: u32,
    pub found: HighestPriority,
}

impl Search {
    /// No word was searched.
    pub const NOTHING: Self = Self {
        searched: 0,
        again: 0,
        left: 0,
        found: HighestPriority::new(0),
    };

    /// Begins a search for at most `capacity` interrupts, or goes on with it.
    #[inline(always)]
    pub fn begin(&mut self, capacity: usize) {
        if self.searched | self.again == 0 || self.found.capacity != capacity {
            *self = Self {
                found: HighestPriority::new(capacity),
                ..Self::NOTHING
            };
        }
    }

    /// The next search begins anew.
    pub const fn end(&mut self) {
        self.searched = 0;
        self.again = 0;
    }

    /// These words were rung.
    pub const fn rung(&mut self, words: u32) {
        self.again |= self.searched & words;
        self.searched &= !words;
    }

    /// The next one of `words` that is to be searched. Words that are searched again come last.
    #[inline(always)]
    pub fn next(&self, words: u32) -> Option<u32> {
        let open = words & !self.searched;
        let first = match open & !self.again {
            0 => open,
            new => new,
        };
        (first != 0).then(|| first.trailing_zeros())
    }

    /// The key of an SPI of `word`, if it was found before the word was rung.
    #[inline(always)]
    pub fn found_before(&self, word: u32, intid: IntId) -> Option<u32> {
        match self.again & 1 << word {
            0 => None,
            _ => self.found.key_of(intid),
        }
    }

    /// A word was searched.
    pub const fn searched(&mut self, word: u32) {
        self.searched |= 1 << word;
    }
}
