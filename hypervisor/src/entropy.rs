//! Random numbers for guests: a kernel without entropy takes a global lock at every system call
//! (docs/guests.md), so each start hands out fresh seeds, and SMCCC TRNG is served.
//!
//! One seed comes from the firmware, or is fixed by the system description. Every user has a
//! ChaCha8 stream (eight rounds: drawn with interrupts masked) of its own, so cores share nothing and a fixed seed gives each life of each
//! guest the same numbers, whatever the order of events.

use crate::sysreg::mrs;
use dtoolkit::fdt::Fdt;
use dtoolkit::{Node, Property};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use spumone_config::{GuestId, PcpuId};

/// Where all randomness comes from. Never changes after start.
#[derive(Clone, Debug)]
pub struct Entropy {
    seed: [u8; 32],
    /// Whether the seed is as good as the firmware's.
    pub is_strong: bool,
}

impl Entropy {
    /// From the system description's fixed seed.
    pub fn fixed(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            seed: bytes,
            is_strong: true,
        }
    }

    /// From `/chosen/rng-seed` of the firmware's device tree; the counter alone, if there is none.
    pub fn from_firmware(tree: Option<&Fdt<'_>>) -> Self {
        let mut bytes = [0; 32];
        let mut is_strong = false;
        if let Some(chosen) = tree.and_then(|tree| tree.find_node("/chosen"))
            && let Some(property) = chosen.property("rng-seed")
        {
            for (to, from) in bytes.iter_mut().zip(property.value()) {
                *to = *from;
            }
            is_strong = property.value().len() >= 16;
        }
        for (to, from) in bytes.iter_mut().zip(mrs!(CNTPCT_EL0).to_le_bytes()) {
            *to ^= from;
        }
        Self {
            seed: bytes,
            is_strong,
        }
    }

    fn stream(&self, stream: u64) -> ChaCha8Rng {
        let mut generator = ChaCha8Rng::from_seed(self.seed);
        generator.set_stream(stream);
        generator
    }

    /// One of the random bytes that a guest is given in this life.
    pub fn byte_of_guest(&self, guest: GuestId, life: u32, number: u32) -> u8 {
        let mut generator = self.stream((u64::from(guest.0) << 32) | u64::from(life));
        generator.set_word_pos(u128::from(number));
        generator.next_u32() as u8
    }

    /// The numbers of a core, for TRNG calls of its guests.
    pub fn of_core(&self, core: PcpuId) -> ChaCha8Rng {
        const CORES: u64 = 1 << 63;
        self.stream(CORES | u64::from(core.0))
    }
}
