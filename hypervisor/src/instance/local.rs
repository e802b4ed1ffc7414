// SPDX-License-Identifier: MIT OR Apache-2.0
//! Brings pages of a guest that runs from local memory there, when its vCPU accesses one that is elsewhere. `core/src/local` decides
//! which page makes room.

use super::{Instance, loaded};
use crate::cpu;
use crate::hash::PageEngine;
use crate::sysreg::mrs;
use core::sync::atomic::Ordering::Relaxed;
use spumone_config::GuestAddr;
use spumone_core::console::Subject;
use spumone_core::local::{Access, Fault, Step};
use spumone_core::protect::Changed;
use spumone_core::psci::StopReason;
use spumone_core::trap::Syndrome;

/// The largest number of steps between two iterations of the core's loop: a page is written back, and another one brought.
const MAX_STEPS: usize = 128;

impl Instance {
    /// The running vCPU has made an access that stage 2 refused, at `at`, if that is known. If it runs from local memory, and the access
    /// is one to its memory, brings the page until an interrupt comes; the vCPU then executes the instruction again. Returns whether that
    /// is so.
    #[inline(never)]
    pub(super) fn brings_page(&mut self, syndrome: Syndrome, at: Option<GuestAddr>) -> bool {
        let vcpu = loaded(&mut self.state);
        let Some(paging) = &mut vcpu.paging else {
            return false;
        };
        let at = match at {
            None if syndrome.is_of_permission() => {
                cpu::translate(mrs!(FAR_EL2)).and_then(|it| paging.own_address(it))
            }
            known => known,
        };
        let Some(at) = at else {
            return false;
        };
        let is_write = syndrome.is_write();
        let protect = vcpu.shared.config.protect.as_ref();
        let fault = Fault {
            at,
            is_write,
            is_forbidden: is_write && protect.is_some_and(|it| it.is_read_only(at, 1)),
        };
        // SAFETY: the pages are those of this guest, whose only vCPU is loaded here.
        let mut engine = unsafe { PageEngine::new() };
        match paging.access(fault, &mut engine) {
            Some(Access::Again) => return true,
            Some(Access::Waits) => {}
            Some(Access::Refused) | None => return false,
        }
        let counts = &vcpu.shared.local;
        for _ in 0..MAX_STEPS {
            if cpu::interrupt_pending() {
                break;
            }
            match paging.step(&mut engine) {
                Step::More => {}
                Step::WrittenBack => {
                    counts.written_back.fetch_add(1, Relaxed);
                }
                Step::Brought => {
                    counts.brought.fetch_add(1, Relaxed);
                    break;
                }
                Step::Changed(changed) => {
                    self.has_changed_elsewhere(changed);
                    break;
                }
                Step::Nothing => break,
            }
        }
        true
    }

    /// A page of the running vCPU's guest was changed in main memory: stops the guest.
    fn has_changed_elsewhere(&mut self, changed: Changed) {
        let guest = loaded(&mut self.state).guest;
        self.say_of(guest, Subject::Tampered(changed));
        self.stop_guest(guest, StopReason::Tampered);
    }
}
