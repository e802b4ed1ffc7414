// SPDX-License-Identifier: MIT OR Apache-2.0
//! GIC priorities and the priority mask: the GIC itself holds back interrupts for lower bands.
//!
//! A kick has the band of its vCPU; an SPI, or mail about a guest, the highest band of the guest's vCPUs. While a vCPU of
//! band b runs, the priority mask lets interrupts of band b and above through and keeps those of lower bands pending in the
//! GIC, so they cost the vCPU no time. When the core runs a lower band again or idles, the mask lets them through and the
//! core takes them.
//!
//! Lower numbers are higher GIC priorities, and the mask lets through what is strictly below it
//! (IHI 0069, 4.8 "Interrupt prioritization"). Everything is a multiple of 16: a GICv3 has at least
//! 16 levels, also in the Non-secure view of one that is shared with a secure world (4.8).
//!
//! | GIC priority | for |
//! | --- | --- |
//! | 0x00 | EL2's alarm (`CNTHP`) |
//! | 0x10 | private interrupts of the loaded vCPU: its timers, GIC maintenance |
//! | 0x20 | band 7 |
//! | … | … |
//! | 0x90 | band 0 |

use super::Band;
use spumone_config::packed::InterruptPriorities;
use spumone_config::types::IntId;

/// A value of `GICD_IPRIORITYR`, `GICR_IPRIORITYR` or `ICC_PMR_EL1`: a lower number is a higher priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GicPriority(pub u8);

/// The distance between two levels: the largest that a GICv3 may have.
const STEP: u8 = 0x10;

/// The priority of EL2's alarm: no mask holds it back.
pub const ALARM_PRIORITY: GicPriority = GicPriority(0x00);

/// The priority of the private interrupts that always concern the loaded vCPU. No mask holds them back.
pub const OWN_PRIORITY: GicPriority = GicPriority(STEP);

/// The priority of the highest band. Each lower band is one step below.
const HIGHEST_BAND_PRIORITY: u8 = 2 * STEP;

/// The mask that lets every interrupt through.
const MASK_NOTHING: GicPriority = GicPriority(0xf0);

/// The priority of this band's interrupts: SPIs, kicks and mail.
pub const fn band_priority(band: Band) -> GicPriority {
    GicPriority(HIGHEST_BAND_PRIORITY + (Band::COUNT - 1 - band.index()) as u8 * STEP)
}

/// Value of `ICC_PMR_EL1` while a vCPU of band `running` runs, or while the core idles (`None`).
///
/// Interrupts of lower bands stay pending, if priorities are split. On an idle core and for the lowest
/// band, nothing is masked.
pub const fn priority_mask(priorities: InterruptPriorities, running: Option<Band>) -> GicPriority {
    match (priorities, running) {
        (InterruptPriorities::Split, Some(band)) => GicPriority(band_priority(band).0 + STEP),
        (InterruptPriorities::Flat, _) | (_, None) => MASK_NOTHING,
    }
}

/// The SGI (0 to 7) for kicks and mail of this band.
///
/// Each band has its own, with [`band_priority`], so that a kick for a lower band waits in the GIC while a higher band
/// runs.
pub const fn kick_sgi(band: Band) -> IntId {
    IntId(band.index() as u16)
}

const _: () = assert!(
    Band::COUNT <= 8,
    "SGI 8 to 15 may belong to a secure world (IHI 0069, section 2.2)"
);
const _: () = assert!(
    HIGHEST_BAND_PRIORITY as usize + Band::COUNT * STEP as usize <= MASK_NOTHING.0 as usize,
    "the lowest band needs a priority that can be masked and one that lets it through"
);

#[cfg(test)]
mod tests {
    use super::InterruptPriorities::{Flat, Split};
    use super::*;
    use std::vec::Vec;

    fn bands() -> Vec<Band> {
        (0..Band::COUNT as u8).filter_map(Band::new).collect()
    }

    /// What the GIC does with a pending interrupt (IHI 0069, 4.8).
    fn passes(priority: GicPriority, mask: GicPriority) -> bool {
        priority.0 < mask.0
    }

    #[test]
    fn a_running_band_masks_lower_bands_only() {
        for running in bands() {
            for interrupt in bands() {
                assert_eq!(
                    passes(
                        band_priority(interrupt),
                        priority_mask(Split, Some(running))
                    ),
                    interrupt >= running,
                );
            }
        }
    }

    #[test]
    fn flat_priorities_mask_nothing() {
        for running in bands() {
            for interrupt in bands() {
                let mask = priority_mask(Flat, Some(running));
                assert!(passes(band_priority(interrupt), mask));
            }
        }
    }

    #[test]
    fn nothing_is_masked_while_idle() {
        for band in bands() {
            assert!(passes(band_priority(band), priority_mask(Split, None)));
        }
    }

    #[test]
    fn alarm_and_own_interrupts_always_pass_and_come_first() {
        for band in bands() {
            for own in [ALARM_PRIORITY, OWN_PRIORITY] {
                assert!(passes(own, priority_mask(Split, Some(band))));
                assert!(own < band_priority(band));
            }
        }
    }

    #[test]
    fn sixteen_levels_suffice() {
        for band in bands() {
            assert_eq!(band_priority(band).0 % 0x10, 0);
            assert_eq!(priority_mask(Split, Some(band)).0 % 0x10, 0);
        }
        assert_eq!(priority_mask(Split, None).0 % 0x10, 0);
    }

    #[test]
    fn each_band_has_its_own_sgi() {
        let sgis: Vec<_> = bands().into_iter().map(|b| kick_sgi(b).0).collect();
        assert_eq!(sgis, (0..8).collect::<Vec<_>>());
    }
}
