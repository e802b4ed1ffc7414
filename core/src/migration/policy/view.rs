// SPDX-License-Identifier: MIT OR Apache-2.0
//! The input and the output of a policy: a parked vCPU, the core that may fetch it, and the verdict.

use crate::migration::slot::Parked;
use crate::schedule::{Band, Ticks};
use spumone_config::types::PcpuId;

/// A vCPU that another core has parked, as the core that may fetch it sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The core that parked it, and what it was doing.
    pub parked: Parked,
    /// Its band.
    pub band: Band,
    /// Its home core.
    pub home: PcpuId,
    /// The time at which it was parked.
    pub since: Ticks,
    /// Whether its host core runs a higher band, so that the priority mask holds back its interrupts and timers there.
    pub is_cut_off: bool,
}

/// The vCPU that runs on the core that may fetch the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its band.
    pub band: Band,
    /// The time at which its time slice began.
    pub since: Ticks,
    /// When its time slice is over.
    pub slice_end: Ticks,
}

/// The core that may fetch the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetcher {
    /// Which core it is.
    pub core: PcpuId,
    /// The time.
    pub now: Ticks,
    /// The vCPU that runs; `None`: the core idles.
    pub running: Option<Running>,
    /// Whether another vCPU of the running one's band waits here already.
    pub same_band_waits: bool,
    /// Whether kernels of guests that migrate are kept off this core.
    pub excludes_kernels: bool,
}

impl Fetcher {
    /// Whether the core runs a band above the candidate's, so that the candidate would not run there.
    pub(super) fn runs_higher_band_than(&self, candidate: &Candidate) -> bool {
        self.running.is_some_and(|it| it.band > candidate.band)
    }

    /// The verdict to swap the running vCPU for the candidate, once the time `due` has come.
    pub(super) fn swap_at(&self, due: Ticks) -> Verdict {
        if self.now < due {
            Verdict::Later(due)
        } else {
            Verdict::Swap
        }
    }
}

/// What the core does with the candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It leaves the candidate where it is.
    Leave,
    /// It looks again at this time.
    Later(Ticks),
    /// It becomes the candidate's host core. The candidate runs if no other vCPU wants the core.
    Take,
    /// As `Take`, and the running vCPU gives up its time slice, after its [grace](crate::migration::Grace).
    Swap,
}
