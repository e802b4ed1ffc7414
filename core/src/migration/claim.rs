// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core claims a vCPU that another core has parked.

use super::park::claim;
use super::platform::{Platform, State, TracePoint};
use super::shared::Shared;
use super::slot::{Parked, ParkedState};
use crate::schedule::{Ticks, VcpuState};
use spumone_config::types::{PcpuId, VcpuId};

/// Whether core `host` runs a higher band than the vCPU's.
#[inline(always)]
pub(super) fn is_cut_off(shared: &Shared, id: VcpuId, host: PcpuId) -> bool {
    let band = shared.band(id);
    band.is_some_and(|band| shared.presence(host).is_above(band))
}

/// Becomes the host core of a vCPU that another core has parked: claims it. The caller parks it here. Returns `false` if the
/// claim failed.
pub(super) fn become_host_core<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    id: VcpuId,
    seen: Parked,
    now: Ticks,
) -> bool {
    let has_claimed = claim_for_core(state, platform, id, seen, now);
    if has_claimed {
        // The presence of this core may still show a higher band, although no vCPU of that band is awake any more. If one wakes before the
        // decision, the presence does not change, so `publish_and_notify` would not set `notify_at`.
        let at = now.saturating_add(state.park_delay());
        state.notify_at = state.notify_at.min(at);
        state.alarm_is_stale = true;
    }
    has_claimed
}

/// Claims a vCPU that another core has parked, and enters it in this core's scheduler. Returns `false` if a core was
/// faster, or the guest does not run.
pub(super) fn claim_for_core<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    id: VcpuId,
    seen: Parked,
    now: Ticks,
) -> bool {
    let Some(&vcpu) = platform
        .shared()
        .vcpu(id)
        .filter(|_| platform.guest_runs(id))
    else {
        return false;
    };
    let Some(token) = claim(platform, id, seen) else {
        return false;
    };
    platform.trace(TracePoint::Take(id));
    // A core that rings from now on kicks this core. What was rung before is seen when the vCPU is parked or loaded.
    if let Some(doorbell) = platform.doorbell(id) {
        doorbell.settle(state.core);
    }
    platform.route_devices(&token);
    let mut vcpu_state = match seen.state {
        ParkedState::Runnable | ParkedState::Wanted | ParkedState::Sent => VcpuState::Runnable,
        ParkedState::Asleep => VcpuState::Sleep,
        ParkedState::Off => VcpuState::Off,
    };
    let timer = match vcpu_state {
        VcpuState::Sleep => platform.next_timer(&token),
        _ => None,
    };
    // The scheduler may still have the vCPU from the last time it was here.
    let _ = state.scheduler.remove(id);
    state.deadlines.clear(id);
    match timer {
        Some(at) if at <= now => vcpu_state = VcpuState::Runnable,
        Some(at) => {
            state.set_deadline(id, vcpu.band, vcpu.early, at);
            state.alarm_is_stale = true;
        }
        None => {}
    }
    let admitted = state.scheduler.admit(id, vcpu.band, vcpu_state);
    debug_assert!(admitted.is_ok(), "a vCPU is on one core");
    state.keep(id, token);
    state.sent.remove(id);
    state.taken_back.remove(id);
    if state.rules.returns_home && !state.home_vcpus.contains(id) {
        state.visitors.insert(id);
    }
    platform.trace(TracePoint::Taken);
    true
}
