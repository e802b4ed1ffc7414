// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pulling: an interrupt or a start has come for a vCPU that is cut off on its host core. Without a verdict, the core that
//! sends it claims the vCPU if it sleeps or is off, and marks it as wanted if it is runnable.

use super::claim::{become_host_core, is_cut_off};
use super::notify::{To, notify_other_core};
use super::park::{acquire_token, host_core_of, park_claimed};
use super::platform::{Platform, State};
use spumone_config::types::{PcpuId, VcpuId};

/// What came of [`pull`].
enum Pulled {
    /// The host core is to be told.
    Nothing,
    /// The vCPU is marked as wanted.
    Wanted,
    /// This core has claimed the vCPU, and has not parked it.
    Claimed,
}

/// Pulls a vCPU, for which there is an interrupt, if it is cut off on `host`, its host core. If it is
/// runnable, it is marked as wanted, and the core that claims it looks at its doorbell. If it sleeps or is off, this core
/// claims it; if it would be cut off here too, this core notifies another core.
///
/// Returns whether the vCPU is wanted or claimed. If not, the host core is to be kicked.
pub(super) fn pull_for_interrupt<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    id: VcpuId,
    host: PcpuId,
) -> bool {
    let pulled = pull(state, platform, id, host);
    if matches!(pulled, Pulled::Claimed) {
        park_claimed(state, platform, id);
    }
    !matches!(pulled, Pulled::Nothing)
}

#[inline(always)]
fn pull<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId, host: PcpuId) -> Pulled {
    if !state.pulls_for_interrupts || !state.moves(id) || !is_cut_off(platform.shared(), id, host) {
        return Pulled::Nothing;
    }
    let Some(seen) = platform.shared().slot(id).parked() else {
        return Pulled::Nothing;
    };
    let pulled = if seen.state.is_runnable() {
        match platform.shared().slot(id).mark_wanted(seen) {
            true => Pulled::Wanted,
            false => Pulled::Nothing,
        }
    } else if state.scheduler.current_band() > platform.shared().band(id) {
        notify_other_core(state, platform, id, To::Any);
        Pulled::Nothing
    } else {
        let now = platform.now();
        match become_host_core(state, platform, id, seen, now) {
            true => Pulled::Claimed,
            false => Pulled::Nothing,
        }
    };
    match pulled {
        Pulled::Nothing => {}
        Pulled::Wanted => {
            state.fetch_again(id);
            if let Some(to) = left_to(state, platform, id) {
                notify_other_core(state, platform, id, to);
            }
        }
        Pulled::Claimed => state.must_decide = true,
    }
    pulled
}

/// To which other cores this core leaves a vCPU that it has marked as wanted; `None`: it fetches the vCPU itself, if the policy has it do so.
fn left_to<P: Platform>(state: &State<P>, platform: &P, id: VcpuId) -> Option<To> {
    let (current, band) = (state.scheduler.current_band(), platform.shared().band(id));
    if current > band {
        return Some(To::Any);
    }
    let is_left = state.rules.leaves_shared_cores && state.scheduler.same_band_waits();
    (is_left && current == band).then_some(To::NotShared)
}

/// A vCPU that is off is to start: acquires its token if it is here, or parked by a core where it is cut off.
/// Returns whether this core has the token. If not, the host core is to be sent mail.
pub fn pull_for_start<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) -> bool {
    acquire_token(state, platform, id)
        || host_core_of(platform, id).is_some_and(|host| {
            host != state.core
                && match pull(state, platform, id, host) {
                    Pulled::Claimed => true,
                    Pulled::Wanted => acquire_token(state, platform, id),
                    Pulled::Nothing => false,
                }
        })
}
