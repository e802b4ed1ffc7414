// SPDX-License-Identifier: MIT OR Apache-2.0
//! The results of a simulation.

use crate::time::TICKS_PER_SECOND;
use spumone_core::schedule::Ticks;

/// Counters of the cores' work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events of cores.
    pub events: u64,
    /// Decisions of schedulers.
    pub decisions: u64,
    /// vCPUs whose registers were loaded onto a core.
    pub switches: u64,
    /// vCPUs that a core has claimed and that another core had parked.
    pub migrations: u64,
    /// vCPUs that their cores have sent away.
    pub sent_away: u64,
    /// vCPUs that were parked.
    pub parked_count: u64,
    /// Claims that failed because another core was first.
    pub lost_claims: u64,
    /// Parking slots read.
    pub slots_read: u64,
    /// Parked vCPUs examined, with a verdict of the policy.
    pub candidates: u64,
    /// Times that another core was notified of a parked vCPU.
    pub notifications: u64,
    /// Cores that were asked for that which vCPU they run.
    pub asked: u64,
    /// Kicks sent.
    pub kicks: u64,
    /// Interrupts of the storm that were handled.
    pub storm: u64,
    /// Times that a core went off.
    pub off: u64,
    /// Instructions at EL2.
    pub el2: u64,
}

impl Counters {
    /// Adds the counters of another core.
    pub fn add(&mut self, other: &Self) {
        let Self {
            events,
            decisions,
            switches,
            migrations,
            sent_away,
            parked_count,
            lost_claims,
            slots_read,
            candidates,
            notifications,
            asked,
            kicks,
            storm,
            off,
            el2,
        } = *other;
        self.events += events;
        self.decisions += decisions;
        self.switches += switches;
        self.migrations += migrations;
        self.sent_away += sent_away;
        self.parked_count += parked_count;
        self.lost_claims += lost_claims;
        self.slots_read += slots_read;
        self.candidates += candidates;
        self.notifications += notifications;
        self.asked += asked;
        self.kicks += kicks;
        self.storm += storm;
        self.off += off;
        self.el2 += el2;
    }

    /// Instructions at EL2 per switch.
    pub fn el2_per_switch(&self) -> f64 {
        ratio(self.el2, self.switches)
    }

    /// Parking slots read per decision.
    pub fn slots_read_per_decision(&self) -> f64 {
        ratio(self.slots_read, self.decisions)
    }

    /// Cores asked per notification.
    pub fn asked_per_notification(&self) -> f64 {
        ratio(self.asked, self.notifications)
    }

    /// Kicks per switch.
    pub fn kicks_per_switch(&self) -> f64 {
        ratio(self.kicks, self.switches)
    }
}

fn ratio(count: u64, of: u64) -> f64 {
    count as f64 / of.max(1) as f64
}

/// What an SMP guest has achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Messages received.
    pub messages: u64,
    /// Time that vCPUs have spun, in ticks; without waits that are not over.
    pub spun: u64,
}

/// The result, the sum over all systems of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Virtual time at the end.
    pub time: Ticks,
    /// What the SMP guests have achieved.
    pub work: Work,
    /// The counters.
    pub counters: Counters,
    /// The longest time from a real-time timer to the first instruction of its handler.
    pub longest_dispatch: Ticks,
    /// Times that real-time vCPUs were woken.
    pub activations: u64,
    /// The longest time that a vCPU was runnable.
    pub longest_wait: Ticks,
    /// The same while a core on which it could run was idle.
    pub longest_wait_beside_idle: Ticks,
}

impl Outcome {
    /// Messages per virtual second.
    pub fn throughput(&self) -> f64 {
        self.work.messages as f64 * TICKS_PER_SECOND as f64 / self.time.0.max(1) as f64
    }
}
