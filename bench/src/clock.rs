// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the exact clock counted in a run: the JSON that `testbed/run --json` writes.

use serde::{Deserialize, Serialize};

/// The mark that a guest passes when a measured repeat begins (`guests/linux/programs/mark.h`).
pub const MARK_BEGIN: u64 = 1;
/// The mark at its end.
pub const MARK_END: u64 = 2;
/// The mark that a guest passes right before it restarts itself.
pub const MARK_RESET: u64 = 10;
/// The mark that the real-time guest passes in the first job after its start.
pub const MARK_FIRST: u64 = 11;
/// The mark that Linux passes when a real-time thread is about to start.
pub const MARK_THREAD: u64 = 12;
/// The mark that Linux's first process passes.
pub const MARK_INIT: u64 = 13;
/// The mark that the real-time guest passes when a job that counts has waited longer than all before; its value is the wait in ns.
pub const MARK_WAIT: u64 = 14;
/// The mark that Linux passes after its last result.
pub const MARK_DONE: u64 = 15;
/// The mark that the probe passes when it has set the mode of `[power]`; its value is the mode, as in the call.
pub const MARK_MODE: u64 = 16;
const NS_PER_SECOND: f64 = 1e9;

/// The clock's report on one run. Unused keys are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockReport {
    /// Virtual time at the end, in nanoseconds.
    pub virtual_ns: u64,
    /// Hash of the whole instruction trace.
    pub hash: String,
    /// Events from outside the machine, at times that depend on the host.
    pub outside_events: u64,
    /// Disk requests.
    pub disk_calls: u64,
    /// Counts of each core.
    pub cores: Vec<Core>,
    /// Exits to EL2 by cause.
    #[serde(rename = "visits")]
    pub exits: Vec<Exits>,
    /// Points in time that guests marked.
    pub marks: Vec<Mark>,
    /// The part of the run that `profile` and `spin` cover.
    #[serde(default)]
    pub profiled: Profiled,
    /// Functions with most time; functions that are never executed are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub profile: Vec<Function>,
    /// Lock functions that were entered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spin: Vec<Spin>,
    /// The code that the exits named with `--trails` executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trails: Option<Trails>,
    /// Host time; it has no influence on the machine.
    pub host: Host,
}

/// The code that exits of one kind executed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trails {
    /// How many exits there were.
    pub visits: u64,
    /// Their blocks.
    pub blocks: Vec<Block>,
}

/// Code without a branch in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Its address, hexadecimal.
    pub start: String,
    /// Its length.
    pub instructions: u64,
    /// How often it was executed.
    pub runs: u64,
}

impl Block {
    /// Its address.
    pub fn address(&self) -> Option<u64> {
        u64::from_str_radix(self.start.strip_prefix("0x")?, 16).ok()
    }
}

/// Counts of one core: instructions, and times in nanoseconds.
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
    /// Time lost by WFE and YIELD.
    pub polled_ns: u64,
    /// Time asleep.
    pub asleep_ns: u64,
}

/// Exits to EL2 with one cause. An exit is all that a core executes at EL2 up to the next entry to a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exits {
    /// Why EL2 was entered.
    pub cause: String,
    /// The interrupt that was acknowledged first, if one was.
    #[serde(default)]
    pub intid: Option<u32>,
    /// How they ended: the core "stays" with its guest, "switches" to another one, or
    /// "sleeps".
    #[serde(default)]
    pub end: String,
    /// Number of exits.
    #[serde(rename = "visits")]
    pub count: u64,
    /// Sum of their instructions.
    pub instructions: u64,
    /// Instructions of the longest exit.
    pub most: u64,
    /// The longest stretch, in instructions, without a check for interrupts.
    #[serde(default)]
    pub longest_deaf: u64,
    /// Where in the code it began: an address, or, in stored results, a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deaf_from: Option<String>,
    /// Where it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deaf_to: Option<String>,
    /// The code of that stretch, if `--trails` was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deaf_blocks: Vec<Block>,
    /// When the longest exit began, in nanoseconds.
    pub most_at_ns: u64,
    /// The core of the longest exit.
    pub most_on_core: u64,
    /// The steps that the exits passed, in ascending order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// The part from the last step to the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest: Option<Part>,
}

/// A step, and the part from the step before it, or from the start of the exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number.
    pub step: u32,
    /// Instructions of that part.
    #[serde(flatten)]
    pub part: Part,
}

/// Instructions of a part of exits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Sum over all exits.
    pub instructions: u64,
    /// Most in one exit.
    pub most: u64,
}

/// A point in time that software has marked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Its number.
    pub mark: u64,
    /// The core that passed it; `None` in results of older versions.
    #[serde(default)]
    pub core: Option<u32>,
    /// When, in nanoseconds of virtual time.
    pub ns: u64,
    /// The value of X0, if the mark has one.
    #[serde(default)]
    pub x0: Option<String>,
}

impl Mark {
    /// Its value.
    pub fn value(&self) -> Option<u64> {
        let digits = self.x0.as_deref()?.strip_prefix("0x")?;
        u64::from_str_radix(digits, 16).ok()
    }
}

/// The time between two marks, with the counts of all cores together.
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
    /// Time lost by WFE and YIELD.
    pub polled_ns: u64,
}

/// Counts of one function, of all cores together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Function {
    /// Exception level.
    pub el: u32,
    /// Its name; [`Function::NO_NAME`] for all that have none.
    pub function: String,
    /// Instructions.
    pub instructions: u64,
    /// Time lost by WFE and YIELD.
    pub polled_ns: u64,
}

/// Counts of a function that waits for another core, of all cores together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spin {
    /// Its name.
    pub function: String,
    /// Times that a core entered it.
    pub entries: u64,
    /// Instructions.
    pub instructions: u64,
    /// Time lost by WFE and YIELD.
    pub polled_ns: u64,
    /// The longest stay, in nanoseconds.
    pub longest_ns: u64,
}

impl Function {
    /// Code without a name in the lower half of addresses (TTBR0). Linux's kernel is in the upper half.
    pub const NO_NAME: &str = "?";
    /// Code without a name in the upper half: copies of the kernel's entry code.
    pub const NO_NAME_UPPER: &str = "?upper";
}

/// Host time of the run.
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

    /// When this mark was passed first, in nanoseconds.
    pub fn first(&self, mark: u64) -> Option<u64> {
        let found = self.marks.iter().filter(|it| it.mark == mark);
        found.map(|it| it.ns).min()
    }

    /// The longest wait of a job of the real-time guest, in nanoseconds. Also known if the run ends before the guest's
    /// report.
    pub fn longest_wait_ns(&self) -> Option<u64> {
        let waits = self.marks.iter().filter(|it| it.mark == MARK_WAIT);
        waits.filter_map(Mark::value).max()
    }

    /// Seconds of each measured repeat by the clock, in order: from its begin mark to its end mark.
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
        let step = report.exits[0].steps[0];
        assert_eq!((step.step, step.part.instructions), (3, 4));
        assert_eq!(report.exits[0].rest.unwrap().most, 1);
        assert_eq!(report.repeats(), [1.499999]);
        assert_eq!(report.last_end(), Some(1_500_000_000));
        assert_eq!(report.longest_wait_ns(), Some(1000));
        assert_eq!(report.first(MARK_WAIT), Some(1200));
        assert_eq!(report.first(MARK_INIT), None);
        assert_eq!(report.profiled.to_ns, 3000);
        assert_eq!(report.profile[0].function, Function::NO_NAME);
        assert_eq!(report.spin[0].longest_ns, 4);
    }
}
