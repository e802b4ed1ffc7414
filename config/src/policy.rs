// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the policies have in common or not: what the checks and the image go by. Each answer names all policies, so that
//! the compiler asks for that of a new one.

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

    /// Whether the policy also serves a guest whose vCPUs share one core: a vCPU that waits for a lock gives the core to the vCPU that holds the lock.
    pub const fn serves_one_core(self) -> bool {
        match self {
            Self::Steal => true,
            Self::None | Self::OnDemand | Self::Trap | Self::Delay => false,
            Self::Balance | Self::Cosched | Self::Random => false,
        }
    }

    /// Whether the core keeps a vCPU preempted by a higher band for a while before it parks it.
    pub const fn has_park_delay(self) -> bool {
        match self {
            Self::Steal | Self::Trap | Self::Balance => true,
            Self::None | Self::OnDemand | Self::Delay | Self::Cosched | Self::Random => false,
        }
    }

    /// Whether guests' kernels are kept off cores that are the home of a vCPU of a higher band.
    pub const fn excludes_kernels(self) -> bool {
        match self {
            Self::Trap => true,
            Self::None | Self::Steal | Self::OnDemand => false,
            Self::Delay | Self::Balance | Self::Cosched | Self::Random => false,
        }
    }

    /// Whether a preemption is deferred while the running vCPU may hold a lock.
    pub const fn defers_preemption(self) -> bool {
        match self {
            Self::Delay => true,
            Self::None | Self::Steal | Self::OnDemand => false,
            Self::Trap | Self::Balance | Self::Cosched | Self::Random => false,
        }
    }

    /// Whether all vCPUs of a guest wait while one of its cores runs a higher band.
    pub const fn has_gang(self) -> bool {
        match self {
            Self::Cosched => true,
            Self::None | Self::Steal | Self::OnDemand => false,
            Self::Trap | Self::Delay | Self::Balance | Self::Random => false,
        }
    }
}
