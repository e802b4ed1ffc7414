// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers for guests: a kernel without entropy takes a global lock at every system call
//! (docs/guests.md), so each start hands out fresh seeds, and SMCCC TRNG is served.
//!
//! One key comes from the firmware, or is fixed by the system description. Each core, and each life
//! of a guest, has a stream of its own, so cores share nothing and a fixed seed gives each life of
//! each guest the same numbers, whatever the order of events.
//!
//! Number n of a stream is SipHash-2-4 of the stream and n: a keyed pseudorandom function, of which
//! one value shows nothing about another. It takes about 160 instructions with interrupts masked,
//! where a block of a stream cipher takes 700 (docs/decisions.md).

use crate::sysreg::mrs;
use core::hash::Hasher;
use dtoolkit::fdt::Fdt;
use dtoolkit::{Node, Property};
use siphasher::sip::SipHasher24;
use spumone_config::{GuestId, PcpuId};

/// Bytes of the key.
const KEY: usize = 16;
/// Numbers of a TRNG call, which answers with up to 192 bits.
const NUMBERS: usize = 3;
/// Streams from here on are of cores; those below are of guests.
const CORES: u64 = 1 << 63;

/// The source of all random numbers. Never changes after start.
#[derive(Clone, Debug)]
pub struct Entropy {
    key: [u8; KEY],
    /// Whether the key is as good as the firmware's random numbers.
    pub is_strong: bool,
}

impl Entropy {
    /// From the system description's fixed seed.
    pub fn fixed(seed: u64) -> Self {
        let mut key = [0; KEY];
        key[..size_of::<u64>()].copy_from_slice(&seed.to_le_bytes());
        Self {
            key,
            is_strong: true,
        }
    }

    /// From the counter, and `/chosen/rng-seed` of the firmware's device tree if there is one.
    pub fn from_firmware(tree: Option<&Fdt<'_>>) -> Self {
        let mut key = [0; KEY];
        let mut is_strong = false;
        if let Some(chosen) = tree.and_then(|tree| tree.find_node("/chosen"))
            && let Some(property) = chosen.property("rng-seed")
        {
            // All bytes of a longer seed count.
            for part in property.value().chunks(KEY) {
                mix(&mut key, part);
            }
            is_strong = property.value().len() >= KEY;
        }
        mix(&mut key, &mrs!(CNTPCT_EL0).to_le_bytes());
        Self { key, is_strong }
    }

    fn number(&self, stream: u64, number: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write_u64(stream);
        hasher.write_u64(number);
        hasher.finish()
    }

    /// Byte `number` of the random seeds that a guest gets in its device tree in this life.
    pub fn byte_of_guest(&self, guest: GuestId, life: u32, number: u32) -> u8 {
        const BYTES: u32 = size_of::<u64>() as u32;
        let stream = (u64::from(guest.0) << 32) | u64::from(life);
        self.number(stream, u64::from(number / BYTES)).to_le_bytes()[(number % BYTES) as usize]
    }

    /// The stream of a core, for TRNG calls of the vCPUs it runs.
    pub fn of_core(&self, core: PcpuId) -> Stream {
        Stream {
            entropy: self.clone(),
            stream: CORES | u64::from(core.0),
            next: 0,
            drawn: [0; NUMBERS],
            count: 0,
        }
    }
}

fn mix(key: &mut [u8; KEY], with: &[u8]) {
    for (to, from) in key.iter_mut().zip(with) {
        *to ^= from;
    }
}

/// An endless stream of random numbers.
pub struct Stream {
    entropy: Entropy,
    stream: u64,
    /// Which number is next. A guest cannot use up 2^64 of them.
    next: u64,
    /// Numbers that were drawn and not taken yet: the first `count`.
    drawn: [u64; NUMBERS],
    count: usize,
}

impl Stream {
    /// The numbers of a call. `None` if the core is interrupted while it draws them: what was drawn is kept for the next attempt, so each
    /// attempt gets on.
    pub fn take(&mut self, is_interrupted: impl Fn() -> bool) -> Option<[u64; NUMBERS]> {
        // At most 3 times: numbers of a call.
        while let Some(place) = self.drawn.get_mut(self.count) {
            *place = self.entropy.number(self.stream, self.next);
            self.next = self.next.wrapping_add(1);
            self.count += 1;
            if self.count < NUMBERS && is_interrupted() {
                return None;
            }
        }
        self.count = 0;
        Some(core::mem::take(&mut self.drawn))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;

    #[test]
    fn numbers_are_the_same_however_often_a_core_is_interrupted() {
        let stream = || Entropy::fixed(7).of_core(PcpuId(1));
        let (mut quiet, mut interrupted) = (stream(), stream());
        for _ in 0..10 {
            let looks = Cell::new(0);
            let is_interrupted = || {
                looks.set(looks.get() + 1);
                true
            };
            let numbers = core::iter::repeat_with(|| interrupted.take(is_interrupted))
                .take(NUMBERS)
                .flatten()
                .next();
            assert_eq!(numbers, quiet.take(|| false));
            assert!(numbers.is_some_and(|it| it[0] != it[1] && it[2] != 0));
            assert_eq!(looks.get(), NUMBERS - 1);
        }
    }
}
