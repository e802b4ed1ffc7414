// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a policy has cores do on their own, and the trait of all policies.

use super::view::{Candidate, Fetcher, Verdict};
use crate::schedule::Ticks;

/// What a policy has cores do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyRules {
    /// How long a core keeps a preempted vCPU of the lowest band that moves before it parks it.
    pub park_delay: Ticks,
    /// While a wanted vCPU of its guest waits for its turn on the core, a vCPU has the core for this long at least; `None`: for its whole time slice.
    pub short_turn: Option<Ticks>,
    /// Whether a core leaves the vCPUs of its band that other cores have parked, as long as another vCPU of that band waits on it. The policy is then
    /// asked only about vCPUs that are cut off.
    pub leaves_shared_cores: bool,
    /// Whether vCPUs return to their home core as soon as it could run them.
    pub returns_home: bool,
    /// Whether guests' kernels are kept off cores that are the home of a vCPU of a higher band.
    pub excludes_kernels: bool,
    /// After how long a running vCPU is sent away, although no other vCPU wants its core.
    pub max_stay: Option<Ticks>,
    /// For how long at most a preemption is deferred while the running vCPU may hold a lock.
    pub max_delay: Option<Ticks>,
    /// Whether all vCPUs of a guest wait while one of its cores runs a higher band.
    pub gang: bool,
}

/// One policy.
pub(super) trait Decide {
    /// What it has cores do.
    fn rules(&self) -> PolicyRules;

    /// Whether the core `fetcher` takes the candidate.
    fn verdict(&self, _: &Fetcher, _: &Candidate) -> Verdict {
        Verdict::Leave
    }
}
