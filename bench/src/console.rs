// SPDX-License-Identifier: MIT OR Apache-2.0
//! What guests print for programs to read, out of a console log.
//!
//! Formats: `guests/linux/README.md`, `guests/rt/README.md`.

use crate::demux::UNTAGGED;
use crate::transcript;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const LINUX_RESULT: &str = "linux-result ";
const PROBE_RESULT: &str = "probe-result ";
const RT_RESULT: &str = "rt-result ";
const RT_HISTOGRAM: &str = "rt-histogram ";
/// A line of these is from what is below the guests: the KVM host, or Xen's control domain.
const SYSTEM_RESULT: &str = "system-result ";
/// A line of these says why the real-time guest has no result, or why the results on Xen are wrong.
const COMPLAINTS: [&str; 3] = ["rt-error:", "rt-fault:", "xen-error:"];
/// Title of the histogram: `histogram, rows of 50 ticks (800 ns)`.
const TABLE_TITLE: &str = "histogram, rows of ";

/// The name of a system's first real-time guest.
pub const FIRST_RT: &str = "rt";

/// Everything read from one log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Console {
    /// Facts of each `linux-result` line, in order.
    pub linux: Vec<Facts>,
    /// Facts of each `probe-result` line, in order.
    #[serde(default)]
    pub probes: Vec<Facts>,
    /// Facts of the last `system-result` line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Facts>,
    /// Of the real-time guest [`FIRST_RT`], or of the one on the bare machine.
    #[serde(flatten)]
    pub rt: RtReport,
    /// Of each further real-time guest, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more_rt: BTreeMap<String, RtReport>,
    /// Whether there is an `rt-result` line, and that of each real-time guest came before the first `linux-result` line.
    pub rt_first: bool,
    /// Complaints of real-time guests, or of Xen's control domain.
    pub complaints: Vec<String>,
    /// Version of FreeRTOS, as its banner says.
    pub freertos: Option<String>,
}

/// What one real-time guest has printed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RtReport {
    /// Facts of its last `rt-result` line.
    #[serde(rename = "rt")]
    pub result: Option<Facts>,
    /// Its histogram, empty if it printed none.
    pub histogram: Histogram,
}

/// `key=value` words.
pub type Facts = BTreeMap<String, String>;

/// How often which latency was seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Width of a row in nanoseconds; 0 if there is no histogram.
    pub width_ns: u64,
    /// Start of each row in nanoseconds, and its count.
    pub rows: Vec<(u64, u64)>,
    /// How many lie above the last row.
    pub above: u64,
}

impl Console {
    /// Reads a log.
    pub fn parse(log: &[u8]) -> Self {
        let mut console = Self::default();
        let mut in_time = true;
        for line in transcript::read(log) {
            let text = line.text.as_str();
            if let Some(rest) = after(text, LINUX_RESULT) {
                console.linux.push(facts(rest));
            } else if let Some(rest) = after(text, PROBE_RESULT) {
                console.probes.push(facts(rest));
            } else if let Some(rest) = after(text, SYSTEM_RESULT) {
                console.system = Some(facts(rest));
            } else if let Some(rest) = after(text, RT_RESULT) {
                let is_first = console.linux.is_empty();
                let report = console.rt_mut(&line.source);
                let is_new = report.result.is_none();
                report.result = Some(facts(rest));
                in_time &= is_first || !is_new;
            } else if let Some(rest) = after(text, RT_HISTOGRAM) {
                console.rt_mut(&line.source).histogram.add_line(rest);
            } else if let Some(rest) = after(text, TABLE_TITLE) {
                console.rt_mut(&line.source).histogram = Histogram::titled(rest);
            } else if COMPLAINTS.iter().any(|it| text.contains(it)) {
                console.complaints.push(line.to_string());
            } else if let Some((_, version)) = text.split_once("real-time guest on FreeRTOS ") {
                console.freertos = Some(version.trim().to_owned());
            } else if !line.is_hypervisors() {
                console.rt_mut(&line.source).histogram.add_row(text);
            }
        }
        // A guest that prints other things, such as Linux, is no real-time guest.
        console.more_rt.retain(|_, it| *it != RtReport::default());
        console.rt_first = in_time && console.rts().any(|it| it.1.result.is_some());
        console
    }

