//! What a core tells others: whom it runs, and of vCPUs that wait here and could run elsewhere.

use super::departing::call_home;
use super::holding::{hosts, park};
use super::local::{bit, ids};
use super::{Level, Mark, Rest, Site, whom_to_tell};
use crate::schedule::{Ticks, VcpuState};
use spumone_config::types::{PcpuId, VcpuId};

/// The core goes to `to`, or to nobody, as was decided. The registers of the vCPU that had it stay until another one
/// needs it.
#[inline(always)]
pub fn hand_over(site: &mut impl Site, to: Option<VcpuId>) {
    let local = site.local_mut();
    let last = core::mem::replace(&mut local.running, to);
    local.grace.renew();
    if local.moving != 0
        && let Some(last) = last
        && local.loaded != Some(last)
    {
        // Overtaken before it was loaded.
        give_up(site, last);
    }
    if let Some(id) = to {
        // It runs, so its timers need no alarm.
        site.local_mut().deadlines.clear(id);
    }
}

/// A vCPU had to make room for another one, and is saved. For an equal, it is parked and another core is told at once;
/// for a more urgent vCPU, only when that one has run for a while, so that it pays for nothing before, if the policy is
/// patient.
#[inline(always)]
pub fn give_up(site: &mut impl Site, id: VcpuId) {
    if !site.local().moves(id) {
        return;
    }
    // As decided: others may not know yet.
    let makes_room = site.local().scheduler.current_band() > site.band(id);
    if makes_room && site.local().conduct.patience > Ticks(0) {
        site.local_mut().to_park |= bit(id);
        return;
    }
    site.mark(Mark::Park);
    park(site, id);
    site.mark(Mark::Parked);
    // One that sleeps counts where this core no longer hears its interrupts: `offer` may have looked before it was parked.
    let is_runnable = site.local().scheduler.state(id) == Some(VcpuState::Suspend);
    if (is_runnable || makes_room) && hosts(site, id) {
        tell_others(site, id, true);
    }
}

/// Parks vCPUs that were kept for the core to come back to them.
fn park_kept(site: &mut impl Site) {
    for id in ids(core::mem::take(&mut site.local_mut().to_park)) {
        let local = site.local();
        if local.loaded != Some(id) && local.running != Some(id) {
            site.mark(Mark::Park);
            park(site, id);
            site.mark(Mark::Parked);
        }
    }
}

/// Tells others whom this core runs, if that has changed: a fence costs.
#[inline(always)]
pub(super) fn publish(site: &impl Site, level: Level) {
    let presence = site.own_presence();
    if presence.level() != level {
        presence.publish(level);
    }
}

/// Tells a core that a vCPU is parked here: an idle one; else, if it may be a busy one, one that runs nobody more
/// urgent.
pub(super) fn tell_others(site: &mut impl Site, id: VcpuId, busy: bool) {
    let Some(band) = site.band(id) else {
        return;
    };
    let parked = site.slot(id).look();
    let is_program = parked.is_some_and(|it| it.rest == Rest::Runnable);
    let mut asked = 0;
    let others = cores_after(site.core(), site.cores_of(id))
        .filter(|&other| is_program || !site.keeps_kernels_off(other))
        .filter_map(|other| Some((other, site.presence(other)?.level())))
        .inspect(|_| asked += 1);
    let told = whom_to_tell(others, band, busy);
    site.mark(Mark::Asked(asked));
    if let Some(core) = told {
        site.kick(core, id);
        site.mark(Mark::Told);
    }
}

/// Of these cores all but `core`, from the next one on, around.
fn cores_after(core: PcpuId, cores: u32) -> impl Iterator<Item = PcpuId> {
    let rotated = cores.rotate_right(u32::from(core.0) + 1);
    // The last bit is `core` itself.
    let others = rotated & !(1 << (u32::BITS - 1));
    crate::bits::bits(others).map(move |step| PcpuId((step as u8 + core.0 + 1) % u32::BITS as u8))
}

/// After a decision: others learn whom this core runs, and of vCPUs that wait here and could run elsewhere.
pub fn offer(site: &mut impl Site, now: Ticks) {
    let level = Level::of(site.local().scheduler.current_band());
    let before = site.own_presence().level();
    let has_changed = before != level;
    publish(site, level);
    let floor = site.moving_floor();
    let local = site.local_mut();
    if level <= floor {
        local.tell_at = Ticks::NEVER;
        if before > floor && local.conduct.goes_home {
            call_home(site);
        }
        if site.local().to_park != 0 {
            park_kept(site);
        }
        if site.local().has_parked != 0
            && level != Level::IDLE
            && let Some(id) = most_wanted(site)
        {
            tell_others(site, id, false);
        }
    } else if has_changed || local.to_park != 0 && local.tell_at == Ticks::NEVER {
        // If it sleeps again soon, nothing has happened.
        let at = now.saturating_add(local.conduct.patience);
        local.tell_at = local.tell_at.min(at);
    } else if local.tell_at <= now {
        // Whom it tells may just have become as deaf as this one.
        let again = now.saturating_add(local.retell_after);
        park_kept(site);
        let told = most_wanted(site);
        if let Some(id) = told {
            tell_others(site, id, true);
        }
        site.local_mut().tell_at = told.map_or(Ticks::NEVER, |_| again);
    }
}

/// Of the vCPUs that this core has parked, the one of which another core is best told: one that could run before one
/// that waits, which counts only where the core hears nothing for it; of these, the most urgent.
fn most_wanted(site: &mut impl Site) -> Option<VcpuId> {
    let current = site.local().scheduler.current_band();
    let mut best = None;
    for id in ids(site.local().has_parked) {
        let parked = site.slot(id).look().filter(|it| it.host == site.core());
        let Some(parked) = parked else {
            site.local_mut().has_parked &= !bit(id);
            continue;
        };
        let (is_runnable, band) = (parked.rest.is_runnable(), site.band(id));
        let worth = (is_runnable, band);
        if (is_runnable || current > band) && best.is_none_or(|(most, _)| worth > most) {
            best = Some((worth, id));
        }
    }
    best.map(|(_, id)| id)
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn other_cores_are_asked_from_the_next_one_on() {
        let after = |core, cores| {
            cores_after(PcpuId(core), cores)
                .map(|it| it.0)
                .collect::<Vec<_>>()
        };
        assert_eq!(after(1, 0b1111), [2, 3, 0]);
        assert_eq!(after(31, 1 << 31 | 0b101), [0, 2]);
        assert_eq!(after(4, 0b101), [0, 2]);
        assert_eq!(after(0, 1), []);
    }
}
