// SPDX-License-Identifier: MIT OR Apache-2.0
//! The generic timers: the virtual and the physical timer of a guest, and the alarm of EL2.
//!
//! A guest's accesses to its timers do not trap. The timers are saved when another vCPU is loaded;
//! from then on the alarm is armed for their deadline.
//!
//! Source: Arm ARM DDI 0487, chapter D11.

use crate::hardware::isb;
use crate::sysreg::{mrs, msr};
use spumone_config::gic::{PHYSICAL_TIMER, VIRTUAL_TIMER};
use spumone_core::schedule::Ticks;

/// `CNT*_CTL`: the timer is on.
const ENABLE: u64 = 1 << 0;
/// `CNT*_CTL`: its output is masked.
const IMASK: u64 = 1 << 1;
/// `CNT*_CTL`: its condition is met.
const ISTATUS: u64 = 1 << 2;

/// The system counter, which is also what guests see: no vCPU has an offset.
#[inline(always)]
pub fn now() -> Ticks {
    // The counter must not be read ahead of earlier instructions.
    isb();
    Ticks(mrs!(CNTPCT_EL0))
}

/// Counter frequency in hertz.
pub fn frequency() -> u64 {
    mrs!(CNTFRQ_EL0)
}

/// The saved registers of one timer.
#[derive(Clone, Copy, Debug, Default)]
struct SavedTimer {
    control: u64,
    compare: u64,
}

impl SavedTimer {
    fn is_armed(self) -> bool {
        self.control & (ENABLE | IMASK) == ENABLE
    }

    fn deadline(self) -> Option<Ticks> {
        self.is_armed().then_some(Ticks(self.compare))
    }

    fn output(self, now: Ticks) -> bool {
        self.is_armed() && now.0 >= self.compare
    }
}

/// The earlier of two times, of which either may be missing. An array of them would be copied.
#[inline(always)]
fn earlier(one: Option<Ticks>, other: Option<Ticks>) -> Option<Ticks> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The timers of a vCPU that is not loaded.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestTimers {
    virtual_timer: SavedTimer,
    physical_timer: SavedTimer,
}

/// The timers of the loaded vCPU, as they are on the core.
#[inline(always)]
fn live() -> GuestTimers {
    GuestTimers {
        virtual_timer: SavedTimer {
            control: mrs!(CNTV_CTL_EL0),
            compare: mrs!(CNTV_CVAL_EL0),
        },
        physical_timer: SavedTimer {
            control: mrs!(CNTP_CTL_EL0),
            compare: mrs!(CNTP_CVAL_EL0),
        },
    }
}

/// When the first armed timer of the loaded vCPU expires, or has expired.
#[inline(always)]
pub fn first_live_deadline() -> Option<Ticks> {
    live().first_deadline()
}

impl GuestTimers {
    /// Both off, as after a reset.
    pub const fn reset() -> Self {
        const OFF: SavedTimer = SavedTimer {
            control: 0,
            compare: 0,
        };
        Self {
            virtual_timer: OFF,
            physical_timer: OFF,
        }
    }

    /// Saves the timers of the core, and turns them off there.
    pub fn save(&mut self) {
        *self = live();
        msr!(CNTV_CTL_EL0, 0);
        msr!(CNTP_CTL_EL0, 0);
        isb();
    }

    /// Restores the timers to the core.
    pub fn restore(&self) {
        let (virtual_timer, physical_timer) = (self.virtual_timer, self.physical_timer);
        msr!(CNTV_CVAL_EL0, virtual_timer.compare);
        msr!(CNTV_CTL_EL0, virtual_timer.control);
        msr!(CNTP_CVAL_EL0, physical_timer.compare);
        msr!(CNTP_CTL_EL0, physical_timer.control);
        isb();
    }

    /// When the first of the timers that have not expired at `now` expires.
    pub fn deadline_after(&self, now: Ticks) -> Option<Ticks> {
        let after = |timer: SavedTimer| timer.deadline().filter(|&at| at > now);
        earlier(after(self.virtual_timer), after(self.physical_timer))
    }

    /// When the first of the armed timers expires, or has expired.
    pub fn first_deadline(&self) -> Option<Ticks> {
        earlier(
            self.virtual_timer.deadline(),
            self.physical_timer.deadline(),
        )
    }

    /// Output lines of the saved timers at `now`, as bits of their INTIDs.
    pub fn lines(&self, now: Ticks) -> u32 {
        lines(
            self.virtual_timer.output(now),
            self.physical_timer.output(now),
        )
    }
}

/// Two outputs as bits of the timers' INTIDs.
#[inline(always)]
const fn lines(virtual_timer: bool, physical_timer: bool) -> u32 {
    (virtual_timer as u32) << VIRTUAL_TIMER.0 | (physical_timer as u32) << PHYSICAL_TIMER.0
}

/// Output lines of the timers on the core, as bits of their INTIDs.
#[inline(always)]
pub fn live_lines() -> u32 {
    const MASK: u64 = ENABLE | IMASK | ISTATUS;
    const HIGH: u64 = ENABLE | ISTATUS;
    lines(
        mrs!(CNTV_CTL_EL0) & MASK == HIGH,
        mrs!(CNTP_CTL_EL0) & MASK == HIGH,
    )
}

/// Arms the alarm of the calling core; [`Ticks::NEVER`] disarms it.
#[inline(always)]
pub fn set_alarm(at: Ticks) {
    msr!(CNTHP_CVAL_EL2, at.0);
    msr!(CNTHP_CTL_EL2, ENABLE);
    isb();
}
