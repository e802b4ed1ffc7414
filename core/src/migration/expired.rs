// SPDX-License-Identifier: MIT OR Apache-2.0
//! A part of a decision: vCPUs whose deadlines have passed are woken, and the core looks for interrupts in between.

use super::early::woken_early;
use super::fetch::is_urgent;
use super::interrupt::{disarm_alarm, hold_lower_back, take_interrupts};
use super::park::{is_host_core, wake};
use super::platform::{Platform, State};
use crate::schedule::{Ticks, VcpuState};
use spumone_config::types::MAX_VCPUS;

/// Wakes each vCPU whose deadline has passed, unless a vCPU of a higher band runs or is runnable by then. After each vCPU that it wakes, the core
/// looks for interrupts.
#[inline(always)]
pub(super) fn wake_expired<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    let is_idle = state.scheduler.current_band().is_none() && state.decided_band.is_none();
    if is_idle && !state.alarm_is_stale && now < state.alarm {
        // The alarm of an idle core is armed for the first of all deadlines.
        return;
    }
    // At most 32 times: one deadline for each vCPU.
    for _ in 0..MAX_VCPUS {
        let highest = state.scheduler.highest_band();
        let Some(id) = state.deadlines.take_due(now, highest) else {
            break;
        };
        let sleeps = state.scheduler.state(id) == Some(VcpuState::Sleep);
        if !state.moves(id) {
            state.scheduler.wake(id);
        } else if is_host_core(state, platform, id) {
            // A vCPU that was parked here may be on another core by now.
            wake(state, platform, id);
        }
        // If another core has it by now, it still sleeps, as far as this core's scheduler knows.
        if sleeps && state.scheduler.state(id) == Some(VcpuState::Runnable) {
            woken_early(state, platform, id, now, None);
        }
        let _ = look(state, platform, now);
    }
}

/// Looks for interrupts in the middle of a decision, which was begun at `now`, and takes them. If a vCPU above the lowest band that moves
/// waits for this decision, the core takes only interrupts for a still higher band until its end. Returns whether the core was interrupted.
#[inline(always)]
pub(super) fn look<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) -> bool {
    if is_urgent(state, platform) {
        if state.alarm <= now {
            // It has expired for what is decided now.
            disarm_alarm(state, platform);
        }
        hold_lower_back(state, platform);
    }
    let is_interrupted = platform.is_interrupted();
    if is_interrupted {
        take_interrupts(state, platform);
    }
    is_interrupted
}
