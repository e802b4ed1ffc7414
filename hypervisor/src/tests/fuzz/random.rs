// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers that a seed repeats: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators,
//! 2014).

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub const fn below(&mut self, end: u64) -> u64 {
        self.any() % end
    }

    /// True once in `times`.
    pub const fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of these.
    pub const fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// A number that is small, near a power of two, or anything.
    pub const fn value(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(16),
            1 => 1u64 << self.below(64),
            2 => !(self.below(16)),
            _ => self.any(),
        }
    }
}
