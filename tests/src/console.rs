// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine said: by guest, line by line; and what tests demand of it.

use spumone_bench::clock::ClockReport;
use spumone_bench::demux::{HYPERVISOR_LINES, UNTAGGED};
use spumone_bench::transcript::{self, Line};
use std::fmt::Write as _;
use std::path::PathBuf;

/// Speed of a core on the exact clock.
pub const INSTRUCTIONS_PER_US: u64 = 250;

/// The tag of the hypervisor's own lines.
pub const HYPERVISOR: &str = HYPERVISOR_LINES;

/// A failure prints so many lines of the console at most, the last ones.
const MOST_LINES: usize = 20_000;

/// What a failure has to name.
#[derive(Clone)]
pub(crate) struct Facts {
    pub name: String,
    pub guests: Vec<String>,
    pub again: String,
    /// Where the exact clock writes what it counted.
    pub clock: Option<PathBuf>,
}

/// All that was said.
pub struct Console {
    facts: Facts,
    lines: Vec<Line>,
}

impl Console {
    pub(crate) fn new(facts: Facts, bytes: &[u8]) -> Self {
        let mut lines = transcript::read(bytes);
        if !lines.iter().any(Line::is_hypervisors) {
            // Of the bare machine, which has one guest.
            let guest = facts.guests.first().cloned().unwrap_or_default();
            let untagged = lines.iter_mut().filter(|it| it.source == UNTAGGED);
            untagged.for_each(|line| line.source.clone_from(&guest));
        }
        Self { facts, lines }
    }

