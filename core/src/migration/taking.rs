//! What a core takes of that which others have parked.

use super::departing::see_off;
use super::holding::{hold, park};
use super::local::{bit, ids};
use super::telling::{publish, tell_others};
use super::{
    Candidate, Catch, Choice, Glance, Here, Level, Mark, Parked, Rest, Running, Site, catch,
    stop_catching,
};
use crate::schedule::{Ticks, VcpuState};
use spumone_config::types::{PcpuId, VcpuId};

/// Looks what other cores have parked, and takes what the policy says; a decision, and [`hold_current`](super::hold_current),
/// must follow. Returns whether there was something, so that
/// time has passed; `None` if somebody wants the core at once, so that nothing was looked at.
#[inline(always)]
pub fn look_for_work(site: &mut impl Site, now: Ticks) -> Option<bool> {
    let local = site.local_mut();
    local.look_at = Ticks::NEVER;
    local.alarm_is_stale = true;
    let top = Level::of(local.scheduler.highest_band());
    if top > site.moving_level() {
        return None;
    }
    let local = site.local();
    if local.sent | local.strangers != 0 || local.conduct.restless.is_some() {
        see_off(site, now);
    }
    let top = Level::of(site.local().scheduler.highest_band());
    if top == Level::IDLE {
        // First published, then looked: who parks looks at who is idle afterwards.
        publish(site, Level::IDLE);
    }
    let moving = site.local().moving;
    let mut elsewhere = 0;
    for id in ids(moving) {
        let concerns = match site.slot(id).glance(site.core()) {
            Glance::Nothing => false,
            Glance::Runnable => true,
            // It is cared for, unless its host hears nothing.
            Glance::Waits(host) => is_cut_off(site, id, host),
        };
        elsewhere |= u32::from(concerns) << (id.0 & 31);
    }
    site.mark(Mark::Glanced(moving.count_ones()));
    let turn = site.local().scheduler.turn();
    let is_over = turn.is_some_and(|turn| turn.equal_waits && turn.quantum_end <= now);
    if elsewhere == 0 && !is_over {
        run_on(site);
        return Some(false);
    }
    choose(site, now, elsewhere, is_over);
    Some(true)
}

/// Whether a core runs somebody more urgent than a vCPU, so that nothing for it gets through there.
#[inline(always)]
fn is_cut_off(site: &impl Site, id: VcpuId, host: PcpuId) -> bool {
    let host = site.presence(host).zip(site.band(id));
    host.is_some_and(|(it, band)| it.is_above(band))
}

/// Takes what the policy says of these vCPUs, which other cores have parked. `is_over`: the running vCPU is to let go
/// for one that is here.
#[inline(never)]
fn choose(site: &mut impl Site, now: Ticks, elsewhere: u32, is_over: bool) {
    site.mark(Mark::Look);
    let local = site.local();
    let turn = local.scheduler.turn();
    let here = Here {
        core: site.core(),
        now,
        running: turn.map(|turn| Running {
            band: turn.band,
            since: turn.since,
            turn_end: turn.quantum_end,
        }),
        equal_waits: turn.map_or(local.scheduler.highest_band().is_some(), |turn| {
            turn.equal_waits
        }),
        keeps_kernels_off: local.keeps_kernels_off,
    };
    let mut choice = Choice::NOTHING;
    for id in ids(elsewhere) {
        let Some(candidate) = candidate(site, id) else {
            continue;
        };
        let verdict = site.verdict(&here, &candidate);
        if choice.note(id, &candidate, verdict) {
            take_in(site, id, candidate.parked, now);
        }
    }
    let local = site.local_mut();
    local.look_at = local.look_at.min(choice.look_at);
    // For who is more urgent nobody is given time.
    let is_overtaken = choice
        .best
        .is_some_and(|best| turn.is_some_and(|turn| best.band > turn.band));
    let must_let_go = is_over || choice.best.is_some_and(|best| best.swap);
    if must_let_go
        && !is_overtaken
        && let Some(until) = more_grace(site, now)
    {
        let local = site.local_mut();
        local.scheduler.extend_turn(until);
        local.look_at = local.look_at.min(until);
        catch(site, Catch::Exit);
        return;
    }
    run_on(site);
    if let Some(found) = choice.best
        && take(site, found.vcpu, found.parked, now)
    {
        // Of who runs next the token is needed at once.
        let runs_next = turn.is_none_or(|turn| found.swap || found.band > turn.band);
        match runs_next {
            true => site.local_mut().unparked = Some(found.vcpu),
            false => park(site, found.vcpu),
        }
        if found.swap {
            site.local_mut().scheduler.yield_current();
        }
        if let Some(id) = choice.left_over {
            tell_others(site, id, true);
        }
    }
}

