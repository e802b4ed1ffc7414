// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fetching: a core looks at the vCPUs that other cores have parked, and asks the policy about each. It claims every
//! sleeping or turned-off vCPU that it is to take, and at most one runnable vCPU.

use super::catch::{catch, stop_catching};
use super::choice::Choice;
use super::claim::{become_host_core, claim_for_core, is_cut_off};
use super::core_state::{Catch, CoreState, FETCH_AGAIN};
use super::grace::Leaves;
use super::interrupt::take_interrupts;
use super::notify::{To, notify_other_core, pass_on, publish_level, publish_not_shared};
use super::park::{is_rung, park_claimed};
use super::platform::{Platform, State, TracePoint};
use super::policy::{Candidate, Fetcher, Running, Verdict};
use super::send::send_away_due;
use super::slot::Peek;
use super::turn::turn_end;
use crate::schedule::{Level, Ticks};
use crate::sets::VcpuSet;
use spumone_config::types::VcpuId;

/// What came of [`fetch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fetched {
    /// No slot was looked at.
    NotTried,
    /// There was nothing to choose, and no time slice was over.
    AtOnce,
    /// Time has passed.
    TookTime,
    /// An interrupt has ended it: the core fetches again after the decision, unless a vCPU runs then that does not migrate.
    Ended,
    /// The same, because a vCPU above the lowest band that moves waits for the decision.
    PutOff,
}

/// Looks for vCPUs that other cores have parked, asks the policy about each, and claims every sleeping or turned-off vCPU
/// that it is to take, and at most one runnable vCPU. A decision must follow, with
/// [`acquire_current`](super::decide::acquire_current).
///
/// Does nothing if a vCPU of a higher band than any vCPU that migrates runs or is runnable here. Ends early if an interrupt makes such a
/// vCPU runnable, if the alarm expires, and if a vCPU above the lowest band that moves waits for this decision.
#[inline(always)]
pub(super) fn fetch<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) -> Fetched {
    state.fetch_at = Ticks::NEVER;
    // If it was armed for the end of the time slice, say, it does not end fetching.
    state.alarm_is_stale = true;
    if is_above_movable(state, platform) {
        return Fetched::NotTried;
    }
    if sends_away(state) {
        send_away_due(state, platform, now);
    }
    if state.scheduler.highest_level() == Level::IDLE {
        // Publish first, then look: a core that parks a vCPU looks for idle cores afterwards.
        publish_level(state, platform, Level::IDLE);
    } else if state.rules.leaves_shared_cores && !state.scheduler.is_shared() {
        // Also publish first, then look: a core on which another vCPU waits is not notified of parked vCPUs.
        publish_not_shared(state, platform);
    }
    let mut elsewhere = parked_elsewhere(state, platform);
    if let Some(ended) = must_end(state, platform) {
        return ended;
    }
    if state.fetch_at == FETCH_AGAIN && !sends_away(state) {
        // At this look the core has taken a kick, or an interrupt for a parked vCPU. It looks at the slots again now, and need not decide again for that. If it may
        // have vCPUs to send away, it decides again, since it sends them before it looks.
        state.fetch_at = Ticks::NEVER;
        elsewhere = parked_elsewhere(state, platform);
        if let Some(ended) = must_end(state, platform) {
            return ended;
        }
    }
    let slice = state.scheduler.time_slice();
    let turn_end = turn_end(state, platform);
    if turn_end != Ticks::NEVER
        && let Some(ended) = must_end(state, platform)
    {
        return ended;
    }
    let is_over = turn_end <= now;
    if is_over && slice.is_some_and(|slice| slice.end > now) {
        // The grace after a short turn extends the time slice from here on.
        state.scheduler.end_early(now);
    }
    if elsewhere.is_empty() && !is_over {
        renew_grace(state, platform);
        state.fetch_at = state.fetch_at.min(turn_end);
        return Fetched::AtOnce;
    }
    let fetched = choose(state, platform, now, elsewhere, is_over);
    if !is_over {
        state.fetch_at = state.fetch_at.min(turn_end);
    }
    fetched
}

/// Whether the core may have vCPUs to send away.
#[inline(always)]
fn sends_away<T>(state: &CoreState<T>) -> bool {
    !(state.sent | state.visitors).is_empty() || state.rules.max_stay.is_some()
}

/// The vCPUs that another core has parked and that this core may have a use for.
#[inline(always)]
fn parked_elsewhere<P: Platform>(state: &State<P>, platform: &mut P) -> VcpuSet {
    let movable = state.movable;
    let is_shared = state.rules.leaves_shared_cores && state.scheduler.same_band_waits();
    // The policy leaves each vCPU of this band or below where it is, unless that vCPU is cut off.
    let leaves_up_to = state.scheduler.current_band().filter(|_| is_shared);
    let mut elsewhere = VcpuSet::EMPTY;
    // At most 32 times: vCPUs.
    for id in movable.iter() {
        let concerns = match platform.shared().slot(id).peek(state.core) {
            Peek::Nothing => false,
            Peek::Runnable(host) => {
                leaves_up_to.is_none()
                    || platform.shared().band(id) > leaves_up_to
                    || is_cut_off(platform.shared(), id, host)
            }
            // Its host core delivers its interrupts, unless the vCPU is cut off there.
            Peek::Waits(host) => is_cut_off(platform.shared(), id, host),
        };
        elsewhere.insert_if(id, concerns);
    }
    platform.trace(TracePoint::Peeked(movable.count()));
    elsewhere
}