    /// The lines of a guest, or of the hypervisor ("spumone").
    pub fn lines(&self, guest: &str) -> impl Iterator<Item = &str> + use<'_> {
        let guest = guest.to_owned();
        self.lines
            .iter()
            .filter(move |line| line.source == guest)
            .map(|line| line.text.as_str())
    }

    /// Whether a line of `guest` contains `text`.
    pub fn says(&self, guest: &str, text: &str) -> bool {
        self.count(guest, text) > 0
    }

    /// How many lines of `guest` contain `text`.
    pub fn count(&self, guest: &str, text: &str) -> usize {
        self.lines(guest).filter(|line| line.contains(text)).count()
    }

    /// Demands that a line of `guest` contains `text`.
    #[track_caller]
    pub fn expect(&self, guest: &str, text: &str) -> &Self {
        self.demand(
            self.says(guest, text),
            &format!("{guest} never said \"{text}\""),
        )
    }

    /// Demands that no line of `guest` contains `text`.
    #[track_caller]
    pub fn expect_not(&self, guest: &str, text: &str) -> &Self {
        self.demand(!self.says(guest, text), &format!("{guest} said \"{text}\""))
    }

    /// Demands what `holds` says.
    #[track_caller]
    pub fn demand(&self, holds: bool, otherwise: &str) -> &Self {
        if !holds {
            self.fail(otherwise);
        }
        self
    }

    /// The value of `key=` in the last line of `guest` that contains `line`.
    #[track_caller]
    pub fn value(&self, guest: &str, line: &str, key: &str) -> String {
        let found = self
            .lines(guest)
            .filter(|text| text.contains(line))
            .last()
            .and_then(|text| {
                let mut words = text.split_whitespace();
                words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
            });
        match found {
            Some(value) => value.to_owned(),
            None => self.fail(&format!("{guest} has no \"{key}=\" in a line \"{line}\"")),
        }
    }

    /// As [`Self::value`], a number, decimal or after 0x.
    #[track_caller]
    pub fn number(&self, guest: &str, line: &str, key: &str) -> u64 {
        let value = self.value(guest, line, key);
        let number = match value.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => value.parse(),
        };
        match number {
            Ok(number) => number,
            Err(_) => self.fail(&format!("{guest} says {key}={value}, which is no number")),
        }
    }

    /// Instructions that guests executed on a core, to the end of a run on the exact clock.
    #[track_caller]
    pub fn guest_instructions(&self, core: usize) -> u64 {
        let report = self.counted();
        report.cores.get(core).map_or(0, |it| it.el0 + it.el1)
    }

    /// The time at which the machine ended, on the exact clock, in microseconds from power on.
    #[track_caller]
    pub fn ended_us(&self) -> u64 {
        self.counted().virtual_ns / 1000
    }

    /// Each time at which a core passed the mark with this number, on the exact clock: the core, and microseconds from power on.
    #[track_caller]
    pub fn marks(&self, number: u64) -> Vec<(usize, u64)> {
        let report = self.clock();
        let marks = report["marks"].as_array().into_iter().flatten();
        let meant = marks.filter(|it| it["mark"].as_u64() == Some(number));
        let value = |it: &serde_json::Value, key: &str| it[key].as_u64().unwrap_or_default();
        meant
            .map(|it| (value(it, "core") as usize, value(it, "ns") / 1000))
            .collect()
    }

    /// What the exact clock counted.
    #[track_caller]
    fn counted(&self) -> ClockReport {
        serde_json::from_value(self.clock())
            .unwrap_or_else(|error| self.fail(&format!("what the clock counted: {error}")))
    }

    /// The file in which it is.
    #[track_caller]
    fn clock(&self) -> serde_json::Value {
        let Some(path) = &self.facts.clock else {
            self.fail("instructions are counted on the exact clock only");
        };
        let text = std::fs::read_to_string(path).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_else(|error| {
            self.fail(&format!("{} cannot be read: {error}", path.display()))
        })
    }

    /// Demands that the real-time guest measured to its end and lost no period.
    #[track_caller]
    pub fn rt_is_well(&self, guest: &str) -> &Self {
        self.expect_not(guest, "rt-fault:")
            .expect_not(guest, "rt-error:");
        let lost = self.number(guest, "rt-result", "lost");
        let periods = self.number(guest, "rt-result", "periods");
        self.demand(periods > 0, "no period was measured")
            .demand(lost == 0, &format!("{guest} lost {lost} periods"))
            .expect(HYPERVISOR, &format!("guest {guest} is off"))
    }

    /// The longest wait of the task of a real-time guest that is well and was late in no period, in instructions of the exact clock.
    #[track_caller]
    pub fn longest_wait(&self, guest: &str) -> u64 {
        self.rt_is_well(guest).machine_ended();
        let late = self.number(guest, "rt-result", "late");
        self.demand(late == 0, &format!("{late} periods are late"));
        self.number(guest, "rt-result", "max_ns") * INSTRUCTIONS_PER_US / 1000
    }

    /// Demands that a Linux guest's scenario ended well.
    #[track_caller]
    pub fn linux_is_well(&self, guest: &str, scenario: &str) -> &Self {
        self.expect(guest, &format!("linux-result scenario={scenario} ok=1"))
            .expect_not(guest, "ok=0")
            .expect(HYPERVISOR, &format!("guest {guest} is off"))
    }

    /// Demands that a probe guest ran its suite to the end, that everything in it passed, and that
    /// it went off.
    #[track_caller]
    pub fn probe_is_well(&self, guest: &str) -> &Self {
        self.probe_has_passed(guest)
            .expect(HYPERVISOR, &format!("guest {guest} is off"))
    }

    /// Demands that a probe guest ran its suite to the end, and everything in it passed.
    #[track_caller]
    pub fn probe_has_passed(&self, guest: &str) -> &Self {
        if let Some(line) = self.lines(guest).find(|line| line.starts_with("FAIL ")) {
            self.fail(&format!("{guest}: {line}"));
        }
        let passed = self.number(guest, "probe-result", "passed");
        let lines = self
            .lines(guest)
            .filter(|line| line.starts_with("PASS "))
            .count() as u64;
        self.demand(passed > 0, &format!("{guest} tested nothing"))
            .demand(lines == passed, "lines of the console are missing")
            .expect(guest, "failed=0")
    }

    /// Demands that the machine went off because all guests had ended.
    #[track_caller]
    pub fn machine_ended(&self) -> &Self {
        self.expect(HYPERVISOR, "all guests have ended, the machine goes off")
    }

    /// The first line of `guest` that starts with `start`.
    #[track_caller]
    pub fn line(&self, guest: &str, start: &str) -> &str {
        match self.lines(guest).find(|line| line.starts_with(start)) {
            Some(line) => line,
            None => self.fail(&format!("{guest} has no line \"{start}…\"")),
        }
    }

    /// Fails the test, with all that one needs to find out why.
    #[track_caller]
    pub fn fail(&self, why: &str) -> ! {
        let first = self.lines.len().saturating_sub(MOST_LINES);
        let mut report = format!("{}: {why}\n--- console\n", self.facts.name);
        if first > 0 {
            let _ = writeln!(report, "({first} lines before)");
        }
        for line in &self.lines[first..] {
            // Writing to a string cannot fail.
            let _ = writeln!(report, "{line}");
        }
        let _ = write!(
            report,
            "--- {}: {why}\n--- again: scripts/test boot {}\n--- by hand: {}",
            self.facts.name, self.facts.name, self.facts.again
        );
        panic!("{report}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console(text: &str) -> Console {
        let facts = Facts {
            name: "test".into(),
            guests: vec!["linux".into(), "rt".into()],
            again: String::new(),
            clock: None,
        };
        Console::new(facts, text.as_bytes())
    }

    #[test]
    fn lines_belong_to_their_guests() {
        let console = console("linux   | a\r\nrt      | a\r\nqemu: a\nspumone | c\r\nrt | b");
        assert_eq!(console.lines("linux").collect::<Vec<_>>(), ["a"]);
        assert_eq!(console.lines("rt").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(console.lines("spumone").collect::<Vec<_>>(), ["c"]);
    }

    #[test]
    fn a_bare_guest_has_all_lines() {
        let console = console("PASS a\r\n");
        assert_eq!(console.lines("linux").collect::<Vec<_>>(), ["PASS a"]);
    }

    #[test]
    fn values_are_found() {
        let console = console("rt      | rt-result periods=10 lost=0x1f\r\n");
        assert_eq!(console.number("rt", "rt-result", "periods"), 10);
        assert_eq!(console.number("rt", "rt-result", "lost"), 31);
    }

    #[test]
    #[should_panic(expected = "rt lost 31 periods")]
    fn a_lost_period_fails() {
        console("rt      | rt-result periods=10 lost=0x1f\r\n").rt_is_well("rt");
    }

    #[test]
    #[should_panic(expected = "rt: FAIL sgi: none")]
    fn a_failure_of_a_probe_fails() {
        let text = "rt      | PASS a\r\nrt      | FAIL sgi: none\r\n\
                    rt      | probe-result passed=1 failed=1\r\n";
        console(text).probe_is_well("rt");
    }

    #[test]
    #[should_panic(expected = "lines of the console are missing")]
    fn a_lost_line_fails() {
        let text = "rt      | PASS a\r\nrt      | probe-result passed=2 failed=0\r\n";
        console(text).probe_is_well("rt");
    }
}