    /// What a real-time guest has printed, by its name.
    pub fn rt(&self, name: &str) -> Option<&RtReport> {
        match name {
            FIRST_RT => Some(&self.rt),
            _ => self.more_rt.get(name),
        }
    }

    /// What each real-time guest has printed, with its name.
    pub fn rts(&self) -> impl Iterator<Item = (&str, &RtReport)> {
        let more = self.more_rt.iter().map(|(name, it)| (name.as_str(), it));
        std::iter::once((FIRST_RT, &self.rt)).chain(more)
    }

    /// Where to store what this source has printed.
    fn rt_mut(&mut self, source: &str) -> &mut RtReport {
        match source {
            FIRST_RT | UNTAGGED => &mut self.rt,
            _ => self.more_rt.entry(source.to_owned()).or_default(),
        }
    }
}

impl Histogram {
    /// Of the number of nanoseconds in `50 ticks (800 ns)`.
    fn titled(text: &str) -> Self {
        let width = text
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(" ns)"))
            .and_then(|(number, _)| number.parse().ok());
        Self {
            width_ns: width.unwrap_or(0),
            ..Self::default()
        }
    }

    /// `from 800 ns 12 ###` or `above 3 #`.
    fn add_row(&mut self, line: &str) {
        if self.width_ns == 0 {
            return;
        }
        let words: Vec<_> = line.split_whitespace().take(4).collect();
        match words[..] {
            ["from", start, "ns", count] => {
                if let (Ok(start), Ok(count)) = (start.parse(), count.parse()) {
                    self.rows.push((start, count));
                }
            }
            ["above", count, ..] => self.above = count.parse().unwrap_or(0),
            _ => {}
        }
    }

    /// `width_ns=16 4464:12 4480:7 …`: the start of each row that is not empty, and its count.
    fn add_line(&mut self, text: &str) {
        for word in text.split_whitespace() {
            if let Some(width) = word.strip_prefix("width_ns=") {
                *self = Self {
                    width_ns: width.parse().unwrap_or(0),
                    ..Self::default()
                };
            } else if let Some((start, count)) = word.split_once(':')
                && let (Ok(start), Ok(count)) = (start.parse(), count.parse())
            {
                self.rows.push((start, count));
            }
        }
    }
}

fn after<'a>(line: &'a str, marker: &str) -> Option<&'a str> {
    line.find(marker).map(|at| &line[at + marker.len()..])
}

