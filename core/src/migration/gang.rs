// SPDX-License-Identifier: MIT OR Apache-2.0
//! The gang of policy `cosched`: its vCPUs run together or not at all. They stay at home.

use super::notify::publish_level;
use super::platform::{Platform, TracePoint};
use super::presence::Level;
use crate::sets::VcpuSet;

/// Before a decision: all vCPUs of the gang wait while one of its cores runs a higher band.
pub(super) fn hold_gang(platform: &mut impl Platform) {
    let Some((band, cores)) = platform.gang() else {
        return;
    };
    let is_apart = cores
        .iter()
        .filter_map(|core| platform.presence(core))
        .any(|it| it.is_above(band));
    platform.trace(TracePoint::CheckedGang(cores.count()));
    let held = is_apart.then_some(band);
    platform.local_mut().scheduler.hold(held);
}

/// After a decision: if this core has begun to run a band above the gang, or no longer does, the gang's other cores are
/// kicked.
pub(super) fn notify_gang(platform: &mut impl Platform) {
    let Some((band, cores)) = platform.gang() else {
        return;
    };
    let level = Level::of(platform.local().scheduler.current_band());
    let was_above = platform.own_presence().is_above(band);
    publish_level(platform, level);
    let is_above = platform.own_presence().is_above(band);
    let own = platform.core();
    if !cores.contains(own) || was_above == is_above {
        return;
    }
    for id in VcpuSet::from_bits(u32::MAX).iter() {
        if platform.band(id) == Some(band)
            && let Some(home) = platform.home(id).filter(|&home| home != own)
        {
            platform.kick(home, id);
        }
    }
    // This core may have held its own vCPU for others whose cores are back.
    platform.local_mut().must_decide |= !is_above;
}
