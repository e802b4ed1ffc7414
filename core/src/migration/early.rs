// SPDX-License-Identifier: MIT OR Apache-2.0
//! Early switches: a core switches to a vCPU before the vCPU's timer expires, and waits with it loaded. So neither the switch nor
//! what the core was doing at EL2 adds to the vCPU's latency.
//!
//! While the vCPU sleeps, its deadline is earlier than its timer ([`VcpuFacts::early`](super::VcpuFacts::early)). It is then in the
//! state `Running`, but is not entered before an interrupt has come for it: to the guest, its WFI lasts until then.

use super::core_state::{Await, CoreState};
use super::lead::Early;
use super::platform::{Platform, State};
use crate::schedule::{Ticks, VcpuState};
use spumone_config::types::VcpuId;

/// The early deadline of a vCPU that slept has passed: the vCPU is to wait for its timer when it is loaded. `deadline`: that deadline, if the vCPU that it
/// preempts may be parked before the timer expires.
#[inline(always)]
pub(super) fn woken_early<P: Platform>(
    state: &mut State<P>,
    platform: &P,
    id: VcpuId,
    now: Ticks,
    deadline: Option<Ticks>,
) {
    let early = early_of(platform, id);
    if early == Early::AtTimer {
        return;
    }
    // Without another vCPU to save, as while the core loads a guest, the switch is shorter than those that count.
    let saves_another = state.loaded().is_some_and(|it| it != id);
    let parks_until = deadline.and_then(|at| state.has_time_until(id, early, at));
    let is_measured = early == Early::BySwitch && saves_another;
    begin(state, id, now, is_measured, parks_until);
}

/// The running vCPU, which is loaded, executes WFI, and no interrupt is pending for it: it sleeps. If its timer expires so soon that
/// the core would switch back to it at once, it keeps the core, and waits for its timer.
#[inline(always)]
pub fn sleep<P: Platform>(state: &mut State<P>, platform: &P) {
    if let Some(id) = state.running {
        let band = platform.shared().band(id);
        let early = state.begins_before(early_of(platform, id), band);
        if early > Ticks(0) {
            let now = platform.now();
            if is_timer_near(platform, now, now.saturating_add(early)) {
                return begin(state, id, now, false, None);
            }
        }
    }
    state.sleep_running(|| platform.now());
}

/// What the core has done for so long just now is left out of how long the switch takes.
pub(super) fn leave_out<T>(state: &mut CoreState<T>, time: Ticks) {
    if let Some(since) = state
        .awaits
        .as_mut()
        .and_then(|it| it.measured_since.as_mut())
    {
        *since = since.saturating_add(time);
    }
}

/// A vCPU has been loaded. If its timer has expired meanwhile, its list registers have the interrupt, and it does not wait.
#[inline(always)]
pub(super) fn loaded<P: Platform>(state: &mut State<P>, platform: &P, id: VcpuId) {
    let Some(awaits) = state.awaits.filter(|it| it.id == id) else {
        return;
    };
    let now = platform.now();
    if let Some(since) = awaits.measured_since {
        state.lead.learn(now.saturating_sub(since));
    }
    if !is_timer_near(platform, now, awaits.until) {
        state.end_await(id);
    }
}

/// Another vCPU is to run, or none. If the vCPU that is loaded sleeps, it may stay loaded, since the core idles or loads a guest: its
/// timer would wake it, but its deadline is earlier.
#[inline(always)]
pub(super) fn stays_loaded<P: Platform>(state: &mut State<P>, platform: &P, now: Ticks) {
    let Some(id) = state.loaded() else {
        return;
    };
    let Some(vcpu) = platform.shared().vcpu(id) else {
        return;
    };
    if vcpu.early != Early::AtTimer
        && state.scheduler.state(id) == Some(VcpuState::Sleep)
        && let Some(at) = platform.loaded_timer().filter(|&at| at > now)
    {
        state.set_deadline(id, vcpu.band, vcpu.early, at);
        state.alarm_is_stale = true;
    }
}

/// The vCPU `id` is to wait for its timer, from `now` on. `is_measured`: how long the switch to it takes tells how early the next one begins. `parks_until`: see
/// [`Await`].
fn begin<T>(
    state: &mut CoreState<T>,
    id: VcpuId,
    now: Ticks,
    is_measured: bool,
    parks_until: Option<Ticks>,
) {
    state.awaits = Some(Await {
        id,
        until: now.saturating_add(state.longest_wait),
        measured_since: is_measured.then_some(now),
        parks_until,
    });
    state.alarm_is_stale = true;
}

/// Whether the first timer of the loaded vCPU expires after `now`, and no later than `until`.
fn is_timer_near<P: Platform>(platform: &P, now: Ticks, until: Ticks) -> bool {
    let timer = platform.loaded_timer();
    timer.is_some_and(|at| now < at && at <= until)
}

pub(super) fn early_of<P: Platform>(platform: &P, id: VcpuId) -> Early {
    let vcpu = platform.shared().vcpu(id);
    vcpu.map_or(Early::AtTimer, |it| it.early)
}
