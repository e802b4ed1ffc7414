// SPDX-License-Identifier: MIT OR Apache-2.0
//! EL2's own stage 1: an identity map, of tables of the same format as those of guests.
//!
//! A walk begins at level 1, so 39 bits of address need the first of a root's two tables. What differs is the bits of a
//! leaf: DDI 0487, chapter D8, stage 1 of a translation regime with one exception level.

use super::attributes::Descriptor;
use super::{EL2_BITS, MapError, Pages, Stage2};
use crate::packed::Mapping;
use crate::types::{GuestAddr, PhysAddr};
use core::fmt;

/// What EL2 may do with a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum El2Use {
    /// Execute and read it.
    Code,
    /// Read it.
    Constants,
    /// Read and write it.
    Data,
    /// Read and write registers of devices in it.
    Device,
}

/// AttrIndx: the attributes of `MAIR_EL2` that the entry code sets for devices (0) and for memory (1).
const MEMORY: u64 = 1 << 2;
/// Bit 1 of `AP`, which is RES1.
const RES1: u64 = 1 << 6;
/// Bit 2 of `AP`.
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
const ACCESS_FLAG: u64 = 1 << 10;
const EXECUTE_NEVER: u64 = 1 << 54;

impl El2Use {
    /// The bits of a leaf, without address and kind.
    pub const fn bits(self) -> u64 {
        let of_memory = MEMORY | INNER_SHAREABLE | RES1 | ACCESS_FLAG;
        match self {
            Self::Code => of_memory | READ_ONLY,
            Self::Constants => of_memory | READ_ONLY | EXECUTE_NEVER,
            Self::Data => of_memory | EXECUTE_NEVER,
            Self::Device => RES1 | ACCESS_FLAG | EXECUTE_NEVER,
        }
    }
}

/// Why a range cannot be mapped for EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum El2MapError {
    /// The range does not consist of whole pages.
    Unaligned(PhysAddr),
    /// The range ends above the 512 GiB that EL2 has for its addresses.
    Beyond(PhysAddr),
    /// Something is mapped at this address already.
    Overlap(PhysAddr),
}

impl fmt::Display for El2MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unaligned(pa) => write!(
                f,
                "the range at machine address {pa} is not made of 4 KiB pages: correct the board file"
            ),
            Self::Beyond(pa) => write!(
                f,
                "the range at machine address {pa} ends above the {EL2_BITS} bits that EL2 has: \
                 correct the board file"
            ),
            Self::Overlap(pa) => write!(
                f,
                "two ranges have machine address {pa}: in the board file, separate memory, GIC, UART and devices \
                 with `quiesce`"
            ),
        }
    }
}

/// The tables of EL2's stage 1.
#[derive(Debug)]
pub struct El2Map<'a>(Stage2<'a>);

impl<'a> El2Map<'a> {
    /// Tables that map nothing, made of pages that are added to `pages`.
    pub fn new(pages: &'a mut Pages) -> Self {
        Self(Stage2::new(pages))
    }

    /// Value of `TTBR0_EL2` that puts these tables to use.
    pub const fn ttbr0(&self) -> PhysAddr {
        self.0.root()
    }

    /// Maps the addresses from `start` to `end`, both multiples of 4 KiB; nothing if there is none.
    ///
    /// # Errors
    ///
    /// See [`El2MapError`]; nothing is mapped then.
    pub fn map(&mut self, start: u64, end: u64, what: El2Use) -> Result<(), El2MapError> {
        if start >= end {
            return Ok(());
        }
        if end > 1 << EL2_BITS {
            return Err(El2MapError::Beyond(PhysAddr(start)));
        }
        let range = Mapping {
            ipa: GuestAddr(start),
            pa: PhysAddr(start),
            size: end - start,
        };
        let leaf = |pa, level| Descriptor::leaf_with(pa, what.bits(), level);
        self.0
            .map_leaves(&range, leaf)
            .map_err(|error| match error {
                MapError::Overlap(at) => El2MapError::Overlap(PhysAddr(at.0)),
                // A range that is not empty and below 512 GiB.
                _ => El2MapError::Unaligned(PhysAddr(start)),
            })
    }

    /// Whether something is mapped at an address.
    pub fn maps(&self, address: u64) -> bool {
        self.0.translate(GuestAddr(address)).is_some()
    }
}
