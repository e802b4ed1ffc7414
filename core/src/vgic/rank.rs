// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rank of an interrupt at the CPU interface: priority and group.

use super::{ListRegister, State};
use spumone_config::types::IntId;

/// Bits of a priority that are implemented: 5, as many as the CPU interface has
/// (ICH_VTR_EL2.PRIbits is at least 5).
pub(super) const PRIORITY_MASK: u8 = 0xf8;

/// Priority and group of an interrupt at the CPU interface.
///
/// An active interrupt keeps those that it had when it was acknowledged, even if the guest has changed them since: an
/// EOI that does not match both deactivates nothing (IHI 0069, pseudocode of VirtualWriteEOIR1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rank(pub u8);

impl Rank {
    /// A bit below the implemented bits of a priority.
    const GROUP_1: u8 = 1;
    /// The rank of an interrupt that a register write has made active: below that of any acknowledged interrupt, so
    /// that it is never mistaken for one that the guest has ended.
    pub const NEVER_ACKNOWLEDGED: Self = Self(0xff);

    pub const fn new(priority: u8, group1: bool) -> Self {
        Self(priority & PRIORITY_MASK | group1 as u8)
    }

    pub const fn of(lr: ListRegister) -> Self {
        Self::new(lr.priority(), lr.is_group1())
    }

    pub const fn priority(self) -> u8 {
        self.0 & PRIORITY_MASK
    }

    pub const fn list(self, intid: IntId, state: State) -> ListRegister {
        ListRegister::software(intid, self.priority(), self.0 & Self::GROUP_1 != 0, state)
    }
}
