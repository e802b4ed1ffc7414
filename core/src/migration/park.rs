// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the token of a vCPU is: with this core, or beside its parking slot.
//!
//! A vCPU that migrates is parked when it does not run and its registers are saved. The scheduler of the core that has
//! parked a vCPU still has it, unless it was sent away. The core claims the vCPU when it is to run; if another core was faster,
//! it removes the vCPU from the scheduler.

use super::platform::{Platform, State, TracePoint};
use super::slot::{Parked, ParkedState};
use crate::schedule::VcpuState;
use spumone_config::types::{PcpuId, VcpuId};

/// Whether this core is the host core of a vCPU: it has the token, or has parked it.
#[inline(always)]
pub(super) fn is_host_core<P: Platform>(state: &State<P>, platform: &P, id: VcpuId) -> bool {
    state.has(id) || is_parked_here(state, platform, id)
}

/// Whether this core has parked a vCPU, and no core has claimed it.
#[inline(always)]
pub(super) fn is_parked_here<P: Platform>(state: &State<P>, platform: &P, id: VcpuId) -> bool {
    let parked = platform.shared().slot(id).parked();
    parked.is_some_and(|it| it.host == state.core)
}

/// The host core of a vCPU.
#[inline(always)]
pub(super) fn host_core_of<P: Platform>(platform: &P, id: VcpuId) -> Option<PcpuId> {
    Some(platform.doorbell(id)?.location())
}

/// Claims the token of a vCPU that this core has parked, if the core does not have it. Returns whether this core has it
/// now.
#[inline(always)]
pub fn acquire_token<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) -> bool {
    if state.has(id) {
        return true;
    }
    let Some(band) = platform.shared().band(id) else {
        return false;
    };
    // Between look and claim another core may mark the vCPU as wanted, once. So a second attempt suffices.
    let token = match claim_own(state.core, platform, id) {
        None => claim_own(state.core, platform, id),
        token => token,
    };
    let Some(token) = token else {
        return false;
    };
    state.keep(id, token);
    state.parked_here.remove(id);
    if state.awaits(id) && is_rung(platform, id) {
        // The core that rang it may have marked it as wanted, and not kicked this core.
        state.end_await(id);
    }
    if state.sent.contains(id) {
        // It was sent away, and no core has claimed it.
        state.sent.remove(id);
        let admitted = state.scheduler.admit(id, band, VcpuState::Runnable);
        debug_assert!(
            admitted.is_ok(),
            "a vCPU that is sent away leaves the scheduler"
        );
    }
    true
}

#[inline(always)]
fn claim_own<P: Platform>(core: PcpuId, platform: &mut P, id: VcpuId) -> Option<P::Token> {
    let seen = platform
        .shared()
        .slot(id)
        .parked()
        .filter(|seen| seen.host == core)?;
    claim(platform, id, seen)
}

/// Claims a vCPU that is still parked as in `seen`. `None`: another core was faster.
#[inline(always)]
pub(super) fn claim<P: Platform>(platform: &mut P, id: VcpuId, seen: Parked) -> Option<P::Token> {
    match platform.shared().claim(id, seen) {
        Some(claim) => platform.take_token(claim),
        None => {
            platform.trace(TracePoint::LostClaim);
            None
        }
    }
}

/// Parks a vCPU of this core that does not run and whose registers are saved, if it is one that may migrate.
pub fn park<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    if !state.moves(id) {
        return;
    }
    let Some(Some(token)) = state.saved.get(id.index()) else {
        return;
    };
    let rest = match state.scheduler.state(id) {
        Some(VcpuState::Runnable) if platform.was_in_kernel(token) => ParkedState::Wanted,
        Some(VcpuState::Runnable) => ParkedState::Runnable,
        Some(VcpuState::Sleep) => ParkedState::Asleep,
        Some(VcpuState::Off) => ParkedState::Off,
        Some(VcpuState::Running) | None => return,
    };
    store_token(state, platform, id, rest);
}

/// As [`park`]. If the core is interrupted and the vCPU may wait for the park delay, a later decision parks it instead. Returns whether it is
/// parked.
pub(super) fn park_unless_interrupted<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    id: VcpuId,
) -> bool {
    if state.waits_for_park_delay(id) && platform.is_interrupted() {
        state.park_soon(id);
        return false;
    }
    park(state, platform, id);
    true
}

/// Parks a vCPU that this core has just claimed, unless the core is interrupted and the vCPU may wait for the park delay.
pub(super) fn park_claimed<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    if !park_unless_interrupted(state, platform, id) && is_rung(platform, id) {
        // As when it is parked.
        wake(state, platform, id);
    }
}

/// Whether an interrupt was rung for a vCPU and not taken from its doorbell yet.
#[inline(always)]
pub(super) fn is_rung<P: Platform>(platform: &P, id: VcpuId) -> bool {
    platform.doorbell(id).is_some_and(|it| !it.is_silent())
}

/// Stores the token of a vCPU where other cores may claim it.
pub(super) fn store_token<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    id: VcpuId,
    rest: ParkedState,
) {
    let parked = Parked {
        host: state.core,
        state: rest,
    };
    let Some(token) = state.give_up(id) else {
        return;
    };
    platform.store_token(token);
    let now = platform.now();
    platform.shared().slot(id).park(parked, now);
    state.parked_here.insert(id);
    if is_rung(platform, id) {
        // The core that rang the doorbell may not have seen the vCPU parked.
        if rest == ParkedState::Asleep {
            wake(state, platform, id);
        }
        mark_wanted_if_cut_off(state, platform, id);
    }
}

/// Whether this core runs a higher band than that of a vCPU.
#[inline(always)]
fn is_cut_off_here<P: Platform>(state: &State<P>, platform: &P, id: VcpuId) -> bool {
    let band = platform.shared().band(id);
    band.is_some_and(|band| platform.shared().presence(state.core).is_above(band))
}

/// Marks a runnable vCPU that this core has parked as wanted, if this core runs a higher band: so does another core
/// that rings the vCPU's doorbell.
pub(super) fn mark_wanted_if_cut_off<P: Platform>(state: &State<P>, platform: &P, id: VcpuId) {
    if !state.pulls_for_interrupts || !is_cut_off_here(state, platform, id) {
        return;
    }
    let slot = platform.shared().slot(id);
    let seen = slot
        .parked()
        .filter(|it| it.host == state.core && it.state.is_runnable());
    if let Some(seen) = seen {
        // If this fails, another core has claimed the vCPU and looks at its doorbell.
        let _ = slot.mark_wanted(seen);
    }
}

/// Wakes a vCPU that sleeps on this core.
#[inline(always)]
pub fn wake<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    state.end_await(id);
    // While the last decision is valid, the running vCPU is awake.
    if state.running == Some(id) && !state.must_decide {
        return;
    }
    if state.scheduler.wake(id) {
        state.must_decide = true;
        if !state.has(id) {
            platform
                .shared()
                .slot(id)
                .mark_runnable(state.core, platform.now());
        }
    }
}
