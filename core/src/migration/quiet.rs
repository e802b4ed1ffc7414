// SPDX-License-Identifier: MIT OR Apache-2.0
//! Shortly before an idle core wakes a vCPU it is quiet: it begins none of the hypervisor's own work, and waits in WFI. So that work adds
//! nothing to the latency of a vCPU that waits for its timer.

use super::early::early_of;
use super::platform::{Platform, State};
use crate::schedule::Ticks;

/// From when on this core, which idles, is quiet. [`Ticks::NEVER`]: as far as the core can foresee, it wakes no vCPU after `now`.
pub fn quiet_from<P: Platform>(state: &State<P>, platform: &P, now: Ticks) -> Ticks {
    match next_wake(state, platform, now) {
        Ticks::NEVER => Ticks::NEVER,
        at => at.saturating_sub(state.quiet),
    }
}

/// The hypervisor's next chore, work that is for no vCPU, is due at this time. A core that idles does not do it while it is quiet or wakes
/// a vCPU, but as long after that. It is put off only that once: it is also done if vCPUs wake all the time, or if a timer cannot wake its vCPU.
#[inline(always)]
pub fn set_chore<P: Platform>(state: &mut State<P>, platform: &P, now: Ticks, at: Ticks) {
    state.chore_at = match state.running {
        None if now < at && at < Ticks::NEVER => put_off(state, platform, now, at),
        _ => at,
    };
    state.alarm_is_stale = true;
}

#[inline(never)]
fn put_off<P: Platform>(state: &State<P>, platform: &P, now: Ticks, at: Ticks) -> Ticks {
    let wakes = next_wake(state, platform, now);
    let until = wakes.saturating_add(state.quiet);
    match wakes.saturating_sub(state.quiet) <= at && at < until {
        true => until,
        false => at,
    }
}

/// When the core next has to wake a vCPU, after `now`: by a deadline, or by the timers of the vCPU that is loaded and sleeps.
fn next_wake<P: Platform>(state: &State<P>, platform: &P, now: Ticks) -> Ticks {
    let of_loaded = state.loaded().and_then(|id| {
        let band = platform.shared().band(id);
        let early = state.begins_before(early_of(platform, id), band);
        Some(platform.loaded_timer()?.saturating_sub(early))
    });
    // At most 2 times: these.
    let next = [of_loaded, state.deadlines.next_alarm(None)]
        .into_iter()
        .flatten()
        .filter(|&at| at > now)
        .min();
    next.unwrap_or(Ticks::NEVER)
}
