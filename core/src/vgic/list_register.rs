// SPDX-License-Identifier: MIT OR Apache-2.0
//! The value of a list register: one virtual interrupt at the guest's CPU interface.
//!
//! Layout of `ICH_LR<n>_EL2` (IHI 0069, section 12.4.8).

use spumone_config::types::IntId;

/// The state of an interrupt in a list register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The register is empty, or the guest has deactivated the interrupt.
    Inactive,
    /// Not yet acknowledged.
    Pending,
    /// Acknowledged, not yet deactivated.
    Active,
    /// Acknowledged, and raised again meanwhile.
    PendingActive,
}

impl State {
    /// Whether it waits to be acknowledged.
    pub const fn is_pending(self) -> bool {
        matches!(self, Self::Pending | Self::PendingActive)
    }

    /// Whether it waits to be deactivated.
    pub const fn is_active(self) -> bool {
        matches!(self, Self::Active | Self::PendingActive)
    }
}

/// The value of one list register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct ListRegister(pub u64);

impl ListRegister {
    const PHYSICAL_SHIFT: u32 = 32;
    const PHYSICAL_MASK: u64 = 0x3ff;
    const EOI: u64 = 1 << 41;
    const PRIORITY_SHIFT: u32 = 48;
    const GROUP: u64 = 1 << 60;
    const HW: u64 = 1 << 61;
    const STATE_SHIFT: u32 = 62;

    /// An empty register.
    pub const EMPTY: Self = Self(0);

    /// An interrupt that is not backed by a physical one. `group1`: delivered as IRQ, else as FIQ.
    pub const fn software(intid: IntId, priority: u8, group1: bool, state: State) -> Self {
        let mut value = intid.0 as u64 | (priority as u64) << Self::PRIORITY_SHIFT;
        if group1 {
            value |= Self::GROUP;
        }
        Self(value).with_state(state)
    }

    /// The same interrupt with HW = 1: deactivating it deactivates `physical`. Never for
    /// [`State::PendingActive`], for which the architecture allows HW = 0 only.
    pub const fn backed_by(self, physical: IntId) -> Self {
        let physical = (physical.0 as u64 & Self::PHYSICAL_MASK) << Self::PHYSICAL_SHIFT;
        Self(self.0 | physical | Self::HW)
    }

    /// The same interrupt, with a maintenance interrupt when the guest deactivates it. HW = 0 only.
    pub const fn with_eoi_interrupt(self) -> Self {
        Self(self.0 | Self::EOI)
    }

    /// The same interrupt in another state.
    pub const fn with_state(self, state: State) -> Self {
        let state = match state {
            State::Inactive => 0,
            State::Pending => 1,
            State::Active => 2,
            State::PendingActive => 3,
        };
        Self(self.0 & !(3 << Self::STATE_SHIFT) | state << Self::STATE_SHIFT)
    }

    /// The same interrupt, raised once more: pending, or pending and active. HW = 0 only.
    pub const fn with_pending(self) -> Self {
        Self(self.0 | 1 << Self::STATE_SHIFT)
    }

    /// The virtual interrupt.
    pub const fn intid(self) -> IntId {
        // Never more than 10 bits are written here, as GICD_TYPER.IDbits says.
        IntId(self.0 as u16)
    }

    /// The physical interrupt that backs it, with HW = 1.
    pub const fn physical(self) -> Option<IntId> {
        if self.0 & Self::HW == 0 {
            return None;
        }
        Some(IntId(
            (self.0 >> Self::PHYSICAL_SHIFT & Self::PHYSICAL_MASK) as u16,
        ))
    }

    /// Whether deactivation raises a maintenance interrupt.
    pub const fn has_eoi_interrupt(self) -> bool {
        self.0 & Self::HW == 0 && self.0 & Self::EOI != 0
    }

    /// The priority; 0 is the highest.
    pub const fn priority(self) -> u8 {
        (self.0 >> Self::PRIORITY_SHIFT) as u8
    }

    /// Whether it is Group 1 (IRQ).
    pub const fn is_group1(self) -> bool {
        self.0 & Self::GROUP != 0
    }

    /// The state, as the guest has changed it.
    pub const fn state(self) -> State {
        match self.0 >> Self::STATE_SHIFT {
            0 => State::Inactive,
            1 => State::Pending,
            2 => State::Active,
            _ => State::PendingActive,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_architecture_puts_them() {
        let software = ListRegister::software(IntId(33), 0xa8, true, State::PendingActive);
        assert_eq!(software.0, 0xd0a8_0000_0000_0021);
        assert_eq!(software.with_eoi_interrupt().0, 0xd0a8_0200_0000_0021);
        let hardware =
            ListRegister::software(IntId(27), 0x10, false, State::Pending).backed_by(IntId(1019));
        assert_eq!(hardware.0, 0x6010_03fb_0000_001b);
    }

    #[test]
    fn what_is_written_is_read() {
        for state in [
            State::Inactive,
            State::Pending,
            State::Active,
            State::PendingActive,
        ] {
            let lr = ListRegister::software(IntId(287), 0xf8, true, state);
            assert_eq!(
                (lr.intid(), lr.priority(), lr.is_group1(), lr.state()),
                (IntId(287), 0xf8, true, state)
            );
            assert_eq!(lr.physical(), None);
            assert!(!lr.has_eoi_interrupt());
            assert!(lr.with_eoi_interrupt().has_eoi_interrupt());
            assert_eq!(lr.backed_by(IntId(512)).physical(), Some(IntId(512)));
            assert!(lr.with_pending().state().is_pending());
            assert_eq!(lr.with_pending().state().is_active(), state.is_active());
            // Bit 41 is part of the physical number when HW = 1.
            assert!(!lr.backed_by(IntId(512)).has_eoi_interrupt());
        }
    }
}
