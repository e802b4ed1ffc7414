// SPDX-License-Identifier: MIT OR Apache-2.0
//! Results of runs, by label.

use crate::clock::ClockReport;
use crate::console::{self, Console, FIRST_RT};
use crate::hash;
use crate::machine::Run;
use crate::sizes::Sizes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run's result, as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Hash of all inputs: files, settings, QEMU.
    pub key: String,
    /// Label of the run in its experiment.
    pub label: String,
    /// Seed of the clock.
    pub seed: u32,
    /// Instructions in a virtual microsecond.
    pub ipus: u32,
    /// QEMU's arguments, with placeholders instead of paths.
    pub arguments: Vec<String>,
    /// The guests' output.
    pub console: Console,
    /// The clock's report.
    pub clock: ClockReport,
}

impl Outcome {
    /// The result of a run that is not stored, so it has no key.
    pub fn unstored(run: &Run, seed: u32, console: Console, clock: ClockReport) -> Self {
        Self {
            key: String::new(),
            label: run.label.clone(),
            seed,
            ipus: run.clock.ipus,
            arguments: Vec::new(),
            console,
            clock,
        }
    }

    /// Seconds of each repeat, as Linux measured them.
    pub fn seconds(&self) -> Vec<f64> {
        self.linux_numbers("seconds")
    }

    /// Mbit/s of each transfer, as Linux measured them.
    pub fn rates(&self) -> Vec<f64> {
        self.linux_numbers("rates")
    }

    /// A list of numbers that Linux's first scenario reports.
    fn linux_numbers(&self, key: &str) -> Vec<f64> {
        let facts = self.console.linux.first();
        facts
            .map(|facts| console::numbers(facts, key))
            .unwrap_or_default()
    }

    /// A number that Linux's first scenario reports.
    pub fn linux(&self, key: &str) -> Option<f64> {
        console::number(self.console.linux.first()?, key)
    }

    /// A number that what is below the guests reports.
    pub fn system(&self, key: &str) -> Option<f64> {
        console::number(self.console.system.as_ref()?, key)
    }

    /// A number that the first real-time guest reports.
    pub fn rt(&self, key: &str) -> Option<f64> {
        self.rt_of(FIRST_RT, key)
    }

    /// A number that the real-time guest with this name reports.
    pub fn rt_of(&self, guest: &str, key: &str) -> Option<f64> {
        console::number(self.console.rt(guest)?.result.as_ref()?, key)
    }

    /// A time that the first real-time guest reports, `key` in nanoseconds, as instructions of one core.
    pub fn rt_instructions(&self, key: &str) -> Option<f64> {
        self.rt_instructions_of(FIRST_RT, key)
    }

    /// The same of the real-time guest with this name.
    pub fn rt_instructions_of(&self, guest: &str, key: &str) -> Option<f64> {
        Some(self.instructions(self.rt_of(guest, key)?))
    }

    /// Instructions that a core executes in this number of nanoseconds.
    pub fn instructions(&self, ns: f64) -> f64 {
        ns * f64::from(self.ipus) / 1000.0
    }

    /// The most important numbers in one line.
    pub fn numbers(&self) -> String {
        let mut parts = Vec::new();
        let seconds = self.seconds();
        if !seconds.is_empty() {
            let list: Vec<_> = seconds.iter().map(|it| format!("{it:.3}")).collect();
            parts.push(format!("{} s", list.join(" ")));
        }
        if let Some(rate) = self.linux("mbit_per_s") {
            parts.push(format!("{rate} Mbit/s"));
        }
        for (name, _) in self.console.rts() {
            let [min, avg, tail, max] = ["min_ns", "avg_ns", "p99_9_ns", "max_ns"]
                .map(|key| self.rt_instructions_of(name, key));
            if let (Some(min), Some(avg), Some(tail), Some(max)) = (min, avg, tail, max) {
                let whose = match name {
                    FIRST_RT => String::new(),
                    _ => format!(" of {name}"),
                };
                parts.push(format!(
                    "latency{whose} min {min:.0}, average {avg:.0}, 99.9 % {tail:.0}, max {max:.0} instructions"
                ));
            }
        }
        parts.join("; ")
    }
}

/// All results of an experiment.
#[derive(Clone, Debug, Default)]
pub struct Results {
    by_label: BTreeMap<String, Vec<Outcome>>,
    /// Names of runs without a result: label, ` seed `, number.
    pub missing: Vec<String>,
    /// Sizes of what they were started with.
    pub sizes: Sizes,
}

