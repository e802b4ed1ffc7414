// SPDX-License-Identifier: MIT OR Apache-2.0
//! SHA-256 (FIPS 180-4), in steps: a core at EL2 looks for interrupts between them.
//!
//! Cores with FEAT_SHA256 hash a block in some hundred instructions (`hypervisor/src/hardware/sha256.rs`). Without it a block takes
//! more than two thousand, so [`Rounds`] can stop after every eighth of it. Libraries hash whole blocks only; tests compare with one.

use spumone_config::packed::Hash;

/// The hash value between two blocks.
pub type State = [u32; 8];

/// Bytes of a block.
pub const BLOCK: usize = 64;
/// Bytes of the message's length, in its last block.
const LENGTH: usize = 8;
/// Rounds that hash a block.
const ROUNDS: usize = 64;

/// The hash value before the first block (5.3.3).
pub const INITIAL: State = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// The constants of the rounds (4.2.2).
#[rustfmt::skip]
pub static CONSTANTS: [u32; ROUNDS] = [
    0x428a_2f98, 0x7137_4491, 0xb5c0_fbcf, 0xe9b5_dba5, 0x3956_c25b, 0x59f1_11f1, 0x923f_82a4, 0xab1c_5ed5,
    0xd807_aa98, 0x1283_5b01, 0x2431_85be, 0x550c_7dc3, 0x72be_5d74, 0x80de_b1fe, 0x9bdc_06a7, 0xc19b_f174,
    0xe49b_69c1, 0xefbe_4786, 0x0fc1_9dc6, 0x240c_a1cc, 0x2de9_2c6f, 0x4a74_84aa, 0x5cb0_a9dc, 0x76f9_88da,
    0x983e_5152, 0xa831_c66d, 0xb003_27c8, 0xbf59_7fc7, 0xc6e0_0bf3, 0xd5a7_9147, 0x06ca_6351, 0x1429_2967,
    0x27b7_0a85, 0x2e1b_2138, 0x4d2c_6dfc, 0x5338_0d13, 0x650a_7354, 0x766a_0abb, 0x81c2_c92e, 0x9272_2c85,
    0xa2bf_e8a1, 0xa81a_664b, 0xc24b_8b70, 0xc76c_51a3, 0xd192_e819, 0xd699_0624, 0xf40e_3585, 0x106a_a070,
    0x19a4_c116, 0x1e37_6c08, 0x2748_774c, 0x34b0_bcb5, 0x391c_0cb3, 0x4ed8_aa4a, 0x5b9c_ca4f, 0x682e_6ff3,
    0x748f_82ee, 0x78a5_636f, 0x84c8_7814, 0x8cc7_0208, 0x90be_fffa, 0xa450_6ceb, 0xbef9_a3f7, 0xc671_78f2,
];

/// A block that is being hashed.
#[derive(Clone, Copy, Debug)]
pub struct Rounds {
    working: State,
    /// The last sixteen words of the message schedule; word n is at n modulo 16.
    words: [u32; 16],
    done: usize,
}

impl Rounds {
    /// Rounds of a step: about three hundred instructions.
    const PER_STEP: usize = 8;

    /// The next block of a message whose former blocks have led to `state`.
    pub fn new(state: &State, block: &[u8; BLOCK]) -> Self {
        let mut words = [0; 16];
        let (bytes, _) = block.as_chunks::<4>();
        // At most 16 times: words of a block.
        for (word, bytes) in words.iter_mut().zip(bytes) {
            *word = u32::from_be_bytes(*bytes);
        }
        Self {
            working: *state,
            words,
            done: 0,
        }
    }

    /// The next rounds (6.2.2). Returns whether the block is done; it then has changed `state`.
    pub fn step(&mut self, state: &mut State) -> bool {
        let mut a = self.working;
        // At most 8 times: `PER_STEP`.
        for round in self.done..self.done + Self::PER_STEP {
            let word = self.word(round);
            let [.., e, f, g, h] = a;
            let sum1 = e.rotate_right(6) ^ e.rotate_right(11) ^ e.rotate_right(25);
            let choice = (e & f) ^ (!e & g);
            let constant = CONSTANTS[round % ROUNDS];
            let one = h
                .wrapping_add(sum1)
                .wrapping_add(choice)
                .wrapping_add(constant)
                .wrapping_add(word);
            let sum0 = a[0].rotate_right(2) ^ a[0].rotate_right(13) ^ a[0].rotate_right(22);
            let majority = (a[0] & a[1]) ^ (a[0] & a[2]) ^ (a[1] & a[2]);
            let two = sum0.wrapping_add(majority);
            let next = one.wrapping_add(two);
            a = [next, a[0], a[1], a[2], a[3].wrapping_add(one), e, f, g];
        }
        self.working = a;
        self.done += Self::PER_STEP;
        let is_done = self.done >= ROUNDS;
        if is_done {
            // At most 8 times: words of the state.
            for (word, working) in state.iter_mut().zip(self.working) {
                *word = word.wrapping_add(working);
            }
        }
        is_done
    }

