// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short way of a decision: a vCPU is runnable, or its deadline has passed, and nothing else can change that this vCPU runs next. So a
//! real-time guest does not wait for all that a decision looks at.
//!
//! The short way decides what the long way (`decide_in_full`) would.

use super::early;
use super::notify::publish_above_lowest;
use super::platform::{Platform, State, TracePoint};
use super::shared::VcpuFacts;
use crate::schedule::{Band, Level, Ticks, VcpuState};
use spumone_config::types::VcpuId;

/// Decides that another vCPU runs: one that is runnable, or one that sleeps and whose deadline has passed. That vCPU must not migrate. Its band
/// must be higher than the band of each vCPU that migrates, and of each other vCPU whose deadline has passed: such a vCPU is not woken before
/// this one has run. Returns the time of the decision and the band of the vCPU; `None`: nothing has changed, and the decision takes the long way.
#[inline(always)]
pub(super) fn preempt<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
) -> Option<(Ticks, Band)> {
    let last = state.running;
    let may_defer = state.rules.gang || state.rules.max_delay.is_some();
    // If it was not loaded yet, it is kept for the park delay, or does not migrate.
    let is_kept = |id| state.waits_for_park_delay(id) || !state.moves(id);
    if may_defer || last.is_some_and(|id| state.loaded() != last && !is_kept(id)) {
        return None;
    }
    // Below each vCPU that the short way chooses.
    let lower = state.movable;
    let now;
    let id = match state.alarm_expired {
        true => {
            now = platform.now();
            state.deadlines.highest_due(now, lower)?
        }
        false => {
            let id = state.scheduler.first_above_current()?;
            now = platform.now();
            id
        }
    };
    let &VcpuFacts { band, .. } = platform.shared().vcpu(id)?;
    if !state.alarm_expired && state.deadlines.is_any_due_from(band, now, lower) {
        return None;
    }
    let is_above_all = Level::of(Some(band)) > platform.shared().roles.highest_movable;
    // The token of a vCPU that does not migrate is on this core.
    let is_asleep = state.scheduler.state(id) == Some(VcpuState::Sleep);
    if !is_above_all || !state.scheduler.preempt(id, now) {
        return None;
    }
    if is_asleep {
        let deadline = state.deadlines.of(id);
        early::woken_early(state, platform, id, now, deadline);
    }
    run(state, platform, id, now, band);
    Some((now, band))
}

/// Makes the vCPU `id`, which the scheduler has chosen, the running one.
#[inline(always)]
fn run<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId, now: Ticks, band: Band) {
    state.leave_unfinished();
    state.must_decide = false;
    state.deadlines.clear(id);
    state.grace.renew();
    match state.running.replace(id) {
        None if state.loaded() != Some(id) => early::stays_loaded(state, platform, now),
        Some(last) if state.loaded() != Some(last) && state.moves(last) => {
            state.keep_for_park_delay(last);
        }
        _ => {}
    }
    platform.trace(TracePoint::Dispatch(Some(id), now));
    if !state.movable.is_empty() {
        state.fetch_at = Ticks::NEVER;
        publish_above_lowest(state, platform, now, Level::of(Some(band)));
    }
}
