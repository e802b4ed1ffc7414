// SPDX-License-Identifier: MIT OR Apache-2.0
//! Translation tables: stage 2 of the guests, and EL2's own stage 1.
//!
//! Stage 2 says what a guest takes for physical memory, and where it really is.
//!
//! A guest reaches exactly what is mapped here and nothing else, so these tables are the wall
//! between guests. They are built with the image, from ranges that are checked to be disjoint, and
//! nothing writes them afterwards: they lie in the bundle, which EL2 maps read-only and no guest
//! has. The tables of level 3 of a guest that runs from local memory are an exception: EL2 writes
//! those (`core/src/local`).
//!
//! Format: VMSAv8-64 (Arm ARM, DDI 0487, chapter D8), 4 KiB granule, 40-bit IPA, walk from level 1
//! on two concatenated tables ("Concatenated translation tables"), leaves of 1 GiB, 2 MiB and
//! 4 KiB. [`VTCR`] describes the same format to the hardware. [`El2Map`] uses this format for EL2's stage 1, an identity map.

mod attributes;
mod el2;
mod mapping;
mod pages;
mod registers;
mod tables;

#[cfg(test)]
mod oracle_tests;
#[cfg(test)]
mod tests;

pub use attributes::{Access, Attributes, Execute, Memory};
pub use el2::{El2Map, El2MapError, El2Use};
pub use mapping::pages_needed;
pub use pages::{Pages, ROOT_SIZE};
pub use registers::{PA_BITS, VTCR, Vmid, vttbr};
pub use tables::{MapError, Stage2};

/// Bytes of a page and of a translation table.
pub const PAGE_SIZE: u64 = 4096;

/// Bits of an intermediate physical address: a guest sees addresses below 1 TiB.
pub const IPA_BITS: u32 = 40;

/// Bits of an address at EL2: `TCR_EL2` as the entry code sets it.
const EL2_BITS: u32 = 39;

/// Descriptors in one table: with the 4 KiB granule, 9 bits of the address select one.
const ENTRIES: usize = 512;

/// Level 1 tables that lie one behind the other: 40 bits of IPA need 1024 level 1 descriptors.
const ROOT_TABLES: usize = 2;

/// A level of the walk; leaves may be at each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Entries of 1 GiB; where the walk starts.
    One,
    /// Entries of 2 MiB.
    Two,
    /// Entries of 4 KiB.
    Three,
}

impl Level {
    /// Bytes that one entry of this level maps.
    const fn entry_size(self) -> u64 {
        1 << self.shift()
    }

    /// The lowest address bit that selects an entry of this level.
    const fn shift(self) -> u32 {
        match self {
            Self::One => 30,
            Self::Two => 21,
            Self::Three => 12,
        }
    }
}
