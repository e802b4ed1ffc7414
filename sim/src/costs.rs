// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the hypervisor's steps cost, in instructions. Rounded from what the testbed counts (`docs/results/latency.md`).

use spumone_core::migration::PolicyRules;
use spumone_core::schedule::Ticks;

/// Instructions of each step at EL2, and how long an interrupt is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// An interrupt or a trap: from the guest to EL2 and back.
    pub exit: u64,
    /// A decision of the scheduler.
    pub decide: u64,
    /// A glance at a parking slot.
    pub glance: u64,
    /// A closer look at a parked vCPU, with the policy's verdict.
    pub candidate: u64,
    /// Taking a vCPU over.
    pub take: u64,
    /// Parking one.
    pub park: u64,
    /// Saving a vCPU's registers.
    pub save: u64,
    /// Loading a vCPU's registers.
    pub load: u64,
    /// Asking one core whom it runs.
    pub ask: u64,
    /// Kicking a core.
    pub kick: u64,
    /// A guest's SGI, trapped.
    pub sgi: u64,
    /// A guest's WFI, trapped.
    pub wfi: u64,
    /// From sending an interrupt to its arrival at another core.
    pub flight: u64,
}

impl Costs {
    /// The hypervisor's.
    pub const SPUMONE: Self = Self {
        exit: 250,
        decide: 300,
        glance: 6,
        candidate: 60,
        take: 250,
        park: 60,
        save: 400,
        load: 400,
        ask: 8,
        kick: 60,
        sgi: 250,
        wfi: 200,
        flight: 200,
    };

    /// A machine without a hypervisor: interrupts travel, all else is free.
    pub const BARE: Self = Self {
        exit: 0,
        decide: 0,
        glance: 0,
        candidate: 0,
        take: 0,
        park: 0,
        save: 0,
        load: 0,
        ask: 0,
        kick: 0,
        sgi: 0,
        wfi: 0,
        flight: 200,
    };

    /// The longest that the real-time vCPU may wait, from its timer to its first instruction: for the step at EL2 that is
    /// under way, of a system with so many vCPUs on so many cores, then for its own switch.
    /// Under `delay`, for that as well.
    pub fn bound_of_dispatch(&self, rules: &PolicyRules, vcpus: usize, cores: usize) -> Ticks {
        let (vcpus, cores) = (vcpus as u64, cores as u64);
        let look = vcpus * (self.glance + self.candidate + self.take + self.park);
        let tell = cores * self.ask + self.kick;
        // Twice: a decision that finds a vCPU gone decides again; what a take leaves over is told as well.
        let mut step = self.exit + 2 * self.decide + look + 2 * tell + vcpus * self.kick;
        if rules.returns_home || rules.excludes_kernels || rules.max_stay.is_some() {
            // All that are here are sent away.
            step += self.save + vcpus * (self.park + tell);
        }
        if rules.gang {
            step += cores * self.ask + vcpus * self.kick;
        }
        if let Some(delay) = rules.max_delay {
            // The look at the end of it begins with a step of its own.
            step = 2 * step + delay.0;
        }
        Ticks(step + self.exit + self.decide + self.save + self.load)
    }
}
