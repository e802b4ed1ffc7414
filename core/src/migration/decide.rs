// SPDX-License-Identifier: MIT OR Apache-2.0
//! One iteration of a core's loop at EL2: which vCPU runs next, for when the alarm is armed, and which interrupts the
//! priority mask lets through.
//!
//! The hypervisor, the simulator and the exhaustive test run this code; each brings its own [`Platform`].

use super::catch::catch_always;
use super::defer::defer_preemption;
use super::early;
use super::expired::{look, wake_expired};
use super::fetch::{Fetched, fetch, is_above_movable, is_urgent};
use super::finish::finish;
use super::gang::pause_gang;
use super::interrupt::{
    arm_alarm, arm_stale_alarm, disarm_alarm, is_overtaken, notify_rung, notify_vcpus,
    run_again_for_interrupt, take_interrupts,
};
use super::notify::set_running;
use super::park::acquire_token;
use super::platform::{Platform, State, TracePoint};
use super::preempt::preempt;
use super::quiet;
use crate::schedule::{Action, Band, Decision, Ticks};
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// What a core does after [`next_action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It decides again, because something has happened since the decision.
    Decide,
    /// No vCPU may run: the core idles.
    Idle,
    /// The core switches to this vCPU, whose registers are not on the core.
    Switch(VcpuId),
    /// This vCPU, whose registers are on the core, enters its guest.
    Run(VcpuId),
    /// The same vCPU waits for its timer first, at EL2: the core takes the next interrupt.
    Await,
    /// The hypervisor does a chore at this time, that of the decision: one that an interrupt asked for
    /// ([`Taken::Chore`](super::Taken::Chore)), or one that is due ([`Platform::next_chore`]). It then sets the time of the
    /// next one ([`set_chore`](super::set_chore)). The decision stands.
    Chore(Ticks),
}

/// One iteration of the loop: decides, if something has happened since the last decision, and arms the alarm.
///
/// Bounded: one decision. At each look it takes at most eight interrupts.
#[inline(always)]
pub fn next_action<P: Platform>(state: &mut State<P>, platform: &mut P) -> Next {
    if state.must_decide {
        let now = decide(state, platform);
        if !finish(state, platform) {
            return Next::Decide;
        }
        notify_decided(state, platform);
        if core::mem::take(&mut state.chore_is_due) {
            return Next::Chore(now);
        }
        if is_overtaken(state, platform) {
            return Next::Decide;
        }
    } else if !state.rung.is_empty() {
        // While registers were saved or loaded.
        if is_overtaken(state, platform) {
            return Next::Decide;
        }
        notify_decided(state, platform);
        if state.must_decide {
            return Next::Decide;
        }
    }
    arm_stale_alarm(state, platform);
    match state.running {
        None => Next::Idle,
        // An interrupt that came while it was not loaded, or about to be saved, may not be in its list registers yet.
        Some(id) if state.loaded() == Some(id) => match state.awaits(id) && !state.must_refresh {
            true => Next::Await,
            false => Next::Run(id),
        },
        Some(id) => Next::Switch(id),
    }
}

/// How many vCPUs the core notifies before it enters one of a higher band. A guest may have rung the doorbells of all its vCPUs.
const NOTIFIED_BEFORE_ENTRY: usize = 3;

/// [`notify_rung`] after a decision. That may wake vCPUs of this core. If the vCPU that runs next has a higher band than these, and than each
/// vCPU that migrates, the core does not decide again: the decision would be the same. It then notifies a few vCPUs only, and the others a short time
/// after it has entered that vCPU.
#[inline(always)]
fn notify_decided<P: Platform>(state: &mut State<P>, platform: &mut P) {
    if !state.rung.is_empty() {
        notify_some(state, platform);
    }
}

/// Notifies the host cores of vCPUs in `rung`: of all of them, or, before a vCPU of a higher band is entered, of a few.
#[inline(never)]
fn notify_some<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let stood = !state.must_decide && !state.alarm_expired;
    let is_below = |id| platform.shared().band(id) < state.decided_band;
    let runs_higher = is_above_movable(state, platform)
        && !state.higher_band_waits()
        // At most 32 times: vCPUs.
        && state.rung.iter().all(is_below);
    if !runs_higher {
        state.rung_at = Ticks::NEVER;
        return notify_rung(state, platform);
    }
    if state.rung_at != Ticks::NEVER {
        return;
    }
    let first = state.rung.iter().take(NOTIFIED_BEFORE_ENTRY).collect();
    let rest = state.rung - first;
    state.rung = rest;
    notify_vcpus(state, platform, first);
    if !rest.is_empty() {
        state.rung_at = platform.now().saturating_add(state.short_park_delay);
        state.alarm_is_stale = true;
    }
    if stood && state.rung == rest && !state.higher_band_waits() {
        state.must_decide = false;
    }
}

