// SPDX-License-Identifier: MIT OR Apache-2.0
//! The counter and the two timers of EL1 (Arm ARM DDI 0487, chapter D11).

use super::sysreg::{mrs, msr};
use spumone_config::gic::{PHYSICAL_TIMER, VIRTUAL_TIMER};

/// `CNT*_CTL`: on.
pub const ENABLE: u64 = 1 << 0;
/// `CNT*_CTL`: output masked.
pub const IMASK: u64 = 1 << 1;
/// `CNT*_CTL`: condition met.
pub const ISTATUS: u64 = 1 << 2;

/// How long to wait for an event that must happen, in seconds. A busy host may suspend a core for long.
const PATIENCE_S: u64 = 30;

/// Ticks of the counter.
pub fn now() -> u64 {
    // SAFETY: a barrier, so that the counter is not read early.
    unsafe { core::arch::asm!("isb", options(nostack, preserves_flags)) };
    mrs!(CNTVCT_EL0)
}

/// Ticks of so many microseconds.
pub fn us(microseconds: u64) -> u64 {
    mrs!(CNTFRQ_EL0) * microseconds / 1_000_000
}

/// Waits so many microseconds.
pub fn delay_us(microseconds: u64) {
    let end = now() + us(microseconds);
    while now() < end {}
}

/// Waits until `done`; false after a time that is too long even on a busy host.
pub fn wait(mut done: impl FnMut() -> bool) -> bool {
    let end = now() + us(PATIENCE_S * 1_000_000);
    while !done() {
        if now() >= end {
            return done();
        }
        core::hint::spin_loop();
    }
    true
}

/// A timer of this CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// `CNTV`.
    Virtual,
    /// `CNTP`.
    Physical,
}

impl Timer {
    /// Its PPI.
    pub fn interrupt(self) -> u32 {
        match self {
            Self::Virtual => u32::from(VIRTUAL_TIMER.0),
            Self::Physical => u32::from(PHYSICAL_TIMER.0),
        }
    }

    /// Control register.
    pub fn control(self) -> u64 {
        match self {
            Self::Virtual => mrs!(CNTV_CTL_EL0),
            Self::Physical => mrs!(CNTP_CTL_EL0),
        }
    }

    /// Writes the control register.
    pub fn set_control(self, value: u64) {
        match self {
            Self::Virtual => msr!(CNTV_CTL_EL0, value),
            Self::Physical => msr!(CNTP_CTL_EL0, value),
        }
    }

    /// Compare value.
    pub fn due(self) -> u64 {
        match self {
            Self::Virtual => mrs!(CNTV_CVAL_EL0),
            Self::Physical => mrs!(CNTP_CVAL_EL0),
        }
    }

    /// Writes the compare value.
    pub fn set_due(self, value: u64) {
        match self {
            Self::Virtual => msr!(CNTV_CVAL_EL0, value),
            Self::Physical => msr!(CNTP_CVAL_EL0, value),
        }
    }

    /// Timer value: ticks until it expires, 32 bits, signed.
    pub fn left(self) -> i32 {
        match self {
            Self::Virtual => mrs!(CNTV_TVAL_EL0) as i32,
            Self::Physical => mrs!(CNTP_TVAL_EL0) as i32,
        }
    }

    /// Writes the timer value.
    pub fn set_left(self, ticks: i32) {
        let value = u64::from(ticks as u32);
        match self {
            Self::Virtual => msr!(CNTV_TVAL_EL0, value),
            Self::Physical => msr!(CNTP_TVAL_EL0, value),
        }
    }

    /// The counter that it compares with.
    pub fn counter(self) -> u64 {
        let virtual_count = now();
        match self {
            Self::Virtual => virtual_count,
            Self::Physical => mrs!(CNTPCT_EL0),
        }
    }

    /// Turns it off.
    pub fn stop(self) {
        self.set_control(0);
    }

    /// Sets it so many microseconds from now; returns the time.
    pub fn start_us(self, microseconds: u64) -> u64 {
        self.start_ticks(us(microseconds))
    }

    /// As [`Self::start_us`], in ticks.
    pub fn start_ticks(self, ticks: u64) -> u64 {
        let due = self.counter() + ticks;
        self.set_due(due);
        self.set_control(ENABLE);
        due
    }
}
