// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs that wait for their turn on a core while another core is off: after a while, a core is to come on for each.

use super::core_state::CoreState;
use super::platform::{Platform, State};
use crate::schedule::Ticks;
use spumone_config::types::{MAX_PCPUS, VcpuId};

/// In microseconds: for how long vCPUs have had to wait for their turn without a break before a core is called for the first. Longer than what an idle
/// guest does when a timer expires; if a core takes longer to come on, it is still worth its cost.
const LONGEST_TURN_US: u32 = 500;
/// In microseconds: after how long a core is called for the next one. A core that comes on at once has taken one by then.
const NEXT_CALL_US: u32 = 50;
/// In microseconds: after how long cores are called again, if vCPUs still wait.
const CALL_AGAIN_US: u32 = 2_000;

/// vCPUs that wait for their turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiting {
    /// When the core looks at them next; [`Ticks::NEVER`]: none waits, or no core can come on.
    pub(super) look_at: Ticks,
    /// For how many of them a core was called.
    pub(super) called: u8,
    pub(super) longest_turn: Ticks,
    next_call: Ticks,
    call_again: Ticks,
}

impl Waiting {
    /// None wait. For a counter of this frequency.
    pub(super) const fn new(frequency_hz: u32) -> Self {
        Self {
            look_at: Ticks::NEVER,
            called: 0,
            longest_turn: Ticks::from_micros(LONGEST_TURN_US, frequency_hz),
            next_call: Ticks::from_micros(NEXT_CALL_US, frequency_hz),
            call_again: Ticks::from_micros(CALL_AGAIN_US, frequency_hz),
        }
    }
}

/// After a decision at or below the lowest band that moves: if vCPUs have waited for their turn for too long, calls a core for one of them. The core decides
/// again when it is to look at the next.
#[inline(always)]
pub(super) fn look_for_waiting<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    if state.scheduler.same_band_waits() && platform.may_bring_core_back() {
        look(state, platform, now);
    } else {
        state.waiting.look_at = Ticks::NEVER;
    }
}

#[inline(never)]
fn look<P: Platform>(state: &mut State<P>, platform: &mut P, now: Ticks) {
    let waiting = &mut state.waiting;
    if waiting.look_at == Ticks::NEVER {
        waiting.called = 0;
        waiting.look_at = now.saturating_add(waiting.longest_turn);
    } else if waiting.look_at <= now {
        let next = usize::from(waiting.called);
        let next = nth_waiting(state, next);
        let waiting = &mut state.waiting;
        if let Some(id) = next {
            waiting.called += 1;
            waiting.look_at = now.saturating_add(waiting.next_call);
            platform.waits_for_core(id);
        } else {
            waiting.called = 0;
            waiting.look_at = now.saturating_add(waiting.call_again);
        }
    }
    state.fetch_at = state.fetch_at.min(state.waiting.look_at);
    state.alarm_is_stale = true;
}

/// Of the vCPUs that wait for their turn and migrate, the one behind so many others.
fn nth_waiting<T>(state: &CoreState<T>, others: usize) -> Option<VcpuId> {
    // At most 8 times: cores that could take one.
    let waiting = state.scheduler.waiting().take(MAX_PCPUS);
    waiting.filter(|&id| state.moves(id)).nth(others)
}