/// Decides which vCPU runs, and sets the alarm and the priority mask accordingly. Returns the time of the decision.
#[inline(always)]
pub(super) fn decide<P: Platform>(state: &mut State<P>, platform: &mut P) -> Ticks {
    match preempt(state, platform) {
        Some((now, band)) => {
            set_mask_and_alarm(state, platform, now, Some(band));
            now
        }
        None => decide_in_full(state, platform),
    }
}

/// As [`decide`], the long way.
#[inline(always)]
pub(super) fn decide_in_full<P: Platform>(state: &mut State<P>, platform: &mut P) -> Ticks {
    // A pending interrupt may change the decision. A preemption does not wait for it.
    if platform.is_interrupted() && !state.higher_band_waits() {
        take_interrupts(state, platform);
        if let Some(now) = preempt_after_all(state, platform) {
            return now;
        }
    }
    state.leave_unfinished();
    platform.trace(TracePoint::Decide);
    let now = platform.now();
    wake_expired(state, platform, now);
    let mut is_interrupted = false;
    if state.alarm_expired && !is_above_movable(state, platform) {
        // For a vCPU of a higher band, which does not wait for the end of this decision.
        state.alarm_expired = false;
        arm_alarm(state, platform);
        // The way so far is long if many vCPUs have deadlines.
        is_interrupted = look(state, platform, now);
        if is_interrupted && let Some(now) = preempt_after_all(state, platform) {
            return now;
        }
    }
    let mut fetched = Fetched::NotTried;
    if !state.movable.is_empty() {
        fetched = fetch(state, platform, now);
    }
    is_interrupted |= look(state, platform, now);
    // Else `wake_late` tries that, too.
    if state.alarm_expired
        && (is_interrupted || fetched == Fetched::Ended)
        && let Some(now) = preempt_after_all(state, platform)
    {
        return now;
    }
    if is_interrupted || matches!(fetched, Fetched::Ended | Fetched::TookTime) {
        // A time slice that has ended meanwhile is seen to by the next decision, which may give the vCPU grace.
        if let Some(now) = wake_late(state, platform) {
            return now;
        }
        let _ = look(state, platform, now);
    }
    if is_last_decision_kept(state, platform, now) {
        let band = state.scheduler.current_band();
        set_mask_and_alarm(state, platform, now, band);
        return now;
    }
    let mut decision = state.scheduler.decide(now);
    if !state.movable.is_empty() {
        match acquire_current(state, platform, now, decision) {
            Ok(acquired) => decision = acquired,
            Err(now) => return now,
        }
    }
    state.must_decide = false;
    if fetched != Fetched::NotTried && is_above_movable(state, platform) {
        // The core fetches when this vCPU sleeps.
        state.fetch_at = Ticks::NEVER;
    } else if matches!(fetched, Fetched::Ended | Fetched::PutOff) {
        state.fetch_at = now;
    }
    let changes = matches!(decision.action, Action::Run(_));
    if let Action::Run(chosen) = decision.action {
        let last = state.running;
        set_running(state, chosen);
        if let Some(id) = last {
            run_again_for_interrupt(state, platform, id, now);
        }
        platform.trace(TracePoint::Dispatch(chosen, now));
    }
    state.is_unfinished = !state.movable.is_empty() || state.rules.gang;
    if !is_urgent(state, platform) && platform.is_interrupted() {
        // Seen to before the rest of this decision only if it is a preemption. The alarm is that of the last decision.
        state.alarm_is_stale = true;
        take_interrupts(state, platform);
        if let Some(now) = preempt_after_all(state, platform) {
            return now;
        }
    }
    let band = decision.time_slice.map(|slice| slice.band);
    let stands = set_mask(state, platform, now, band);
    if changes {
        early::stays_loaded(state, platform, now);
        if state.scheduler.runs_out_of_turn() && state.running == state.loaded() {
            catch_always(state, platform);
        }
    }
    if stands {
        arm_alarm(state, platform);
    } else if changes && platform.is_interrupted() {
        // The core decides again at once, and has not looked since `set_mask` took interrupts.
        take_interrupts(state, platform);
    }
    now
}

