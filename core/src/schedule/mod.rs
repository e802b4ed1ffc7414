// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vCPU a core runs, and when it must decide again.
//!
//! Each core has one [`Scheduler`] and one set of [`Deadlines`] of its own; nothing here is shared between cores.
//! Priorities are fixed and preemptive: the runnable vCPU of the highest [`Band`] runs, and preempts any other at once;
//! vCPUs of one band take turns of one quantum. A core without a runnable vCPU idles.
//!
//! What EL2 does after each exit that changed which vCPUs are runnable:
//! 1. [`Deadlines::take_due`] with [`Scheduler::current_band`] until `None`, and wake each vCPU (its timer interrupt is
//!    delivered when it is loaded);
//! 2. [`Scheduler::decide`], and the switch that it returns;
//! 3. set `ICC_PMR_EL1` to [`priority_mask`];
//! 4. set the alarm (`CNTHP_CVAL_EL2`) to [`Deadlines::next_alarm`].

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

    /// The time `length` later, at most `u64::MAX` ticks.
    pub const fn saturating_add(self, length: Self) -> Self {
        Self(self.0.saturating_add(length.0))
    }

    /// The time since `earlier`; zero if that is in the future.
    pub const fn saturating_sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }

    /// `microseconds` at a counter of `frequency_hz` (`CNTFRQ_EL0`), rounded down.
    pub const fn from_micros(microseconds: u32, frequency_hz: u32) -> Self {
        Self(microseconds as u64 * frequency_hz as u64 / 1_000_000)
    }
}