/// The running vCPU is not, or no longer, given time to let go: what it has used of it is forgotten.
#[inline(always)]
fn run_on(site: &mut impl Site) {
    stop_catching(site);
    site.local_mut().grace.renew();
}

/// A vCPU that another core has parked, of a guest that runs.
fn candidate(site: &impl Site, id: VcpuId) -> Option<Candidate> {
    let slot = site.slot(id);
    let parked = slot.look()?;
    if parked.host == site.core() || !site.guest_runs(id) {
        return None;
    }
    let band = site.band(id)?;
    Some(Candidate {
        parked,
        band,
        home: site.home(id)?,
        since: slot.since(),
        is_cut_off: site.presence(parked.host)?.is_above(band),
    })
}

/// Until when the running vCPU, which is to let go, may run on.
fn more_grace(site: &mut impl Site, now: Ticks) -> Option<Ticks> {
    let local = site.local();
    let id = local.running.filter(|_| local.running == local.loaded)?;
    let sample = site.sample(id)?;
    site.local_mut().grace.more(now, sample)
}

/// Becomes the host of a vCPU that another core has parked, and parks it here. Returns whether it has.
fn take_in(site: &mut impl Site, id: VcpuId, seen: Parked, now: Ticks) -> bool {
    let has_taken = take(site, id, seen, now);
    if has_taken {
        park(site, id);
    }
    has_taken
}

/// Takes a vCPU that another core has parked into the run queue. Returns whether it has: not if that core, or a third,
/// was faster, or its guest does not run.
fn take(site: &mut impl Site, id: VcpuId, seen: Parked, now: Ticks) -> bool {
    let Some(band) = site.band(id).filter(|_| site.guest_runs(id)) else {
        return false;
    };
    let Some(token) = site.claim(id, seen) else {
        return false;
    };
    site.mark(Mark::Take(id));
    // Whoever rings from here on kicks this core; what was rung before is seen when it is parked or loaded.
    site.settle(&token);
    let mut state = match seen.rest {
        Rest::Runnable | Rest::InKernel | Rest::Sent => VcpuState::Suspend,
        Rest::Asleep => VcpuState::Sleep,
        Rest::Off => VcpuState::Off,
    };
    let timer = match state {
        VcpuState::Sleep => site.next_timer(&token, now),
        _ => None,
    };
    let local = site.local_mut();
    // Of an earlier stay.
    let _ = local.scheduler.remove(id);
    local.deadlines.clear(id);
    match timer {
        Some(at) if at <= now => state = VcpuState::Suspend,
        Some(at) => {
            local.deadlines.set(id, band, at);
            local.alarm_is_stale = true;
        }
        None => {}
    }
    let admitted = local.scheduler.admit(id, band, state);
    debug_assert!(admitted.is_ok(), "a vCPU is on one core");
    local.vcpus[id.index()] = Some(token);
    local.sent &= !bit(id);
    local.stays &= !bit(id);
    if local.conduct.goes_home && local.at_home & bit(id) == 0 {
        local.strangers |= bit(id);
    }
    site.mark(Mark::Taken);
    true
}

/// A vCPU that is off is to start: gets hold of it if it is here, or parked by a core that hears nothing. Returns whether
/// this core has it: if not, its host is to be told.
pub fn reach(site: &mut impl Site, id: VcpuId) -> bool {
    hold(site, id)
        || site
            .host(id)
            .is_some_and(|host| host != site.core() && summon(site, id, host) && hold(site, id))
}

/// An interrupt was rung, or a start is asked, for a vCPU whose host hears nothing because it runs somebody more
/// urgent. One that could run is pressed: whoever takes it finds what was rung. One that waits is taken, or, where it
/// would be cut off here too, others are told. Returns whether it is pressed or taken: if not, the host is to be
/// kicked.
pub fn summon(site: &mut impl Site, id: VcpuId, host: PcpuId) -> bool {
    let local = site.local();
    if !local.pulls_by_ipi || !local.moves(id) || !is_cut_off(site, id, host) {
        return false;
    }
    let Some(seen) = site.slot(id).look() else {
        return false;
    };
    let served = if seen.rest.is_runnable() {
        site.slot(id).press(seen)
    } else if site.local().scheduler.current_band() > site.band(id) {
        tell_others(site, id, true);
        false
    } else {
        let now = site.now();
        take_in(site, id, seen, now)
    };
    site.local_mut().must_decide |= served;
    served
}
