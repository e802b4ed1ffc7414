// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetching: a core looks at the vCPUs that other cores have parked, and claims the one that the policy chooses.

use super::catch::{catch, stop_catching};
use super::choice::Choice;
use super::core_state::Catch;
use super::notify::{notify_other_core, publish_level};
use super::park::park;
use super::platform::{Platform, TracePoint};
use super::policy::{Candidate, Here, Running};
use super::presence::Level;
use super::send::send_away_due;
use super::slot::{Parked, ParkedState, Peek};
use crate::schedule::{Ticks, VcpuState};
use crate::sets::VcpuSet;
use spumone_config::types::{PcpuId, VcpuId};

/// Looks for vCPUs that other cores have parked, and claims what the policy chooses. A decision, with
/// [`acquire_current`](super::park::acquire_current), must follow.
///
/// Returns whether there was something to choose from, so that time has passed; `None` if a vCPU wants the core whose
/// band is above all that migrate, so that nothing was looked at.
#[inline(always)]
pub(super) fn fetch(platform: &mut impl Platform, now: Ticks) -> Option<bool> {
    let local = platform.local_mut();
    local.fetch_at = Ticks::NEVER;
    local.alarm_is_stale = true;
    let highest = Level::of(local.scheduler.highest_band());
    if highest > platform.highest_movable() {
        return None;
    }
    let local = platform.local();
    if !(local.sent | local.visitors).is_empty() || local.rules.max_stay.is_some() {
        send_away_due(platform, now);
    }
    let highest = Level::of(platform.local().scheduler.highest_band());
    if highest == Level::IDLE {
        // First published, then looked: a core that parks a vCPU looks for idle cores afterwards.
        publish_level(platform, Level::IDLE);
    }
    let moving = platform.local().moving;
    let mut elsewhere = VcpuSet::EMPTY;
    for id in moving.iter() {
        let concerns = match platform.slot(id).peek(platform.core()) {
            Peek::Nothing => false,
            Peek::Runnable => true,
            // Its host serves it, unless it is cut off there.
            Peek::Waits(host) => is_cut_off(platform, id, host),
        };
        elsewhere.insert_if(id, concerns);
    }
    platform.trace(TracePoint::Peeked(moving.count()));
    let turn = platform.local().scheduler.turn();
    let is_over = turn.is_some_and(|turn| turn.equal_waits && turn.quantum_end <= now);
    if elsewhere.is_empty() && !is_over {
        end_grace(platform);
        return Some(false);
    }
    choose(platform, now, elsewhere, is_over);
    Some(true)
}

/// Whether `host` runs a higher band than that of a vCPU, so that no interrupt for the vCPU gets through there.
#[inline(always)]
pub(super) fn is_cut_off(platform: &impl Platform, id: VcpuId, host: PcpuId) -> bool {
    let host = platform.presence(host).zip(platform.band(id));
    host.is_some_and(|(it, band)| it.is_above(band))
}

/// Claims what the policy chooses of `elsewhere`, the vCPUs that other cores have parked. `is_over`: the time slice of the
/// running vCPU is over, and another one of its band waits here.
#[inline(never)]
fn choose(platform: &mut impl Platform, now: Ticks, elsewhere: VcpuSet, is_over: bool) {
    platform.trace(TracePoint::Look);
    let local = platform.local();
    let turn = local.scheduler.turn();
    let here = Here {
        core: platform.core(),
        now,
        running: turn.map(|turn| Running {
            band: turn.band,
            since: turn.since,
            turn_end: turn.quantum_end,
        }),
        equal_waits: turn.map_or(local.scheduler.highest_band().is_some(), |turn| {
            turn.equal_waits
        }),
        excludes_kernels: local.excludes_kernels,
    };
    let mut choice = Choice::NOTHING;
    for id in elsewhere.iter() {
        let Some(candidate) = candidate(platform, id) else {
            continue;
        };
        let verdict = platform.verdict(&here, &candidate);
        if choice.note(id, &candidate, verdict) {
            become_host(platform, id, candidate.parked, now);
        }
    }
    let local = platform.local_mut();
    local.fetch_at = local.fetch_at.min(choice.fetch_at);
    // No grace when a higher band preempts.
    let is_preempted = choice
        .best
        .is_some_and(|best| turn.is_some_and(|turn| best.band > turn.band));
    let must_let_go = is_over || choice.best.is_some_and(|best| best.swap);
    if must_let_go
        && !is_preempted
        && let Some(until) = more_grace(platform, now)
    {
        let local = platform.local_mut();
        local.scheduler.extend_turn(until);
        local.fetch_at = local.fetch_at.min(until);
        catch(platform, Catch::Exit);
        return;
    }
    end_grace(platform);
    if let Some(found) = choice.best
        && claim_for_core(platform, found.vcpu, found.parked, now)
    {
        let runs_next = turn.is_none_or(|turn| found.swap || found.band > turn.band);
        match runs_next {
            // Its token is needed at once.
            true => platform.local_mut().fetched = Some(found.vcpu),
            false => park(platform, found.vcpu),
        }
        if found.swap {
            platform.local_mut().scheduler.yield_current();
        }
        if let Some(id) = choice.left_over {
            notify_other_core(platform, id, true);
        }
    }
}

