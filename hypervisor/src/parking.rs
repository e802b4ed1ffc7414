// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the token of a vCPU lies that is on no core, beside its parking slot.

use crate::vcpu::VcpuToken;
use core::cell::UnsafeCell;

/// The place for the token of one vCPU.
pub struct TokenPlace(UnsafeCell<Option<VcpuToken>>);

// SAFETY: the token is touched only by the core that has it, before that core parks the vCPU in its slot, and by the core
// whose claim of the slot has succeeded. The slot's release and acquire order the two.
unsafe impl Sync for TokenPlace {}

impl TokenPlace {
    /// An empty place: the token is with a core.
    pub const fn new() -> Self {
        Self(UnsafeCell::new(None))
    }

    /// Stores the token of this place's vCPU. The slot is to be parked after that.
    pub fn store(&self, token: VcpuToken) {
        // SAFETY: there is one token, and the caller had it, so no other core is here until the slot is parked.
        unsafe { *self.0.get() = Some(token) };
    }

    /// Takes the token.
    ///
    /// # Safety
    ///
    /// The caller has claimed the slot of this place's vCPU, and has not taken the token since.
    pub unsafe fn take(&self) -> Option<VcpuToken> {
        // SAFETY: as the caller promises; it is the only one here until it parks the token again.
        unsafe { (*self.0.get()).take() }
    }
}
