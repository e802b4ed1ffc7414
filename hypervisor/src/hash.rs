// SPDX-License-Identifier: MIT OR Apache-2.0
//! SHA-256 by the instructions of the core, or without them where it has none: of the bundle, and of running guests' memory.

use crate::hardware::{self, payload_bytes, running_guest};
use spumone_config::PhysAddr;
use spumone_config::packed::Hash;
use spumone_core::load::Engine;
use spumone_core::local::Machine;
use spumone_core::sha256::{self, BLOCK, State};

/// The hash of bytes. At start only: it takes as long as there are bytes.
pub fn hash(bytes: &[u8]) -> Hash {
    match hardware::has_sha256() {
        true => sha256::hash(bytes, hardware::compress),
        false => sha256::hash(bytes, sha256::compress),
    }
}

/// Hashes and copies payloads of the bundle.
pub struct PayloadEngine(());

impl PayloadEngine {
    /// An engine.
    ///
    /// # Safety
    ///
    /// It is used for chunks of a guest of which no vCPU runs; `spm` has checked that their sources are in the bundle.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl Engine for PayloadEngine {
    #[inline(always)]
    fn has_instructions(&self) -> bool {
        hardware::has_sha256()
    }

    #[inline(always)]
    fn copy_and_hash(&mut self, state: &mut State, from: u64, to: Option<PhysAddr>, blocks: u64) {
        // SAFETY: as `new` demands; chunks are in the guest's memory (`core/load`).
        unsafe { hardware::copy_and_hash(state, from, to, blocks) }
    }

    fn hash(&mut self, state: &mut State, block: &[u8; BLOCK]) {
        hardware::compress(state, core::slice::from_ref(block));
    }

    fn fetch(&mut self, block: &mut [u8; BLOCK], from: u64, to: Option<PhysAddr>, bytes: u64) {
        // SAFETY: as in `copy_and_hash`.
        unsafe { hardware::fetch_payload(from, to, block, bytes) }
    }

    fn hash_at(&self, offset: u64) -> Hash {
        // SAFETY: lists are in the bundle, too.
        Hash(unsafe { payload_bytes(offset) })
    }
}

/// Copies pages of a guest between main memory and local memory, and hashes what it copies; `from` is a machine address.
pub struct PageEngine(());

impl PageEngine {
    /// An engine.
    ///
    /// # Safety
    ///
    /// It is used for pages of a guest that runs from local memory, on the core that has the guest's only vCPU, which is loaded: that vCPU
    /// does not run meanwhile.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl Engine for PageEngine {
    #[inline(always)]
    fn has_instructions(&self) -> bool {
        hardware::has_sha256()
    }

    #[inline(always)]
    fn copy_and_hash(&mut self, state: &mut State, from: u64, to: Option<PhysAddr>, blocks: u64) {
        if let Some(to) = to {
            // SAFETY: pages of the guest and its frames are memory of the guest, as `new` demands.
            unsafe { hardware::copy_and_hash_memory(state, PhysAddr(from), to, blocks) }
        }
    }

    fn hash(&mut self, state: &mut State, block: &[u8; BLOCK]) {
        hardware::compress(state, core::slice::from_ref(block));
    }

    fn fetch(&mut self, block: &mut [u8; BLOCK], from: u64, to: Option<PhysAddr>, bytes: u64) {
        if let (Some(to), Some(block)) = (to, block.get_mut(..bytes as usize)) {
            // SAFETY: as in `copy_and_hash`.
            unsafe { hardware::fetch_memory(PhysAddr(from), to, block) }
        }
    }

    fn hash_at(&self, offset: u64) -> Hash {
        // SAFETY: lists are in the bundle.
        Hash(unsafe { payload_bytes(offset) })
    }
}

impl Machine for PageEngine {
    fn forget_translations(&mut self) {
        hardware::dsb_ishst();
        hardware::forget_both_stages();
    }

    fn publish_entries(&mut self) {
        hardware::dsb_ishst();
        hardware::isb();
    }

    fn publish_pages(&mut self) {
        hardware::publish_pages();
    }
}

/// Hashes memory of guests that run; `from` is a machine address. Nothing is copied.
pub struct MemoryEngine(());

impl MemoryEngine {
    /// An engine.
    ///
    /// # Safety
    ///
    /// It is used for protected leaves of guests: `spm` has checked that they are in the guest's memory, and their hashes in the bundle.
    pub const unsafe fn new() -> Self {
        Self(())
    }
}

impl Engine for MemoryEngine {
    #[inline(always)]
    fn has_instructions(&self) -> bool {
        hardware::has_sha256()
    }

    #[inline(always)]
    fn copy_and_hash(&mut self, state: &mut State, from: u64, _: Option<PhysAddr>, blocks: u64) {
        // SAFETY: memory of a guest, as `new` demands.
        unsafe { hardware::hash_memory(state, PhysAddr(from), blocks) }
    }

    fn hash(&mut self, state: &mut State, block: &[u8; BLOCK]) {
        hardware::compress(state, core::slice::from_ref(block));
    }

    fn fetch(&mut self, block: &mut [u8; BLOCK], from: u64, _: Option<PhysAddr>, bytes: u64) {
        if let Some(block) = block.get_mut(..bytes as usize) {
            // SAFETY: as in `copy_and_hash`.
            unsafe { running_guest::read(PhysAddr(from), block) }
        }
    }

    fn hash_at(&self, offset: u64) -> Hash {
        // SAFETY: lists are in the bundle.
        Hash(unsafe { payload_bytes(offset) })
    }
}
