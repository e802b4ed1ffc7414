// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pseudorandom numbers: xorshift64*. The same seed gives the same numbers.

/// A generator.
pub struct Random(u64);

impl Random {
    /// Starts with a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// The next 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A number below `limit`.
    pub const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
