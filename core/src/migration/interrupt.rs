// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts at EL2: when a core takes them, and where those for a vCPU go.
//!
//! Interrupts are masked at EL2, so the core takes them at chosen points. Two rules keep a storm of interrupts, which a
//! guest can cause for its own vCPUs, from delaying a vCPU of a higher band:
//!
//! - **The alarm is armed before an interrupt is taken.** The alarm has the highest GIC priority, so it is taken before
//!   any other interrupt, however many are pending. A deadline that is in no alarm would wait for all of them.
//! - **A preemption is decided before the next interrupt is taken.** As soon as a vCPU of a higher band than the running
//!   one is runnable, the core decides; the decision sets the priority mask, which holds the rest of the storm back in
//!   the GIC. When the alarm has rung, the mask is raised at once.

use super::park::{is_here, mark_wanted_if_cut_off, wake};
use super::platform::{Platform, Taken};
use super::pull::pull_for_interrupt;
use crate::schedule::{Band, Ticks};
use spumone_config::types::VcpuId;

/// Interrupts that a core takes before it looks at its vCPUs again.
const MAX_TAKEN: usize = 8;

/// Takes interrupts that are pending and that the priority mask lets through: up to [`MAX_TAKEN`], or up to the first
/// that calls for a decision at once.
#[inline(never)]
pub fn take_interrupts(platform: &mut impl Platform) {
    for _ in 0..MAX_TAKEN {
        if !platform.local().alarm_rang {
            arm_stale_alarm(platform);
        }
        match platform.take_interrupt() {
            Taken::Nothing => return,
            Taken::Alarm => alarm_rang(platform),
            Taken::Other
                if platform.local().must_decide && platform.local().higher_band_waits() =>
            {
                return;
            }
            Taken::Other => {}
        }
    }
}

/// The alarm has rung and is silent now: the core must decide. Until then, only timers of the loaded vCPU get through,
/// which may be the reason why a higher band preempts, and interrupts for the highest band.
#[inline(always)]
pub fn alarm_rang(platform: &mut impl Platform) {
    let local = platform.local_mut();
    local.alarm = Ticks::NEVER;
    local.alarm_rang = true;
    local.alarm_is_stale = true;
    local.must_decide = true;
    platform.set_priority_mask(Some(Band::HIGHEST));
}

/// Arms the alarm anew if a deadline has come or gone, or another vCPU runs, since it was armed.
#[inline(always)]
pub fn arm_stale_alarm(platform: &mut impl Platform) {
    if platform.local().alarm_is_stale {
        arm_alarm(platform);
    }
}

/// Arms the alarm for the next time at which the core must decide.
#[inline(always)]
pub(super) fn arm_alarm(platform: &mut impl Platform) {
    let chore = platform.next_chore();
    let local = platform.local_mut();
    local.alarm_is_stale = false;
    let at = local.next_deadline().min(chore);
    if at != local.alarm {
        local.alarm = at;
        platform.set_alarm(at);
    }
}

/// The doorbell of a vCPU was rung, here: the vCPU's host is to look at it. Delivers the interrupt if this core is the
/// host; else pulls the vCPU, or kicks its host.
pub fn notify_vcpu(platform: &mut impl Platform, id: VcpuId) {
    let Some(host) = platform.host(id) else {
        return;
    };
    if host == platform.core() {
        kicked(platform, id);
    } else if !pull_for_interrupt(platform, id, host) {
        platform.kick(host, id);
    }
}

/// This core was kicked for a vCPU: it may have something in its doorbell, or be parked on another core.
#[inline(always)]
pub fn kicked(platform: &mut impl Platform, id: VcpuId) {
    let local = platform.local_mut();
    if local.decides_on_kick(id) {
        local.must_decide = true;
    }
    if local.loaded == Some(id) && local.token(id).is_some() {
        platform.deliver_to_loaded(id);
    } else if is_here(platform, id) {
        wake(platform, id);
        mark_wanted_if_cut_off(platform, id);
    } else {
        // It is parked on another core, which says so by this kick; or it has moved.
        platform.local_mut().must_decide = true;
    }
}
