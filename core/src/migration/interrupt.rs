// SPDX-License-Identifier: MIT OR Apache-2.0
//! Interrupts at EL2: when a core takes them, and to which core an interrupt for a vCPU goes.
//!
//! Interrupts are masked at EL2, so the core takes them at chosen points. Two rules keep a storm of interrupts, which a
//! guest can cause for its own vCPUs, from delaying a vCPU of a higher band:
//!
//! - **The alarm is armed before an interrupt is taken.** The alarm has the highest GIC priority, so it is taken before
//!   any other interrupt, however many are pending. A deadline for which the alarm is not armed would wait for all of
//!   them.
//! - **A preemption is decided before further interrupts are taken.** As soon as a vCPU of a higher band than the running
//!   one is runnable, the core sets the priority mask, which holds the rest of the storm back in the GIC, and decides. Only
//!   an interrupt for a still higher band is taken before the decision. When the alarm has expired, the core sets the mask at once.

use super::core_state::{CoreState, Loaded};
use super::park::{host_core_of, is_host_core, is_rung, mark_wanted_if_cut_off, wake};
use super::platform::{Delivery, Platform, State, Taken};
use super::pull::pull_for_interrupt;
use crate::schedule::{Band, Ticks, VcpuState};
use crate::sets::VcpuSet;
use spumone_config::types::{IntId, PcpuId, VcpuId};

/// How many interrupts a core takes before it looks at its vCPUs again.
const MAX_TAKEN: usize = 8;

/// Takes interrupts that are pending and that the priority mask lets through: up to [`MAX_TAKEN`], or up to the first
/// that makes a vCPU of a higher band runnable, and then on as long as each makes one of a still higher band runnable.
#[inline(never)]
pub fn take_interrupts<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let mut highest = None;
    // At most 8 times: `MAX_TAKEN`.
    for _ in 0..MAX_TAKEN {
        // An alarm that has expired is taken next.
        if state.alarm_is_stale && !state.alarm_expired && state.alarm > platform.now() {
            arm_alarm(state, platform);
        }
        debug_assert!(
            alarm_is_in_time(state, platform.now()),
            "the alarm is later than a deadline"
        );
        match platform.take_interrupt(state.loaded_vcpu_mut()) {
            Taken::Nothing => return,
            Taken::Alarm => {
                alarm_expired(state, platform);
                if !platform.is_interrupted() {
                    return;
                }
                continue;
            }
            Taken::Timer(timer) => timer_expired(state, platform, timer),
            other => handle(state, platform, other),
        }
        if state.must_decide && state.higher_band_waits() {
            hold_lower_back(state, platform);
            let waiting = state.scheduler.highest_band();
            if waiting <= highest || !platform.is_interrupted() {
                return;
            }
            highest = waiting;
        }
    }
}

/// A vCPU of a higher band waits for a decision. Until that sets the priority mask, the mask lets through only what is for a still higher
/// band (with flat priorities, everything).
#[inline(always)]
pub(super) fn hold_lower_back<P: Platform>(state: &State<P>, platform: &mut P) {
    if !state.alarm_expired {
        let band = state.scheduler.highest_band();
        platform.set_priority_mask(band.map(Band::next_higher));
    }
}

/// Whether the core must decide again. If not yet, it looks for interrupts, and takes them.
#[inline(always)]
pub(super) fn is_overtaken<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    if !state.must_decide && platform.is_interrupted() {
        take_interrupts(state, platform);
    }
    state.must_decide
}

/// The core has woken a vCPU of a higher band while it worked for another one. Looks for interrupts before the decision, which takes long.
#[cold]
#[inline(never)]
pub(super) fn look_for_higher<P: Platform>(state: &mut State<P>, platform: &mut P) {
    // First, because the work before has taken long, too. The priority mask is set even so: it holds lower bands back until the decision.
    let is_interrupted = platform.is_interrupted();
    hold_lower_back(state, platform);
    if is_interrupted {
        take_interrupts(state, platform);
    }
}

/// What the core has done for its guest has taken long, and may have woken a vCPU: looks for interrupts before the decision that follows.
#[inline(always)]
pub fn look_before_decision<P: Platform>(state: &mut State<P>, platform: &mut P) {
    if state.must_decide {
        look_for_higher(state, platform);
    }
}

