// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the policies have in common or not: what the checks and the image go by.

use crate::packed::Policy;

impl Policy {
    /// All policies.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Steal,
        Self::OnDemand,
        Self::Trap,
        Self::Delay,
        Self::Balance,
        Self::Cosched,
        Self::Random,
    ];

    /// Whether vCPUs change cores under this policy.
    pub const fn moves_vcpus(self) -> bool {
        match self {
            Self::None | Self::Delay | Self::Cosched => false,
            Self::Steal | Self::OnDemand | Self::Trap | Self::Balance | Self::Random => true,
        }
    }

    /// Whether the core keeps a vCPU preempted by a higher band for a while before it parks it.
    pub const fn has_park_delay(self) -> bool {
        matches!(self, Self::Steal | Self::Trap | Self::Balance)
    }

    /// Whether guests' kernels are kept off cores that are the home of a vCPU of a higher band.
    pub const fn excludes_kernels(self) -> bool {
        matches!(self, Self::Trap)
    }

    /// Whether a preemption is deferred while the running vCPU may hold a lock.
    pub const fn defers_preemption(self) -> bool {
        matches!(self, Self::Delay)
    }

    /// Whether all vCPUs of a guest wait while one of its cores runs a higher band.
    pub const fn has_gang(self) -> bool {
        matches!(self, Self::Cosched)
    }
}
