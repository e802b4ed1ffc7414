// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks what must not change in the memory of guests that run: while the core idles, and, for what is late, in the time of vCPUs
//! below the guest, or of the lowest band. `core/src/protect` says what is due, and what is late.

use super::{Helped, Instance};
use crate::cpu;
use crate::guest::Guest;
use crate::hash::MemoryEngine;
use crate::loader::{Left, MAX_STEPS};
use crate::steps::mark;
use crate::timers;
use spumone_config::GuestId;
use spumone_core::console::Subject;
use spumone_core::load::Hashing;
use spumone_core::migration;
use spumone_core::protect;
use spumone_core::psci::{Generation, Phase, StopReason};
use spumone_core::schedule::Ticks;

/// Which leaves a core checks.
#[derive(Clone, Copy)]
enum Due {
    /// Those that are due; the core begins no step from this time on.
    Until(Ticks),
    /// Those that are late.
    Late,
}

impl Instance {
    /// Checks leaves that are due, of guests that are not below this core's own vCPUs: an interrupt for those would wait for a step. It
    /// ends when the core soon wakes one of its vCPUs. Returns whether there may be more before that.
    pub(super) fn checks_memory(&mut self) -> bool {
        let machine = self.platform.machine;
        if machine.protected == 0 {
            return false;
        }
        if cpu::interrupt_pending() {
            return true;
        }
        let quiet_from = migration::quiet_from(&self.state, &self.platform, timers::now());
        if cpu::interrupt_pending() {
            return true;
        }
        let own = self.state.tokens().iter();
        // At most 32 times: vCPUs.
        let own = own.filter_map(|id| machine.shared.band(id)).max();
        let mut late = Ticks::NEVER;
        // At most 8 times: guests.
        for id in self.turns.order(machine.protected) {
            if cpu::interrupt_pending() {
                return true;
            }
            if timers::now() >= quiet_from {
                return false;
            }
            let guest = machine.guest(id);
            if let (Phase::Running, life) = guest.lifecycle.now()
                && own <= Some(guest.config.band)
                && self.check(id, life, Due::Until(quiet_from)) == Left::More
            {
                self.turns.checked(id, self.helps.is_some());
                return true;
            }
            late = late.min(next_late(guest));
        }
        // What is left of a guest that has ended, or was begun before another one's.
        self.stop_helping();
        // Else the core may look before it enters the vCPU that it wakes next.
        self.looks_late_at(late);
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
        let mut late = Ticks::NEVER;
        // At most 8 times: guests.
        for id in self.turns.order(machine.protected) {
            let guest = machine.guest(id);
            if let (Phase::Running, life) = guest.lifecycle.now()
                && protect::is_checked_beside(guest.config.band, running)
                && self.check(id, life, Due::Late) == Left::More
            {
                self.turns.checked(id, self.helps.is_some());
                self.is_late = self.helps.is_some();
                let now = timers::now();
                let pause = protect::pause(now.saturating_sub(begin), machine.late_look);
                self.platform.late_look_at = now.saturating_add(pause);
                return;
            }
            if cpu::interrupt_pending() {
                late = begin;
                break;
            }
            late = late.min(next_late(guest));
        }
        self.is_late = self.helps.is_some();
        self.looks_late_at(late);
    }

    /// The core has no late leaf to check now: says when it looks again. `late`: when the next one is late.
    fn looks_late_at(&mut self, late: Ticks) {
        let look = timers::now().saturating_add(self.platform.machine.late_look);
        self.platform.late_look_at = late.max(look);
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

    /// Checks leaves of this guest, a step at a time, until an interrupt pends.
    fn check(&mut self, id: GuestId, life: Generation, which: Due) -> Left {
        let guest = self.platform.machine.guest(id);
        let ends_at = match which {
            Due::Until(time) => time,
            Due::Late => Ticks::NEVER,
        };
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
                let claim = match which {
                    Due::Until(_) => guest.rounds.claim(core, timers::now(), &guest.pace),
                    Due::Late => guest.rounds.claim_late(core, timers::now(), &guest.pace),
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
            if cpu::interrupt_pending() || timers::now() >= ends_at {
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
        if !self.begin_stop(id, life, StopReason::Tampered) {
            return;
        }
        self.send_stop(id, guest.cores());
        if let Some((_, changed)) = protect::leaf(&guest.config, number) {
            self.say_of(id, Subject::Tampered(changed));
        }
    }
}

/// When the next leaf of the guest is late that no core has checked or checks now, as far as can be told.
fn next_late(guest: &Guest) -> Ticks {
    let now = timers::now();
    match guest.lifecycle.now().0 {
        Phase::Running => guest.rounds.next_late(now, &guest.pace),
        _ => now.saturating_add(guest.pace.round()),
    }
}
