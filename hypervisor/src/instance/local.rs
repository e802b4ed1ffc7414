// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest that runs from local memory has accessed a page that is in main memory: EL2 brings the page to local memory. `core/src/local`
//! decides which other page makes room.

use super::{Instance, loaded};
use crate::cpu;
use crate::hash::PageEngine;
use crate::steps::step;
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
    /// Stage 2 has refused an access of the running vCPU at `at`. If the guest runs from local memory, and the access is to its memory, this
    /// function brings the page until an interrupt comes, and returns true: the vCPU is to execute the instruction again.
    #[inline(never)]
    pub(super) fn brings_page(&mut self, syndrome: Syndrome, at: GuestAddr) -> bool {
        let vcpu = loaded(&mut self.state);
        let Some(paging) = &mut vcpu.paging else {
            return false;
        };
        let fault = Fault::new(&vcpu.shared.config, at, syndrome.is_write());
        // SAFETY: the pages are those of this guest. Its only vCPU is loaded on this core, and so does not run.
        let mut engine = unsafe { PageEngine::new() };
        match paging.access(fault, &mut engine) {
            Some(Access::Again) => return true,
            Some(Access::Waits) => {}
            Some(Access::Refused) | None => return false,
        }
        step!(PageWanted);
        let counts = &vcpu.shared.local;
        for _ in 0..MAX_STEPS {
            if cpu::interrupt_pending() {
                break;
            }
            match paging.step(&mut engine) {
                Step::More => {}
                Step::WrittenBack => {
                    step!(PageWrittenBack);
                    counts.written_back.fetch_add(1, Relaxed);
                }
                Step::Brought => {
                    step!(PageBrought);
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
