// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetching: a core looks at the vCPUs that other cores have parked, and asks the policy about each. It claims every
//! sleeping or turned-off vCPU that it is to take, and at most one runnable vCPU.

use super::catch::{catch, stop_catching};
use super::choice::Choice;
use super::core_state::Catch;
use super::notify::{notify_other_core, publish_level};
use super::park::{claim, park};
use super::platform::{Platform, State, TracePoint};
use super::policy::{Candidate, Fetcher, Running};
use super::send::send_away_due;
use super::shared::Shared;
use super::slot::{Parked, ParkedState, Peek};
use crate::schedule::{Level, Ticks, VcpuState};
use crate::sets::VcpuSet;
use spumone_config::types::{PcpuId, VcpuId};

/// Looks for vCPUs that other cores have parked, asks the policy about each, and claims every sleeping or turned-off vCPU
/// that it is to take, and at most one runnable vCPU. A decision must follow, with
/// [`acquire_current`](super::park::acquire_current).
///
/// Returns whether there was something to choose or a time slice was over, so that time has passed; `None` if a vCPU of a
/// higher band than any vCPU that migrates runs or is runnable here, so that no slot was looked at.
#[inline(always)]
pub(super) fn fetch<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    now: Ticks,
) -> Option<bool> {
    state.fetch_at = Ticks::NEVER;
    state.alarm_is_stale = true;
    if state.scheduler.highest_level() > platform.shared().roles.highest_movable {
        return None;
    }
    if !(state.sent | state.visitors).is_empty() || state.rules.max_stay.is_some() {
        send_away_due(state, platform, now);
    }
    if state.scheduler.highest_level() == Level::IDLE {
        // Publish first, then look: a core that parks a vCPU looks for idle cores afterwards.
        publish_level(state, platform, Level::IDLE);
    }
    let movable = state.movable;
    let mut elsewhere = VcpuSet::EMPTY;
    // At most 32 times: vCPUs.
    for id in movable.iter() {
        let concerns = match platform.shared().slot(id).peek(state.core) {
            Peek::Nothing => false,
            Peek::Runnable => true,
            // Its host core delivers its interrupts, unless the vCPU is cut off there.
            Peek::Waits(host) => is_cut_off(platform.shared(), id, host),
        };
        elsewhere.insert_if(id, concerns);
    }
    platform.trace(TracePoint::Peeked(movable.count()));
    let slice = state.scheduler.time_slice();
    let is_over = slice.is_some_and(|slice| slice.same_band_waits && slice.end <= now);
    if elsewhere.is_empty() && !is_over {
        end_grace(state, platform);
        return Some(false);
    }
    choose(state, platform, now, elsewhere, is_over);
    Some(true)
}

/// Whether core `host` runs a higher band than the vCPU's.
#[inline(always)]
pub(super) fn is_cut_off(shared: &Shared, id: VcpuId, host: PcpuId) -> bool {
    let band = shared.band(id);
    band.is_some_and(|band| shared.presence(host).is_above(band))
}

/// Asks the policy about each vCPU of `elsewhere`, which other cores have parked. At once it claims those to take that
/// sleep or are off; then it claims the best runnable one, or first gives the running vCPU grace. `is_over`: the time slice
/// of the running vCPU is over, and another vCPU of its band waits here.
#[inline(never)]
fn choose<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    now: Ticks,
    elsewhere: VcpuSet,
    is_over: bool,
) {
    platform.trace(TracePoint::Look);
    let slice = state.scheduler.time_slice();
    let fetcher = Fetcher {
        core: state.core,
        now,
        running: slice.map(|slice| Running {
            band: slice.band,
            since: slice.since,
            slice_end: slice.end,
        }),
        same_band_waits: slice.map_or(state.scheduler.highest_band().is_some(), |slice| {
            slice.same_band_waits
        }),
        excludes_kernels: state.excludes_kernels,
    };
    let mut choice = Choice::NOTHING;
    // At most 32 times: vCPUs.
    for id in elsewhere.iter() {
        let Some(candidate) = candidate(state, platform, id) else {
            continue;
        };
        let verdict = platform.verdict(&fetcher, &candidate);
        if choice.note(id, &candidate, verdict) {
            become_host_core(state, platform, id, candidate.parked, now);
        }
    }
    state.fetch_at = state.fetch_at.min(choice.fetch_at);
    // No grace when a higher band preempts.
    let is_preempted = choice
        .best
        .is_some_and(|best| slice.is_some_and(|slice| best.band > slice.band));
    let must_leave = is_over || choice.best.is_some_and(|best| best.swap);
    if must_leave
        && !is_preempted
        && let Some(until) = more_grace(state, platform, now)
    {
        state.scheduler.extend_time_slice(until);
        state.fetch_at = state.fetch_at.min(until);
        catch(state, platform, Catch::Exit);
        return;
    }
    end_grace(state, platform);
    if let Some(found) = choice.best
        && claim_for_core(state, platform, found.vcpu, found.parked, now)
    {
        let runs_next = slice.is_none_or(|slice| found.swap || found.band > slice.band);
        match runs_next {
            // The core needs its token at once.
            true => state.fetched = Some(found.vcpu),
            false => park(state, platform, found.vcpu),
        }
        if found.swap {
            state.scheduler.yield_current();
        }
        if let Some(id) = choice.left_over {
            notify_other_core(state, platform, id, true);
        }
    }
}

/// Ends the grace of the running vCPU, if it has any. The next time it gets all of its grace again.
#[inline(always)]
fn end_grace<P: Platform>(state: &mut State<P>, platform: &mut P) {
    stop_catching(state, platform);
    state.grace.renew();
}

/// The vCPU `id`, if another core has parked it and its guest runs.
fn candidate<P: Platform>(state: &State<P>, platform: &P, id: VcpuId) -> Option<Candidate> {
    let slot = platform.shared().slot(id);
    let parked = slot.parked()?;
    if parked.host == state.core || !platform.guest_runs(id) {
        return None;
    }
    let vcpu = platform.shared().vcpu(id)?;
    Some(Candidate {
        parked,
        band: vcpu.band,
        home: vcpu.home,
        since: slot.since(),
        is_cut_off: platform.shared().presence(parked.host).is_above(vcpu.band),
    })
}

/// Until when the running vCPU, which has to give up the core, may go on.
fn more_grace<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) -> Option<Ticks> {
    let loaded = state.loaded.as_ref()?;
    if state.running != Some(loaded.id) {
        return None;
    }
    let sample = platform.sample(&loaded.token);
    state.grace.more(now, sample)
}

/// Becomes the host core of a vCPU that another core has parked: claims it, and parks it here. Returns `false` if the
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
        park(state, platform, id);
        // The presence of this core may still show a higher band whose vCPU sleeps by now. If that vCPU wakes before the
        // decision, the presence does not change, so `publish_and_notify` would not set `notify_at`.
        let at = now.saturating_add(state.rules.park_delay);
        state.notify_at = state.notify_at.min(at);
        state.alarm_is_stale = true;
    }
    has_claimed
}

/// Claims a vCPU that another core has parked, and enters it in this core's scheduler. Returns `false` if a core was
/// faster, or the guest does not run.
fn claim_for_core<P: Platform>(
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
            state.set_deadline(id, &vcpu, at);
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