    /// The word of the message schedule of a round.
    fn word(&mut self, round: usize) -> u32 {
        let at = |back: usize| (round + 16 - back) % 16;
        if round >= 16 {
            let (w2, w7) = (self.words[at(2)], self.words[at(7)]);
            let (w15, w16) = (self.words[at(15)], self.words[at(16)]);
            let sigma1 = w2.rotate_right(17) ^ w2.rotate_right(19) ^ w2 >> 10;
            let sigma0 = w15.rotate_right(7) ^ w15.rotate_right(18) ^ w15 >> 3;
            self.words[at(16)] = sigma1
                .wrapping_add(w7)
                .wrapping_add(sigma0)
                .wrapping_add(w16);
        }
        self.words[round % 16]
    }
}

/// How many blocks [`last_block`] makes of a message whose last incomplete block has so many bytes (5.1.1).
pub const fn last_blocks(tail: usize) -> usize {
    match tail + 1 + LENGTH > BLOCK {
        true => 2,
        false => 1,
    }
}

/// The end of a message of `length` bytes, whose last incomplete block is the first `tail` bytes of `bytes`: block `number` of
/// [`last_blocks`].
pub fn last_block(bytes: &[u8; BLOCK], tail: usize, length: u64, number: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut at = 0;
    // At most 64 times: bytes of a block.
    while number == 0 && at < tail && at < BLOCK {
        block[at] = bytes[at];
        at += 1;
    }
    if number == 0 && tail < BLOCK {
        block[tail] = 0x80;
    }
    if number + 1 == last_blocks(tail) {
        block[BLOCK - LENGTH..].copy_from_slice(&(8 * length).to_be_bytes());
    }
    block
}

/// The hash of a message that has led to this state.
pub fn finish(state: &State) -> Hash {
    let mut hash = Hash::default();
    let (words, _) = hash.0.as_chunks_mut::<4>();
    // At most 8 times: words of the state.
    for (place, word) in words.iter_mut().zip(state) {
        *place = word.to_be_bytes();
    }
    hash
}

/// Whether a message that has led to this state has this hash.
pub fn is(state: &State, hash: &Hash) -> bool {
    let (words, _) = hash.0.as_chunks::<4>();
    let mut words = state.iter().zip(words);
    // At most 8 times: words of the state.
    words.all(|(word, bytes)| *word == u32::from_be_bytes(*bytes))
}

/// The hash of a message in memory, by a function that hashes blocks. Not between two looks for interrupts.
pub fn hash(message: &[u8], mut compress: impl FnMut(&mut State, &[[u8; BLOCK]])) -> Hash {
    let mut state = INITIAL;
    let (blocks, rest) = message.as_chunks::<BLOCK>();
    compress(&mut state, blocks);
    let mut tail = [0; BLOCK];
    tail[..rest.len()].copy_from_slice(rest);
    for number in 0..last_blocks(rest.len()) {
        let block = last_block(&tail, rest.len(), message.len() as u64, number);
        compress(&mut state, &[block]);
    }
    finish(&state)
}

/// Hashes blocks without instructions of the core for it.
pub fn compress(state: &mut State, blocks: &[[u8; BLOCK]]) {
    for block in blocks {
        let mut rounds = Rounds::new(state, block);
        while !rounds.step(state) {}
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::{Digest, Sha256};
    use std::vec::Vec;

    #[test]
    fn the_example_of_the_standard() {
        // FIPS 180-4 refers to these: "abc".
        let abc = [
            0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae,
            0x22, 0x23, 0xb0, 0x03, 0x61, 0xa3, 0x96, 0x17, 0x7a, 0x9c, 0xb4, 0x10, 0xff, 0x61,
            0xf2, 0x00, 0x15, 0xad,
        ];
        assert_eq!(hash(b"abc", compress), Hash(abc));
    }

    #[test]
    fn each_length_is_padded_as_a_library_does() {
        let bytes: Vec<u8> = (0..200).collect();
        for length in 0..bytes.len() {
            let message = &bytes[..length];
            let expected: [u8; 32] = Sha256::digest(message).into();
            assert_eq!(hash(message, compress), Hash(expected), "{length} bytes");
        }
    }

    proptest! {
        #[test]
        fn messages_hash_as_a_library_hashes_them(message: Vec<u8>) {
            let expected: [u8; 32] = Sha256::digest(&message).into();
            prop_assert_eq!(hash(&message, compress), Hash(expected));
        }
    }
}
