// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of an interrupt in a list register.

use super::ListRegister;
use super::rank::Rank;
use spumone_config::types::IntId;

/// Whether a physical interrupt backs the one in a list register, and how it is deactivated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// No physical interrupt.
    None,
    /// HW = 1: the guest's EOI deactivates it.
    Hardware,
    /// HW = 0, so it must be deactivated when the list register is folded.
    Deferred,
}

impl Backing {
    /// The backing of an interrupt that is only pending.
    pub const fn of_pending(physical: bool) -> Self {
        if physical { Self::Hardware } else { Self::None }
    }

    /// The backing of an active interrupt. `again`: it is pending too, so EL2 must see its end.
    pub const fn of_active(physical: bool, again: bool) -> Self {
        match (physical, again) {
            (false, _) => Self::None,
            (true, false) => Self::Hardware,
            (true, true) => Self::Deferred,
        }
    }
}

/// The record of one list register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub intid: IntId,
    /// The pending latch was cleared for it, so it must be set again if the guest has not acknowledged the interrupt.
    pub latched: bool,
    pub backing: Backing,
    /// The value that was written to the list register.
    pub lr: ListRegister,
}

impl Slot {
    pub const EMPTY: Self = Self {
        intid: IntId(0),
        latched: false,
        backing: Backing::None,
        lr: ListRegister::EMPTY,
    };

    /// The rank of the interrupt, which is active with the value `lr`. `before`: its rank when it was listed, if it was active
    /// then. That of one that a register write has made active has no form in a list register.
    pub fn active_rank(self, before: Rank, lr: ListRegister) -> Rank {
        match self.lr.state().is_active() && before == Rank::NEVER_ACKNOWLEDGED {
            true => before,
            false => Rank::of(lr),
        }
    }
}
