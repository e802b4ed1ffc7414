// SPDX-License-Identifier: MIT OR Apache-2.0
//! What comes out of a simulation.

use crate::time::TICKS_PER_SECOND;
use spumone_core::schedule::Ticks;

/// What was counted while cores worked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events of cores.
    pub events: u64,
    /// Decisions of schedulers.
    pub decisions: u64,
    /// vCPUs whose registers were loaded onto a core.
    pub switches: u64,
    /// vCPUs taken over by another core than the one that had parked them.
    pub migrations: u64,
    /// vCPUs sent away by their cores.
    pub sendings: u64,
    /// Parkings.
    pub parkings: u64,
    /// Claims that came too late.
    pub lost_claims: u64,
    /// Glances at parking slots.
    pub glances: u64,
    /// Closer looks at parked vCPUs, with a verdict of the policy.
    pub candidates: u64,
    /// Times that another core was told of a parked vCPU.
    pub tellings: u64,
    /// Cores that were asked for that whom they run.
    pub asked: u64,
    /// Kicks sent.
    pub kicks: u64,
    /// Interrupts of the storm that were taken.
    pub storm: u64,
    /// Instructions at EL2.
    pub el2: u64,
}

impl Counters {
    /// Both together.
    pub fn add(&mut self, other: &Self) {
        let Self {
            events,
            decisions,
            switches,
            migrations,
            sendings,
            parkings,
            lost_claims,
            glances,
            candidates,
            tellings,
            asked,
            kicks,
            storm,
            el2,
        } = *other;
        self.events += events;
        self.decisions += decisions;
        self.switches += switches;
        self.migrations += migrations;
        self.sendings += sendings;
        self.parkings += parkings;
        self.lost_claims += lost_claims;
        self.glances += glances;
        self.candidates += candidates;
        self.tellings += tellings;
        self.asked += asked;
        self.kicks += kicks;
        self.storm += storm;
        self.el2 += el2;
    }

    /// Instructions at EL2 for each switch.
    pub fn el2_per_switch(&self) -> f64 {
        ratio(self.el2, self.switches)
    }

    /// Slots glanced at for each decision.
    pub fn glances_per_decision(&self) -> f64 {
        ratio(self.glances, self.decisions)
    }

    /// Cores asked each time that somebody was to be told.
    pub fn asked_per_telling(&self) -> f64 {
        ratio(self.asked, self.tellings)
    }

    /// Kicks for each switch.
    pub fn kicks_per_switch(&self) -> f64 {
        ratio(self.kicks, self.switches)
    }
}

fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

/// What an SMP guest has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Messages that have arrived.
    pub messages: u64,
    /// Time that vCPUs have spun, in ticks; of waits that are over.
    pub spun: u64,
}

/// What comes out, of all systems of the machine together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Virtual time at the end.
    pub time: Ticks,
    /// What the SMP guests have done.
    pub work: Work,
    /// What was counted.
    pub counters: Counters,
    /// The longest time from a real-time timer to the first instruction of its handler.
    pub longest_dispatch: Ticks,
    /// Times that real-time vCPUs were woken.
    pub activations: u64,
    /// The longest time that a vCPU wanted to run and did not.
    pub longest_wait: Ticks,
    /// The same while a core where it could run was idle.
    pub longest_wait_beside_idle: Ticks,
}

impl Outcome {
    /// Messages in a virtual second.
    pub fn throughput(&self) -> f64 {
        self.work.messages as f64 * TICKS_PER_SECOND as f64 / self.time.0.max(1) as f64
    }
}
