// SPDX-License-Identifier: MIT OR Apache-2.0
//! Work for many SPIs is done in parts, between which the core looks for interrupts.

/// With so many SPIs the core works before it looks for interrupts again.
pub(super) const PART: usize = if cfg!(test) { 1 } else { 4 };

/// The lowest SPIs of `rest`, of which at most [`PART`] are `costly`.
pub(super) fn part_of(rest: u32, costly: u32) -> u32 {
    let mut later = rest & costly;
    for _ in 0..PART {
        later &= later.wrapping_sub(1);
    }
    rest & !later
}

/// Whether these SPIs are one part.
pub(super) fn are_few(spis: u32) -> bool {
    part_of(spis, u32::MAX) == spis
}
