// SPDX-License-Identifier: MIT OR Apache-2.0
//! Candidates and cores for the tests of policies.

use super::view::{Candidate, Fetcher, Running};
use crate::migration::slot::{Parked, ParkedState};
use crate::schedule::{Band, Ticks};
use spumone_config::types::PcpuId;

/// Home core and host core of the candidates.
pub const HOME: PcpuId = PcpuId(0);
/// Another core.
pub const OTHER: PcpuId = PcpuId(1);
/// A band above the candidates' band.
pub const HIGH: Band = match Band::new(1) {
    Some(band) => band,
    None => unreachable!(),
};

/// A vCPU that has been cut off on its home core since time 0.
pub fn candidate(state: ParkedState) -> Candidate {
    Candidate {
        parked: Parked { host: HOME, state },
        band: Band::LOWEST,
        home: HOME,
        since: Ticks(0),
        is_cut_off: true,
    }
}

/// Core [`OTHER`], where a vCPU of the same band runs.
pub fn busy(now: u64, since: u64, slice_end: u64) -> Fetcher {
    Fetcher {
        core: OTHER,
        now: Ticks(now),
        running: Some(Running {
            band: Band::LOWEST,
            since: Ticks(since),
            slice_end: Ticks(slice_end),
        }),
        same_band_waits: false,
        excludes_kernels: false,
    }
}

/// Core [`OTHER`], which idles.
pub fn idle(now: u64) -> Fetcher {
    Fetcher {
        running: None,
        ..busy(now, 0, 0)
    }
}
