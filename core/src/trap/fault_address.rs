// SPDX-License-Identifier: MIT OR Apache-2.0
//! The address of an access that faulted at stage 2.

use super::syndrome::Syndrome;
use spumone_config::types::GuestAddr;

/// The address that faulted at stage 2, from `HPFAR_EL2` (bits above the page) and `FAR_EL2`
/// (offset in the page).
///
/// `None` where the architecture leaves `HPFAR_EL2` unknown, that is for a permission fault which did not arise from a
/// stage 1 walk, and for faults other than translation, access flag and address size: then the hypervisor translates
/// `FAR_EL2` itself with `AT S1E1R`.
pub const fn fault_ipa(syndrome: Syndrome, far: u64, hpfar: u64) -> Option<GuestAddr> {
    /// `HPFAR_EL2.FIPA`: bits 47:4 are bits 55:12 of the address.
    const FIPA: u64 = 0x0000_ffff_ffff_fff0;
    let known = match syndrome.fault_status() {
        // Address size, translation, access flag at levels 0 to 3; address size and translation at level -1.
        0b00_0000..=0b00_1011 | 0b10_1001 | 0b10_1011 => true,
        // Permission.
        0b00_1100..=0b00_1111 => syndrome.is_stage1_walk(),
        _ => false,
    };
    if !known {
        return None;
    }
    let page = (hpfar & FIPA) << 8;
    // If the walk faulted, FAR_EL2 is the address that was being translated, not that of the descriptor: only the page
    // is known.
    let offset = if syndrome.is_stage1_walk() {
        0
    } else {
        far & 0xfff
    };
    Some(GuestAddr(page | offset))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DATA_ABORT: u64 = 0x92 << 24;
    const S1PTW: u64 = 1 << 7;

    #[test]
    fn the_faulting_address_is_composed_of_page_and_offset() {
        // The page 0x9041000 and the offset of a kernel address.
        let ipa = |esr| fault_ipa(Syndrome(esr), 0xffff_8000_0801_2030, 0x90410);
        let found = Some(GuestAddr(0x904_1030));
        assert_eq!(ipa(DATA_ABORT | 0b00_0111), found);
        assert_eq!(ipa(DATA_ABORT | 0b00_1011), found);
        assert_eq!(ipa(DATA_ABORT), found); // address size, level 0
        // For a walk only the page is known.
        assert_eq!(
            ipa(DATA_ABORT | S1PTW | 0b00_0111),
            Some(GuestAddr(0x904_1000))
        );
        assert_eq!(
            ipa(DATA_ABORT | S1PTW | 0b00_1111),
            Some(GuestAddr(0x904_1000))
        );
    }

    #[test]
    fn where_hpfar_is_unknown_there_is_no_address() {
        for code in [0b00_1111, 0b01_0000, 0b10_0001, 0b11_0000] {
            assert_eq!(fault_ipa(Syndrome(DATA_ABORT | code), 0, u64::MAX), None);
        }
    }

    proptest! {
        #[test]
        fn bits_of_hpfar_outside_the_address_are_ignored(page in 0u64..1 << 44, offset in 0u64..4096) {
            let hpfar = page << 4 | 0xf | 1 << 63;
            let found = fault_ipa(Syndrome(DATA_ABORT | 7), 0xabc << 12 | offset, hpfar);
            prop_assert_eq!(found, Some(GuestAddr(page << 12 | offset)));
        }
    }
}
