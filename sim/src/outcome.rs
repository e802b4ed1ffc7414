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
    /// Work of pieces that are done, in ticks.
    pub pieces: u64,
    /// Time that vCPUs have spun, in ticks; without waits that are not over.
    pub spun: u64,
}

/// How long something took each time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How often it happened.
    pub count: u64,
    /// How often it did not happen in time.
    pub missed: u64,
    /// The sum of the times.
    pub sum: Ticks,
    /// The longest.
    pub longest: Ticks,
}

impl Times {
    /// It took so long.
    pub fn add(&mut self, time: Ticks) {
        self.count += 1;
        self.sum = Ticks(self.sum.0 + time.0);
        self.longest = self.longest.max(time);
    }

    /// It did not happen in time.
    pub fn miss(&mut self) {
        self.missed += 1;
    }

    /// The mean in ticks; `None`: it never happened in time.
    pub fn mean(&self) -> Option<f64> {
        (self.count != 0).then(|| ratio(self.sum.0, self.count))
    }

    /// Adds other times of the same.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.missed += other.missed;
        self.sum = Ticks(self.sum.0 + other.sum.0);
        self.longest = self.longest.max(other.longest);
    }
}

/// What cores that go off and come on have done, from the load's begin to its end, the sum over all systems. Times are in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerOutcome {
    /// From begin to end.
    pub time: u64,
    /// For how long cores were on.
    pub on: u64,
    /// For how long cores executed vCPUs.
    pub works: u64,
    /// For how long cores would have been on if at each time as many were on as work, and at least one of each system.
    pub least: u64,
    /// How often a core went off.
    pub went_off: u64,
    /// How often one came on.
    pub came_on: u64,
    /// From each begin of a load on all vCPUs until all cores of the system work; missed: the load ended before that.
    pub until_all_work: Times,
    /// From each end of the load until one core of the system is on; missed: the load began again, or the simulation ended, before that.
    pub until_one_is_on: Times,
}

impl PowerOutcome {
    /// Adds that of another system.
    pub fn add(&mut self, other: &Self) {
        self.time += other.time;
        self.on += other.on;
        self.works += other.works;
        self.least += other.least;
        self.went_off += other.went_off;
        self.came_on += other.came_on;
        self.until_all_work.merge(&other.until_all_work);
        self.until_one_is_on.merge(&other.until_one_is_on);
    }
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
    /// From when a piece of work of [`Workload::Duty`](crate::Workload::Duty) was due until it was done.
    pub pieces: Times,
    /// What cores that go off have done; `None`: all cores stay on.
    pub power: Option<PowerOutcome>,
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
