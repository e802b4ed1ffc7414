// SPDX-License-Identifier: MIT OR Apache-2.0
//! Costs of the hypervisor's steps, in instructions: what the testbed counts (`docs/results/latency.md`), rounded.

use crate::time::us;
use spumone_core::migration::PolicyRules;
use spumone_core::schedule::Ticks;

/// Instructions of each step at EL2, and the delay of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// An interrupt or a trap: exit and entry.
    pub exit: u64,
    /// A decision of the scheduler.
    pub decide: u64,
    /// Reading a parking slot.
    pub read_slot: u64,
    /// Examining a parked vCPU, with the policy's verdict.
    pub candidate: u64,
    /// Claiming and adopting a vCPU.
    pub claim: u64,
    /// Parking a vCPU.
    pub park: u64,
    /// Saving a vCPU's registers.
    pub save: u64,
    /// Loading a vCPU's registers.
    pub load: u64,
    /// Asking one core which vCPU it runs.
    pub ask: u64,
    /// Kicking a core.
    pub kick: u64,
    /// A guest's SGI, trapped.
    pub sgi: u64,
    /// A guest's WFI, trapped.
    pub wfi: u64,
    /// A step of the governor.
    pub govern: u64,
    /// Turning a core off, in ticks: as boards/qemu-virt.toml says.
    pub turn_off: u64,
    /// Turning a core on, in ticks.
    pub turn_on: u64,
    /// From sending an interrupt to its arrival at another core, in ticks.
    pub delivery: u64,
}

impl Costs {
    /// The costs of the hypervisor.
    pub const SPUMONE: Self = Self {
        exit: 250,
        decide: 300,
        read_slot: 6,
        candidate: 60,
        claim: 250,
        park: 60,
        save: 400,
        load: 400,
        ask: 8,
        kick: 60,
        sgi: 250,
        wfi: 200,
        govern: 250,
        turn_off: us(5).0,
        turn_on: us(5).0,
        delivery: 200,
    };

    /// A machine without a hypervisor: only interrupts take time.
    pub const BARE: Self = Self {
        exit: 0,
        decide: 0,
        read_slot: 0,
        candidate: 0,
        claim: 0,
        park: 0,
        save: 0,
        load: 0,
        ask: 0,
        kick: 0,
        sgi: 0,
        wfi: 0,
        govern: 0,
        turn_off: 0,
        turn_on: 0,
        delivery: 200,
    };

    /// The longest time from a real-time vCPU's timer to its first instruction: the step at EL2 that may be under way, in
    /// a system with this number of vCPUs and cores, and the switch to the real-time vCPU.
    /// Under `delay`, also the time that the policy waits.
    pub fn bound_of_dispatch(&self, rules: &PolicyRules, vcpus: usize, cores: usize) -> Ticks {
        let (vcpus, cores) = (vcpus as u64, cores as u64);
        let look = vcpus * (self.read_slot + self.candidate + self.claim + self.park);
        let tell = cores * self.ask + self.kick;
        // Twice: a decision that finds its vCPU claimed by another core decides again, and what is left parked is announced
        // again.
        let mut step = self.exit + 2 * self.decide + look + 2 * tell + vcpus * self.kick;
        if rules.returns_home || rules.excludes_kernels || rules.max_stay.is_some() {
            // All vCPUs that are here are sent away.
            step += self.save + vcpus * (self.park + tell);
        }
        if rules.gang {
            step += cores * self.ask + vcpus * self.kick;
        }
        if let Some(delay) = rules.max_delay {
            // The check at the end of the delay is a step of its own.
            step = 2 * step + delay.0;
        }
        Ticks(step + self.exit + self.decide + self.save + self.load)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_of_cores_cost_is_what_the_board_file_says() {
        let board = include_str!("../../boards/qemu-virt.toml");
        let [off, on] = [Costs::SPUMONE.turn_off, Costs::SPUMONE.turn_on].map(|it| it / us(1).0);
        assert!(board.contains(&format!("[power]\noff = \"{off}us\"\non = \"{on}us\"\n")));
    }
}
