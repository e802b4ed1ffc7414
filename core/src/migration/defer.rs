// SPDX-License-Identifier: MIT OR Apache-2.0
//! Deferred preemption, for policy `delay`: a vCPU of a higher band waits, with a bound, while the running vCPU may hold a
//! lock. vCPUs stay at home.

use super::catch::catch;
use super::core_state::Catch;
use super::platform::Platform;
use crate::schedule::Ticks;

/// Before a decision: whether a preemption is deferred, so that the last decision stands. `bound`: for how long at most.
pub(super) fn defer_preemption(platform: &mut impl Platform, now: Ticks, bound: Ticks) -> bool {
    let local = platform.local();
    let current = local.scheduler.current_band();
    let holder = local
        .scheduler
        .current()
        .filter(|&id| local.loaded == Some(id) && local.scheduler.highest_band() > current)
        .filter(|&id| platform.may_hold_lock(id));
    let until = local.deferred_until.min(now.saturating_add(bound));
    let local = platform.local_mut();
    if holder.is_none() || until <= now {
        local.deferred_until = Ticks::NEVER;
        local.fetch_at = Ticks::NEVER;
        catch(platform, Catch::Nothing);
        return false;
    }
    local.deferred_until = until;
    local.fetch_at = until.min(now.saturating_add(local.defer_step));
    // No vCPU of the same band gets the core before: no alarm for the end of a time slice that is over.
    local.scheduler.extend_turn(local.fetch_at);
    catch(platform, Catch::Exit);
    true
}
