// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the token of a vCPU is: with this core, or in its parking slot.
//!
//! A vCPU that migrates is parked when it does not run and its registers are saved. A vCPU that a core has parked stays in
//! that core's run queue. The core claims it when the vCPU is to run; if another core was faster, the vCPU leaves the
//! queue.

use super::platform::{Platform, TracePoint};
use super::slot::{Parked, ParkedState};
use crate::schedule::{Decision, Ticks, VcpuState};
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// Whether a vCPU is on this core, or parked by it.
#[inline(always)]
pub(super) fn is_here(platform: &impl Platform, id: VcpuId) -> bool {
    platform.local().token(id).is_some() || is_parked_here(platform, id)
}

/// Whether this core has parked a vCPU, and no core has claimed it.
#[inline(always)]
pub(super) fn is_parked_here(platform: &impl Platform, id: VcpuId) -> bool {
    let parked = platform.slot(id).parked();
    parked.is_some_and(|it| it.host == platform.core())
}

/// Makes sure that this core has the token of a vCPU that it runs or has parked. Returns whether it has.
#[inline(always)]
pub fn acquire_token(platform: &mut impl Platform, id: VcpuId) -> bool {
    if platform.local().token(id).is_some() {
        return true;
    }
    let Some(band) = platform.band(id) else {
        return false;
    };
    // Another core may mark it as wanted between look and claim, once.
    let token = match claim_own(platform, id) {
        None => claim_own(platform, id),
        token => token,
    };
    let Some(token) = token else {
        return false;
    };
    let local = platform.local_mut();
    local.vcpus[id.index()] = Some(token);
    local.parked_here.remove(id);
    if local.sent.contains(id) {
        // It was sent away, and no core has claimed it.
        local.sent.remove(id);
        let admitted = local.scheduler.admit(id, band, VcpuState::Suspend);
        debug_assert!(
            admitted.is_ok(),
            "a vCPU that is sent away leaves the run queue"
        );
    }
    true
}

#[inline(always)]
fn claim_own<P: Platform>(platform: &mut P, id: VcpuId) -> Option<P::Token> {
    let core = platform.core();
    let seen = platform
        .slot(id)
        .parked()
        .filter(|seen| seen.host == core)?;
    platform.claim(id, seen)
}

/// Makes sure that this core has the token of the vCPU that a decision lets run; decides again where another core has
/// claimed it.
///
/// If the fetched vCPU does not run after all, it is parked: at once, or, if a higher band runs, after the park delay, so
/// that the higher band's latency does not grow.
#[inline(always)]
pub(super) fn acquire_current(
    platform: &mut impl Platform,
    now: Ticks,
    mut decision: Decision,
) -> Decision {
    for _ in 0..MAX_VCPUS {
        match platform.local().scheduler.current() {
            Some(id) if !acquire_token(platform, id) => {
                platform.trace(TracePoint::Again);
                let scheduler = &mut platform.local_mut().scheduler;
                let _ = scheduler.remove(id);
                decision = scheduler.decide(now);
            }
            _ => break,
        }
    }
    if let Some(id) = platform.local_mut().fetched.take()
        && platform.local().scheduler.current() != Some(id)
    {
        if platform.local().scheduler.current_band() > platform.band(id) {
            platform.local_mut().park_later.insert(id);
        } else {
            park(platform, id);
        }
    }
    decision
}

/// Parks a vCPU of this core that does not run and whose registers are saved, if it is one that may migrate.
pub fn park(platform: &mut impl Platform, id: VcpuId) {
    let local = platform.local();
    if !local.moves(id) {
        return;
    }
    let Some(token) = local.token(id) else {
        return;
    };
    let state = match local.scheduler.state(id) {
        Some(VcpuState::Suspend) if platform.was_in_kernel(token) => ParkedState::Wanted,
        Some(VcpuState::Suspend) => ParkedState::Runnable,
        Some(VcpuState::Sleep) => ParkedState::Asleep,
        Some(VcpuState::Off) => ParkedState::Off,
        Some(VcpuState::Running) | None => return,
    };
    store_token(platform, id, state);
}

/// Stores the token of a vCPU where other cores may claim it.
pub(super) fn store_token(platform: &mut impl Platform, id: VcpuId, state: ParkedState) {
    let parked = Parked {
        host: platform.core(),
        state,
    };
    let Some(token) = platform.local_mut().vcpus[id.index()].take() else {
        return;
    };
    platform.store_parked(id, token, parked);
    platform.local_mut().parked_here.insert(id);
    if platform.is_rung(id) {
        // The core that rang may not have seen it parked.
        if state == ParkedState::Asleep {
            wake(platform, id);
        }
        mark_wanted_if_cut_off(platform, id);
    }
}

/// Whether this core runs a higher band than that of a vCPU.
#[inline(always)]
fn is_cut_off_here(platform: &impl Platform, id: VcpuId) -> bool {
    let band = platform.band(id);
    band.is_some_and(|band| platform.own_presence().is_above(band))
}

/// Marks a vCPU that this core has parked and that is runnable as wanted, if this core runs a higher band: as another
/// core does that rings its doorbell.
pub(super) fn mark_wanted_if_cut_off(platform: &impl Platform, id: VcpuId) {
    if !platform.local().pulls_for_interrupts || !is_cut_off_here(platform, id) {
        return;
    }
    let slot = platform.slot(id);
    let seen = slot
        .parked()
        .filter(|it| it.host == platform.core() && it.state.is_runnable());
    if let Some(seen) = seen {
        // If that fails, a core has claimed it, and looks at its doorbell.
        let _ = slot.mark_wanted(seen);
    }
}

/// Wakes a vCPU that sleeps on this core.
#[inline(always)]
pub fn wake(platform: &mut impl Platform, id: VcpuId) {
    let local = platform.local_mut();
    // As long as the last decision stands, the running vCPU is awake.
    if local.running == Some(id) && !local.must_decide {
        return;
    }
    if local.scheduler.wake(id) {
        local.must_decide = true;
        if local.token(id).is_none() {
            platform.slot(id).mark_runnable(platform.core());
        }
    }
}

/// Wakes the vCPUs whose deadlines have passed, but not those that would not get the core.
#[inline(always)]
pub(super) fn wake_expired(platform: &mut impl Platform, now: Ticks) {
    let running = platform.local().scheduler.current_band();
    // At most one deadline for each vCPU.
    for _ in 0..MAX_VCPUS {
        let local = platform.local_mut();
        let Some(id) = local.deadlines.take_due(now, running) else {
            break;
        };
        if !local.moves(id) {
            local.scheduler.wake(id);
        } else if is_here(platform, id) {
            // One that was parked here may be elsewhere by now.
            wake(platform, id);
        }
    }
}
