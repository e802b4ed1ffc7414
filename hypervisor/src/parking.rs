// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storage for the token of a parked vCPU. The vCPU's parking slot (`core/migration`) says which core may access it.

use crate::vcpu::VcpuToken;
use core::cell::UnsafeCell;

/// Storage for the token of one vCPU.
pub struct TokenPlace(UnsafeCell<Option<VcpuToken>>);

// SAFETY: two cores access the token: the one that parks the vCPU, before it stores to the slot, and the one whose
// claim of the slot succeeds, after the claim. The release of the first and the acquire of the second order their
// accesses.
unsafe impl Sync for TokenPlace {}

impl TokenPlace {
    /// Empty: a core has the token.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Stores the vCPU's token. The caller parks the vCPU in its slot after that.
    pub fn store(&self, token: VcpuToken) {
        // SAFETY: there is one token, and the caller had it, so no other core accesses this until the vCPU is parked.
        unsafe { *self.0.get() = Some(token) };
    }

    /// Takes the token.
    ///
    /// # Safety
    ///
    /// The calling core has claimed the vCPU's slot, and has not taken the token since.
    pub unsafe fn take(&self) -> Option<VcpuToken> {
        // SAFETY: as the caller promises; no other core accesses this until the calling core parks the vCPU again.
        unsafe { (*self.0.get()).take() }
    }
}
