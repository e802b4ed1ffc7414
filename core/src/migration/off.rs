// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core goes off, and comes back: see [`power`](crate::power).
//!
//! For other cores, a core that is off is one that runs a band above all vCPUs: they take over the vCPUs that sleep there, do not notify it of
//! parked vCPUs, and pull a vCPU from it for which an interrupt comes. So nothing is new in the protocol.
//!
//! A core goes off only while it idles, so all its vCPUs sleep or are off. Whatever it is to decide about (a vCPU of it has woken before another
//! core has taken that vCPU, or it is kicked by a core that has seen it idle) brings it back: each decision publishes what the core runs. When the core
//! idles again, and is still not wanted, it goes off again.

use super::core_state::CoreState;
use super::interrupt::arm_stale_alarm;
use super::notify::notify_other_core;
use super::park::is_parked_here;
use super::platform::{Platform, State, TracePoint};
use super::switch::switch_out;
use crate::schedule::{Level, Ticks};

/// The core idles, and is about to wait for an interrupt. If it `is_wanted`, and off, it comes back; if it is not, and on, it goes off. Returns
/// whether there is nothing left to do before it waits.
///
/// All vCPUs that have this core as their home must be ones that may migrate.
pub fn follow_wish<P: Platform>(state: &mut State<P>, platform: &mut P, is_wanted: bool) -> bool {
    let is_off = platform.shared().presence(state.core).level() == Level::OFF;
    match (is_wanted, is_off) {
        (false, false) => go_off(state, platform),
        (true, true) => {
            platform.trace(TracePoint::On);
            // It publishes that the core idles, then looks for parked vCPUs.
            state.must_decide = true;
            false
        }
        (true, false) | (false, true) => true,
    }
}

/// Has other cores take the vCPUs of this core. Returns whether it is off.
fn go_off<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    switch_out(state, platform);
    if must_stay(state) {
        return false;
    }
    // Publish first, then look: a core that rings a doorbell afterwards pulls its vCPU, and one that has rung it before has kicked this core.
    platform.shared().presence(state.core).publish(Level::OFF);
    platform.trace(TracePoint::Off);
    // Other cores do the hypervisor's own work.
    state.chore_at = Ticks::NEVER;
    state.alarm_is_stale = true;
    if notify_of_left(state, platform) {
        // No core may have taken them, since all ran higher bands.
        state.notify_at = platform.now().saturating_add(state.notify_again_after);
    }
    arm_stale_alarm(state, platform);
    !must_stay(state)
}

/// Whether the core has something to do before it can go off.
fn must_stay<T>(state: &CoreState<T>) -> bool {
    state.must_decide || !state.rung.is_empty()
}

/// Notifies other cores of the vCPUs that are parked here, whose guests run. Returns whether there are any.
fn notify_of_left<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    let mut is_any_left = false;
    // At most 32 times: vCPUs.
    for id in state.parked_here.iter() {
        if !is_parked_here(state, platform, id) {
            state.parked_here.remove(id);
        } else if platform.guest_runs(id) {
            is_any_left = true;
            notify_other_core(state, platform, id, true);
        }
        if platform.is_interrupted() {
            // It looks at the rest later.
            return true;
        }
    }
    is_any_left
}
