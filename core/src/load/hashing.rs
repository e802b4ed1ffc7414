// SPDX-License-Identifier: MIT OR Apache-2.0
//! A chunk that takes several steps: a leaf of a payload is copied and hashed, or the list of the leaves' hashes is hashed.
//!
//! What is hashed are the words that are copied: each is read once, from the bundle, into registers of the core, and from there both
//! written to the guest's memory and hashed. So what was verified is what the guest gets, even if a device changes the page meanwhile.
//! A list stays in the bundle between its own verification and that of its pages: a device that changes both is not found (SECURITY.md).
//! To hash the guest's memory afterwards would need a second pass, and other cores write to the same page.

use crate::sha256::{self, BLOCK, Rounds, State};
use spumone_config::PhysAddr;
use spumone_config::packed::Hash;

/// Blocks that one step hashes with instructions of the core: about 350 instructions.
pub const BLOCKS_A_STEP: u64 = 2;

/// What hashes and copies for a core: of the bundle, or, without copies, of a running guest's memory.
pub trait Engine {
    /// Whether the core has instructions for SHA-256.
    fn has_instructions(&self) -> bool;

    /// Hashes blocks, from `from` on ([`Subject`]), with instructions of the core, and copies them. `to`: to guest memory, if
    /// they are to be copied. At most [`BLOCKS_A_STEP`].
    fn copy_and_hash(&mut self, state: &mut State, from: u64, to: Option<PhysAddr>, blocks: u64);

    /// The same with a block that was [fetched](Self::fetch).
    fn hash(&mut self, state: &mut State, block: &[u8; BLOCK]);

    /// Reads up to a block into `block`, from `from` on, and copies those bytes.
    fn fetch(&mut self, block: &mut [u8; BLOCK], from: u64, to: Option<PhysAddr>, bytes: u64);

    /// A hash in the bundle, at this offset.
    fn hash_at(&self, offset: u64) -> Hash;
}

/// What a hash must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// This one, from the description.
    Known(Hash),
    /// The one at this offset in the bundle, in a list.
    Listed(u64),
    /// Nothing: [`Hashing::advance`] returns what it is.
    Nothing,
}

/// What a chunk hashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Offset of the first byte in the bundle; of a page that is [checked](crate::protect), its machine address.
    pub(crate) from: u64,
    /// Where in guest memory the bytes are copied to, if they are.
    pub(crate) to: Option<PhysAddr>,
    /// How many bytes.
    pub(crate) size: u64,
    /// What the result must be.
    pub(crate) expected: Expected,
}

/// A claimed chunk that is being hashed. It can be dropped, and begun again by another core.
#[derive(Clone, Copy, Debug)]
pub struct Hashing {
    chunk: u32,
    subject: Subject,
    done: u64,
    state: State,
    /// Without instructions for it: the block that is being hashed.
    rounds: Option<Rounds>,
    /// The incomplete block at the end, once it was fetched, and how many of the last blocks are hashed.
    tail: Option<([u8; BLOCK], usize)>,
}

impl Hashing {
    /// Begins the chunk with number `chunk`.
    pub const fn new(chunk: u32, subject: Subject) -> Self {
        Self {
            chunk,
            subject,
            done: 0,
            state: sha256::INITIAL,
            rounds: None,
            tail: None,
        }
    }

    /// The number of the chunk.
    pub const fn chunk(&self) -> u32 {
        self.chunk
    }

    /// Does one step. After the last one, returns whether the hash is the expected one.
    pub fn step(&mut self, engine: &mut impl Engine) -> Option<bool> {
        let state = self.advance(engine)?;
        let expected = match self.subject.expected {
            Expected::Known(hash) => hash,
            Expected::Listed(at) => engine.hash_at(at),
            Expected::Nothing => return Some(true),
        };
        Some(sha256::is(&state, &expected))
    }

    /// Does one step. After the last one, returns the hash, as the state of SHA-256.
    pub fn advance(&mut self, engine: &mut impl Engine) -> Option<State> {
        if let Some(rounds) = &mut self.rounds {
            if rounds.step(&mut self.state) {
                self.rounds = None;
            }
            return None;
        }
        let Subject { from, to, size, .. } = self.subject;
        let to = to.map(|to| PhysAddr(to.0 + self.done));
        let from = from + self.done;
        let left = size - self.done;
        let blocks = (left / BLOCK as u64).min(BLOCKS_A_STEP);
        if blocks > 0 && engine.has_instructions() {
            engine.copy_and_hash(&mut self.state, from, to, blocks);
            self.done += blocks * BLOCK as u64;
        } else if blocks > 0 {
            let mut block = [0; BLOCK];
            engine.fetch(&mut block, from, to, BLOCK as u64);
            self.rounds = Some(Rounds::new(&self.state, &block));
            self.done += BLOCK as u64;
        } else {
            return self.last_step(engine, from, to, left);
        }
        None
    }

    /// A step after the last whole block.
    fn last_step(
        &mut self,
        engine: &mut impl Engine,
        from: u64,
        to: Option<PhysAddr>,
        left: u64,
    ) -> Option<State> {
        let Some((bytes, number)) = &mut self.tail else {
            let mut bytes = [0; BLOCK];
            engine.fetch(&mut bytes, from, to, left);
            self.tail = Some((bytes, 0));
            return None;
        };
        let tail = left as usize;
        if *number == sha256::last_blocks(tail) {
            return Some(self.state);
        }
        let block = sha256::last_block(bytes, tail, self.subject.size, *number);
        *number += 1;
        match engine.has_instructions() {
            true => engine.hash(&mut self.state, &block),
            false => self.rounds = Some(Rounds::new(&self.state, &block)),
        }
        None
    }
}
