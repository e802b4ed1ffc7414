// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console's core stops each guest whose watchdog has expired. `core/src/watchdog/looks.rs` decides when that core checks the watchdogs.

use super::Instance;
use crate::cpu;
use crate::timers;
use spumone_config::GuestId;
use spumone_core::psci::{Phase, StopReason};

impl Instance {
    /// Looks at the watchdogs of all guests.
    pub(super) fn look_after_watchdogs(&mut self) {
        self.platform.looks.begin(timers::now());
        // At most 8 times: guests.
        for index in 0..self.platform.machine.guests.len() {
            self.look_after_watchdog(GuestId(index as u8));
            if cpu::interrupt_pending() {
                self.take_interrupts();
            }
        }
    }

    fn look_after_watchdog(&mut self, id: GuestId) {
        let guest = self.platform.machine.guest(id);
        let (phase, life) = guest.lifecycle.now();
        if guest.config.watchdog_s == 0 || phase != Phase::Running {
            return;
        }
        let now = timers::now();
        let Some(left) = guest.watchdog.left(now, guest.stolen()) else {
            return;
        };
        if left.0 > 0 {
            self.platform.looks.found(now, left);
        } else if self.begin_stop(id, life, StopReason::Watchdog) {
            // This core, too, stops its vCPUs when its mail arrives.
            self.send_stop(id, guest.cores());
        }
    }
}
