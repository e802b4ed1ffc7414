// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs that leave their core before another core looks for them: sent away, returned to their home, taken back if no
//! core has claimed them.
//!
//! `steal` and `balance` send no vCPU away. What other policies do is in their [`PolicyRules`](super::PolicyRules).

use super::catch::stop_catching;
use super::core_state::{Catch, CoreState, FETCH_AGAIN};
use super::notify::{To, notify_other_core};
use super::park::{acquire_token, is_host_core, park, store_token};
use super::platform::{Platform, State, TracePoint};
use super::save::save_loaded;
use super::slot::ParkedState;
use super::switch::take_back_interrupts;
use crate::schedule::{Ticks, VcpuState};
use spumone_config::types::{PcpuId, VcpuId};

/// Sends away the vCPUs that must leave this core, before the core looks for parked vCPUs.
pub(super) fn send_away_due<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    return_home(state, platform, now);
    if let Some(max_stay) = state.rules.max_stay
        && let Some(slice) = state.scheduler.time_slice()
        && let Some(id) = state.running.filter(|&id| state.moves(id))
    {
        let due = slice.since.saturating_add(max_stay);
        if due <= now {
            send_away(state, platform, id, None);
        } else {
            state.fetch_at = state.fetch_at.min(due);
        }
    }
    // Comes last, so that a vCPU that was sent away just now sets `fetch_at`, also if this core idles from now on.
    take_back_unclaimed(state, platform, now);
}

/// Whether this core may send the vCPU away: it is running or runnable, and its guest runs. A vCPU that loads its guest stays, because no
/// core would fetch it.
fn may_be_sent<P: Platform>(state: &State<P>, platform: &P, id: VcpuId) -> bool {
    let is_runnable = matches!(
        state.scheduler.state(id),
        Some(VcpuState::Running | VcpuState::Runnable)
    );
    is_runnable && platform.guest_runs(id)
}

/// Parks a vCPU of this core, to be run by another core: `to`, or any. Does nothing unless it [`may_be_sent`]. If the core is
/// interrupted before the vCPU is parked, the vCPU stays; a later decision, or the vCPU when it does again what is caught, leads here again.
fn send_away<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId, to: Option<PcpuId>) {
    if !may_be_sent(state, platform, id) {
        return;
    }
    if state.loaded() == Some(id) {
        save_loaded(state, platform);
        if platform.is_interrupted() {
            state.must_decide = true;
            state.fetch_at = FETCH_AGAIN;
            return;
        }
    }
    if !acquire_token(state, platform, id) {
        return;
    }
    platform.trace(TracePoint::Send(id));
    let _ = state.scheduler.remove(id);
    state.deadlines.clear(id);
    if state.running == Some(id) {
        state.running = None;
    }
    state.must_decide = true;
    state.park_later.remove(id);
    state.sent.insert(id);
    store_token(state, platform, id, ParkedState::Sent);
    match to {
        Some(core) => platform.kick(core, id),
        None => notify_other_core(state, platform, id, To::Any),
    }
}

/// Takes back the vCPUs that this core has sent away and no core has claimed for a while.
fn take_back_unclaimed<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    // At most 32 times: vCPUs.
    for id in state.sent.iter() {
        let since = platform.shared().slot(id).sent_by(state.core);
        let Some(since) = since else {
            state.sent.remove(id);
            continue;
        };
        let due = since.saturating_add(state.take_back_after);
        if now < due {
            state.fetch_at = state.fetch_at.min(due);
        } else if acquire_token(state, platform, id) {
            state.taken_back.insert(id);
            park(state, platform, id);
            if platform.is_interrupted() {
                return goes_on_later(state, now);
            }
        }
    }
}

/// Sends vCPUs to their home cores, if those cores could run them.
fn return_home<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    // At most 32 times: vCPUs.
    for id in state.visitors.iter() {
        if !is_host_core(state, platform, id) {
            state.visitors.remove(id);
        } else if let Some(home) = free_home(platform, id)
            && may_be_sent(state, platform, id)
        {
            send_away(state, platform, id, Some(home));
            if platform.is_interrupted() {
                return goes_on_later(state, now);
            }
        }
    }
}

/// The core was interrupted at `now`: the decision after this one sees to the other vCPUs.
fn goes_on_later<T>(state: &mut CoreState<T>, now: Ticks) {
    state.fetch_at = now;
}

/// The home core of a vCPU that is on another core, if the home core runs no higher band.
fn free_home<P: Platform>(platform: &P, id: VcpuId) -> Option<PcpuId> {
    let vcpu = platform.shared().vcpu(id)?;
    let home = platform.shared().presence(vcpu.home);
    (!home.is_above(vcpu.band)).then_some(vcpu.home)
}

/// The loaded vCPU did what is caught.
pub fn caught<P: Platform>(state: &mut State<P>, platform: &mut P) {
    if state.catches == Catch::Entry
        && let Some(id) = state.loaded()
    {
        if take_back_interrupts(state, platform) {
            send_away(state, platform, id, None);
        }
    } else {
        // Its grace ends here, or what it runs out of turn.
        state.scheduler.withdraw_extension();
        state.scheduler.end_out_of_turn();
        stop_catching(state, platform);
        state.must_decide = true;
    }
}
