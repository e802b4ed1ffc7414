// SPDX-License-Identifier: MIT OR Apache-2.0
//! Saving the registers of the loaded vCPU. From then on this core's alarm replaces the vCPU's timers.

use super::core_state::{Catch, Loaded};
use super::platform::{Platform, State, TracePoint};
use super::shared::VcpuFacts;
use crate::schedule::VcpuState;

/// Saves the registers of the loaded vCPU, if there is one.
///
/// A vCPU with a doorbell that is rung meanwhile is notified in the next iteration of the loop.
#[inline(always)]
pub fn save_loaded<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let facts = |id| platform.shared().vcpu(id);
    let Some(&VcpuFacts { band, early, .. }) = state.loaded().and_then(facts) else {
        return;
    };
    let Some(Loaded { id, mut token }) = state.loaded.take() else {
        return;
    };
    if state.catches != Catch::Nothing {
        state.catches = Catch::Nothing;
        platform.end_catch(&token);
    }
    let is_asleep = state.scheduler.state(id) == Some(VcpuState::Sleep);
    let current = state.scheduler.current_band();
    let is_urgent = current > Some(band);
    let has_lost_core = state.scheduler.current() != Some(id);
    let ended = state.scheduler.since().filter(|_| has_lost_core);
    let saved = platform.save(&mut token, ended, is_asleep, is_urgent);
    platform.trace(TracePoint::Saved);
    state.keep(id, token);
    state.must_refresh = false;
    // A timer that has expired already needs no deadline: either it is why the vCPU is awake, or the guest has masked it.
    if let Some(at) = saved.deadline {
        state.set_deadline(id, band, early, at);
        // The alarm is not armed for deadlines of a lower band.
        state.alarm_is_stale |= Some(band) >= current;
    }
    if saved.wakes {
        let band = Some(band);
        state.scheduler.wake(id);
        // A vCPU of a lower band waits in the run queue, one of the same band until the end of the time slice.
        state.must_decide |= band > current;
        state.alarm_is_stale |= band == current;
    }
    state.rung |= saved.rung;
}
