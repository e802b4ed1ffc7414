// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vCPU a core runs, and when it must decide again.
//!
//! Each core has one [`Scheduler`] and one set of [`Deadlines`] of its own; nothing here is shared
//! between cores. Priorities are fixed and preemptive: the runnable vCPU of the highest [`Band`]
//! runs, at once and always; equals take turns of one quantum. A core without a runnable vCPU idles.
//!
//! The order of things at EL2, at the end of each exit that changed what is runnable:
//! 1. [`Deadlines::take_due`] with [`Scheduler::current_band`] until `None`, each vCPU woken
//!    (its timer shows when it is loaded);
//! 2. [`Scheduler::decide`], and the switch it asks for;
//! 3. `ICC_PMR_EL1` set to [`priority_mask`];
//! 4. the alarm (`CNTHP_CVAL_EL2`) set to [`Deadlines::next_alarm`].

mod deadlines;
mod interrupt_priority;
mod run_queue;
mod scheduler;

#[cfg(test)]
#[cfg(not(loom))]
mod model_tests;

pub use deadlines::Deadlines;
pub use interrupt_priority::{
    ALARM_PRIORITY, GicPriority, OWN_PRIORITY, band_priority, kick_sgi, priority_mask,
};
pub use run_queue::RunQueue;
pub use scheduler::{Action, Decision, Refused, Scheduler, Turn, VcpuState};
pub use spumone_config::types::Band;

/// A point in time, or a length of time, in ticks of the system counter (`CNTPCT_EL0`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticks(pub u64);

impl Ticks {
    /// A time that does not come.
    pub const NEVER: Self = Self(u64::MAX);

    /// The point `length` later; the end of time where that is beyond it.
    pub const fn saturating_add(self, length: Self) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// The time since `earlier`; zero where that lies in the future.
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `microseconds` at a counter of `frequency_hz` (`CNTFRQ_EL0`), rounded down.
    pub const fn from_micros(microseconds: u32, frequency_hz: u32) -> Self {
        Self(microseconds as u64 * frequency_hz as u64 / 1_000_000)
    }
}
