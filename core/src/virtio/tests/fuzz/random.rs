// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers that a seed repeats: xorshift64* (Vigna: An experimental exploration of Marsaglia's xorshift generators,
//! scrambled, 2016).

/// A sequence of numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Neighbouring seeds are to differ in many bits, and none is zero.
        let mut random = Self(seed.wrapping_mul(0x5851_F42D_4C95_7F2D) ^ 0x1405_7B7E_F767_814F | 1);
        random.any();
        random
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `end`, which is small.
    pub fn below(&mut self, end: u64) -> u64 {
        ((self.any() >> 32) * end) >> 32
    }

    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn one_of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}
