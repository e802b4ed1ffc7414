// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pages that translation tables are made of.

use super::attributes::Descriptor;
use super::{ENTRIES, PAGE_SIZE, ROOT_TABLES};
use crate::types::PhysAddr;

/// Bytes of the concatenated root tables, and their alignment.
pub const ROOT_SIZE: u64 = ROOT_TABLES as u64 * PAGE_SIZE;

/// The tables of all guests: pages that follow each other in the bundle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pages {
    base: PhysAddr,
    tables: Vec<[u64; ENTRIES]>,
}

impl Pages {
    /// No pages yet; the first will lie at `base` on the machine, rounded up to [`ROOT_SIZE`] (8 KiB).
    pub const fn new(base: PhysAddr) -> Self {
        Self {
            base: PhysAddr(base.0.next_multiple_of(ROOT_SIZE)),
            tables: Vec::new(),
        }
    }

    /// Physical address of the first page.
    pub const fn base(&self) -> PhysAddr {
        self.base
    }

    /// Pages in use.
    pub const fn len(&self) -> usize {
        self.tables.len()
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// The pages as they lie in memory: little-endian descriptors.
    pub fn to_bytes(&self) -> Vec<u8> {
        let descriptors = self.tables.iter().flatten();
        descriptors
            .flat_map(|descriptor| descriptor.to_le_bytes())
            .collect()
    }

    /// Adds the empty pages of a root, aligned to their size, and says where the first lies.
    pub(super) fn add_root(&mut self) -> PhysAddr {
        while !self.tables.len().is_multiple_of(ROOT_TABLES) {
            self.add();
        }
        let root = self.add();
        for _ in 1..ROOT_TABLES {
            self.add();
        }
        root
    }

    /// Adds an empty page, and says where it lies.
    pub(super) fn add(&mut self) -> PhysAddr {
        let address = PhysAddr(self.base.0 + self.tables.len() as u64 * PAGE_SIZE);
        self.tables.push([Descriptor::INVALID.0; ENTRIES]);
        address
    }

    /// Whether this table is one of them.
    pub(super) fn has(&self, table: PhysAddr) -> bool {
        self.index(table) < self.tables.len()
    }

    /// The descriptor at `slot`; an invalid one if no page lies there.
    pub(super) fn read(&self, slot: Slot) -> Descriptor {
        let table = self.tables.get(self.index(slot.table));
        let entry = table.and_then(|table| table.get(slot.entry));
        entry.map_or(Descriptor::INVALID, |&bits| Descriptor(bits))
    }

    /// Writes the descriptor at `slot`, which a walk has found.
    pub(super) fn write(&mut self, slot: Slot, descriptor: Descriptor) {
        let index = self.index(slot.table);
        self.tables[index][slot.entry] = descriptor.0;
    }

    const fn index(&self, table: PhysAddr) -> usize {
        (table.0.wrapping_sub(self.base.0) / PAGE_SIZE) as usize
    }
}

/// Where a descriptor is: which table, which of its entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) table: PhysAddr,
    pub(super) entry: usize,
}
