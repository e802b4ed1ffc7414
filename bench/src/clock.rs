// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the exact clock counted in a run: the JSON that `testbed/run --json` writes.

use serde::{Deserialize, Serialize};

/// The mark that a guest passes when a measured repeat begins (`guests/linux/programs/mark.h`).
pub const MARK_BEGIN: u64 = 1;
/// The mark at its end.
pub const MARK_END: u64 = 2;
/// The mark that the real-time guest passes when a job has waited longer than any before; its value: how long, in ns.
const MARK_WAIT: u64 = 14;
const NS_PER_SECOND: f64 = 1e9;

/// One run, as the clock saw it. Keys that are not used here are left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockReport {
    /// Virtual time at the end, in nanoseconds.
    pub virtual_ns: u64,
    /// Hash of the whole instruction trace.
    pub hash: String,
    /// What reached the machine from outside, at a moment that the host chose.
    pub outside_events: u64,
    /// Disk requests.
    pub disk_calls: u64,
    /// What each core did.
    pub cores: Vec<Core>,
    /// Visits to EL2 by cause.
    pub visits: Vec<Visits>,
    /// Points in time that guests marked.
    pub marks: Vec<Mark>,
    /// What `profile` and `spin` are of.
    #[serde(default)]
    pub profiled: Profiled,
    /// Functions with most time; without those that are never executed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<Function>,
    /// Lock functions that were entered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spin: Vec<Spin>,
    /// The host's side; says nothing about the machine.
    pub host: Host,
}

/// What one core did. All counts are instructions, all times nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Core {
    /// All instructions.
    pub instructions: u64,
    /// Those at EL0.
    pub el0: u64,
    /// Those at EL1.
    pub el1: u64,
    /// Those at EL2.
    pub el2: u64,
    /// Time executing.
    pub busy_ns: u64,
    /// Time given away by waiting instructions.
    pub polled_ns: u64,
    /// Time asleep.
    pub asleep_ns: u64,
}

/// Visits to EL2 that had one cause. A visit is what a core executes at EL2 without a break.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Visits {
    /// Why EL2 was entered.
    pub cause: String,
    /// The interrupt that was acknowledged first, if one was.
    #[serde(default)]
    pub intid: Option<u32>,
    /// How it ended: the guest that was left "stays", or another one is entered ("switches"), or the
    /// core "sleeps".
    #[serde(default)]
    pub end: String,
    /// How often.
    pub visits: u64,
    /// Instructions in all.
    pub instructions: u64,
    /// Instructions of the longest visit.
    pub most: u64,
    /// The longest stretch, in instructions, in which the core did not look for interrupts.
    #[serde(default)]
    pub longest_deaf: u64,
    /// Where in the code that stretch began: an address, or, once it is stored, a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deaf_from: Option<String>,
    /// Where it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deaf_to: Option<String>,
    /// When the longest visit began, in nanoseconds.
    pub most_at_ns: u64,
    /// On which core it was.
    pub most_on_core: u64,
    /// The steps that they passed, in the order of their numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The way from the last step to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Part>,
}

/// A step of visits, and the way to it from the one before it, or from the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number.
    pub step: u32,
    /// Instructions, over all visits.
    #[serde(flatten)]
    pub part: Part,
}

/// Instructions on a part of the way through visits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Over all visits.
    pub instructions: u64,
    /// In the one with most.
    pub most: u64,
}

/// A point in time that software marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Its number.
    pub mark: u64,
    /// When, in nanoseconds of virtual time.
    pub ns: u64,
    /// The value of X0, if the mark carries it.
    #[serde(default)]
    pub x0: Option<String>,
}

/// The time between two marks, and what all cores together did in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profiled {
    /// When it began, in nanoseconds.
    pub from_ns: u64,
    /// When it ended.
    pub to_ns: u64,
    /// Instructions at EL0.
    pub el0: u64,
    /// Those at EL1.
    pub el1: u64,
    /// Those at EL2.
    pub el2: u64,
    /// Time given away by waiting instructions.
    pub polled_ns: u64,
}

/// What all cores together executed of one function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Exception level.
    pub el: u32,
    /// Its name; [`Function::NO_NAME`] for all that have none.
    pub function: String,
    /// Instructions.
    pub instructions: u64,
    /// Time given away by waiting instructions.
    pub polled_ns: u64,
}

