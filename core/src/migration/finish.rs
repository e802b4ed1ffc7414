// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a decision leaves to be done once the priority mask and the alarm are set: the core parks vCPUs that it has and that do not
//! run, publishes which band it runs, and notifies other cores.
//!
//! None of this changes which vCPU runs here. So a vCPU of a higher band does not wait for it: the core looks for interrupts in between,
//! and decides again if it must. The decision after that finishes what is left.

use super::call_cores::{look_for_waiting, must_look};
use super::gang::notify_gang;
use super::interrupt::is_overtaken;
use super::notify::{park_fetched, park_or_keep, publish_and_notify};
use super::platform::{Platform, State};
use crate::schedule::Ticks;

/// Does what the last decision has left. Returns whether it is done. If not, the core must decide again.
#[inline(always)]
pub(super) fn finish<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    !state.is_unfinished || finish_now(state, platform)
}

#[inline(always)]
fn finish_now<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    if is_overtaken(state, platform) {
        return false;
    }
    if let Some(id) = state.fetched.take()
        && state.running != Some(id)
    {
        park_fetched(state, platform, id);
        if is_overtaken(state, platform) {
            return false;
        }
    }
    if let Some(id) = state.preempted.take() {
        let _ = park_or_keep(state, platform, id);
        if is_overtaken(state, platform) {
            return false;
        }
    }
    state.is_unfinished = false;
    // Until now the alarm was armed without `rung_at` and `notify_at`.
    state.alarm_is_stale |= state.rung_at != Ticks::NEVER;
    if state.movable.is_empty() {
        notify_gang(state, platform);
    } else {
        let now = platform.now();
        publish_and_notify(state, platform, now);
        state.alarm_is_stale |= state.notify_at != Ticks::NEVER;
        if must_look(state, platform) {
            if is_overtaken(state, platform) {
                return false;
            }
            look_for_waiting(state, platform, now);
        }
    }
    !is_overtaken(state, platform)
}