fn facts(text: &str) -> Facts {
    text.split_whitespace()
        .filter_map(|word| word.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// A fact that is a number.
pub fn number(facts: &Facts, key: &str) -> Option<f64> {
    facts.get(key)?.parse().ok()
}

/// A fact that is a list of numbers, such as `seconds=1.5,1.6`.
pub fn numbers(facts: &Facts, key: &str) -> Vec<f64> {
    let list = facts.get(key).map_or("", String::as_str);
    list.split(',').filter_map(|it| it.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Spumone's console prints it, the hypervisor's own line in between.
    const LOG: &str = "\
rt      | Spumone real-time guest on FreeRTOS V11.2.0\r
rt      | histogram, rows of 50 ticks (800 ns)\r
rt      |   from       4000 ns          1 #\r
spumone | guest rt is off\r
rt      |   from      \n\rlinux   | \x1b[1mx\r
rt      +  4800 ns          0 \r
rt      |   above                   17 #\r
rt      | rt-result periods=20000 lost=0 late=0 min_ns=4464 max_ns=21504\r
linux   | linux-result scenario=hackbench ok=1 seconds=1.5,1.25 median=1.25\r
";

    const SYSTEM: &str = "system-result free_kib=0001474000 program_kib=7\n";

    fn parse(log: &str) -> Console {
        Console::parse(log.as_bytes())
    }

    #[test]
    fn results_are_found_behind_names() {
        let console = parse(LOG);
        assert_eq!(
            number(console.rt.result.as_ref().unwrap(), "max_ns"),
            Some(21504.0)
        );
        assert_eq!(numbers(&console.linux[0], "seconds"), [1.5, 1.25]);
        assert_eq!(console.freertos.as_deref(), Some("V11.2.0"));
        assert!(console.rt_first);
    }

    #[test]
    fn the_histogram_is_read_row_by_row() {
        let histogram = parse(LOG).rt.histogram;
        assert_eq!(histogram.width_ns, 800);
        assert_eq!(histogram.rows, [(4000, 1), (4800, 0)]);
        assert_eq!(histogram.above, 17);
    }

    #[test]
    fn the_fine_histogram_replaces_the_table() {
        let log =
            format!("{LOG}rt | rt-histogram width_ns=16 4464:2 4480:3\r\nrt-histogram 9000:1\n");
        let histogram = parse(&log).rt.histogram;
        assert_eq!(histogram.width_ns, 16);
        assert_eq!(histogram.rows, [(4464, 2), (4480, 3), (9000, 1)]);
        assert_eq!(histogram.above, 0);
    }

    #[test]
    fn which_guest_ended_first_is_seen() {
        let swapped = "linux-result scenario=a ok=1\nrt-result periods=1\n";
        assert!(!parse(swapped).rt_first);
        assert!(parse("rt-result periods=1\n").rt_first);
    }

    #[test]
    fn each_real_time_guest_has_its_own_result() {
        let second = "rt2     | rt-histogram width_ns=16 16:5\r\nrt2     | rt-result max_ns=7\r\n";
        let console = parse(&format!("{second}{LOG}"));
        let most = |name: &str| number(console.rt(name)?.result.as_ref()?, "max_ns");
        assert_eq!((most("rt"), most("rt2")), (Some(21504.0), Some(7.0)));
        assert_eq!(most("linux"), None);
        assert_eq!(console.more_rt["rt2"].histogram.rows, [(16, 5)]);
        assert_eq!(console.rt.histogram.width_ns, 800);
        assert_eq!(console.rts().count(), 2);
        assert!(console.rt_first);
        assert!(!parse(&format!("{LOG}{second}")).rt_first);
        // The second report of a guest that has given one in time.
        assert!(parse(&format!("{LOG}rt      | rt-result max_ns=7\n")).rt_first);
    }

    #[test]
    fn a_stored_result_is_read_again() {
        for log in [LOG, "rt2     | rt-result max_ns=7\n", SYSTEM] {
            let text = serde_json::to_string(&parse(log)).unwrap();
            assert_eq!(serde_json::from_str::<Console>(&text).unwrap(), parse(log));
        }
        let text = serde_json::to_string(&parse("rt-result max_ns=1\n")).unwrap();
        assert!(
            text.contains(r#""rt":{"max_ns":"1"},"histogram":{"#),
            "{text}"
        );
    }

    #[test]
    fn what_is_below_the_guests_has_a_result_of_its_own() {
        let console = parse(&format!("{SYSTEM}rt-result max_ns=7\n"));
        let facts = console.system.as_ref().unwrap();
        assert_eq!(number(facts, "free_kib"), Some(1_474_000.0));
        assert_eq!(number(facts, "program_kib"), Some(7.0));
        assert!(console.rt_first && console.more_rt.is_empty());
        assert_eq!(parse(LOG).system, None);
    }

    #[test]
    fn complaints_are_kept() {
        let console = parse("rt      | rt-error: period=1 needs a unit\r\n");
        assert_eq!(
            console.complaints,
            ["rt      | rt-error: period=1 needs a unit"]
        );
    }

    #[test]
    fn nothing_is_read_from_nothing() {
        assert_eq!(parse("from 1 ns 2\n"), Console::default());
    }
}
