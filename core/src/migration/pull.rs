// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pulling: an interrupt or a start has come for a vCPU whose host core does not hear it, because it runs a higher band.
//! The core that sends it fetches the vCPU.

use super::fetch::{become_host, is_cut_off};
use super::notify::notify_other_core;
use super::park::acquire_token;
use super::platform::Platform;
use spumone_config::types::{PcpuId, VcpuId};

/// An interrupt was rung, or a start is asked for, for a vCPU of core `host`. If the vCPU is cut off there: one that is
/// runnable is marked as wanted, and the core that claims it finds what was rung; one that waits is claimed, or, where
/// it would be cut off here too, another core is notified.
///
/// Returns whether the vCPU is wanted or claimed. If not, the host is to be kicked.
pub(super) fn pull_for_interrupt(platform: &mut impl Platform, id: VcpuId, host: PcpuId) -> bool {
    let local = platform.local();
    if !local.pulls_for_interrupts || !local.moves(id) || !is_cut_off(platform, id, host) {
        return false;
    }
    let Some(seen) = platform.slot(id).parked() else {
        return false;
    };
    let is_served = if seen.state.is_runnable() {
        platform.slot(id).mark_wanted(seen)
    } else if platform.local().scheduler.current_band() > platform.band(id) {
        notify_other_core(platform, id, true);
        false
    } else {
        let now = platform.now();
        become_host(platform, id, seen, now)
    };
    platform.local_mut().must_decide |= is_served;
    is_served
}

/// A vCPU that is off is to start: acquires its token if it is here, or parked by a core that does not hear the start.
/// Returns whether this core has the token. If not, the host is to be sent mail.
pub fn pull_for_start(platform: &mut impl Platform, id: VcpuId) -> bool {
    acquire_token(platform, id)
        || platform.host(id).is_some_and(|host| {
            host != platform.core()
                && pull_for_interrupt(platform, id, host)
                && acquire_token(platform, id)
        })
}
