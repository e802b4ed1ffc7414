// SPDX-License-Identifier: MIT OR Apache-2.0
//! What tests see of a scheduler, and change in it.

use super::*;

impl Scheduler {
    /// Which vCPUs run out of turn.
    pub fn out_of_turn(&self) -> &OutOfTurn {
        &self.out_of_turn
    }

    /// Its short turns.
    pub fn short_turns(&self) -> &ShortTurns {
        &self.short_turns
    }

    /// As [`OutOfTurn::set_interval`].
    pub fn set_interval_out_of_turn(&mut self, interval: Ticks) {
        self.out_of_turn.set_interval(interval);
    }

    /// How often a vCPU of this core has run out of turn.
    pub fn allowance(&self, vcpu: VcpuId) -> Allowance {
        self.entry(vcpu)
            .map_or(Allowance::default(), |it| it.out_of_turn)
    }
}