/// Wakes the vCPUs whose deadlines have passed since the decision began. Returns the time of the decision if it is made the short way then.
#[inline(always)]
fn wake_late<P: Platform>(state: &mut State<P>, platform: &mut P) -> Option<Ticks> {
    let later = platform.now();
    wake_expired(state, platform, later);
    if !is_above_movable(state, platform) {
        return None;
    }
    let _ = look(state, platform, later);
    preempt_after_all(state, platform)
}

/// Interrupts were taken or vCPUs have woken since the decision began: decides the short way, if that is possible now. Returns the time of
/// that decision.
#[inline(never)]
fn preempt_after_all<P: Platform>(state: &mut State<P>, platform: &mut P) -> Option<Ticks> {
    let was_unfinished = state.is_unfinished;
    // What this decision has claimed already.
    state.is_unfinished |= state.fetched.is_some() || state.preempted.is_some();
    let Some((now, band)) = preempt(state, platform) else {
        state.is_unfinished = was_unfinished;
        return None;
    };
    set_mask_and_alarm(state, platform, now, Some(band));
    Some(now)
}

/// Acquires the token of the vCPU that a decision has chosen to run; decides again if another core has claimed it, after a look for
/// interrupts. `Err`: with the time of the decision if it was made the short way after that.
#[inline(always)]
pub(super) fn acquire_current<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    now: Ticks,
    mut decision: Decision,
) -> Result<Decision, Ticks> {
    // At most 32 times: each may have been claimed meanwhile.
    for _ in 0..MAX_VCPUS {
        match state.scheduler.current() {
            Some(id) if !acquire_token(state, platform, id) => {
                platform.trace(TracePoint::Again);
                let _ = state.scheduler.remove(id);
                if look(state, platform, now) {
                    if let Some(now) = wake_late(state, platform) {
                        return Err(now);
                    }
                    let _ = look(state, platform, now);
                }
                decision = state.scheduler.decide(now);
            }
            _ => break,
        }
    }
    Ok(decision)
}

/// Whether the last decision remains valid, because a preemption is deferred. Makes the gang wait, if there is one.
#[inline(always)]
fn is_last_decision_kept<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) -> bool {
    let rules = state.rules;
    if rules.gang {
        pause_gang(state, platform);
    }
    let is_deferred = match rules.max_delay {
        Some(bound) => defer_preemption(state, platform, now, bound),
        None => false,
    };
    if is_deferred {
        state.must_decide = false;
    }
    is_deferred
}

/// Sets the priority mask for the decision's `band`, and arms the alarm for the next decision or chore.
#[inline(always)]
fn set_mask_and_alarm<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    now: Ticks,
    band: Option<Band>,
) {
    if set_mask(state, platform, now, band) {
        arm_alarm(state, platform);
    }
}

/// Sets the priority mask for the decision's `band`, and the time of the next chore. Then takes the interrupts that the mask lets through.
/// Returns whether the decision stands; if not, the core decides again at once.
#[inline(always)]
fn set_mask<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    now: Ticks,
    band: Option<Band>,
) -> bool {
    state.decided_band = band;
    state.alarm_expired = false;
    state.alarm_is_stale = true;
    if let Some(awaits) = state.awaits
        && (state.running != Some(awaits.id) || awaits.until <= now)
    {
        state.awaits = None;
    }
    platform.set_priority_mask(band);
    // Before the look: a chore that is due would make the alarm expire there each time.
    set_chore(state, platform, now, band);
    if state.alarm <= now {
        // It has expired for what is decided now.
        disarm_alarm(state, platform);
    }
    if !platform.is_interrupted() {
        return true;
    }
    take_interrupts(state, platform);
    let is_overtaken = state.must_decide && state.higher_band_waits();
    !is_overtaken && !state.alarm_expired
}

/// The time of the next chore, for the alarm. One that is due is done next, so the alarm is not armed for it.
#[inline(always)]
fn set_chore<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks, band: Option<Band>) {
    let chore = platform.next_chore(now, band, state.defers_preemption());
    state.chore_is_due |= chore <= now;
    let at = if chore <= now { Ticks::NEVER } else { chore };
    quiet::set_chore(state, platform, now, at);
}