impl Results {
    /// Adds a result.
    pub fn add(&mut self, outcome: Outcome) {
        let outcomes = self.by_label.entry(outcome.label.clone()).or_default();
        outcomes.push(outcome);
        outcomes.sort_by_key(|it| it.seed);
    }

    /// The results of one run, one per seed.
    pub fn of(&self, label: &str) -> &[Outcome] {
        self.by_label.get(label).map_or(&[], Vec::as_slice)
    }

    /// How many runs with this label have no result.
    pub fn missing_of(&self, label: &str) -> usize {
        let names = self.missing.iter();
        names
            .filter(|name| name.rsplit_once(" seed ").is_some_and(|it| it.0 == label))
            .count()
    }

    /// All of them, by label and seed.
    pub fn all(&self) -> impl Iterator<Item = &Outcome> {
        self.by_label.values().flatten()
    }

    /// The values of `value` over all seeds; a run may have several.
    pub fn values<T>(&self, label: &str, values: impl Fn(&Outcome) -> Vec<T>) -> Vec<T> {
        self.of(label).iter().flat_map(values).collect()
    }

    /// One hash over all trace hashes: equal if all runs were equal.
    pub fn hash(&self) -> String {
        let lines: Vec<_> = self
            .all()
            .map(|it| format!("{} {} {}\n", it.label, it.seed, it.clock.hash))
            .collect();
        hash::bytes(lines.concat().as_bytes())
    }
}

#[cfg(test)]
pub mod samples {
    //! Results for tests.

    use super::*;
    use crate::clock::{Host, Profiled};

    /// A result with this console log.
    pub fn outcome(label: &str, seed: u32, log: &str) -> Outcome {
        Outcome {
            key: "0".repeat(64),
            label: label.into(),
            seed,
            ipus: 250,
            arguments: Vec::new(),
            console: Console::parse(log.as_bytes()),
            clock: ClockReport {
                virtual_ns: 1,
                hash: format!("{label}{seed}"),
                outside_events: 0,
                disk_calls: 0,
                cores: Vec::new(),
                exits: Vec::new(),
                marks: Vec::new(),
                profiled: Profiled::default(),
                profile: Vec::new(),
                spin: Vec::new(),
                trails: None,
                host: Host { seconds: 1.0 },
            },
        }
    }

    /// A result of Linux with these times.
    pub fn linux(label: &str, seed: u32, seconds: &[f64]) -> Outcome {
        let list: Vec<_> = seconds.iter().map(f64::to_string).collect();
        let log = format!("linux-result scenario=a ok=1 seconds={}\n", list.join(","));
        outcome(label, seed, &log)
    }

    /// A result of the real-time guest with these latencies in nanoseconds.
    pub fn rt(label: &str, seed: u32, [min, avg, tail, max]: [u64; 4]) -> Outcome {
        let log = format!(
            "histogram, rows of 5 ticks (80 ns)\n  from {min} ns 90 #\n  from {tail} ns 9 #\n\
             rt-result periods=99 lost=0 late=0 min_ns={min} avg_ns={avg} p99_9_ns={tail} \
             max_ns={max} load=0 ticks_hz=62500000\n"
        );
        outcome(label, seed, &log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_seeds_come_together() {
        let mut results = Results::default();
        results.add(samples::linux("a", 2, &[3.0]));
        results.add(samples::linux("a", 1, &[1.0, 2.0]));
        assert_eq!(results.values("a", Outcome::seconds), [1.0, 2.0, 3.0]);
        assert!(results.of("b").is_empty());
    }

    #[test]
    fn the_hash_does_not_depend_on_the_order_in_which_runs_end() {
        let hash = |seeds: [u32; 2]| {
            let mut results = Results::default();
            for seed in seeds {
                results.add(samples::linux("a", seed, &[]));
            }
            results.hash()
        };
        assert_eq!(hash([1, 2]), hash([2, 1]));
        assert_ne!(hash([1, 2]), hash([1, 3]));
    }

    #[test]
    fn time_is_told_in_instructions() {
        let outcome = samples::rt("a", 0, [400, 800, 1200, 4000]);
        assert_eq!(outcome.rt_instructions("max_ns"), Some(1000.0));
        assert_eq!(
            outcome.numbers(),
            "latency min 100, average 200, 99.9 % 300, max 1000 instructions"
        );
    }
}
