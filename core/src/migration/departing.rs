//! vCPUs that leave their core before another one has asked: sent away, called home, taken back if nobody came.
//!
//! What `steal` does needs none of it. The policies that do say so in their [`Conduct`](super::Conduct).

use super::holding::{has, hold, lay_down, park};
use super::local::{bit, ids};
use super::telling::tell_others;
use super::{Mark, Rest, Site};
use crate::schedule::{Ticks, VcpuState};
use spumone_config::types::{PcpuId, VcpuId};

/// Before the core looks for work: who is to leave it, leaves.
pub(super) fn see_off(site: &mut impl Site, now: Ticks) {
    send_home(site);
    let local = site.local_mut();
    if let Some(stay) = local.conduct.restless
        && let Some(turn) = local.scheduler.turn()
        && let Some(id) = local.running.filter(|&id| local.moves(id))
    {
        let due = turn.since.saturating_add(stay);
        if due <= now {
            send_away(site, id, None);
        } else {
            local.look_at = local.look_at.min(due);
        }
    }
    // After the others: who was sent away just now must not be forgotten if this core idles from here on.
    take_back(site, now);
}

/// Parks a vCPU of this core that could run, to be run by another one: `to`, or any.
pub(super) fn send_away(site: &mut impl Site, id: VcpuId, to: Option<PcpuId>) {
    if !matches!(
        site.local().scheduler.state(id),
        Some(VcpuState::Running | VcpuState::Suspend)
    ) {
        return;
    }
    if site.local().loaded == Some(id) {
        site.save_loaded();
    }
    if !hold(site, id) {
        return;
    }
    site.mark(Mark::Send(id));
    let local = site.local_mut();
    let _ = local.scheduler.remove(id);
    local.deadlines.clear(id);
    if local.running == Some(id) {
        local.running = None;
    }
    local.must_decide = true;
    local.to_park &= !bit(id);
    local.sent |= bit(id);
    lay_down(site, id, Rest::Sent);
    match to {
        Some(core) => site.kick(core, id),
        None => tell_others(site, id, true),
    }
}

/// Takes back what this core has sent away and nobody has taken for a while.
fn take_back(site: &mut impl Site, now: Ticks) {
    for id in ids(site.local().sent) {
        let since = site.slot(id).sent_by(site.core());
        let local = site.local_mut();
        let Some(since) = since else {
            local.sent &= !bit(id);
            continue;
        };
        let due = since.saturating_add(local.take_back_after);
        if now < due {
            local.look_at = local.look_at.min(due);
        } else if hold(site, id) {
            site.local_mut().stays |= bit(id);
            park(site, id);
        }
    }
}

/// Sends vCPUs home whose home core could run them.
fn send_home(site: &mut impl Site) {
    for id in ids(site.local().strangers) {
        if !has(site, id) {
            site.local_mut().strangers &= !bit(id);
        } else if let Some(home) = free_home(site, id) {
            send_away(site, id, Some(home));
        }
    }
}

/// The home core of a vCPU that is away, if it runs nobody more urgent.
fn free_home(site: &impl Site, id: VcpuId) -> Option<PcpuId> {
    let band = site.band(id)?;
    let home = site.home(id)?;
    (!site.presence(home)?.is_above(band)).then_some(home)
}

/// This core, which ran somebody more urgent, could run its own vCPUs again: calls those that are elsewhere.
pub(super) fn call_home(site: &mut impl Site) {
    for id in ids(site.local().at_home) {
        if site.local().token(id).is_some() {
            continue;
        }
        match site.slot(id).look() {
            // It is taken at the next look, or called when it wakes.
            Some(it) => site.local_mut().must_decide |= it.rest.is_runnable(),
            None => {
                if let Some(host) = site.host(id).filter(|&host| host != site.core()) {
                    site.kick(host, id);
                }
            }
        }
    }
}