/// Whether the alarm is armed for the next deadline.
fn alarm_is_in_time<T>(state: &CoreState<T>, now: Ticks) -> bool {
    let has_ended = state.decided_band.is_some() && state.scheduler.time_slice().is_none();
    state.alarm_expired || has_ended || state.alarm <= state.next_alarm().max(now)
}

/// Handles an interrupt that was taken: wakes the vCPUs that it is for, and notifies their host cores.
// Not inlined: the most frequent interrupts have shorter ways, from which it would take registers.
#[inline(never)]
pub fn handle<P: Platform>(state: &mut State<P>, platform: &mut P, taken: Taken) {
    match taken {
        Taken::Nothing | Taken::Other => {}
        Taken::Alarm => alarm_expired(state, platform),
        Taken::Kicks(vcpus) => take_kicks(state, platform, vcpus),
        Taken::KicksAndChore(vcpus) => {
            do_chore_next(state);
            take_kicks(state, platform, vcpus);
        }
        Taken::Chore => do_chore_next(state),
        Taken::Timer(timer) => timer_expired(state, platform, timer),
        Taken::Maintenance => {
            if let Some(id) = state.loaded() {
                // Before it runs: if it is about to be switched out, the switch does not wait for that.
                state.must_refresh = true;
                wake(state, platform, id);
            }
        }
        Taken::Delivered(rung) => {
            state.interrupted();
            state.note_other_delivery();
            if let Some(id) = state.loaded() {
                wake(state, platform, id);
                run_out_of_turn(state, platform, id);
            }
            notify_vcpus(state, platform, rung);
        }
        Taken::Rung(rung) => notify_vcpus(state, platform, rung),
    }
}

/// The shortest way of the most frequent kick: for the vCPU that has just run, and for no other. `deliver` delivers the interrupt if that
/// changes nothing but a list register. Returns whether it has.
#[inline(always)]
pub fn delivers_kick<T>(
    state: &mut CoreState<T>,
    kicked: VcpuSet,
    deliver: impl FnOnce(&mut T) -> bool,
) -> bool {
    let is_for = |id| kicked == VcpuSet::of(id) && !state.decides_on_kick(id);
    if !state.loaded().is_some_and(is_for) || !state.loaded_vcpu_mut().is_some_and(deliver) {
        return false;
    }
    state.grace.interrupted();
    true
}

/// Has the next iteration of the loop lead to a chore.
#[cold]
fn do_chore_next<T>(state: &mut CoreState<T>) {
    state.chore_is_due = true;
    state.must_decide = true;
}

/// This core was kicked for these vCPUs. It sees to one of them at least. If it is interrupted then, it kicks itself for the others.
#[inline(always)]
fn take_kicks<P: Platform>(state: &mut State<P>, platform: &mut P, mut vcpus: VcpuSet) {
    // At most 32 times: vCPUs.
    while let Some(id) = vcpus.iter().next() {
        kicked(state, platform, id);
        vcpus.remove(id);
        if !vcpus.is_empty() && platform.is_interrupted() {
            return kick_again(state, platform, vcpus);
        }
    }
}

#[cold]
#[inline(never)]
fn kick_again<P: Platform>(state: &State<P>, platform: &mut P, vcpus: VcpuSet) {
    // At most 32 times: vCPUs.
    for id in vcpus.iter() {
        platform.kick(state.core, id);
    }
}

/// A timer of the loaded vCPU has expired. The vCPU may be asleep while the core idles.
fn timer_expired<P: Platform>(state: &mut State<P>, platform: &mut P, timer: IntId) {
    let Some(Loaded { id, token }) = state.loaded.as_mut() else {
        return;
    };
    let id = *id;
    let is_preempted = state.scheduler.state(id) == Some(VcpuState::Runnable);
    if is_preempted || state.must_refresh {
        // It is being switched out, or its interrupts are taken back already: the delivery waits, to keep the latency of the incoming vCPU low.
        let _ = platform.deliver(token, Delivery::LateTimer(timer));
        state.note_delivery();
        state.must_refresh = true;
        if !is_preempted {
            wake(state, platform, id);
        }
        return;
    }
    let rung = platform.deliver(token, Delivery::Timer(timer));
    state.interrupted();
    wake(state, platform, id);
    notify_vcpus(state, platform, rung);
}