/// The running vCPU gets all of its grace again; not while it is in its grace and another vCPU of its band still waits for its turn, nor if a vCPU is to run out of
/// turn.
#[inline(always)]
fn renew_grace<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let is_in_grace = state.scheduler.is_extended() && state.scheduler.same_band_waits();
    if !state.scheduler.is_cut() && !is_in_grace {
        end_grace(state, platform);
    }
}

/// Asks the policy about each vCPU of `elsewhere`, which other cores have parked. At once it claims those to take that
/// sleep or are off; then it claims the best runnable one, or first gives the running vCPU grace. `is_over`: the turn
/// of the running vCPU is over, and another vCPU of its band waits here.
#[inline(never)]
fn choose<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    now: Ticks,
    elsewhere: VcpuSet,
    is_over: bool,
) -> Fetched {
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
    let goes_off =
        state.scheduler.highest_level() == Level::IDLE && !platform.is_wanted(state.core);
    let mut choice = Choice::NOTHING;
    // At most 32 times: vCPUs.
    for id in elsewhere.iter() {
        let Some(candidate) = candidate(state, platform, id) else {
            continue;
        };
        let verdict = match goes_off && !candidate.parked.state.is_runnable() {
            // This core would have another one take it at once. It may be the only one that was notified.
            true => {
                if candidate.is_cut_off {
                    pass_on(state, platform, id);
                }
                Verdict::Leave
            }
            false => platform.verdict(&fetcher, &candidate),
        };
        if choice.note(id, &candidate, verdict)
            && become_host_core(state, platform, id, candidate.parked, now)
        {
            park_claimed(state, platform, id);
        }
        if let Some(ended) = must_end(state, platform) {
            return ended;
        }
    }
    state.fetch_at = state.fetch_at.min(choice.fetch_at);
    // No grace when a higher band preempts.
    let is_preempted = choice
        .best
        .is_some_and(|best| slice.is_some_and(|slice| best.band > slice.band));
    let must_leave = is_over || choice.best.is_some_and(|best| best.swap);
    if must_leave && !is_preempted {
        let for_interrupt = choice.best.is_some_and(|it| is_rung(platform, it.vcpu));
        match more_grace(state, platform, for_interrupt) {
            Leaves::Later(until) => {
                state.scheduler.extend_time_slice(until);
                state.fetch_at = state.fetch_at.min(until);
                catch(state, platform, Catch::Exit);
                return Fetched::TookTime;
            }
            // It may hold a lock.
            Leaves::InKernel if state.scheduler.runs_out_of_turn() => {
                state.scheduler.take_turn(now);
            }
            Leaves::InKernel => state.scheduler.stay_in_turn(),
            Leaves::Now => {}
        }
    }
    match must_leave {
        true => end_grace(state, platform),
        false => renew_grace(state, platform),
    }
    if let Some(ended) = must_end(state, platform) {
        return ended;
    }
    if let Some(found) = choice.best
        && claim_for_core(state, platform, found.vcpu, found.parked, now)
    {
        let runs_next = slice.is_none_or(|slice| found.swap || found.band > slice.band);
        match runs_next {
            // The core needs its token at once.
            true => state.fetched = Some(found.vcpu),
            false => park_claimed(state, platform, found.vcpu),
        }
        if found.swap {
            state.scheduler.yield_current();
        }
        if let Some(id) = choice.left_over {
            notify_other_core(state, platform, id, To::Any);
        }
    }
    Fetched::TookTime
}

/// Looks for interrupts, and takes them. Returns how fetching ends, if it is to end here.
#[inline(always)]
fn must_end<P: Platform>(state: &mut State<P>, platform: &mut P) -> Option<Fetched> {
    if is_urgent(state, platform) {
        return Some(Fetched::PutOff);
    }
    if platform.is_interrupted() {
        take_interrupts(state, platform);
        let must_end = state.alarm_expired || is_above_movable(state, platform);
        return must_end.then_some(Fetched::Ended);
    }
    // It may have expired at a look before.
    state.alarm_expired.then_some(Fetched::Ended)
}

/// Whether a vCPU above the lowest band that moves waits for the decision. Before it the core takes only interrupts for a still higher band.
#[inline(always)]
pub(super) fn is_urgent<P: Platform>(state: &State<P>, platform: &P) -> bool {
    let lowest = platform.shared().roles.lowest_movable;
    state.scheduler.highest_level() > lowest && state.higher_band_waits()
}

/// Whether a vCPU of a higher band than any vCPU that migrates runs or is runnable here.
#[inline(always)]
pub(super) fn is_above_movable<P: Platform>(state: &State<P>, platform: &P) -> bool {
    state.scheduler.highest_level() > platform.shared().roles.highest_movable
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

/// When the running vCPU, which has to give up the core, does so. `for_interrupt`: to a vCPU for which one waits.
fn more_grace<P: Platform>(state: &mut State<P>, platform: &mut P, for_interrupt: bool) -> Leaves {
    match &state.loaded {
        // In its WFI, a vCPU holds no lock.
        Some(loaded) if state.running == Some(loaded.id) && !state.awaits(loaded.id) => {
            let sample = platform.sample(&loaded.token);
            let is_short = for_interrupt || state.scheduler.is_cut();
            if core::mem::replace(&mut state.since_entry.has_sampled, true) {
                state.grace.has_not_run();
            }
            // From now on: the decision has begun a while ago.
            state.grace.sample(platform.now(), sample, is_short)
        }
        _ => Leaves::Now,
    }
}
