// SPDX-License-Identifier: MIT OR Apache-2.0
//! When the turn of a vCPU ends that shares its core with others of its band.

use super::platform::{Platform, State};
use super::slot::{Parked, ParkedState};
use crate::schedule::Ticks;
use spumone_config::types::MAX_PCPUS;

/// When the turn of the running vCPU ends, because another vCPU of its band waits for its turn here; [`Ticks::NEVER`]: no vCPU waits. The turn ends before the
/// time slice if a vCPU of the same guest waits that is wanted.
pub(super) fn turn_end<P: Platform>(state: &State<P>, platform: &P) -> Ticks {
    let waits = state.scheduler.time_slice().filter(|it| it.same_band_waits);
    let Some(slice) = waits else {
        return Ticks::NEVER;
    };
    let short = state.rules.short_turn;
    let early = short.and_then(|short| state.scheduler.early_end(short));
    match early.filter(|&early| early < slice.end) {
        Some(early) if wanted_waits(state, platform) => early,
        _ => slice.end,
    }
}

/// Whether a wanted vCPU of the running vCPU's guest waits for its turn here. A vCPU of another guest shares no lock with the running vCPU, and would only get
/// more of the core.
fn wanted_waits<P: Platform>(state: &State<P>, platform: &P) -> bool {
    let shared = platform.shared();
    let guest_of = |id| shared.vcpu(id).map(|it| it.guest);
    let guest = state.scheduler.current().and_then(guest_of);
    let wanted = Parked {
        host: state.core,
        state: ParkedState::Wanted,
    };
    let mut first = state.scheduler.waiting().take(MAX_PCPUS);
    // At most 8 times: those that wait longest.
    first.any(|id| shared.slot(id).parked() == Some(wanted) && guest_of(id) == guest)
}

/// This core has parked a vCPU after the decision by which that vCPU lost the core. If the parked vCPU is wanted, the turn of the running vCPU ends sooner.
#[inline(always)]
pub(super) fn arm_short_turn<P: Platform>(state: &mut State<P>, platform: &P) {
    if state.rules.short_turn.is_some() && state.scheduler.same_band_waits() {
        state.fetch_at = state.fetch_at.min(turn_end(state, platform));
        state.alarm_is_stale = true;
    }
}
