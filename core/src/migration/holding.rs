//! Where the token of a vCPU is: with this core, or parked.
//!
//! A vCPU that changes cores is parked when it does not run and its registers are saved. What a core has parked stays
//! in its run queue, and is claimed when it is dispatched; if another core was faster, it is not here any more.

use super::local::bit;
use super::{Mark, Parked, Rest, Site};
use crate::schedule::{Decision, Ticks, VcpuState};
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// Whether a vCPU is on this core, or parked by it.
#[inline(always)]
pub(super) fn has(site: &impl Site, id: VcpuId) -> bool {
    site.local().token(id).is_some() || hosts(site, id)
}

/// Whether this core has parked a vCPU, and nobody has taken it.
#[inline(always)]
pub(super) fn hosts(site: &impl Site, id: VcpuId) -> bool {
    let parked = site.slot(id).look();
    parked.is_some_and(|it| it.host == site.core())
}

/// Sees to it that this core has the token of a vCPU that it runs or has parked. Returns whether it does.
#[inline(always)]
pub fn hold(site: &mut impl Site, id: VcpuId) -> bool {
    if site.local().token(id).is_some() {
        return true;
    }
    let Some(band) = site.band(id) else {
        return false;
    };
    // It may be pressed between look and claim, once.
    let token = match claim_own(site, id) {
        None => claim_own(site, id),
        token => token,
    };
    let Some(token) = token else {
        return false;
    };
    let local = site.local_mut();
    local.vcpus[id.index()] = Some(token);
    local.has_parked &= !bit(id);
    if local.sent & bit(id) != 0 {
        // It was sent away, and nobody has come.
        local.sent &= !bit(id);
        let admitted = local.scheduler.admit(id, band, VcpuState::Suspend);
        debug_assert!(admitted.is_ok(), "who is sent away leaves the run queue");
    }
    true
}

#[inline(always)]
fn claim_own<S: Site>(site: &mut S, id: VcpuId) -> Option<S::Token> {
    let core = site.core();
    let seen = site.slot(id).look().filter(|seen| seen.host == core)?;
    site.claim(id, seen)
}

/// Sees to it that this core has the token of the vCPU that a decision lets run; decides again where another core was
/// faster. Who was to run next, and does not, is parked: by and by, if somebody more urgent has come between, who pays for
/// nothing.
#[inline(always)]
pub fn hold_current(site: &mut impl Site, now: Ticks, mut decision: Decision) -> Decision {
    for _ in 0..MAX_VCPUS {
        match site.local().scheduler.current() {
            Some(id) if !hold(site, id) => {
                site.mark(Mark::Again);
                let scheduler = &mut site.local_mut().scheduler;
                let _ = scheduler.remove(id);
                decision = scheduler.decide(now);
            }
            _ => break,
        }
    }
    if let Some(id) = site.local_mut().unparked.take()
        && site.local().scheduler.current() != Some(id)
    {
        if site.local().scheduler.current_band() > site.band(id) {
            site.local_mut().to_park |= bit(id);
        } else {
            park(site, id);
        }
    }
    decision
}

/// Parks a vCPU of this core that does not run and whose registers are saved, if it is one that moves.
pub fn park(site: &mut impl Site, id: VcpuId) {
    let local = site.local();
    if !local.moves(id) {
        return;
    }
    let Some(token) = local.token(id) else {
        return;
    };
    let rest = match local.scheduler.state(id) {
        Some(VcpuState::Suspend) if site.was_in_kernel(token) => Rest::InKernel,
        Some(VcpuState::Suspend) => Rest::Runnable,
        Some(VcpuState::Sleep) => Rest::Asleep,
        Some(VcpuState::Off) => Rest::Off,
        Some(VcpuState::Running) | None => return,
    };
    lay_down(site, id, rest);
}

/// Lays the token of a vCPU down where other cores may take it.
pub(super) fn lay_down(site: &mut impl Site, id: VcpuId, rest: Rest) {
    let parked = Parked {
        host: site.core(),
        rest,
    };
    let Some(token) = site.local_mut().vcpus[id.index()].take() else {
        return;
    };
    site.lay(id, token, parked);
    site.local_mut().has_parked |= bit(id);
    if site.is_rung(id) {
        // Who rang may not have seen it parked.
        if rest == Rest::Asleep {
            wake(site, id);
        }
        press_if_cut_off(site, id);
    }
}

/// Whether this core runs somebody more urgent than a vCPU.
#[inline(always)]
pub(super) fn is_cut_off_here(site: &impl Site, id: VcpuId) -> bool {
    let band = site.band(id);
    band.is_some_and(|band| site.own_presence().is_above(band))
}

/// Presses a vCPU that this core has parked and that could run, as who rings for it elsewhere would, if this core runs
/// somebody more urgent.
fn press_if_cut_off(site: &impl Site, id: VcpuId) {
    if !site.local().pulls_by_ipi || !is_cut_off_here(site, id) {
        return;
    }
    let slot = site.slot(id);
    let seen = slot
        .look()
        .filter(|it| it.host == site.core() && it.rest.is_runnable());
    if let Some(seen) = seen {
        // If not, it is with who has claimed it.
        let _ = slot.press(seen);
    }
}

/// Wakes a vCPU that sleeps on this core.
#[inline(always)]
pub fn wake(site: &mut impl Site, id: VcpuId) {
    let local = site.local_mut();
    // As long as the last decision stands, who runs is awake.
    if local.running == Some(id) && !local.must_decide {
        return;
    }
    if local.scheduler.wake(id) {
        local.must_decide = true;
        if local.token(id).is_none() {
            site.slot(id).rouse(site.core());
        }
    }
}

/// Wakes the vCPUs whose timers have run out, but not those that would not get the core.
#[inline(always)]
pub fn wake_due(site: &mut impl Site, now: Ticks) {
    let running = site.local().scheduler.current_band();
    // At most one deadline for each vCPU.
    for _ in 0..MAX_VCPUS {
        let local = site.local_mut();
        let Some(id) = local.deadlines.take_due(now, running) else {
            break;
        };
        if !local.moves(id) {
            local.scheduler.wake(id);
        } else if has(site, id) {
            // One that was parked here may be elsewhere by now.
            wake(site, id);
        }
    }
}

/// This core was kicked for a vCPU that is not loaded here.
#[inline(always)]
pub fn kicked(site: &mut impl Site, id: VcpuId) {
    if has(site, id) {
        wake(site, id);
        press_if_cut_off(site, id);
    } else {
        // It is parked on another core, which tells so; or it has moved.
        site.local_mut().must_decide = true;
    }
}
