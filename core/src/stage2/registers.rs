// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers that make the tables known to the hardware, as values.

use super::IPA_BITS;
use core::fmt;
use spumone_config::types::{GuestId, PhysAddr};

/// What the cores can do, as far as stage 2 depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Size of physical addresses.
    pub pa_range: PaRange,
    /// FEAT_XNX: execution may be permitted at EL0 and EL1 apart.
    pub xnx: bool,
}

impl Features {
    /// Reads `ID_AA64MMFR0_EL1` and `ID_AA64MMFR1_EL1` (DDI 0487, chapter D24).
    ///
    /// # Errors
    ///
    /// Where the core has no 40-bit physical addresses or no 4 KiB granule at stage 2.
    pub const fn from_id_registers(mmfr0: u64, mmfr1: u64) -> Result<Self, Unsupported> {
        let pa_range = match mmfr0 & 0xf {
            // Fewer bits than the IPA has: VTCR_EL2 must not be programmed for 40 bits.
            0b0000 => return Err(Unsupported::PhysicalAddresses { bits: 32 }),
            0b0001 => return Err(Unsupported::PhysicalAddresses { bits: 36 }),
            0b0010 => PaRange::Bits40,
            0b0011 => PaRange::Bits42,
            0b0100 => PaRange::Bits44,
            // 52 bits and more: a 4 KiB granule reaches them with FEAT_LPA2 descriptors only.
            _ => PaRange::Bits48,
        };
        let granule_stage1 = mmfr0 >> 28 & 0xf;
        let granule_stage2 = mmfr0 >> 40 & 0xf;
        let has_granule = match granule_stage2 {
            // As at stage 1, where 0 and 1 mean supported.
            0 => granule_stage1 != 0xf,
            1 => false,
            _ => true,
        };
        if !has_granule {
            return Err(Unsupported::Granule);
        }
        Ok(Self {
            pa_range,
            xnx: mmfr1 >> 28 & 0xf != 0,
        })
    }
}

/// Size of physical addresses. The discriminant is the field's value in `VTCR_EL2.PS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PaRange {
    /// 1 TiB.
    Bits40 = 0b010,
    /// 4 TiB.
    Bits42 = 0b011,
    /// 16 TiB.
    Bits44 = 0b100,
    /// 256 TiB, or more than is used here.
    Bits48 = 0b101,
}

impl PaRange {
    /// Number of bits.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Bits40 => 40,
            Self::Bits42 => 42,
            Self::Bits44 => 44,
            Self::Bits48 => 48,
        }
    }
}

/// Why a core cannot serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// Its physical addresses are shorter than 40 bits.
    PhysicalAddresses {
        /// How long they are.
        bits: u32,
    },
    /// It has no 4 KiB granule at stage 2.
    Granule,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PhysicalAddresses { bits } => write!(
                f,
                "the core has {bits}-bit physical addresses (ID_AA64MMFR0_EL1.PARange): \
                 use one with {IPA_BITS} bits or more"
            ),
            Self::Granule => write!(
                f,
                "the core has no 4 KiB pages at stage 2 (ID_AA64MMFR0_EL1.TGran4): use another"
            ),
        }
    }
}

/// Value of `VTCR_EL2` for the tables of this module (DDI 0487, chapter D24).
///
/// Walks are write-back cacheable and inner shareable; VMIDs have 8 bits; the hardware updates
/// neither access flag nor dirty state.
pub const fn vtcr(features: Features) -> u64 {
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
    const RES1: u64 = 1 << 31;
    RES1 | (features.pa_range as u64) << 16 | TG0 | SH0 | ORGN0 | IRGN0 | SL0 | T0SZ
}

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
