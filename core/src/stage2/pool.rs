// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages that translation tables are made of.

use super::attributes::Descriptor;
use super::{ENTRIES, PAGE_SIZE, ROOT_TABLES};
use core::fmt;
use core::mem;
use spumone_config::types::PhysAddr;

/// One translation table: a page.
#[repr(C, align(4096))]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table([u64; ENTRIES]);

impl Table {
    /// A table that maps nothing.
    pub const EMPTY: Self = Self([0; ENTRIES]);
}

impl Default for Table {
    fn default() -> Self {
        Self::EMPTY
    }
}

/// Bytes of the concatenated root tables, and their alignment.
const ROOT_SIZE: u64 = ROOT_TABLES as u64 * PAGE_SIZE;

/// Why a pool cannot give what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolError {
    /// A root is two tables and must be aligned to both of them (8 KiB): place the pool so, and
    /// split off even numbers of pages.
    Unaligned(PhysAddr),
    /// Fewer pages are left than the number wanted: make the pool larger.
    Exhausted {
        /// Pages wanted.
        needed: usize,
        /// Pages left.
        left: usize,
    },
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unaligned(base) => write!(
                f,
                "the stage 2 table pool at {base} is not 8 KiB aligned: align it"
            ),
            Self::Exhausted { needed, left } => write!(
                f,
                "stage 2 tables need {needed} pages and {left} are left: enlarge the pool"
            ),
        }
    }
}

/// Pages for the tables of one guest, or, before it is split, of all guests.
#[derive(Debug)]
pub struct TablePool<'a> {
    pages: &'a mut [Table],
    base: PhysAddr,
    next: usize,
}

impl<'a> TablePool<'a> {
    /// A pool of `pages`, which lie at physical address `base`.
    ///
    /// # Errors
    ///
    /// [`PoolError::Unaligned`] where `base` is not a multiple of 8 KiB.
    pub const fn new(pages: &'a mut [Table], base: PhysAddr) -> Result<Self, PoolError> {
        if !base.is_aligned(ROOT_SIZE) {
            return Err(PoolError::Unaligned(base));
        }
        Ok(Self {
            pages,
            base,
            next: 0,
        })
    }

    /// Takes the first `count` unused pages out of this pool, as a pool for one guest; `count` as
    /// [`pages_needed`](super::pages_needed) says.
    ///
    /// # Errors
    ///
    /// [`PoolError::Exhausted`] where fewer are left, [`PoolError::Unaligned`] where what remains
    /// would not be aligned (an odd `count`). The pool is then unchanged.
    pub fn split(&mut self, count: usize) -> Result<TablePool<'a>, PoolError> {
        let left = self.left();
        if count > left {
            return Err(PoolError::Exhausted {
                needed: count,
                left,
            });
        }
        let (taken, rest) = (self.page(self.next), self.page(self.next + count));
        for start in [taken, rest] {
            if !start.is_aligned(ROOT_SIZE) {
                return Err(PoolError::Unaligned(start));
            }
        }
        // Both splits lie within, as was just checked; the defaults keep a panic out of the code.
        let pages = mem::take(&mut self.pages);
        let (_, unused) = pages.split_at_mut_checked(self.next).unwrap_or_default();
        let (pages, remaining) = unused.split_at_mut_checked(count).unwrap_or_default();
        *self = Self {
            pages: remaining,
            base: rest,
            next: 0,
        };
        Ok(TablePool {
            pages,
            base: taken,
            next: 0,
        })
    }

    /// Pages not used yet.
    pub fn left(&self) -> usize {
        self.pages.len() - self.next
    }

    /// Pages in use.
    pub fn used(&self) -> usize {
        self.next
    }

    /// Physical address of the first page.
    pub fn base(&self) -> PhysAddr {
        self.base
    }

    /// Empties the pages of a root and hands out the first. A root comes first in its pool.
    pub(super) fn allocate_root(&mut self) -> Result<PhysAddr, PoolError> {
        let root = self.page(self.next);
        if !root.is_aligned(ROOT_SIZE) {
            return Err(PoolError::Unaligned(root));
        }
        let left = self.left();
        if left < ROOT_TABLES {
            return Err(PoolError::Exhausted {
                needed: ROOT_TABLES,
                left,
            });
        }
        for _ in 0..ROOT_TABLES {
            self.allocate()?;
        }
        Ok(root)
    }

    /// Empties the next page and hands it out.
    pub(super) fn allocate(&mut self) -> Result<PhysAddr, PoolError> {
        let Some(page) = self.pages.get_mut(self.next) else {
            return Err(PoolError::Exhausted { needed: 1, left: 0 });
        };
        *page = Table::EMPTY;
        let address = self.page(self.next);
        self.next += 1;
        Ok(address)
    }

    /// The descriptor at `slot`; an invalid one if that is not in the pool.
    pub(super) fn read(&self, slot: Slot) -> Descriptor {
        let entry = self
            .pages
            .get(self.index(slot.table))
            .and_then(|table| table.0.get(slot.entry));
        entry.map_or(Descriptor::INVALID, |&bits| Descriptor(bits))
    }

    /// Writes the descriptor at `slot`, which was found by a walk and so is in the pool.
    pub(super) fn write(&mut self, slot: Slot, descriptor: Descriptor) {
        let index = self.index(slot.table);
        let entry = self
            .pages
            .get_mut(index)
            .and_then(|table| table.0.get_mut(slot.entry));
        if let Some(entry) = entry {
            *entry = descriptor.0;
        }
    }

    fn index(&self, table: PhysAddr) -> usize {
        (table.0.wrapping_sub(self.base.0) / PAGE_SIZE) as usize
    }

    fn page(&self, index: usize) -> PhysAddr {
        PhysAddr(self.base.0 + index as u64 * PAGE_SIZE)
    }
}

/// Where a descriptor is: which table, which of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) table: PhysAddr,
    pub(super) entry: usize,
}
