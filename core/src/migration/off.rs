// SPDX-License-Identifier: MIT OR Apache-2.0
//! A core goes off, and comes back: see [`power`](crate::power).
//!
//! For other cores, a core that is off is one that runs a band above all vCPUs: they take over the vCPUs that sleep there, do not notify it of
//! parked vCPUs, and pull a vCPU from it for which an interrupt comes. So nothing is new in the protocol.
//!
//! A core goes off only while it idles, so all its vCPUs sleep or are off. Whatever it is to decide about (a vCPU of it has woken before another
//! core has taken that vCPU, or it is kicked by a core that has seen it idle) brings it back: each decision publishes what the core runs. When the core
//! idles again, and is still not wanted, it goes off again.

use super::notify::{To, notify_other_core};
use super::park::is_parked_here;
use super::platform::{Platform, State, TracePoint};
use super::switch::switch_out;
use crate::schedule::{Level, Ticks};

/// The core idles, and is about to wait for an interrupt. If it [is wanted](Platform::is_wanted), and off, it comes back; if it is not, and on,
/// it takes a step to go off.
/// Returns whether there was something to do: then the loop begins anew, since the core may have to decide.
///
/// All vCPUs that have this core as their home must be ones that may migrate.
pub fn follow_wish<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    let is_off = platform.shared().presence(state.core).level() == Level::OFF;
    match (platform.is_wanted(state.core), is_off) {
        (true, false) | (false, true) => return false,
        (true, true) => {
            platform.trace(TracePoint::On);
            // The decision publishes that the core idles, then looks for parked vCPUs.
            state.must_decide = true;
        }
        // The vCPU sleeps. It is parked, unless an interrupt has come for it meanwhile.
        (false, false) if state.loaded.is_some() => switch_out(state, platform),
        (false, false) => go_off(state, platform),
    }
    true
}

/// Has other cores take the vCPUs of this core, all of which are parked.
fn go_off<P: Platform>(state: &mut State<P>, platform: &mut P) {
    // Publish first, then look: a core that rings a doorbell afterwards pulls its vCPU, and one that has rung it before has kicked this core.
    platform.shared().presence(state.core).publish(Level::OFF);
    platform.trace(TracePoint::Off);
    // Other cores do the hypervisor's own work.
    state.chore_at = Ticks::NEVER;
    if notify_of_left(state, platform) {
        // No core may take them, since all run higher bands.
        state.notify_at = platform.now().saturating_add(state.notify_again_after);
    }
    // Armed before the core waits.
    state.alarm_is_stale = true;
}

/// Whether this core, which idles, is off, has no vCPU and waits for no time: whatever it is to do then comes with a kick or with mail.
pub fn is_at_rest<P: Platform>(state: &State<P>, platform: &P) -> bool {
    platform.shared().presence(state.core).level() == Level::OFF
        && state.tokens().is_empty()
        && !state.must_decide
        && state.rung.is_empty()
        && !state.alarm_is_stale
        && state.alarm == Ticks::NEVER
}

/// Notifies other cores of the vCPUs that are parked here, whose guests run. Returns whether there are any.
fn notify_of_left<P: Platform>(state: &mut State<P>, platform: &mut P) -> bool {
    let mut is_any_left = false;
    // At most 32 times: vCPUs.
    for id in state.parked_here.iter() {
        if !is_parked_here(state, platform, id) {
            state.no_longer_parked_here(id);
        } else if platform.guest_runs(id) {
            is_any_left = true;
            notify_other_core(state, platform, id, To::Any);
        }
        if platform.is_interrupted() {
            // It looks at the rest later.
            return true;
        }
    }
    is_any_left
}