/// The alarm has expired and is disarmed: the core must decide. Until then, the priority mask is that of band 7. Beside the
/// alarm it lets through the timers of the loaded vCPU, because such a timer may be the reason for a preemption, its
/// maintenance interrupt, and band 7, if the system has eight bands.
#[inline(always)]
pub fn alarm_expired<P: Platform>(state: &mut State<P>, platform: &mut P) {
    state.alarm = Ticks::NEVER;
    state.alarm_expired = true;
    state.alarm_is_stale = true;
    state.must_decide = true;
    if state.rung_at != Ticks::NEVER && state.rung_at <= platform.now() {
        // The next decision goes on with it.
        state.rung_at = Ticks::NEVER;
    }
    platform.set_priority_mask(Some(Band::HIGHEST));
}

/// Arms the alarm again if, since it was armed, a deadline was added or removed, or another vCPU was chosen to run.
#[inline(always)]
pub fn arm_stale_alarm<P: Platform>(state: &mut State<P>, platform: &mut P) {
    if state.alarm_is_stale {
        arm_alarm(state, platform);
    }
}

/// Disarms the alarm, which is to be armed anew.
pub(super) fn disarm_alarm<P: Platform>(state: &mut State<P>, platform: &mut P) {
    state.alarm = Ticks::NEVER;
    state.alarm_is_stale = true;
    platform.set_alarm(Ticks::NEVER);
}

/// Arms the alarm for the next time at which the core must decide.
#[inline(always)]
pub(super) fn arm_alarm<P: Platform>(state: &mut State<P>, platform: &mut P) {
    state.alarm_is_stale = false;
    let at = state.next_alarm();
    if at != state.alarm {
        state.alarm = at;
        platform.set_alarm(at);
    }
}

/// This core has rung the doorbells of these vCPUs: see [`notify_vcpu`].
#[inline(always)]
pub fn notify_vcpus<P: Platform>(state: &mut State<P>, platform: &mut P, vcpus: VcpuSet) {
    if !vcpus.is_empty() {
        notify_each(state, platform, vcpus);
    }
}

/// As [`notify_vcpus`], after work that takes long: looks for interrupts first. If the core is interrupted, the next decision notifies the vCPUs.
#[inline(always)]
pub fn notify_unless_interrupted<P: Platform>(
    state: &mut State<P>,
    platform: &mut P,
    vcpus: VcpuSet,
) {
    if !vcpus.is_empty() && platform.is_interrupted() {
        return notify_later(state, vcpus);
    }
    notify_vcpus(state, platform, vcpus);
}

/// The core was interrupted before it notified these vCPUs: the next decision does.
#[inline(always)]
fn notify_later<T>(state: &mut CoreState<T>, vcpus: VcpuSet) {
    state.rung |= vcpus;
    state.must_decide = true;
}

#[inline(never)]
fn notify_each<P: Platform>(state: &mut State<P>, platform: &mut P, mut vcpus: VcpuSet) {
    // At most 32 times: vCPUs.
    while let Some(id) = vcpus.iter().next() {
        notify_vcpu(state, platform, id);
        vcpus.remove(id);
        if vcpus.is_empty() {
            return;
        }
        if platform.is_interrupted() {
            return notify_later(state, vcpus);
        }
    }
}

/// Notifies the host cores of the vCPUs whose doorbells were rung while registers were saved or loaded.
#[inline(always)]
pub(super) fn notify_rung<P: Platform>(state: &mut State<P>, platform: &mut P) {
    if !state.rung.is_empty() {
        let rung = state.rung.take();
        notify_each(state, platform, rung);
    }
}

/// This core has rung the doorbell of a vCPU, and the vCPU's host core must look at it. Delivers the interrupt if this
/// core is the host core; else pulls the vCPU, or kicks its host core.
pub(super) fn notify_vcpu<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    match host_core_of(platform, id) {
        None => {}
        Some(host) if host == state.core => kicked(state, platform, id),
        Some(host) => notify_host_core(state, platform, id, host),
    }
}

fn notify_host_core<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId, host: PcpuId) {
    if !pull_for_interrupt(state, platform, id, host) {
        platform.kick(host, id);
    }
}

