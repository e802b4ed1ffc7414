// SPDX-License-Identifier: MIT OR Apache-2.0
//! The record of what was put into a list register.

use super::ListRegister;
use spumone_config::types::IntId;

/// What physical interrupt a list register has behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Backing {
    /// None.
    None,
    /// HW = 1: the guest's EOI deactivates it.
    Hardware,
    /// HW = 0, so it must be deactivated when the list register is folded.
    Deferred,
}

impl Backing {
    /// Of an interrupt that is only pending.
    pub const fn of_pending(physical: bool) -> Self {
        if physical { Self::Hardware } else { Self::None }
    }

    /// Of an active interrupt; `again`: its end must not pass unnoticed, or it is pending too.
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
    /// The pending latch was taken for it, so it is to be set again if the guest has not yet
    /// acknowledged.
    pub latched: bool,
    pub backing: Backing,
    /// What was written to the list register.
    pub lr: ListRegister,
}

impl Slot {
    pub const EMPTY: Self = Self {
        intid: IntId(0),
        latched: false,
        backing: Backing::None,
        lr: ListRegister::EMPTY,
    };
}
