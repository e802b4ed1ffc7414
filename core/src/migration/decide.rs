// SPDX-License-Identifier: MIT OR Apache-2.0
//! One turn of a core's loop at EL2: which vCPU runs next, when the alarm rings, and which interrupts get through
//! meanwhile.
//!
//! The hypervisor, the simulator and the exhaustive test run this code; each brings its own [`Platform`].

use super::defer::defer_preemption;
use super::fetch::fetch;
use super::gang::{hold_gang, notify_gang};
use super::interrupt::{arm_alarm, arm_stale_alarm, take_interrupts};
use super::notify::{publish_and_notify, switch_to};
use super::park::{acquire_current, wake_expired};
use super::platform::{Platform, TracePoint};
use crate::schedule::{Action, Band, Ticks};
use spumone_config::types::VcpuId;

/// What a core does after a turn of its loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The next turn: something has happened since the decision.
    Turn,
    /// No vCPU wants the core.
    Idle,
    /// The registers of this vCPU must be brought to the core.
    Exchange(VcpuId),
    /// This vCPU, whose registers are on the core, enters its guest.
    Run(VcpuId),
}

/// One turn of the loop: decides, if something has happened since the last decision, and arms the alarm.
///
/// Bounded: one decision, and at most 24 interrupts.
#[inline(always)]
pub fn next_action(platform: &mut impl Platform) -> Next {
    if platform.local().must_decide {
        decide(platform);
        if platform.is_interrupted() {
            take_interrupts(platform);
        }
        if platform.local().must_decide {
            return Next::Turn;
        }
    }
    arm_stale_alarm(platform);
    let local = platform.local();
    match local.running {
        None => Next::Idle,
        Some(id) if local.loaded == Some(id) => Next::Run(id),
        Some(id) => Next::Exchange(id),
    }
}

/// Decides which vCPU runs, and puts that into force: alarm and priority mask are those of the decision.
#[inline(always)]
fn decide(platform: &mut impl Platform) {
    // What is pending may change the decision. A preemption does not wait for it.
    if platform.is_interrupted() && !platform.local().higher_band_waits() {
        take_interrupts(platform);
    }
    platform.trace(TracePoint::Decide);
    let mut now = platform.now();
    wake_expired(platform, now);
    if !platform.local().moving.is_empty()
        && let Some(has_taken_time) = fetch(platform, now)
    {
        let is_interrupted = platform.is_interrupted();
        if is_interrupted {
            take_interrupts(platform);
        }
        if has_taken_time || is_interrupted {
            now = platform.now();
            wake_expired(platform, now);
        }
    }
    if last_decision_stands(platform, now) {
        let band = platform.local().scheduler.current_band();
        return put_into_force(platform, now, band);
    }
    let mut decision = platform.local_mut().scheduler.decide(now);
    if !platform.local().moving.is_empty() {
        decision = acquire_current(platform, now, decision);
    }
    platform.local_mut().must_decide = false;
    if let Action::Switch { to } = decision.action {
        switch_to(platform, to);
        platform.trace(TracePoint::Dispatch(to));
    }
    if !platform.local().moving.is_empty() {
        publish_and_notify(platform, now);
    } else if platform.local().rules.gang {
        notify_gang(platform);
    }
    put_into_force(platform, now, decision.turn.map(|turn| turn.band));
}

/// Whether the last decision stands, because a preemption is deferred. Has the gang wait, where there is one.
#[inline(always)]
fn last_decision_stands(platform: &mut impl Platform, now: Ticks) -> bool {
    let rules = platform.local().rules;
    if rules.gang {
        hold_gang(platform);
    }
    let is_deferred = match rules.max_delay {
        Some(bound) => defer_preemption(platform, now, bound),
        None => false,
    };
    if is_deferred {
        platform.local_mut().must_decide = false;
    }
    is_deferred
}

/// From here on an interrupt that may disturb a vCPU of `band` gets through, and the alarm is that of the decision.
#[inline(always)]
fn put_into_force(platform: &mut impl Platform, now: Ticks, band: Option<Band>) {
    let local = platform.local_mut();
    local.decided_band = band;
    local.alarm_rang = false;
    local.alarm_is_stale = true;
    platform.set_priority_mask(band);
    platform.decided(now);
    arm_alarm(platform);
}