/// This core was kicked for a vCPU: the vCPU's doorbell was rung, or another core has parked it.
#[inline(always)]
fn kicked<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    if state.decides_on_kick(id) {
        state.fetch_again(id);
    }
    if state.loaded() == Some(id) {
        deliver_doorbell(state, platform);
    } else if is_host_core(state, platform, id) {
        wake(state, platform, id);
        run_out_of_turn(state, platform, id);
        mark_wanted_if_cut_off(state, platform, id);
    } else {
        // Another core has parked it and notifies this one, or the vCPU has moved since the kick.
        state.fetch_again(id);
    }
}

/// An interrupt has come for a vCPU of this core. If another vCPU of its band runs, it does not wait for its turn: if it migrates, for then
/// the other one, which may hold a lock, has grace.
#[inline(always)]
fn run_out_of_turn<P: Platform>(state: &mut State<P>, platform: &P, id: VcpuId) {
    if state.moves(id) && state.running != Some(id) {
        state.must_decide |= state.scheduler.run_out_of_turn(id, platform.now());
    }
}

/// By a decision at `now`, a vCPU of this core has lost the core. If an interrupt has come for it that is not of its timers, and the core has not entered it since,
/// it runs out of turn, too.
#[inline(always)]
pub(super) fn run_again_for_interrupt<P: Platform>(
    state: &mut State<P>,
    platform: &P,
    id: VcpuId,
    now: Ticks,
) {
    let has_come = state.since_entry.has_delivered_other && state.loaded() == Some(id);
    if state.moves(id) && (has_come || is_rung(platform, id)) {
        state.must_decide |= state.scheduler.run_out_of_turn(id, now);
    }
}

/// The doorbell of the loaded vCPU was rung. If it is being switched out, or another interrupt has come meanwhile, the
/// delivery waits until it runs again: another vCPU may be due, and the delivery would add to its latency.
#[inline(always)]
fn deliver_doorbell<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let is_interrupted = platform.is_interrupted();
    let Some(Loaded { id, token }) = state.loaded.as_mut() else {
        return;
    };
    let id = *id;
    let is_late = is_interrupted || state.must_refresh;
    if is_late || state.scheduler.state(id) != Some(VcpuState::Running) {
        state.must_refresh = true;
        wake(state, platform, id);
        run_out_of_turn(state, platform, id);
        return;
    }
    let rung = platform.deliver(token, Delivery::Doorbell);
    state.interrupted();
    state.note_other_delivery();
    let mut rung = refreshes_if_interrupted(state, id, rung);
    wake(state, platform, id);
    // A delivery rings another vCPU's doorbell only when an SPI has got another target, and does so once for each SPI.
    // At most 8 times: vCPUs of the guest.
    while let Some(other) = rung.iter().next() {
        if platform.is_interrupted() {
            return notify_later(state, rung);
        }
        pass_on(state, platform, other);
        rung.remove(other);
    }
}

/// A delivery to vCPU `id`, which is loaded, has rung these doorbells. If its own is among them, the core was interrupted in between, and the
/// vCPU is refreshed before it is entered. Returns the others.
#[inline(always)]
fn refreshes_if_interrupted<T>(state: &mut CoreState<T>, id: VcpuId, mut rung: VcpuSet) -> VcpuSet {
    state.must_refresh |= rung.contains(id);
    rung.remove(id);
    rung
}

/// An SPI that came for one vCPU now targets vCPU `id`, whose doorbell was rung. If `id` is on this core, it looks at
/// its doorbell when it runs next.
fn pass_on<P: Platform>(state: &mut State<P>, platform: &mut P, id: VcpuId) {
    match host_core_of(platform, id) {
        None => {}
        Some(host) if host == state.core => {
            state.must_refresh |= state.loaded() == Some(id);
            wake(state, platform, id);
        }
        Some(host) => notify_host_core(state, platform, id, host),
    }
}

/// Brings the list registers of the loaded vCPU up to date.
#[inline(never)]
pub fn refresh<P: Platform>(state: &mut State<P>, platform: &mut P) {
    state.must_refresh = false;
    let Some(Loaded { id, token }) = state.loaded.as_mut() else {
        return;
    };
    let id = *id;
    let was_rung = is_rung(platform, id);
    let rung = platform.deliver(token, Delivery::All);
    state.interrupted();
    if was_rung {
        state.note_other_delivery();
    }
    let rung = refreshes_if_interrupted(state, id, rung);
    wake(state, platform, id);
    notify_unless_interrupted(state, platform, rung);
}
