// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether a core can use the guests' stage 2 tables, which are made with the image.
//!
//! Source: `ID_AA64MMFR0_EL1`, `ID_AA64MMFR1_EL1` and `VTCR_EL2` (Arm ARM, DDI 0487, chapter D24).

use core::fmt;

/// Why a core cannot use the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsupported {
    /// Its physical addresses are shorter than those of the tables.
    PhysicalAddresses {
        /// How many bits it has.
        has: u32,
        /// How many bits the tables have.
        needs: u32,
    },
    /// It has no 4 KiB granule at stage 2.
    Granule,
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PhysicalAddresses { has, needs } => write!(
                f,
                "the core has {has}-bit physical addresses (ID_AA64MMFR0_EL1.PARange): \
                 use one with {needs} bits or more"
            ),
            Self::Granule => write!(
                f,
                "the core has no 4 KiB pages at stage 2 (ID_AA64MMFR0_EL1.TGran4): use another"
            ),
        }
    }
}

/// Checks a core against the format of the tables: `vtcr` is `VTCR_EL2` of the tables, `mmfr0` the core's
/// `ID_AA64MMFR0_EL1`.
///
/// # Errors
///
/// [`Unsupported`] where the core has shorter physical addresses, or no 4 KiB granule.
pub const fn check(vtcr: u64, mmfr0: u64) -> Result<(), Unsupported> {
    /// Bits of a physical address by `VTCR_EL2.PS` and `ID_AA64MMFR0_EL1.PARange`.
    const BITS: [u32; 8] = [32, 36, 40, 42, 44, 48, 52, 56];
    let needs = (vtcr >> 16 & 7) as usize;
    let has = (mmfr0 & 0xf) as usize;
    if has < needs {
        return Err(Unsupported::PhysicalAddresses {
            has: BITS[has],
            needs: BITS[needs],
        });
    }
    let granule_stage1 = mmfr0 >> 28 & 0xf;
    let has_granule = match mmfr0 >> 40 & 0xf {
        // As at stage 1, where 0 and 1 mean supported.
        0 => granule_stage1 != 0xf,
        1 => false,
        _ => true,
    };
    match has_granule {
        true => Ok(()),
        false => Err(Unsupported::Granule),
    }
}

/// Whether a core can permit execution at EL0 and EL1 separately (FEAT_XNX), which some tables need.
pub const fn has_xnx(mmfr1: u64) -> bool {
    mmfr1 >> 28 & 0xf != 0
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    /// 40 bits.
    const VTCR: u64 = 0x8002_3558;

    #[test]
    fn cores_must_have_physical_addresses_as_long_as_those_of_the_tables() {
        let short = |has| Err(Unsupported::PhysicalAddresses { has, needs: 40 });
        for (range, expected) in [(0, short(32)), (1, short(36)), (2, Ok(())), (6, Ok(()))] {
            assert_eq!(check(VTCR, range), expected);
        }
        // Tables of 48 bits.
        assert_eq!(
            check(0x8005_3558, 4),
            Err(Unsupported::PhysicalAddresses { has: 44, needs: 48 })
        );
        assert_eq!(check(0x8005_3558, 5), Ok(()));
    }

    #[test]
    fn cores_must_have_small_pages() {
        let granules = |stage1: u64, stage2: u64| check(VTCR, 2 | stage1 << 28 | stage2 << 40);
        assert_eq!(granules(0, 0), Ok(()));
        assert_eq!(granules(1, 0), Ok(()));
        assert_eq!(granules(0xf, 0), Err(Unsupported::Granule));
        assert_eq!(granules(0, 1), Err(Unsupported::Granule));
        assert_eq!(granules(0xf, 2), Ok(()));
    }

    #[test]
    fn some_cores_permit_execution_at_el0_and_el1_separately() {
        // Cortex-A76, and Cortex-A53.
        assert!(has_xnx(0x1021_2122) && !has_xnx(0));
    }
}
