// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gang of policy `cosched`: its vCPUs run together or not at all. They stay at home.

use super::notify::publish_level;
use super::platform::{Platform, State, TracePoint};
use crate::sets::VcpuSet;

/// Before a decision: makes the gang's vCPU on this core wait while one of the gang's cores runs a higher band. Does
/// nothing on a core without vCPUs of the gang, which is not notified when the wait is over.
pub(super) fn pause_gang<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let gang = platform.shared().roles.gang;
    let Some((band, cores)) = gang.filter(|(_, cores)| cores.contains(state.core)) else {
        return;
    };
    // At most 8 times: cores.
    let is_apart = cores
        .iter()
        .any(|core| platform.shared().presence(core).is_above(band));
    platform.trace(TracePoint::CheckedGang(cores.count()));
    let paused = is_apart.then_some(band);
    state.scheduler.pause_up_to(paused);
}

/// After a decision: kicks the gang's other cores, if this core has begun to run a band above the gang, or no longer
/// does.
pub(super) fn notify_gang<P: Platform>(state: &mut State<P>, platform: &mut P) {
    let Some((band, cores)) = platform.shared().roles.gang else {
        return;
    };
    let level = state.scheduler.current_level();
    let was_above = platform.shared().presence(state.core).is_above(band);
    publish_level(state, platform, level);
    let is_above = platform.shared().presence(state.core).is_above(band);
    let own = state.core;
    if !cores.contains(own) || was_above == is_above {
        return;
    }
    // At most 32 times: vCPUs.
    for id in VcpuSet::from_bits(u32::MAX).iter() {
        if let Some(vcpu) = platform.shared().vcpu(id)
            && vcpu.band == band
            && vcpu.home != own
        {
            let home = vcpu.home;
            platform.kick(home, id);
        }
    }
    // This core's own vCPU may have waited for cores that run no higher band any more.
    state.must_decide |= !is_above;
}
