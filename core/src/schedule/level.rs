// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a core runs, as one number.

use super::Band;

/// The band that a core runs, as a number: 0 while it idles, one more than the band otherwise, and a number above all of these while it is off. Comparing two levels takes one
/// instruction, comparing two `Option<Band>` takes eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(u8);

impl Level {
    /// The core idles.
    pub const IDLE: Self = Self(0);

    /// The core is off: above every band, since it runs no vCPU.
    pub const OFF: Self = Self(Band::COUNT as u8 + 1);

    /// The level of a core that runs this band.
    #[inline(always)]
    pub const fn of(band: Option<Band>) -> Self {
        match band {
            Some(band) => Self(band.index() as u8 + 1),
            None => Self::IDLE,
        }
    }

    /// The level of the highest of these bands; bit n stands for band n.
    #[inline(always)]
    pub(super) const fn of_highest(bands: u8) -> Self {
        Self((u32::BITS - (bands as u32).leading_zeros()) as u8)
    }

    /// As a number.
    #[inline(always)]
    pub(crate) const fn number(self) -> u8 {
        self.0
    }

    /// The level with this number, which came from [`Self::number`].
    #[inline(always)]
    pub(crate) const fn from_number(number: u8) -> Self {
        Self(number)
    }
}