/// The running vCPU gets no grace, or no longer; what it has used of it is forgotten.
#[inline(always)]
fn end_grace(platform: &mut impl Platform) {
    stop_catching(platform);
    platform.local_mut().grace.renew();
}

/// A vCPU that another core has parked, of a guest that runs.
fn candidate(platform: &impl Platform, id: VcpuId) -> Option<Candidate> {
    let slot = platform.slot(id);
    let parked = slot.parked()?;
    if parked.host == platform.core() || !platform.guest_runs(id) {
        return None;
    }
    let band = platform.band(id)?;
    Some(Candidate {
        parked,
        band,
        home: platform.home(id)?,
        since: slot.since(),
        is_cut_off: platform.presence(parked.host)?.is_above(band),
    })
}

/// Until when the running vCPU, whose time slice is over, may run on.
fn more_grace(platform: &mut impl Platform, now: Ticks) -> Option<Ticks> {
    let local = platform.local();
    let id = local.running.filter(|_| local.running == local.loaded)?;
    let sample = platform.sample(id)?;
    platform.local_mut().grace.more(now, sample)
}

/// Becomes the host of a vCPU that another core has parked, and parks it here. Returns whether it has.
pub(super) fn become_host(
    platform: &mut impl Platform,
    id: VcpuId,
    seen: Parked,
    now: Ticks,
) -> bool {
    let has_claimed = claim_for_core(platform, id, seen, now);
    if has_claimed {
        park(platform, id);
    }
    has_claimed
}

/// Claims a vCPU that another core has parked, and puts it into this core's run queue. Returns whether it has: not if a
/// core was faster, or the guest does not run.
fn claim_for_core(platform: &mut impl Platform, id: VcpuId, seen: Parked, now: Ticks) -> bool {
    let Some(band) = platform.band(id).filter(|_| platform.guest_runs(id)) else {
        return false;
    };
    let Some(token) = platform.claim(id, seen) else {
        return false;
    };
    platform.trace(TracePoint::Take(id));
    // A core that rings from here on kicks this core. What was rung before is seen when the vCPU is parked or loaded.
    platform.settle(&token);
    let mut state = match seen.state {
        ParkedState::Runnable | ParkedState::Wanted | ParkedState::Sent => VcpuState::Suspend,
        ParkedState::Asleep => VcpuState::Sleep,
        ParkedState::Off => VcpuState::Off,
    };
    let timer = match state {
        VcpuState::Sleep => platform.next_timer(&token, now),
        _ => None,
    };
    let local = platform.local_mut();
    // Of an earlier stay.
    let _ = local.scheduler.remove(id);
    local.deadlines.clear(id);
    match timer {
        Some(at) if at <= now => state = VcpuState::Suspend,
        Some(at) => {
            local.deadlines.set(id, band, at);
            local.alarm_is_stale = true;
        }
        None => {}
    }
    let admitted = local.scheduler.admit(id, band, state);
    debug_assert!(admitted.is_ok(), "a vCPU is on one core");
    local.vcpus[id.index()] = Some(token);
    local.sent.remove(id);
    local.taken_back.remove(id);
    if local.rules.returns_home && !local.home_vcpus.contains(id) {
        local.visitors.insert(id);
    }
    platform.trace(TracePoint::Taken);
    true
}
