// SPDX-License-Identifier: MIT OR Apache-2.0
//! An entry of a stage 2 table of level 3 that EL2 writes.
//!
//! Source: Arm ARM DDI 0487, chapter D8, "VMSAv8-64 descriptor formats". Those of tables that are made with the image are the same
//! (`config/src/stage2`).

use spumone_config::PhysAddr;

/// An entry: no page, or a page in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

const VALID_PAGE: u64 = 0b11;
/// Normal memory, write-back cacheable.
const WRITE_BACK: u64 = 0b1111 << 2;
/// `S2AP`.
const READ: u64 = 1 << 6;
const WRITE: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
/// If it is clear, an access faults; the TLB does not have such an entry.
const ACCESS: u64 = 1 << 10;
const ADDRESS: u64 = 0x0000_FFFF_FFFF_F000;

impl Entry {
    /// No page: each access faults.
    pub(super) const NONE: Self = Self(0);

    /// A page that was accessed, in the frame at `at`.
    pub(super) const fn page(at: PhysAddr, is_written: bool) -> Self {
        let write = if is_written { WRITE } else { 0 };
        Self(at.0 & ADDRESS | VALID_PAGE | WRITE_BACK | READ | write | INNER_SHAREABLE | ACCESS)
    }

    /// Whether the page is in a frame.
    pub(super) const fn is_here(self) -> bool {
        self.0 & VALID_PAGE == VALID_PAGE
    }

    /// Whether the guest may write the page: it has done so since the page was brought here.
    pub(super) const fn is_written(self) -> bool {
        self.0 & WRITE != 0
    }

    /// Whether the page was accessed since [`Self::aged`].
    pub(super) const fn is_accessed(self) -> bool {
        self.0 & ACCESS != 0
    }

    /// The same page, accessed.
    pub(super) const fn accessed(self) -> Self {
        Self(self.0 | ACCESS)
    }

    /// The same page, not accessed.
    pub(super) const fn aged(self) -> Self {
        Self(self.0 & !ACCESS)
    }

    /// The same page, written and accessed.
    pub(super) const fn written(self) -> Self {
        Self(self.0 | WRITE | ACCESS)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use spumone_config::GuestAddr;
    use spumone_config::packed::Mapping;
    use spumone_config::stage2::{Access, Attributes, Pages, Stage2};

    /// The entry that the tool makes for a page.
    fn made(at: PhysAddr, access: Access) -> u64 {
        let mut pages = Pages::new(PhysAddr(0x8000));
        let mapping = Mapping {
            ipa: GuestAddr(0),
            pa: at,
            size: 4096,
        };
        let attributes = Attributes {
            access,
            ..Attributes::RAM
        };
        Stage2::new(&mut pages).map(&mapping, attributes).unwrap();
        let bytes = pages.to_bytes();
        let table = bytes.len() - 4096;
        u64::from_le_bytes(bytes[table..table + 8].try_into().unwrap())
    }

    #[test]
    fn entries_are_those_of_tables_that_are_made_with_the_image() {
        let at = PhysAddr(0x40_1234_5000);
        assert_eq!(Entry::page(at, false).0, made(at, Access::ReadOnly));
        assert_eq!(Entry::page(at, true).0, made(at, Access::ReadWrite));
    }

    #[test]
    fn an_entry_says_what_became_of_its_page() {
        let page = Entry::page(PhysAddr(0x1000), false);
        assert!(page.is_here() && page.is_accessed() && !page.is_written());
        assert!(!page.aged().is_accessed() && page.aged().is_here());
        assert_eq!(page.aged().accessed(), page);
        assert_eq!(page.aged().written(), Entry::page(PhysAddr(0x1000), true));
        assert!(!Entry::NONE.is_here());
    }
}
