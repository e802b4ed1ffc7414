// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks what must not change in the memory of guests that run: while the core idles, and, if no core has idled for long, in the time of
//! vCPUs below the guest, or of the lowest band. `core/src/protect` says what is due, and what is late.

use super::{Helped, Instance};
use crate::cpu;
use crate::hash::MemoryEngine;
use crate::loader::{Left, MAX_STEPS};
use crate::steps::mark;
use crate::timers;
use spumone_config::GuestId;
use spumone_core::console::Subject;
use spumone_core::load::Hashing;
use spumone_core::protect;
use spumone_core::psci::{Generation, Phase, StopReason};

impl Instance {
    /// Checks leaves that are due, of guests that are not below this core's own vCPUs: an interrupt for those would wait for a step. Returns
    /// whether there may be more.
    pub(super) fn checks_memory(&mut self) -> bool {
        let machine = self.platform.machine;
        if machine.protected == 0 {
            return false;
        }
        if cpu::interrupt_pending() {
            return true;
        }
        let own = self.state.tokens().iter();
        // At most 32 times: vCPUs.
        let own = own.filter_map(|id| machine.shared.band(id)).max();
        // At most 8 times: guests.
        for id in self.turns.order(machine.protected) {
            if cpu::interrupt_pending() {
                return true;
            }
            let guest = machine.guest(id);
            if let (Phase::Running, life) = guest.lifecycle.now()
                && own <= Some(guest.config.band)
                && self.check(id, life, false) == Left::More
            {
                self.turns.checked(id, self.helps.is_some());
                return true;
            }
        }
        // What is left of a guest that has ended, or was begun before another one's.
        self.stop_helping();
        false
    }

    /// Checks leaves that are late, in the time of the running vCPU, and says when the core does so again.
    #[inline(never)]
    pub(super) fn checks_late_memory(&mut self) {
        let machine = self.platform.machine;
        let running = self.state.current_band();
        let begin = timers::now();
        if !self.is_late {
            // It was begun while the core idled.
            self.stop_helping();
        }
        let mut left = Left::Nothing;
        // At most 8 times: guests.
        for id in self.turns.order(machine.protected) {
            let guest = machine.guest(id);
            if let (Phase::Running, life) = guest.lifecycle.now()
                && protect::is_checked_beside(guest.config.band, running)
                && self.check(id, life, true) == Left::More
            {
                self.turns.checked(id, self.helps.is_some());
                left = Left::More;
                break;
            }
            if cpu::interrupt_pending() {
                break;
            }
        }
        let now = timers::now();
        let pause = match left {
            Left::More => protect::pause(now.saturating_sub(begin), machine.late_look),
            Left::Nothing => machine.late_look,
        };
        self.is_late = self.helps.is_some();
        self.platform.late_look_at = now.saturating_add(pause);
    }

    /// Whether the core keeps the leaf that it has begun to hash, although it enters a vCPU. It keeps a late leaf: with many interrupts it would
    /// never finish one.
    pub(super) fn keeps_leaf(&self) -> bool {
        let Helped::Check(id, _) = self.helped else {
            return false;
        };
        let band = self.platform.machine.guest(id).config.band;
        self.is_late && protect::is_checked_beside(band, self.state.current_band())
    }

    /// Checks leaves of this guest that are due, or those that are late, a step at a time, until an interrupt pends.
    fn check(&mut self, id: GuestId, life: Generation, late: bool) -> Left {
        let guest = self.platform.machine.guest(id);
        self.helps_for(Helped::Check(id, life));
        for _ in 0..MAX_STEPS {
            if let Some(hashing) = &mut self.helps {
                // SAFETY: the chunk is a protected leaf of the guest.
                let mut engine = unsafe { MemoryEngine::new() };
                if let Some(is_right) = hashing.step(&mut engine) {
                    let number = hashing.chunk();
                    self.helps = None;
                    self.is_late = false;
                    if !is_right {
                        self.has_changed(id, life, number);
                    }
                    if guest.rounds.finish(timers::now(), &guest.pace) {
                        mark!(RoundEnded);
                    }
                }
            } else {
                let core = self.platform.core;
                let claim = match late {
                    true => guest.rounds.claim_late(core, timers::now(), &guest.pace),
                    false => guest.rounds.claim(core, timers::now(), &guest.pace),
                };
                let Some(number) = claim else {
                    return Left::Nothing;
                };
                match protect::leaf(&guest.config, number) {
                    Some((subject, _)) => self.helps = Some(Hashing::new(number, subject)),
                    // No description has such a leaf.
                    None => {
                        let _ = guest.rounds.finish(timers::now(), &guest.pace);
                    }
                }
            }
            if cpu::interrupt_pending() {
                break;
            }
        }
        Left::More
    }

    /// A protected leaf differs from its hash: stops the guest, if it is still in the life in which the leaf was claimed. Else the
    /// guest was being loaded meanwhile.
    #[inline(never)]
    fn has_changed(&mut self, id: GuestId, life: Generation, number: u32) {
        let guest = self.platform.machine.guest(id);
        if self.begin_stop(id, life, StopReason::Tampered).is_none() {
            return;
        }
        self.send_stop(id, life, guest.cores());
        if let Some((_, changed)) = protect::leaf(&guest.config, number) {
            self.say_of(id, Subject::Tampered(changed));
        }
    }
}
