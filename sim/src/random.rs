// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers that are the same on every machine: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
//! generators, OOPSLA 2014).

/// A generator.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The sequence of a seed; each `stream` of a seed is another sequence.
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xd6e8_feb8_6659_fd93));
        random.next();
        random
    }

    /// The next 64 bits.
    #[inline]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `end`; 0 if that is 0. The bias is below `end` / 2^32.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        (self.next() >> 32).wrapping_mul(end) >> 32
    }

    /// A length near `mean`: from half of it to one and a half, at least 1.
    #[inline]
    pub fn around(&mut self, mean: u64) -> u64 {
        (mean / 2 + self.below(mean + 1)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_around_their_mean_and_streams_differ() {
        let mut random = Random::new(1, 0);
        let lengths: Vec<_> = (0..10_000).map(|_| random.around(1000)).collect();
        assert!(lengths.iter().all(|it| (500..=1500).contains(it)));
        let mean = lengths.iter().sum::<u64>() / 10_000;
        assert!((980..1020).contains(&mean), "{mean}");
        assert_ne!(Random::new(1, 0).next(), Random::new(1, 1).next());
        assert_eq!(Random::new(7, 3).next(), Random::new(7, 3).next());
    }
}
