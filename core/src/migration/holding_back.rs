//! vCPUs that could run and must wait all the same: a more urgent one for a lock holder, a gang for one of its cores.
//!
//! What the policies `delay` and `cosched` do; their vCPUs stay at home.

use super::local::ids;
use super::telling::publish;
use super::{Catch, Level, Mark, Site, catch};
use crate::bits::bits;
use crate::schedule::Ticks;
use spumone_config::types::PcpuId;

/// Before a decision. Returns whether the last one stands.
#[inline(always)]
pub fn holds_back(site: &mut impl Site, now: Ticks) -> bool {
    let conduct = site.local().conduct;
    if conduct.gang {
        hold_gang(site);
    }
    let is_put_off = match conduct.delay {
        Some(bound) => put_off(site, now, bound),
        None => false,
    };
    if is_put_off {
        site.local_mut().must_decide = false;
    }
    is_put_off
}

/// Whether a more urgent vCPU is put off, because the one that runs may hold a lock: for a while at most.
fn put_off(site: &mut impl Site, now: Ticks, bound: Ticks) -> bool {
    let local = site.local();
    let current = local.scheduler.current_band();
    let holder = local
        .scheduler
        .current()
        .filter(|&id| local.loaded == Some(id) && local.scheduler.highest_band() > current)
        .filter(|&id| site.may_hold_lock(id));
    let until = local.put_off_until.min(now.saturating_add(bound));
    let local = site.local_mut();
    if holder.is_none() || until <= now {
        local.put_off_until = Ticks::NEVER;
        local.look_at = Ticks::NEVER;
        catch(site, Catch::Nothing);
        return false;
    }
    local.put_off_until = until;
    local.look_at = until.min(now.saturating_add(local.put_off_step));
    // No equal has the core before: no alarm for the end of a turn that is over.
    local.scheduler.extend_turn(local.look_at);
    catch(site, Catch::Exit);
    true
}

/// All vCPUs of the gang wait while one of its cores runs somebody more urgent.
fn hold_gang(site: &mut impl Site) {
    let Some((band, cores)) = site.gang() else {
        return;
    };
    let is_apart = bits(cores)
        .filter_map(|core| site.presence(PcpuId(core as u8)))
        .any(|it| it.is_above(band));
    site.mark(Mark::AskedGang(cores.count_ones()));
    let held = is_apart.then_some(band);
    site.local_mut().scheduler.hold(held);
}

/// After a decision: if this core now runs somebody more urgent than the gang, or does no more, the others are told.
pub fn tell_gang(site: &mut impl Site) {
    let Some((band, cores)) = site.gang() else {
        return;
    };
    let level = Level::of(site.local().scheduler.current_band());
    let was_above = site.own_presence().is_above(band);
    publish(site, level);
    let is_above = site.own_presence().is_above(band);
    let own = site.core();
    if cores >> (own.0 & 31) & 1 == 0 || was_above == is_above {
        return;
    }
    for id in ids(u32::MAX) {
        if site.band(id) == Some(band)
            && let Some(home) = site.home(id).filter(|&home| home != own)
        {
            site.kick(home, id);
        }
    }
    // It may have held its own for others that are back.
    site.local_mut().must_decide |= !is_above;
}
