// SPDX-License-Identifier: MIT OR Apache-2.0
//! The demo: FreeRTOS and Linux share a machine on the exact clock, and each also runs alone on a bare machine.
//! It ends with one table. It is not a figure: it has no seeds, no page and no aims.

use crate::experiments::{Table, loads};
use crate::linux::Linux;
use crate::machine::{ClockSettings, Machine, Order, Run};
use crate::results::{Outcome, Results};
use crate::stats::grouped;
use crate::system::{Rt, System};

/// A core as fast as in the figure `latency`. The end is for guests that hang; otherwise the machine turns itself off long
/// before.
const CLOCK: ClockSettings = ClockSettings {
    quantum: 500,
    ipus: 250,
    seed: SEED,
    end_us: Some(END_US),
    trails: None,
};
const END_US: u64 = 60_000_000;
/// The clock's seed of all runs.
pub const SEED: u32 = 1;
/// Cores of the machine that both guests share.
const CORES: u32 = 4;

const TOGETHER: &str = "together";
const BARE_FOUR: &str = "bare-linux-4";
const BARE_THREE: &str = "bare-linux-3";
const BARE_RT: &str = "bare-rt";

/// The guests of the demo's system, as its description has them.
#[derive(Clone, Debug, PartialEq)]
pub struct Guests {
    /// Arguments of the real-time guest.
    pub rt: String,
    /// Linux, with a vCPU for each core.
    pub linux: Linux,
}

impl Guests {
    /// The guests of a system with this number of cores and these command lines.
    ///
    /// # Errors
    ///
    /// If the demo cannot compare these guests with the bare machine: what to write instead.
    pub fn new(cores: u32, rt: &str, vcpus: u32, linux: &str) -> Result<Self, String> {
        if (cores, vcpus) != (CORES, CORES) {
            return Err(format!(
                "the demo compares with a bare machine of {CORES} cores: write `cores = {CORES}`, and {CORES} vCPUs of \
                 guest \"linux\""
            ));
        }
        let read = Linux::from_bootargs(vcpus, linux).ok_or_else(|| {
            let example = Linux::new(vcpus, "hackbench", &[]).bootargs();
            format!("the bootargs of guest \"linux\" must be as \"{example}\"")
        })?;
        Ok(Self {
            rt: rt.to_owned(),
            linux: read,
        })
    }

    /// The run with both guests.
    pub fn together(&self) -> Run {
        let system = System {
            cores: CORES,
            rt: vec![Rt::new(&self.rt)],
            linux: Some(self.linux.clone()),
            ..System::default()
        };
        run(TOGETHER, Machine::Spumone(system))
    }

    /// The runs of one guest on a bare machine.
    pub fn alone(&self) -> Vec<Run> {
        let linux = |cpus| {
            Machine::BareLinux(Linux {
                cpus,
                ..self.linux.clone()
            })
        };
        vec![
            run(BARE_FOUR, linux(CORES)),
            run(BARE_THREE, linux(CORES - 1)),
            run(BARE_RT, Machine::BareRt(self.rt.clone())),
        ]
    }
}

fn run(label: &str, machine: Machine) -> Run {
    Run {
        label: label.into(),
        machine,
        disk_mib: 0,
        clock: CLOCK,
        order: Order::Any,
    }
}

/// The report of the demo.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Numbers.
    pub table: Table,
    /// The meaning of the numbers, a sentence each.
    pub notes: Vec<String>,
    /// What failed; empty if all is well.
    pub faults: Vec<String>,
}

/// The report on these results.
///
/// # Errors
///
/// If a run, or a number of it, is missing: which one.
pub fn report(results: &Results) -> Result<Report, String> {
    let of = |label| {
        let outcome = results.of(label).first();
        outcome.ok_or_else(|| format!("run `{label}` has no result"))
    };
    let (together, rt) = (of(TOGETHER)?, of(BARE_RT)?);
    let [with, four, three] = [together, of(BARE_FOUR)?, of(BARE_THREE)?].map(seconds);
    let (with, four, three) = (with?, four?, three?);
    let share = rt_number(together, "load")? / 100.0;
    let ideal = loads::ideal(three, four, share);
    let mut table = Table::new(
        "The demo",
        &["", "together on Spumone", "alone on the bare machine"],
    );
    let mut row = |cells: [String; 3]| table.rows.push(cells.into());
    row(["FreeRTOS, periods".into(), periods(together)?, periods(rt)?]);
    row([
        "FreeRTOS, longest wait".into(),
        longest_wait(together)?,
        longest_wait(rt)?,
    ]);
    row([
        "Linux, hackbench".into(),
        format!("{with:.3} s (ideal: {ideal:.3} s)"),
        format!("{four:.3} s (on three cores: {three:.3} s)"),
    ]);
    let notes = vec![
        format!(
            "Ideal: Linux loses the {:.0} % of a core that FreeRTOS takes, and nothing else.",
            100.0 * share
        ),
        format!(
            "Times are virtual, the same on any host: a core executes {} instructions in a µs.",
            CLOCK.ipus
        ),
        "There are no caches: the times compare systems, and predict no board.".into(),
    ];
    Ok(Report {
        table,
        notes,
        faults: faults(together)?,
    })
}

