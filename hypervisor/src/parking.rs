// SPDX-License-Identifier: MIT OR Apache-2.0
//! Storage for the tokens of parked vCPUs. The vCPU's parking slot (`core/migration`) says which core may access its
//! token.

use crate::vcpu::VcpuToken;
use core::cell::UnsafeCell;
use spumone_config::types::{MAX_VCPUS, VcpuId};
use spumone_core::migration::Claim;

/// Storage for the tokens of all vCPUs. There is one for each [`Shared`](spumone_core::migration::Shared), whose
/// parking slots guard it.
pub struct ParkedTokens([UnsafeCell<Option<VcpuToken>>; MAX_VCPUS]);

// A token and a claim with the same id are of the same vCPU: start-up makes one vCPU with each id, which nothing changes, and there is one
// `Shared`, so one slot for each id.
// SAFETY: two cores access the place of a token. The core that has the token does so before it stores to the vCPU's parking slot, with
// release. The core that claims the slot does so after the claim, with acquire. So their accesses are ordered.
unsafe impl Sync for ParkedTokens {}

impl ParkedTokens {
    /// No vCPU is parked: cores have all tokens.
    pub const fn new() -> Self {
        Self([const { UnsafeCell::new(None) }; MAX_VCPUS])
    }

    /// Stores the token of a vCPU that is parked next.
    #[inline(always)]
    pub fn store(&self, token: VcpuToken) {
        let place = self.place(token.id());
        // SAFETY: there is one token of each vCPU, and the caller had it. So the vCPU is not parked, no core has a
        // claim of it, and no other core accesses its place until it is parked.
        unsafe { *place = Some(token) };
    }

    /// Takes the token of a claimed vCPU.
    #[inline(always)]
    pub fn take(&self, claim: Claim) -> Option<VcpuToken> {
        let place = self.place(claim.vcpu());
        // SAFETY: the claim is the only one of this parking, and is used up here. Until the calling core stores the
        // token again, no other core accesses its place.
        unsafe { (*place).take() }
    }

    #[inline(always)]
    fn place(&self, id: VcpuId) -> *mut Option<VcpuToken> {
        self.0[id.index() % MAX_VCPUS].get()
    }
}
