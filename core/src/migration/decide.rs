//! One turn of a core's loop at EL2: which vCPU runs next, when the alarm rings, and which interrupts get through
//! meanwhile.
//!
//! The hypervisor, the simulator and the exhaustive test run this code; each brings its own [`Site`].
//!
//! Interrupts are masked at EL2, so the core takes them at chosen points. Two rules keep a storm of interrupts, which a
//! guest can cause for its own vCPUs, from delaying a more urgent vCPU:
//!
//! - **The alarm is armed before an interrupt is taken.** The alarm has the highest GIC priority, so it is taken before
//!   any other interrupt, however many are pending. A deadline that is in no alarm would wait for all of them.
//! - **A preemption is decided before the next interrupt is taken.** As soon as a vCPU of a higher band than the running
//!   one is runnable, or the alarm has rung, the core decides; the decision sets the priority mask, which holds the rest
//!   of the storm back in the GIC.

use super::holding::{hold_current, wake_due};
use super::holding_back::{holds_back, tell_gang};
use super::taking::look_for_work;
use super::telling::{hand_over, offer};
use super::{Local, Mark, Site};
use crate::schedule::{Action, Band, Ticks};
use spumone_config::types::VcpuId;

/// Interrupts that a core takes before it looks at its vCPUs again.
const MAX_TAKEN: usize = 8;

/// An interrupt that a core has taken at EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// None was pending.
    Nothing,
    /// EL2's alarm; it is silent until it is armed again.
    Alarm,
    /// Another interrupt, which has been handled.
    Other,
}

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
pub fn turn(site: &mut impl Site) -> Next {
    if site.local().must_decide {
        decide(site);
        if site.is_interrupted() {
            take_interrupts(site);
        }
        if site.local().must_decide {
            return Next::Turn;
        }
    }
    arm_stale_alarm(site);
    let local = site.local();
    match local.running {
        None => Next::Idle,
        Some(id) if local.loaded == Some(id) => Next::Run(id),
        Some(id) => Next::Exchange(id),
    }
}

/// Decides which vCPU runs, and puts that into force: alarm and priority mask are those of the decision.
#[inline(always)]
fn decide(site: &mut impl Site) {
    // What is pending may change the decision. A preemption does not wait for it.
    if site.is_interrupted() && !site.local().is_preempted() {
        take_interrupts(site);
    }
    site.mark(Mark::Decide);
    let mut now = site.now();
    wake_due(site, now);
    if site.local().moving != 0
        && let Some(has_taken_time) = look_for_work(site, now)
    {
        let is_interrupted = site.is_interrupted();
        if is_interrupted {
            take_interrupts(site);
        }
        if has_taken_time || is_interrupted {
            now = site.now();
            wake_due(site, now);
        }
    }
    if holds_back(site, now) {
        // The last decision stands.
        let band = site.local().scheduler.current_band();
        return put_into_force(site, band);
    }
    let mut decision = site.local_mut().scheduler.decide(now);
    if site.local().moving != 0 {
        decision = hold_current(site, now, decision);
    }
    site.local_mut().must_decide = false;
    if let Action::Switch { to } = decision.action {
        hand_over(site, to);
        site.mark(Mark::Dispatch(to));
    }
    if site.local().moving != 0 {
        offer(site, now);
    } else if site.local().conduct.gang {
        tell_gang(site);
    }
    put_into_force(site, decision.turn.map(|turn| turn.band));
    site.decided(now);
}

/// From here on an interrupt that may disturb a vCPU of `band` gets through, and the alarm is that of the decision.
#[inline(always)]
fn put_into_force(site: &mut impl Site, band: Option<Band>) {
    let local = site.local_mut();
    local.decided_band = band;
    local.alarm_rang = false;
    site.set_priority_mask(band);
    arm_alarm(site);
}

/// Takes interrupts that are pending and that the priority mask lets through: up to [`MAX_TAKEN`], or up to the first
/// that calls for a decision at once.
#[inline(never)]
pub fn take_interrupts(site: &mut impl Site) {
    for _ in 0..MAX_TAKEN {
        arm_stale_alarm(site);
        match site.take_interrupt() {
            Taken::Nothing => return,
            Taken::Alarm => return alarm_rang(site.local_mut()),
            Taken::Other if site.local().must_decide && site.local().is_preempted() => return,
            Taken::Other => {}
        }
    }
}

/// The alarm has rung and is silent now: the core must decide.
#[inline(always)]
pub fn alarm_rang<T>(local: &mut Local<T>) {
    local.alarm = Ticks::NEVER;
    local.alarm_rang = true;
    local.alarm_is_stale = true;
    local.must_decide = true;
}

/// Arms the alarm anew if a deadline has come or gone, or another vCPU runs, since it was armed.
#[inline(always)]
pub fn arm_stale_alarm(site: &mut impl Site) {
    if site.local().alarm_is_stale {
        arm_alarm(site);
    }
}

/// Arms the alarm for the next time at which the core must decide.
#[inline(always)]
fn arm_alarm(site: &mut impl Site) {
    let chore = site.next_chore();
    let local = site.local_mut();
    local.alarm_is_stale = false;
    let mut at = local.next_deadline();
    if local.may_do_chores() {
        at = at.min(chore);
    }
    if at != local.alarm {
        local.alarm = at;
        site.set_alarm(at);
    }
}

impl<T> Local<T> {
    /// When the core must decide next if no interrupt comes: the alarm, but for the hypervisor's own chores.
    #[inline(always)]
    pub fn next_deadline(&self) -> Ticks {
        let deadline = self.deadlines.next_alarm(self.scheduler.turn());
        deadline.unwrap_or(Ticks::NEVER).min(self.next_look())
    }

    /// Whether the hypervisor may do its own chores: no vCPU above the lowest band runs, and none is put off.
    #[inline(always)]
    fn may_do_chores(&self) -> bool {
        !self.puts_off() && self.scheduler.current_band() <= Some(Band::LOWEST)
    }

    /// Whether a decision must not wait for interrupts that are pending: the alarm has rung, or a vCPU of a higher band
    /// than the last decision's is runnable.
    #[inline(always)]
    fn is_preempted(&self) -> bool {
        self.alarm_rang || self.scheduler.highest_band() > self.decided_band
    }
}