/// Faults of the run with both guests, although each gave its result.
fn faults(together: &Outcome) -> Result<Vec<String>, String> {
    let mut faults = Vec::new();
    for key in ["lost", "late"] {
        let count = rt_number(together, key)?;
        if count > 0.0 {
            faults.push(format!("periods of FreeRTOS that are {key}: {count}"));
        }
    }
    if together.clock.virtual_ns >= END_US * 1000 {
        faults.push("the machine did not turn itself off when both guests had ended".into());
    }
    if together.console.rt_first {
        faults.push(
            "hackbench ran on after FreeRTOS had ended, so its time cannot be compared: give FreeRTOS a longer `duration`"
                .into(),
        );
    }
    Ok(faults)
}

/// The time of hackbench.
fn seconds(outcome: &Outcome) -> Result<f64, String> {
    let seconds = outcome.seconds().first().copied();
    seconds.ok_or_else(|| format!("run `{}` has no time of hackbench", outcome.label))
}

/// A number that the real-time guest reports.
fn rt_number(outcome: &Outcome, key: &str) -> Result<f64, String> {
    outcome.rt(key).ok_or_else(|| {
        let label = &outcome.label;
        format!("run `{label}` has no `{key}` of FreeRTOS")
    })
}

fn periods(outcome: &Outcome) -> Result<String, String> {
    let [periods, lost, late] = ["periods", "lost", "late"].map(|key| rt_number(outcome, key));
    Ok(format!(
        "{}: {} lost, {} late",
        grouped(periods?),
        grouped(lost?),
        grouped(late?)
    ))
}

fn longest_wait(outcome: &Outcome) -> Result<String, String> {
    let ns = rt_number(outcome, "max_ns")?;
    let instructions = outcome.instructions(ns);
    Ok(format!(
        "{:.1} µs ({} instructions)",
        ns / 1000.0,
        grouped(instructions)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::samples;

    const RT: &str = "rt-result periods=5000 lost=0 late=0 max_ns=7792 load=30\n";
    const LINUX: &str = "linux-result scenario=hackbench ok=1 seconds=1.1\n";

    fn results(together: &str) -> Results {
        let mut results = Results::default();
        results.add(samples::outcome(TOGETHER, SEED, together));
        results.add(samples::linux(BARE_FOUR, SEED, &[1.0]));
        results.add(samples::linux(BARE_THREE, SEED, &[4.0 / 3.0]));
        let rt = "rt-result periods=5000 lost=0 late=0 max_ns=2272 load=30\n";
        results.add(samples::outcome(BARE_RT, SEED, rt));
        results
    }

    #[test]
    fn the_table_compares_with_the_bare_machine() {
        let report = report(&results(&format!("{LINUX}{RT}"))).unwrap();
        let rows = [
            [
                "FreeRTOS, periods",
                "5,000: 0 lost, 0 late",
                "5,000: 0 lost, 0 late",
            ],
            [
                "FreeRTOS, longest wait",
                "7.8 µs (1,948 instructions)",
                "2.3 µs (568 instructions)",
            ],
            [
                "Linux, hackbench",
                // 3.7 of four cores, all worth the same.
                "1.100 s (ideal: 1.081 s)",
                "1.000 s (on three cores: 1.333 s)",
            ],
        ];
        assert_eq!(report.table.rows, rows);
        assert!(report.notes[0].contains("30 % of a core"));
        assert_eq!(report.faults, [""; 0]);
    }

    #[test]
    fn a_period_that_is_lost_or_late_is_a_fault() {
        let bad = RT.replace("lost=0 late=0", "lost=2 late=3");
        let report = report(&results(&format!("{LINUX}{bad}"))).unwrap();
        assert_eq!(
            report.faults,
            [
                "periods of FreeRTOS that are lost: 2",
                "periods of FreeRTOS that are late: 3"
            ]
        );
    }

    #[test]
    fn freertos_must_outlast_hackbench() {
        let report = report(&results(&format!("{RT}{LINUX}"))).unwrap();
        assert!(report.faults[0].contains("longer `duration`"));
    }

    #[test]
    fn the_machine_must_end_by_itself() {
        let mut results = results("");
        let mut outcome = samples::outcome(TOGETHER, 0, &format!("{LINUX}{RT}"));
        outcome.clock.virtual_ns = 60_000_000_000;
        results.add(outcome);
        let report = report(&results).unwrap();
        assert!(report.faults[0].contains("did not turn itself off"));
    }

    #[test]
    fn what_is_missing_is_named() {
        assert!(report(&results(LINUX)).unwrap_err().contains("`load`"));
        assert!(report(&results(RT)).unwrap_err().contains("hackbench"));
        let error = report(&Results::default()).unwrap_err();
        assert!(error.contains("`together`"), "{error}");
    }

    #[test]
    fn guests_are_those_that_the_bare_machine_can_have() {
        let bootargs = Linux::new(4, "hackbench", &["-g", "1"]).bootargs();
        let guests = Guests::new(4, "period=1ms", 4, &bootargs).unwrap();
        assert_eq!(guests.linux.arguments, ["-g", "1"]);
        assert!(Guests::new(2, "", 2, &bootargs).is_err());
        let error = Guests::new(4, "", 4, "quiet").unwrap_err();
        assert!(error.contains(BOOTARGS_EXAMPLE), "{error}");
    }

    const BOOTARGS_EXAMPLE: &str = "cryptomgr.notests spumone.run=hackbench";
}
