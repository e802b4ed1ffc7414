// SPDX-License-Identifier: MIT OR Apache-2.0
//! Building and reading the tables.

use super::attributes::Descriptor;
use super::mapping::leaves;
use super::pool::Slot;
use super::{
    Attributes, ENTRIES, Execute, Features, IPA_BITS, Level, Memory, PAGE_SIZE, PoolError,
    TablePool, Vmid, vttbr,
};
use core::fmt;
use spumone_config::packed::Mapping;
use spumone_config::types::{GuestAddr, PhysAddr};

/// Why a range cannot be mapped.
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
    /// The range ends above the machine's physical addresses.
    BeyondPhysicalAddresses(PhysAddr),
    /// Something is mapped at this guest address already.
    Overlap(GuestAddr),
    /// Execution from device memory.
    ExecutableDevice(GuestAddr),
    /// Execution at one exception level only, on a core without FEAT_XNX.
    NeedsXnx(GuestAddr),
    /// The pool has too few pages.
    Pool(PoolError),
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
                "the range at machine address {pa} ends above the core's physical addresses: \
                 correct the board file"
            ),
            Self::Overlap(ipa) => write!(
                f,
                "guest address {ipa} is mapped twice: separate memory and devices of the guest"
            ),
            Self::ExecutableDevice(ipa) => write!(
                f,
                "the device at guest address {ipa} is mapped executable: take that away"
            ),
            Self::NeedsXnx(ipa) => write!(
                f,
                "the range at guest address {ipa} needs FEAT_XNX, which the core lacks: \
                 choose another policy"
            ),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

/// The stage 2 tables of one guest.
#[derive(Debug)]
pub struct Stage2<'a> {
    pool: TablePool<'a>,
    root: PhysAddr,
    features: Features,
}

impl<'a> Stage2<'a> {
    /// Tables that map nothing, made of pages of `pool`, which belongs to them from here on.
    ///
    /// # Errors
    ///
    /// [`PoolError::Exhausted`] where the pool has no pages left for the root.
    pub fn new(mut pool: TablePool<'a>, features: Features) -> Result<Self, PoolError> {
        let root = pool.allocate_root()?;
        Ok(Self {
            pool,
            root,
            features,
        })
    }

    /// Physical address of the root, 8 KiB aligned.
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// Value of `VTTBR_EL2` that puts these tables to use.
    pub fn vttbr(&self, vmid: Vmid) -> u64 {
        vttbr(vmid, self.root)
    }

    /// Pages that the tables take.
    #[cfg(test)]
    pub fn pages_used(&self) -> usize {
        self.pool.used()
    }

    /// Maps a range, in the largest blocks that its alignment permits.
    ///
    /// # Errors
    ///
    /// See [`MapError`]; nothing is mapped then.
    pub fn map(&mut self, mapping: &Mapping, attributes: Attributes) -> Result<(), MapError> {
        self.check_range(mapping)?;
        self.check_attributes(mapping, attributes)?;
        let needed = self.count_missing_tables(mapping)?;
        let left = self.pool.left();
        if needed > left {
            return Err(MapError::Pool(PoolError::Exhausted { needed, left }));
        }
        for leaf in leaves(mapping) {
            let descriptor = Descriptor::leaf(PhysAddr(leaf.pa), attributes, leaf.level);
            self.write_leaf(leaf.ipa, leaf.level, descriptor)?;
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

    fn check_range(&self, mapping: &Mapping) -> Result<(), MapError> {
        let Mapping { ipa, pa, size } = *mapping;
        if size == 0 {
            return Err(MapError::Empty(ipa));
        }
        if (ipa.0 | pa.0 | size) & (PAGE_SIZE - 1) != 0 {
            return Err(MapError::Unaligned { ipa, pa, size });
        }
        let within = |start: u64, bits: u32| {
            start
                .checked_add(size)
                .is_some_and(|end| end <= 1_u64 << bits)
        };
        if !within(ipa.0, IPA_BITS) {
            return Err(MapError::BeyondGuestAddresses(ipa));
        }
        if !within(pa.0, self.features.pa_range.bits()) {
            return Err(MapError::BeyondPhysicalAddresses(pa));
        }
        Ok(())
    }

    fn check_attributes(&self, mapping: &Mapping, attributes: Attributes) -> Result<(), MapError> {
        if attributes.memory == Memory::Device && attributes.execute != Execute::None {
            return Err(MapError::ExecutableDevice(mapping.ipa));
        }
        if attributes.execute.needs_xnx() && !self.features.xnx {
            return Err(MapError::NeedsXnx(mapping.ipa));
        }
        Ok(())
    }

    /// Number of tables to add before the leaves of a range can be written.
    ///
    /// # Errors
    ///
    /// [`MapError::Overlap`] where one of them is taken.
    fn count_missing_tables(&self, mapping: &Mapping) -> Result<usize, MapError> {
        let mut missing = 0;
        // Leaves come in the order of addresses, so those that will share a table follow each other.
        let mut counted = [None; 2];
        for leaf in leaves(mapping) {
            let end = self.walk(leaf.ipa, leaf.level);
            if end.descriptor.is_valid() {
                return Err(MapError::Overlap(GuestAddr(leaf.ipa)));
            }
            for (parent, last) in [Level::One, Level::Two].into_iter().zip(&mut counted) {
                let region = Some(leaf.ipa >> parent.shift());
                if end.level <= parent && parent < leaf.level && *last != region {
                    *last = region;
                    missing += 1;
                }
            }
        }
        Ok(missing)
    }

    fn write_leaf(
        &mut self,
        ipa: u64,
        level: Level,
        descriptor: Descriptor,
    ) -> Result<(), MapError> {
        // Each round goes down one level, and there are three.
        for _ in 0..3 {
            let end = self.walk(ipa, level);
            if end.level == level {
                self.pool.write(end.slot, descriptor);
                return Ok(());
            }
            let table = self.pool.allocate().map_err(MapError::Pool)?;
            self.pool.write(end.slot, Descriptor::table(table));
        }
        Ok(())
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
            let descriptor = self.pool.read(slot);
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
            descriptor: self.pool.read(slot),
        }
    }
}

/// Where a walk ended.
struct Position {
    level: Level,
    slot: Slot,
    descriptor: Descriptor,
}
