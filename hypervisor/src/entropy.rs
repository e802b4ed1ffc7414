// SPDX-License-Identifier: MIT OR Apache-2.0
//! Random numbers for guests: a kernel without entropy takes a global lock at every system call
//! (docs/guests.md), so each start hands out fresh seeds, and SMCCC TRNG is served.
//!
//! One seed comes from the firmware, or is fixed by the system description. Each core, and each life
//! of a guest, has a ChaCha8 stream of its own, so cores share nothing and a fixed seed gives each
//! life of each guest the same numbers, whatever the order of events. The cipher has eight rounds,
//! and computes one block at a time, because it runs with interrupts masked.

use crate::sysreg::mrs;
use chacha20::cipher::{Array, KeyIvInit, StreamCipher, StreamCipherCore};
use chacha20::variants::Ietf;
use chacha20::{ChaCha8, ChaChaCore, R8};
use dtoolkit::fdt::Fdt;
use dtoolkit::{Node, Property};
use spumone_config::{GuestId, PcpuId};

/// The seed of all random numbers. Never changes after start.
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

    /// From the counter, and `/chosen/rng-seed` of the firmware's device tree if there is one.
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

    fn blocks(&self, stream: u64) -> ChaChaCore<R8, Ietf> {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&stream.to_le_bytes());
        ChaChaCore::new((&self.seed).into(), (&nonce).into())
    }

    /// Byte `number` of the random seeds that a guest gets in its device tree in this life.
    pub fn byte_of_guest(&self, guest: GuestId, life: u32, number: u32) -> u8 {
        let mut blocks = self.blocks((u64::from(guest.0) << 32) | u64::from(life));
        // The core is used directly: filling the buffer of `ChaCha8` takes as long as the block itself.
        let mut block = Array::from([0; 64]);
        blocks.set_block_pos(number / 64);
        blocks.write_keystream_block(&mut block);
        block[number as usize % 64]
    }

    /// The stream of a core, for TRNG calls of the vCPUs it runs.
    pub fn of_core(&self, core: PcpuId) -> Stream {
        const CORES: u64 = 1 << 63;
        Stream::new(ChaCha8::from_core(self.blocks(CORES | u64::from(core.0))))
    }
}

/// Bytes computed at start, when no guest runs: more than a Linux asks for while it boots. Later
/// ones are computed on demand, 64 at a time, which takes some 700 instructions.
const STOCK: usize = 512;

/// An endless stream of random numbers.
pub struct Stream {
    cipher: ChaCha8,
    /// The key that follows when the cipher's 256 GiB are used up: a guest can draw them within hours.
    next_key: [u8; 32],
    stock: [u8; STOCK],
    /// Bytes of the stock that are left, from its start.
    left: usize,
}

impl Stream {
    fn new(mut cipher: ChaCha8) -> Self {
        let (mut next_key, mut stock) = ([0; 32], [0; STOCK]);
        cipher.apply_keystream(&mut next_key);
        cipher.apply_keystream(&mut stock);
        Self {
            cipher,
            next_key,
            stock,
            left: STOCK,
        }
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        if let Some((_, last)) = self.stock[..self.left.min(STOCK)].split_last_chunk_mut() {
            self.left -= size_of::<u64>();
            // `take` clears it: numbers already handed out do not stay in memory.
            return u64::from_le_bytes(core::mem::take(last));
        }
        let mut bytes = [0; size_of::<u64>()];
        if self.cipher.try_apply_keystream(&mut bytes).is_err() {
            self.cipher = ChaCha8::new(&self.next_key.into(), &[0; 12].into());
            self.cipher.apply_keystream(&mut self.next_key);
            self.cipher.apply_keystream(&mut bytes);
        }
        u64::from_le_bytes(bytes)
    }
}
