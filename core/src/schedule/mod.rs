// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vCPU a core runs, and when it must decide again.
//!
//! Each core has one [`Scheduler`] and one set of [`Deadlines`] of its own; cores share nothing of this module.
//! Priorities are fixed and preemptive: of the vCPUs that may run, one of the highest [`Band`] does, and preempts any
//! other at once; vCPUs of one band share the core in time slices of one quantum. A core on which no vCPU may run idles.
//!
//! When an exit has changed the state of a vCPU, a core uses these types as follows
//! ([`next_action`](crate::migration::next_action) has the whole order, with migration):
//! 1. It calls [`Deadlines::take_due`] with [`Scheduler::current_band`] until that returns `None`, and wakes each
//!    returned vCPU. The vCPU's timer interrupt is delivered when the vCPU is loaded.
//! 2. [`Scheduler::decide`] chooses the vCPU that runs next.
//! 3. The core sets `ICC_PMR_EL1` to [`priority_mask`].
//! 4. It arms the alarm (`CNTHP_CVAL_EL2`) for [`Deadlines::next_alarm`].
//! 5. If another vCPU is loaded than the chosen one, the core switches: it saves the registers of the loaded vCPU, and
//!    loads those of the chosen one.

mod deadlines;
mod interrupt_priority;
mod level;
mod out_of_turn;
mod run_queue;
mod scheduler;
mod short_turns;

#[cfg(test)]
#[cfg(not(loom))]
mod model_tests;

pub use deadlines::Deadlines;
pub use interrupt_priority::{
    ALARM_PRIORITY, GicPriority, OWN_PRIORITY, band_priority, kick_sgi, priority_mask,
};
pub use level::Level;
#[cfg(test)]
pub use out_of_turn::{Allowance, OutOfTurn};
pub use run_queue::RunQueue;
pub use scheduler::{Action, Decision, Refused, Scheduler, TimeSlice, VcpuState};
#[cfg(test)]
pub use short_turns::ShortTurns;
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

    /// The same the other way round.
    #[inline(always)]
    pub const fn to_micros(self, frequency_hz: u32) -> u64 {
        self.to_parts(1_000_000, frequency_hz)
    }

    /// The same in nanoseconds.
    #[inline(always)]
    pub const fn to_nanos(self, frequency_hz: u32) -> u64 {
        self.to_parts(1_000_000_000, frequency_hz)
    }

    /// In parts of a second, of which it has `parts`: at most 2^30.
    #[inline(always)]
    const fn to_parts(self, parts: u64, frequency_hz: u32) -> u64 {
        let frequency = if frequency_hz == 0 {
            1
        } else {
            frequency_hz as u64
        };
        // In two parts, so that no product is too large: the rest is below 2^32.
        let (seconds, rest) = (self.0 / frequency, self.0 % frequency);
        seconds
            .wrapping_mul(parts)
            .wrapping_add(rest * parts / frequency)
    }
}
