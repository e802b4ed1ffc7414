// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers of the bits that are set in a word.

/// The positions of the bits that are set, lowest first.
#[inline(always)]
pub fn bits(mut word: u32) -> impl Iterator<Item = u32> {
    core::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let bit = word.trailing_zeros();
        word &= word - 1;
        Some(bit)
    })
}
