// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building and reading the tables.

use super::attributes::Descriptor;
use super::mapping::{Leaf, leaves};
use super::pages::Slot;
use super::{
    Attributes, ENTRIES, Execute, IPA_BITS, Level, Memory, PA_BITS, PAGE_SIZE, Pages, Vmid, vttbr,
};
use crate::packed::Mapping;
use crate::types::{GuestAddr, PhysAddr};
use core::fmt;

/// Why a range cannot be mapped for a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError {
    /// The range is empty.
    Empty(GuestAddr),
    /// Guest address, machine address or size is not a multiple of 4 KiB.
    Unaligned {
        /// Where the guest sees it.
        ipa: GuestAddr,
        /// Where it is.
        pa: PhysAddr,
        /// Bytes.
        size: u64,
    },
    /// The range ends above the 1 TiB that a guest has.
    BeyondGuestAddresses(GuestAddr),
    /// The range ends above the 1 TiB of physical addresses that the tables have room for.
    BeyondPhysicalAddresses(PhysAddr),
    /// Something is mapped at this guest address already.
    Overlap(GuestAddr),
    /// Execution from device memory.
    ExecutableDevice(GuestAddr),
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty(ipa) => write!(f, "the range at guest address {ipa} is empty: give a size"),
            Self::Unaligned { ipa, pa, size } => write!(
                f,
                "the range at guest address {ipa}, machine address {pa}, size {size:#x} \
                 is not made of 4 KiB pages: align all three"
            ),
            Self::BeyondGuestAddresses(ipa) => write!(
                f,
                "the range at guest address {ipa} ends above {IPA_BITS} bits: move it down"
            ),
            Self::BeyondPhysicalAddresses(pa) => write!(
                f,
                "the range at machine address {pa} ends above {PA_BITS} bits: correct the board file"
            ),
            Self::Overlap(ipa) => write!(
                f,
                "guest address {ipa} is mapped twice: separate memory and devices of the guest"
            ),
            Self::ExecutableDevice(ipa) => write!(
                f,
                "the device at guest address {ipa} is mapped executable: take that away"
            ),
        }
    }
}

/// The stage 2 tables of one guest. EL2's own stage 1, [`El2Map`](super::El2Map), is made of them too: only its leaves differ.
#[derive(Debug)]
pub struct Stage2<'a> {
    pub(super) pages: &'a mut Pages,
    pub(super) root: PhysAddr,
}

impl<'a> Stage2<'a> {
    /// Tables that map nothing, made of pages that are added to `pages`.
    pub fn new(pages: &'a mut Pages) -> Self {
        let root = pages.add_root();
        Self { pages, root }
    }

    /// Physical address of the root, 8 KiB aligned.
    pub const fn root(&self) -> PhysAddr {
        self.root
    }

    /// Value of `VTTBR_EL2` that puts these tables to use.
    pub const fn vttbr(&self, vmid: Vmid) -> u64 {
        vttbr(vmid, self.root)
    }

    /// Maps a range, in the largest blocks that its alignment permits.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; nothing is mapped then.
    pub fn map(&mut self, mapping: &Mapping, attributes: Attributes) -> Result<(), MapError> {
        check_range(mapping)?;
        if attributes.memory == Memory::Device && attributes.execute != Execute::None {
            return Err(MapError::ExecutableDevice(mapping.ipa));
        }
        self.map_leaves(mapping, |pa, level| Descriptor::leaf(pa, attributes, level))
    }

    /// Maps a range by the descriptors that `leaf` makes.
    pub(super) fn map_leaves(
        &mut self,
        mapping: &Mapping,
        leaf: impl Fn(PhysAddr, Level) -> Descriptor,
    ) -> Result<(), MapError> {
        check_range(mapping)?;
        self.check_free(mapping)?;
        for Leaf { ipa, pa, level } in leaves(mapping) {
            self.write_leaf(ipa, level, leaf(PhysAddr(pa), level));
        }
        Ok(())
    }

