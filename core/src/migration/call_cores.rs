// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs that wait for their turn on a core while another core is off: after a while, a core is to come on for each.

use super::park::is_parked_here;
use super::platform::{Platform, State};
use crate::schedule::Ticks;
use crate::sets::VcpuSet;
use spumone_config::types::{MAX_PCPUS, VcpuId};

/// Whether vCPUs wait for their turn, or waited when the core looked last, after a decision at or below the lowest band that moves.
#[inline(always)]
pub(super) fn must_look<P: Platform>(state: &State<P>, platform: &P) -> bool {
    let has_waited = state.waiting.look_at != Ticks::NEVER;
    (has_waited || state.scheduler.same_band_waits())
        && state.scheduler.current_level() <= platform.shared().roles.lowest_movable
}

/// After such a decision: if vCPUs have waited for their turn for too long, calls a core for one of them. The core decides again when it is to look at
/// the next.
#[inline(never)]
pub(super) fn look_for_waiting<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    if state.scheduler.same_band_waits() && platform.may_bring_core_back() {
        look(state, platform, now);
    } else {
        state.waiting.look_at = Ticks::NEVER;
    }
}

#[inline(always)]
fn look<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    let (first, waiting) = waiting(state, platform);
    let runs = state.scheduler.current();
    if state.waiting.calls(waiting, runs, now)
        && let Some(first) = first
        && !platform.waits_for_core(first)
    {
        state.waiting.put_off(now);
    }
    state.fetch_at = state.fetch_at.min(state.waiting.look_at);
    state.alarm_is_stale = true;
}

/// The vCPUs that wait for their turn and migrate: as many as there may be cores for them at most, and the first of them. A vCPU that another core has
/// claimed does not wait.
fn waiting<P: Platform>(state: &State<P>, platform: &P) -> (Option<VcpuId>, VcpuSet) {
    let (mut first, mut all) = (None, VcpuSet::EMPTY);
    let mut waiting = state.scheduler.waiting();
    // At most 8 times: cores that could take one.
    for _ in 0..MAX_PCPUS {
        let Some(id) = waiting.next() else {
            break;
        };
        if state.moves(id) && (state.has(id) || is_parked_here(state, platform, id)) {
            first = first.or(Some(id));
            all.insert(id);
        }
    }
    (first, all)
}
