// SPDX-License-Identifier: MIT OR Apache-2.0
//! SHA-256, and the key that the hypervisor trusts.

use super::memory::fetch_payload;
use super::with;
use spumone_config::PhysAddr;
use spumone_config::packed::Trust;
use spumone_core::sha256::{self, BLOCK, State};

/// Whether the core has instructions for SHA-256.
pub fn has_sha256() -> bool {
    with(|machine| machine.has_sha256)
}

/// Vector registers need nothing.
pub fn enable_vectors() {}

/// Hashes blocks.
pub fn compress(state: &mut State, blocks: &[[u8; BLOCK]]) {
    assert!(has_sha256(), "the core has no such instructions");
    sha256::compress(state, blocks);
}

/// Hashes and copies blocks of the bundle.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn copy_and_hash(state: &mut State, from: u64, to: Option<PhysAddr>, blocks: u64) {
    for number in 0..blocks {
        let mut block = [0; BLOCK];
        let offset = number * BLOCK as u64;
        let to = to.map(|to| PhysAddr(to.0 + offset));
        // SAFETY: as the caller promises.
        unsafe { fetch_payload(from + offset, to, &mut block, BLOCK as u64) };
        compress(state, &[block]);
    }
}

/// Copies and hashes blocks of guest memory.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn copy_and_hash_memory(state: &mut State, from: PhysAddr, to: PhysAddr, blocks: u64) {
    for number in 0..blocks {
        let mut block = [0; BLOCK];
        let offset = number * BLOCK as u64;
        // SAFETY: as the caller promises.
        unsafe {
            super::memory::fetch_memory(
                PhysAddr(from.0 + offset),
                PhysAddr(to.0 + offset),
                &mut block,
            );
        }
        compress(state, &[block]);
    }
}

/// Hashes blocks of guest memory.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn hash_memory(state: &mut State, from: PhysAddr, blocks: u64) {
    for number in 0..blocks {
        let mut block = [0; BLOCK];
        let at = PhysAddr(from.0 + number * BLOCK as u64);
        // SAFETY: as the caller promises.
        unsafe { super::running_guest::read(at, &mut block) };
        compress(state, &[block]);
    }
}

/// The key that the hypervisor trusts, and the lowest version that it accepts.
pub fn trust() -> Trust {
    with(|machine| machine.trust)
}
