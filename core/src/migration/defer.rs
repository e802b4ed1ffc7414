// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deferred preemption, for policy `delay`: a vCPU of a higher band waits, with a bound, while the running vCPU may hold a
//! lock. vCPUs stay at home.

use super::catch::catch;
use super::core_state::Catch;
use super::platform::{Platform, State};
use crate::schedule::Ticks;

/// Before a decision: whether a preemption is deferred, so that the last decision remains valid. `bound`: for how long
/// at most.
pub(super) fn defer_preemption<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    now: Ticks,
    bound: Ticks,
) -> bool {
    let current = state.scheduler.current_band();
    let holder = state
        .loaded
        .as_ref()
        .filter(|it| state.scheduler.current() == Some(it.id))
        // In its WFI, a vCPU holds no lock.
        .filter(|it| !state.awaits(it.id))
        .filter(|_| state.scheduler.highest_band() > current)
        .filter(|it| platform.may_hold_lock(&it.token));
    let until = state.deferred_until.min(now.saturating_add(bound));
    if holder.is_none() || until <= now {
        state.deferred_until = Ticks::NEVER;
        state.fetch_at = Ticks::NEVER;
        catch(state, platform, Catch::Nothing);
        return false;
    }
    state.deferred_until = until;
    state.fetch_at = until.min(now.saturating_add(state.defer_step));
    // Until then no vCPU of the same band gets the core, so no alarm is needed for the end of the time slice.
    state.scheduler.extend_time_slice(state.fetch_at);
    catch(state, platform, Catch::Exit);
    true
}
