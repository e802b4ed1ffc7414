// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs that leave their core before another core has asked: sent away, returned to their home, taken back if no core
//! has claimed them.
//!
//! `steal` needs none of it. The policies that do say so in their [`PolicyRules`](super::PolicyRules).

use super::catch::stop_catching;
use super::core_state::Catch;
use super::notify::notify_other_core;
use super::park::{acquire_token, is_here, park, store_token};
use super::platform::{Platform, TracePoint};
use super::slot::ParkedState;
use crate::schedule::{Ticks, VcpuState};
use spumone_config::types::{PcpuId, VcpuId};

/// Sends away the vCPUs that must leave this core, before it looks for work.
pub(super) fn send_away_due(platform: &mut impl Platform, now: Ticks) {
    return_home(platform);
    let local = platform.local_mut();
    if let Some(max_stay) = local.rules.max_stay
        && let Some(turn) = local.scheduler.turn()
        && let Some(id) = local.running.filter(|&id| local.moves(id))
    {
        let due = turn.since.saturating_add(max_stay);
        if due <= now {
            send_away(platform, id, None);
        } else {
            local.fetch_at = local.fetch_at.min(due);
        }
    }
    // After the others: a vCPU that was sent away just now must not be forgotten if this core idles from here on.
    take_back_unclaimed(platform, now);
}

/// Parks a runnable vCPU of this core, to be run by another core: `to`, or any.
fn send_away(platform: &mut impl Platform, id: VcpuId, to: Option<PcpuId>) {
    if !matches!(
        platform.local().scheduler.state(id),
        Some(VcpuState::Running | VcpuState::Suspend)
    ) {
        return;
    }
    if platform.local().loaded == Some(id) {
        platform.save_loaded();
    }
    if !acquire_token(platform, id) {
        return;
    }
    platform.trace(TracePoint::Send(id));
    let local = platform.local_mut();
    let _ = local.scheduler.remove(id);
    local.deadlines.clear(id);
    if local.running == Some(id) {
        local.running = None;
    }
    local.must_decide = true;
    local.park_later.remove(id);
    local.sent.insert(id);
    store_token(platform, id, ParkedState::Sent);
    match to {
        Some(core) => platform.kick(core, id),
        None => notify_other_core(platform, id, true),
    }
}

/// Takes back the vCPUs that this core has sent away and no core has claimed for a while.
fn take_back_unclaimed(platform: &mut impl Platform, now: Ticks) {
    for id in platform.local().sent.iter() {
        let since = platform.slot(id).sent_by(platform.core());
        let local = platform.local_mut();
        let Some(since) = since else {
            local.sent.remove(id);
            continue;
        };
        let due = since.saturating_add(local.take_back_after);
        if now < due {
            local.fetch_at = local.fetch_at.min(due);
        } else if acquire_token(platform, id) {
            platform.local_mut().taken_back.insert(id);
            park(platform, id);
        }
    }
}

/// Sends vCPUs to their home cores, where those could run them.
fn return_home(platform: &mut impl Platform) {
    for id in platform.local().visitors.iter() {
        if !is_here(platform, id) {
            platform.local_mut().visitors.remove(id);
        } else if let Some(home) = free_home(platform, id) {
            send_away(platform, id, Some(home));
        }
    }
}

/// The home core of a vCPU that is away from it, if that core runs no higher band.
fn free_home(platform: &impl Platform, id: VcpuId) -> Option<PcpuId> {
    let band = platform.band(id)?;
    let home = platform.home(id)?;
    (!platform.presence(home)?.is_above(band)).then_some(home)
}

/// The loaded vCPU `id` did what was to be caught.
pub fn caught(platform: &mut impl Platform, id: VcpuId) {
    if platform.local().catches == Catch::Entry {
        send_away(platform, id, None);
    } else {
        stop_catching(platform);
        let local = platform.local_mut();
        // It had grace until now.
        local.scheduler.withdraw_extension();
        local.must_decide = true;
    }
}
