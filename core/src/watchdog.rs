// SPDX-License-Identifier: MIT OR Apache-2.0
//! The watchdog of a guest: if the guest does not pet it in time, its life ends.
//!
//! Its call is that of `arm,smc-wdt`, for which Linux has a driver (drivers/watchdog/arm_smc_wdt.c; the results are those of OP-TEE,
//! core/arch/arm/include/sm/watchdog_smc.h).
//!
//! It counts the time that the guest was given. Of each vCPU, time counts while it runs, sleeps or is off, and not while it
//! waits for a core ([`Stolen`]). The watchdog expires when the timeout has passed for every vCPU of the guest. So a
//! vCPU that pets the watchdog may wait for a core for as long as it must: that does not end the guest.

mod looks;

pub use looks::Looks;

use crate::schedule::Ticks;
use crate::smccc::{CallError, SUCCESS};
use crate::stolen::Stolen;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spumone_config::types::MAX_VCPUS_PER_GUEST;

/// The shortest timeout, in seconds: the calls count whole seconds.
const SHORTEST_S: u32 = 1;

/// What a call is to do: its first argument.
mod command {
    /// Return the shortest and the longest timeout.
    pub const INIT: u32 = 0;
    /// Set the timeout.
    pub const SET_TIMEOUT: u32 = 1;
    /// Turn it on (1) or off (0).
    pub const ENABLE: u32 = 2;
    /// Begin the timeout anew.
    pub const PET: u32 = 3;
    /// Return the rest of the timeout.
    pub const GET_TIMELEFT: u32 = 4;
}

/// The watchdog of a guest.
///
/// The guest's vCPUs change it, on any cores, and the core that looks after watchdogs reads it. Relaxed: each word is right by itself. Of
/// two vCPUs that pet at the same time either may be right; where one turns it off meanwhile, it is off.
#[derive(Debug)]
pub struct Watchdog {
    /// In seconds; 0: the longest.
    timeout_s: AtomicU32,
    /// When it expires, for each vCPU: on a clock that stands still while that vCPU waits. [`Ticks::NEVER`]: it is off.
    expires: [AtomicU64; MAX_VCPUS_PER_GUEST],
}

/// What a watchdog knows of its guest when it is called.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The longest timeout in seconds; 0: the guest has no watchdog.
    pub longest_s: u16,
    /// Of the system counter.
    pub frequency_hz: u64,
    /// The present time.
    pub now: Ticks,
    /// The stolen time of each vCPU of the guest.
    pub stolen: &'a [Stolen],
}

impl Watchdog {
    constructor! {
        /// Off.
        pub fn new() -> Self {
            Self {
                timeout_s: AtomicU32::new(0),
                expires: atomics!(AtomicU64::new(Ticks::NEVER.0)),
            }
        }
    }

    /// Turns it off, as at the start of a life.
    pub fn reset(&self) {
        self.timeout_s.store(0, Ordering::Relaxed);
        self.turn_off();
    }

    /// A call of the guest: returns x0 to x3.
    pub fn call(&self, command: u32, argument: u32, caller: Caller<'_>) -> [u64; 4] {
        if caller.longest_s == 0 {
            return [CallError::NotSupported.to_register(), 0, 0, 0];
        }
        match self.obey(command, argument, caller) {
            Ok([first, second]) => [SUCCESS, first, second, 0],
            Err(error) => [error.to_register(), 0, 0, 0],
        }
    }

    fn obey(&self, command: u32, argument: u32, caller: Caller<'_>) -> Result<[u64; 2], CallError> {
        let longest_s = u32::from(caller.longest_s);
        let left = self.left(caller.now, caller.stolen);
        match (command, argument) {
            (command::INIT, _) => return Ok([SHORTEST_S.into(), longest_s.into()]),
            (command::SET_TIMEOUT, seconds) if (SHORTEST_S..=longest_s).contains(&seconds) => {
                self.timeout_s.store(seconds, Ordering::Relaxed);
                if left.is_some() {
                    self.begin_anew(caller);
                }
            }
            (command::ENABLE, 0) => self.turn_off(),
            (command::ENABLE, 1) => self.begin(caller),
            (command::SET_TIMEOUT | command::ENABLE, _) => {
                return Err(CallError::InvalidParameters);
            }
            (command::PET, _) => {
                left.ok_or(CallError::Disabled)?;
                self.begin_anew(caller);
            }
            (command::GET_TIMELEFT, _) => {
                let left = left.ok_or(CallError::Disabled)?;
                return Ok([left.0 / caller.frequency_hz.max(1), 0]);
            }
            _ => return Err(CallError::NotSupported),
        }
        Ok([0, 0])
    }

    fn turn_off(&self) {
        // At most 8 times: vCPUs of a guest.
        for expires in &self.expires {
            expires.store(Ticks::NEVER.0, Ordering::Relaxed);
        }
    }

    /// Begins the timeout.
    fn begin(&self, caller: Caller<'_>) {
        self.each_end(caller, |expires, at| expires.store(at, Ordering::Relaxed));
    }

    /// Begins the timeout anew, unless another vCPU turns the watchdog off meanwhile.
    fn begin_anew(&self, caller: Caller<'_>) {
        self.each_end(caller, |expires, at| {
            let old = expires.load(Ordering::Relaxed);
            if old != Ticks::NEVER.0 {
                // If this fails, another vCPU pets or turns off at the same time.
                let _ = expires.compare_exchange(old, at, Ordering::Relaxed, Ordering::Relaxed);
            }
        });
    }

    /// Passes the word of each vCPU on, with the end of a timeout that begins now.
    fn each_end(&self, caller: Caller<'_>, set: impl Fn(&AtomicU64, u64)) {
        let seconds = match self.timeout_s.load(Ordering::Relaxed) {
            0 => u32::from(caller.longest_s),
            seconds => seconds,
        };
        let timeout = Ticks(u64::from(seconds).saturating_mul(caller.frequency_hz));
        // At most 8 times: vCPUs of the guest.
        for (expires, stolen) in self.expires.iter().zip(caller.stolen) {
            let at = given(stolen, caller.now).saturating_add(timeout);
            set(expires, at.0);
        }
    }

    /// The time that the guest still has at `now`, zero if the watchdog has expired; `None`: it is off. `stolen`: of each vCPU of the guest.
    pub fn left(&self, now: Ticks, stolen: &[Stolen]) -> Option<Ticks> {
        let mut most = None;
        // At most 8 times: vCPUs of the guest.
        for (expires, stolen) in self.expires.iter().zip(stolen) {
            let at = Ticks(expires.load(Ordering::Relaxed));
            if at == Ticks::NEVER {
                return None;
            }
            most = most.max(Some(at.saturating_sub(given(stolen, now))));
        }
        most
    }
}

/// The time up to `now` that was not stolen from a vCPU.
fn given(stolen: &Stolen, now: Ticks) -> Ticks {
    now.saturating_sub(stolen.at(now))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests;
