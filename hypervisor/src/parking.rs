// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the token of a vCPU lies that is on no core.

use crate::vcpu::VcpuToken;
use core::cell::UnsafeCell;
use spumone_core::migration::{Parked, ParkingSlot};
use spumone_core::schedule::Ticks;

/// The parking place of one vCPU.
pub struct Parking {
    /// Who may take the token.
    pub slot: ParkingSlot,
    token: UnsafeCell<Option<VcpuToken>>,
}

// SAFETY: `token` is touched only by who has the vCPU's token, before it parks it, and by the one whose claim succeeded.
// The slot's release and acquire order the two.
unsafe impl Sync for Parking {}

impl Parking {
    /// An empty place: the token is with a core.
    pub const fn new() -> Self {
        Self {
            slot: ParkingSlot::new(),
            token: UnsafeCell::new(None),
        }
    }

    /// Parks the token of this place's vCPU.
    pub fn park(&self, token: VcpuToken, parked: Parked, now: Ticks) {
        // SAFETY: there is one token, and the caller had it: nobody else is here until `slot.park`.
        unsafe { *self.token.get() = Some(token) };
        self.slot.park(parked, now);
    }

    /// Takes the token, if it is still parked as it was seen.
    pub fn claim(&self, seen: Parked) -> Option<VcpuToken> {
        if !self.slot.claim(seen) {
            return None;
        }
        // SAFETY: the claim has succeeded, so the caller is the only one here until it parks the token again.
        unsafe { (*self.token.get()).take() }
    }
}
