// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers that make the tables known to the hardware, as values.

use super::IPA_BITS;
use crate::types::{GuestId, PhysAddr};

/// Bits of a physical address in the tables: EL2's own map has fewer.
pub const PA_BITS: u32 = 40;

/// Value of `VTCR_EL2` for the tables of this module (DDI 0487, chapter D24). The hypervisor checks at start that the cores
/// can do what it says.
///
/// Walks are write-back cacheable and inner shareable; VMIDs have 8 bits; the hardware updates
/// neither access flag nor dirty state.
pub const VTCR: u64 = {
    const T0SZ: u64 = (64 - IPA_BITS) as u64;
    /// Start at level 1 (4 KiB granule).
    const SL0: u64 = 0b01 << 6;
    /// Inner and outer write-back, read- and write-allocate.
    const IRGN0: u64 = 0b01 << 8;
    const ORGN0: u64 = 0b01 << 10;
    /// Inner shareable.
    const SH0: u64 = 0b11 << 12;
    /// 4 KiB granule.
    const TG0: u64 = 0b00 << 14;
    /// Physical addresses of [`PA_BITS`].
    const PS: u64 = 0b010 << 16;
    const RES1: u64 = 1 << 31;
    RES1 | PS | TG0 | SH0 | ORGN0 | IRGN0 | SL0 | T0SZ
};

/// Tags the TLB entries of one set of tables; 8 bits, which every core has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Vmid(pub u8);

impl Vmid {
    /// The guest's own VMID. 0 is left to the time before any guest is entered.
    pub const fn of(guest: GuestId) -> Self {
        Self(guest.0.saturating_add(1))
    }
}

/// Value of `VTTBR_EL2` for tables at `root`, 8 KiB aligned (DDI 0487, chapter D24).
///
/// CnP is 0: cores do not share TLB entries.
pub const fn vttbr(vmid: Vmid, root: PhysAddr) -> u64 {
    const VMID_SHIFT: u32 = 48;
    const BADDR_MASK: u64 = 0x0000_ffff_ffff_fffe;
    (vmid.0 as u64) << VMID_SHIFT | root.0 & BADDR_MASK
}