    /// Maps `size` bytes from `ipa` on by tables of level 3 that are elsewhere, one behind the other from `tables` on: what they map is not
    /// known here. Nothing else can be mapped at addresses that they have.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; nothing is mapped then.
    pub fn map_by_tables(
        &mut self,
        ipa: GuestAddr,
        size: u64,
        tables: PhysAddr,
    ) -> Result<(), MapError> {
        let span = Level::Two.entry_size();
        let whole = Mapping {
            ipa,
            // Only its alignment is looked at.
            pa: PhysAddr(0),
            size: size.next_multiple_of(span),
        };
        check_range(&whole)?;
        if !ipa.is_aligned(span) || !tables.is_aligned(PAGE_SIZE) {
            return Err(MapError::Unaligned {
                ipa,
                pa: tables,
                size,
            });
        }
        self.check_free(&whole)?;
        for number in 0..whole.size / span {
            let table = PhysAddr(tables.0 + number * PAGE_SIZE);
            let at = ipa.0 + number * span;
            self.write_leaf(at, Level::Two, Descriptor::table(table));
        }
        Ok(())
    }

    /// Where a guest address leads and what is permitted there; `None` where the guest faults.
    pub fn translate(&self, ipa: GuestAddr) -> Option<(PhysAddr, Attributes)> {
        if ipa.0 >> IPA_BITS != 0 {
            return None;
        }
        let end = self.walk(ipa.0, Level::Three);
        if !end.descriptor.is_valid() {
            return None;
        }
        let offset = ipa.0 & (end.level.entry_size() - 1);
        let pa = PhysAddr(end.descriptor.address().0 | offset);
        Some((pa, end.descriptor.attributes()))
    }

    /// Whether no part of a range is mapped.
    fn check_free(&self, mapping: &Mapping) -> Result<(), MapError> {
        for leaf in leaves(mapping) {
            let end = self.walk(leaf.ipa, leaf.level);
            if end.descriptor.is_valid() || !self.pages.has(end.slot.table) {
                return Err(MapError::Overlap(GuestAddr(leaf.ipa)));
            }
        }
        Ok(())
    }

    fn write_leaf(&mut self, ipa: u64, level: Level, descriptor: Descriptor) {
        let mut end = self.walk(ipa, level);
        while end.level < level {
            let table = self.pages.add();
            self.pages.write(end.slot, Descriptor::table(table));
            end = self.walk(ipa, level);
        }
        self.pages.write(end.slot, descriptor);
    }

    /// Follows tables from the root towards `level`, as far as there are any.
    fn walk(&self, ipa: u64, level: Level) -> Position {
        let root_entry = (ipa >> Level::One.shift()) as usize;
        let mut slot = Slot {
            table: PhysAddr(self.root.0 + (root_entry / ENTRIES) as u64 * PAGE_SIZE),
            entry: root_entry % ENTRIES,
        };
        let mut at = Level::One;
        for next in [Level::Two, Level::Three] {
            let descriptor = self.pages.read(slot);
            if at == level || !descriptor.is_table(at) {
                break;
            }
            slot = Slot {
                table: descriptor.address(),
                entry: (ipa >> next.shift()) as usize % ENTRIES,
            };
            at = next;
        }
        Position {
            level: at,
            slot,
            descriptor: self.pages.read(slot),
        }
    }
}

fn check_range(mapping: &Mapping) -> Result<(), MapError> {
    let Mapping { ipa, pa, size } = *mapping;
    if size == 0 {
        return Err(MapError::Empty(ipa));
    }
    if (ipa.0 | pa.0 | size) & (PAGE_SIZE - 1) != 0 {
        return Err(MapError::Unaligned { ipa, pa, size });
    }
    let is_within = |start: u64, bits: u32| {
        let end = start.checked_add(size);
        end.is_some_and(|end| end <= 1_u64 << bits)
    };
    if !is_within(ipa.0, IPA_BITS) {
        return Err(MapError::BeyondGuestAddresses(ipa));
    }
    if !is_within(pa.0, PA_BITS) {
        return Err(MapError::BeyondPhysicalAddresses(pa));
    }
    Ok(())
}

/// Where a walk ended.
struct Position {
    level: Level,
    slot: Slot,
    descriptor: Descriptor,
}