/// What all cores together did in a function that waits for another core.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spin {
    /// Its name.
    pub function: String,
    /// Times that a core came to it.
    pub entries: u64,
    /// Instructions.
    pub instructions: u64,
    /// Time given away by waiting instructions.
    pub polled_ns: u64,
    /// The longest stay, in nanoseconds.
    pub longest_ns: u64,
}

impl Function {
    /// All that has no name and is in the lower half of addresses (TTBR0). Linux's kernel is in the upper half.
    pub const NO_NAME: &str = "?";
    /// All that has no name and is in the upper half: copies of the kernel's entry code.
    pub const NO_NAME_UPPER: &str = "?upper";
}

/// What the run cost the host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// Seconds.
    pub seconds: f64,
}

impl ClockReport {
    /// When the last measured repeat ended, in nanoseconds.
    pub fn last_end(&self) -> Option<u64> {
        let ends = self.marks.iter().filter(|it| it.mark == MARK_END);
        ends.map(|it| it.ns).max()
    }

    /// The longest that a job of the real-time guest has waited, in nanoseconds. Known from runs that end before its report,
    /// too.
    pub fn longest_wait_ns(&self) -> Option<u64> {
        let waits = self.marks.iter().filter(|it| it.mark == MARK_WAIT);
        let values = waits.filter_map(|it| {
            let digits = it.x0.as_deref()?.strip_prefix("0x")?;
            u64::from_str_radix(digits, 16).ok()
        });
        values.max()
    }

    /// Seconds of each measured repeat by the clock, in order: from its first mark to its second.
    pub fn repeats(&self) -> Vec<f64> {
        let of = |number| self.marks.iter().filter(move |it| it.mark == number);
        of(MARK_BEGIN)
            .zip(of(MARK_END))
            .map(|(begin, end)| (end.ns.saturating_sub(begin.ns)) as f64 / NS_PER_SECOND)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_the_testbed_is_read() {
        let text = r#"{ "version": 1, "settings": {"cores": 1}, "virtual_ns": 2000, "hash": "0x12",
            "outside_events": 0, "disk_calls": 0, "rounds": 3, "sleeps": 1,
            "cores": [{"core": 0, "instructions": 7, "el0": 0, "el1": 2, "el2": 5, "el3": 0,
                       "busy_ns": 28, "polled_ns": 0, "asleep_ns": 9}],
            "visits": [{"cause": "IRQ", "visits": 1, "instructions": 5, "most": 5, "most_at_ns": 4,
                        "most_on_core": 0, "steps": [{"step": 3, "instructions": 4, "most": 4}],
                        "rest": {"instructions": 1, "most": 1}, "by_power_of_two": [0, 0, 1]}],
            "profiled": {"from_ns": 1000, "to_ns": 3000, "el0": 2, "el1": 1, "el2": 0, "el3": 0, "polled_ns": 9},
            "spin": [{"function": "osq_lock", "entries": 1, "instructions": 2, "polled_ns": 3, "longest_ns": 4}],
            "profile": [{"el": 1, "function": "?", "instructions": 5, "polled_ns": 0}], "host": {"seconds": 1.5},
            "marks": [{"mark": 1, "core": 0, "el": 0, "ns": 1000, "instructions": 3, "x0": "0x1"},
                      {"mark": 7, "core": 0, "el": 0, "ns": 1100, "instructions": 3},
                      {"mark": 14, "core": 0, "el": 1, "ns": 1200, "instructions": 3, "x0": "0x1f4"},
                      {"mark": 14, "core": 0, "el": 1, "ns": 1300, "instructions": 3, "x0": "0x3e8"},
                      {"mark": 2, "core": 0, "el": 0, "ns": 1500000000, "instructions": 4}]}"#;
        let report: ClockReport = serde_json::from_str(text).unwrap();
        assert_eq!(report.cores[0].el2, 5);
        let step = report.visits[0].steps[0];
        assert_eq!((step.step, step.part.instructions), (3, 4));
        assert_eq!(report.visits[0].rest.unwrap().most, 1);
        assert_eq!(report.repeats(), [1.499999]);
        assert_eq!(report.last_end(), Some(1_500_000_000));
        assert_eq!(report.longest_wait_ns(), Some(1000));
        assert_eq!(report.profiled.to_ns, 3000);
        assert_eq!(report.profile[0].function, Function::NO_NAME);
        assert_eq!(report.spin[0].longest_ns, 4);
    }
}
