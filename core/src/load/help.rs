// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which guests a core that idles helps to load.

use crate::schedule::Band;
use core::cmp::Reverse;
use heapless::Vec;
use spumone_config::GuestId;
use spumone_config::types::MAX_GUESTS;

/// The guests that a core helps to load, the highest band first. `own`: the highest band of the core's vCPUs; `loading`: the guests that are
/// being loaded, with their bands.
///
/// The core does not help a guest below its own vCPUs: an interrupt for such a vCPU would wait for a chunk, and on hardware
/// a page that goes to memory takes longer than its instructions.
pub fn guests_to_help(
    own: Option<Band>,
    loading: impl Iterator<Item = (GuestId, Band)>,
) -> Vec<GuestId, MAX_GUESTS> {
    // At most 8 times: guests.
    let helped = loading.filter(|&(_, band)| own <= Some(band));
    // At most 8 times: guests.
    let mut helped: Vec<_, MAX_GUESTS> = helped.take(MAX_GUESTS).collect();
    helped.sort_unstable_by_key(|&(guest, band)| (Reverse(band), guest.0));
    helped.iter().map(|&(guest, _)| guest).collect()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    fn band(rank: u8) -> Band {
        Band::new(rank).unwrap()
    }

    fn loading() -> impl Iterator<Item = (GuestId, Band)> {
        (0..).map(GuestId).zip([1, 2, 0].map(band))
    }

    #[test]
    fn the_most_urgent_guest_comes_first() {
        let helped = guests_to_help(None, loading());
        assert_eq!(helped, [1, 0, 2].map(GuestId));
    }

    #[test]
    fn a_core_does_not_help_a_guest_below_its_own_vcpus() {
        let helped = guests_to_help(Some(band(1)), loading());
        assert_eq!(helped, [1, 0].map(GuestId));
    }
}
