//! `latency`: how long the real-time guest waits between a task's due time and its first instruction,
//! beside a Linux that rests, computes or writes to a disk.

use super::{Defaults, Evaluation, Experiment, Plan, Table, Verdict, visits};
use crate::machine::{ClockSettings, Linux, Machine, Order, Run};
use crate::plot::{Figure, Histograms, Panel};
use crate::results::{Outcome, Results};
use crate::stats::{Spread, grouped};
use crate::system::System;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The figure.
pub struct Latency;

/// The policy that all runs have but those that compare policies.
const BASE: &str = "none";
/// Virtual time between the real-time guest's last period and the end of the run: it prints its report.
const REPORT_US: u64 = 600_000;
/// Virtual time from power on to the real-time guest's first period, at most.
const START_US: u64 = 200_000;
/// Size of the disk that Linux writes to.
const DISK_MIB: u32 = 16;

/// What a policy may cost the real-time guest, in instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aim {
    /// Its maximum beside hackbench above the bare machine's.
    AboveBare(f64),
    /// The same above its own with Linux idle: the policy forbids what makes Linux's load felt.
    AboveIdle(f64),
    /// None: it pays with latency for what Linux gains, and the figure shows how much.
    Shown,
}

/// The aim of a policy.
fn aim(policy: &str) -> Aim {
    match policy {
        "none" | "steal" => Aim::AboveBare(1500.0),
        // The vCPU is sent away before the real-time guest begins.
        "ondemand" => Aim::AboveBare(2500.0),
        "trap" => Aim::AboveIdle(500.0),
        _ => Aim::Shown,
    }
}

/// The label of a run with a policy.
fn with_policy(label: &str, policy: &str) -> String {
    match policy {
        BASE => label.to_owned(),
        _ => format!("{label}-{policy}"),
    }
}

/// What Linux does meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// It sleeps.
    Idle,
    /// hackbench, again and again.
    Hackbench,
    /// Direct writes to a virtio disk without a pause.
    Disk,
}

impl Load {
    /// For labels.
    pub fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Hackbench => "hackbench",
            Self::Disk => "disk",
        }
    }

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Idle => "Linux idle",
            Self::Hackbench => "Linux runs hackbench",
            Self::Disk => "Linux writes to a disk",
        }
    }
}

/// Periods of the real-time guest.
#[derive(Clone, Copy)]
pub struct Periods {
    /// Length of one.
    pub us: u64,
    /// How many.
    pub count: u64,
    /// More parameters of the guest, each after a space.
    pub more: &'static str,
}

impl Periods {
    /// The guest's parameters.
    pub fn bootargs(self) -> String {
        format!("period={}us samples={}{}", self.us, self.count, self.more)
    }

    /// All of them, in virtual microseconds.
    pub fn length_us(self) -> u64 {
        self.us * self.count
    }
}

/// The run that measures latency beside a loaded Linux.
pub fn run_beside(
    plan: &Plan,
    label: String,
    policy: &str,
    load: Load,
    periods: Periods,
    split: Option<&str>,
) -> Run {
    let end_us = START_US + periods.length_us() + REPORT_US;
    // The load outlasts the run, which the clock ends.
    let seconds = format!("seconds={}", end_us / 1_000_000 + 2);
    let linux = match load {
        Load::Idle => Linux::new(4, "idle", &[&seconds]),
        Load::Hackbench => Linux::new(4, "load", &["load=hackbench", &seconds, "-g 1 -l 1000"]),
        Load::Disk => Linux::new(4, "diskwrite", &[&seconds]),
    };
    let disk = load == Load::Disk;
    Run {
        label,
        machine: Machine::Spumone(System {
            cores: 4,
            policy: policy.into(),
            interrupt_priorities: split.map(Into::into),
            rt: Some(periods.bootargs()),
            linux: Some(linux),
            disk,
            ..System::default()
        }),
        disk_mib: if disk { DISK_MIB } else { 0 },
        clock: ClockSettings {
            quantum: plan.quantum,
            ipus: plan.ipus,
            seed: 0,
            end_us: Some(end_us),
        },
        order: Order::RtFirst,
        weight: end_us / 1000 * if load == Load::Hackbench { 4 } else { 2 },
    }
}

/// The run of the real-time guest alone on the bare machine.
pub fn run_bare(plan: &Plan, label: String, periods: Periods) -> Run {
    Run {
        label,
        machine: Machine::BareRt(periods.bootargs()),
        disk_mib: 0,
        clock: ClockSettings {
            quantum: plan.quantum,
            ipus: plan.ipus,
            seed: 0,
            end_us: None,
        },
        order: Order::Any,
        weight: periods.length_us() / 10_000,
    }
}

impl Latency {
    fn periods(plan: &Plan) -> [(&'static str, Periods); 2] {
        let (fast, slow) = match plan.quick {
            true => (40_000, 4_000),
            false => (130_000, 13_000),
        };
        [
            (
                "",
                Periods {
                    us: 100,
                    count: fast,
                    more: "",
                },
            ),
            (
                "-1khz",
                Periods {
                    us: 1000,
                    count: slow,
                    more: "",
                },
            ),
        ]
    }

    /// What is measured, in the order of the page.
    fn cases(plan: &Plan) -> Vec<Case> {
        let mut cases = Vec::new();
        for (suffix, periods) in Self::periods(plan) {
            let slow = !suffix.is_empty();
            if slow && plan.quick {
                continue;
            }
            let mut add = |load: Option<Load>, policy: &str| {
                let (label, title) = match load {
                    Some(load) => (load.name(), load.title()),
                    None => ("bare", "bare machine"),
                };
                let policed = match policy {
                    BASE => String::new(),
                    _ => format!(", {policy}"),
                };
                let every = if slow { ", every 1 ms" } else { "" };
                cases.push(Case {
                    label: with_policy(&format!("{label}{suffix}"), policy),
                    name: format!("{title}{policed}{every}"),
                    load,
                    policy: policy.to_owned(),
                    periods,
                });
            };
            add(None, BASE);
            if slow {
                // Policies are compared with the short period: it has ten times as many chances.
                add(Some(Load::Hackbench), BASE);
                continue;
            }
            add(Some(Load::Idle), BASE);
            for policy in &plan.policies {
                if matches!(aim(policy), Aim::AboveIdle(_)) {
                    add(Some(Load::Idle), policy);
                }
                add(Some(Load::Hackbench), policy);
            }
            add(Some(Load::Disk), BASE);
        }
        cases
    }
}

/// One run of the figure.
struct Case {
    label: String,
    /// For people.
    name: String,
    /// `None`: the bare machine.
    load: Option<Load>,
    policy: String,
    periods: Periods,
}

impl Experiment for Latency {
    fn name(&self) -> &'static str {
        "latency"
    }

    fn title(&self) -> &'static str {
        "Dispatch latency of the real-time guest"
    }

    fn question(&self) -> &'static str {
        "A task of the real-time guest is due at a fixed time. How many instructions later does it begin, and \
         does what Linux does on the same core matter? It renews figures 5 to 7 of *Solving the Lock Holder \
         Preemption Problem* (2012), which has averages of 2.3 to 24 µs beside hackbench."
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            ipus: 250,
            quantum: 200,
            seeds: 3,
            quick_seeds: 1,
        }
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let runs = Self::cases(plan).into_iter().map(|it| match it.load {
            None => run_bare(plan, it.label, it.periods),
            Some(load) => run_beside(plan, it.label, &it.policy, load, it.periods, None),
        });
        Ok(runs.collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let cases: Vec<_> = Self::cases(plan)
            .into_iter()
            .map(|it| (it.label, it.name))
            .collect();
        let bare = worst(results, "bare");
        let mut findings = Vec::new();
        let mut verdicts = Vec::new();
        for policy in &plan.policies {
            let loaded = worst(results, &with_policy("hackbench", policy));
            if let (Some(bare), Some(loaded)) = (bare, loaded) {
                findings.push(format!(
                    "Policy `{policy}`: the longest wait beside hackbench was {} instructions, {} more than on the bare \
                     machine ({}).",
                    grouped(loaded),
                    grouped(loaded - bare),
                    grouped(bare)
                ));
            }
            verdicts.push(verdict(results, policy));
        }
        if plan.policies.iter().any(|it| it == BASE) {
            let (idle, loaded) = (worst(results, "idle"), worst(results, "hackbench"));
            verdicts.push(Verdict {
                aim: format!("policy `{BASE}`: the same maximum with Linux idle or loaded"),
                measured: match (idle, loaded) {
                    (Some(idle), Some(loaded)) => {
                        format!("{} idle, {} loaded", grouped(idle), grouped(loaded))
                    }
                    _ => "no result".into(),
                },
                met: idle.zip(loaded).map(|(idle, loaded)| loaded <= idle * 1.05),
            });
        }
        // One run stands for all: interrupts that move nobody cost the same with every policy.
        let first = plan.policies.first().map_or(BASE, String::as_str);
        verdicts.extend(visits::verdicts(results, &with_policy("hackbench", first)));
        let lost = total(results, "lost") + total(results, "late");
        if results.all().next().is_some() {
            findings.push(match lost > 0.0 {
                true => format!("{} periods were lost or late.", grouped(lost)),
                false => "No period was lost or late.".into(),
            });
        }
        if let Some((visit, label)) = visits::longest(results, cases.iter().map(|it| it.0.as_str()))
        {
            findings.push(format!(
                "The longest stretch at EL2 without a look for interrupts, which are masked there, was {} instructions \
                 ({}, run `{label}`), apart from the start of a core and the end of a guest.",
                grouped(visit.longest_deaf as f64),
                visit.cause
            ));
        }
        let mut tables = vec![table(&cases, results)];
        let labels = plan.policies.iter().map(|it| with_policy("hackbench", it));
        tables.extend(labels.map(|it| visits::table(results, &it)));
        Evaluation {
            figure: figure(&cases, results),
            caption: "Histograms of dispatch latency, counts on a logarithmic axis".into(),
            findings,
            verdicts,
            tables,
            method: method(Self::periods(plan)[0].1, plan),
            summary: summary(&cases, results),
        }
    }
}

/// Whether the maximum beside hackbench is within a policy's aim.
fn verdict(results: &Results, policy: &str) -> Verdict {
    let loaded = worst(results, &with_policy("hackbench", policy));
    let (reference, aim, room) = match aim(policy) {
        Aim::AboveBare(room) => (
            worst(results, "bare"),
            format!("at most the bare machine's + {}", grouped(room)),
            Some(room),
        ),
        Aim::AboveIdle(room) => (
            worst(results, &with_policy("idle", policy)),
            format!("at most its own with Linux idle + {}", grouped(room)),
            Some(room),
        ),
        Aim::Shown => (
            worst(results, "bare"),
            "no aim, above the bare machine's".into(),
            None,
        ),
    };
    let above = loaded
        .zip(reference)
        .map(|(loaded, reference)| loaded - reference);
    Verdict {
        aim: format!("policy `{policy}`: maximum beside hackbench {aim}"),
        measured: above.map_or("no result".into(), |it| format!("+ {}", grouped(it))),
        met: above.zip(room).map(|(above, room)| above <= room),
    }
}

/// How latencies are taken.
pub fn method(periods: Periods, plan: &Plan) -> Vec<String> {
    vec![
        format!(
            "{} periods of {} µs. Latency is the counter at the task's first instruction minus the due time, which is \
             absolute and does not drift; the counter runs at 62.5 MHz, so it counts in steps of {} instructions.",
            grouped(periods.count as f64),
            periods.us,
            plan.ipus * 16 / 1000
        ),
        "Both guests start together, so the first three virtual seconds or less are Linux's boot, also where \
         it says that Linux is idle; what Linux then does lasts to the end."
            .into(),
    ]
}

/// The largest latency over all seeds, in instructions.
pub fn worst(results: &Results, label: &str) -> Option<f64> {
    let values = results
        .of(label)
        .iter()
        .filter_map(|it| it.rt_instructions("max_ns"));
    values.reduce(f64::max)
}

fn total(results: &Results, key: &str) -> f64 {
    results.all().filter_map(|it| it.rt(key)).sum()
}

/// One histogram for each case, all seeds together, all with rows of the same width.
pub fn figure(cases: &[(String, String)], results: &Results) -> Figure {
    let largest = cases.iter().filter_map(|(label, _)| worst(results, label));
    let outcomes = || cases.iter().flat_map(|(label, _)| results.of(label));
    // No finer than the guests' own rows.
    let rows = outcomes().map(|it| it.instructions(it.console.histogram.width_ns as f64));
    let width = row_width(
        largest
            .fold(0.0, f64::max)
            .max(200.0 * rows.fold(0.0, f64::max)),
    );
    let panels = cases
        .iter()
        .map(|(label, name)| {
            let outcomes = results.of(label);
            let spread = |key| Spread::of(outcomes.iter().filter_map(|it| it.rt_instructions(key)));
            let facts = match (
                spread("min_ns"),
                spread("avg_ns"),
                spread("p99_9_ns"),
                spread("max_ns"),
            ) {
                (Some(min), Some(avg), Some(tail), Some(max)) => format!(
                    "minimum {} · average {} · 99.9 % {} · maximum {}",
                    grouped(min.low),
                    grouped(avg.median),
                    grouped(tail.high),
                    grouped(max.high)
                ),
                _ => "no result".into(),
            };
            let max = spread("max_ns").map(|it| ("max".to_owned(), it.high));
            Panel {
                name: name.clone(),
                bars: bars(outcomes, width),
                facts,
                marks: max.into_iter().collect(),
            }
        })
        .collect();
    Figure::Histograms(Histograms {
        title: "Dispatch latency of the real-time guest".into(),
        y_title: format!("periods in each {width} instructions, all seeds together (logarithmic)"),
        x_title: "instructions from due time to the task's first instruction".into(),
        logarithmic: false,
        panels,
    })
}

/// A round width with which `largest` takes about 200 rows.
fn row_width(largest: f64) -> f64 {
    // A multiple of a counter tick at 250 instructions a microsecond, so that rows hold equally many.
    const WIDTHS: [f64; 9] = [4.0, 8.0, 20.0, 40.0, 100.0, 200.0, 400.0, 1000.0, 2000.0];
    let wanted = largest / 200.0;
    WIDTHS
        .into_iter()
        .find(|&it| it >= wanted)
        .unwrap_or(wanted)
}

/// Rows of this width over all seeds, in instructions: from, to, count.
fn bars(outcomes: &[Outcome], width: f64) -> Vec<(f64, f64, u64)> {
    let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
    let mut bars = Vec::new();
    for outcome in outcomes {
        let histogram = &outcome.console.histogram;
        for &(start, count) in &histogram.rows {
            let row = (outcome.instructions(start as f64) / width) as u64;
            *rows.entry(row).or_default() += count;
        }
        // What the coarse table has above its last row: where between they lie is not known.
        if let (Some(max), Some(&(last, _))) =
            (outcome.rt_instructions("max_ns"), histogram.rows.last())
            && histogram.above > 0
        {
            let from = outcome.instructions((last + histogram.width_ns) as f64);
            bars.push((from, max.max(from), histogram.above));
        }
    }
    bars.extend(rows.into_iter().map(|(row, count)| {
        let from = row as f64 * width;
        (from, from + width, count)
    }));
    bars
}

/// Latencies in instructions.
pub fn table(cases: &[(String, String)], results: &Results) -> Table {
    let columns = [
        "", "minimum", "average", "99.9 %", "maximum", "lost", "late",
    ];
    let mut table = Table::new(
        "Latency in instructions: median of the seeds, and their range",
        &columns,
    );
    for (label, name) in cases {
        let outcomes = results.of(label);
        let cell = |key: &str| {
            let spread = Spread::of(outcomes.iter().filter_map(|it| it.rt_instructions(key)));
            spread.map_or("-".into(), show)
        };
        let count = |key: &str| {
            let sum: f64 = outcomes.iter().filter_map(|it| it.rt(key)).sum();
            match outcomes.is_empty() {
                true => "-".into(),
                false => grouped(sum),
            }
        };
        let mut row = vec![name.clone()];
        row.extend(["min_ns", "avg_ns", "p99_9_ns", "max_ns"].map(cell));
        row.extend(["lost", "late"].map(count));
        table.rows.push(row);
    }
    table
}

fn show(spread: Spread) -> String {
    let (low, median, high) = (
        grouped(spread.low),
        grouped(spread.median),
        grouped(spread.high),
    );
    match low == high {
        true => median,
        false => format!("{median} ({low} to {high})"),
    }
}

/// For programs.
pub fn summary(cases: &[(String, String)], results: &Results) -> Value {
    let mut all = serde_json::Map::new();
    for (label, _) in cases {
        let spread = |key| {
            Spread::of(
                results
                    .of(label)
                    .iter()
                    .filter_map(|it| it.rt_instructions(key)),
            )
        };
        all.insert(
            label.clone(),
            json!({
                "minimum": spread("min_ns"),
                "average": spread("avg_ns"),
                "p99_9": spread("p99_9_ns"),
                "maximum": spread("max_ns"),
            }),
        );
    }
    json!({ "latency_instructions": all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::samples;

    fn plan() -> Plan {
        Plan {
            quick: true,
            policies: vec!["none".into()],
            yardstick: None,
            ipus: 250,
            quantum: 200,
        }
    }

    fn results(bare: u64, idle: u64, loaded: u64) -> Results {
        let mut results = Results::default();
        for (label, max) in [("bare", bare), ("idle", idle), ("hackbench", loaded)] {
            results.add(samples::rt(label, 1, [400, 800, 1200, max]));
        }
        results
    }

    #[test]
    fn the_aim_is_judged_by_the_largest_of_all() {
        let evaluation = Latency.evaluate(&plan(), &results(4000, 8000, 8000));
        // (8000 - 4000) ns are 1000 instructions.
        assert_eq!(evaluation.verdicts[0].measured, "+ 1,000");
        assert_eq!(evaluation.verdicts[0].met, Some(true));
        assert_eq!(evaluation.verdicts[1].met, Some(true));
        let evaluation = Latency.evaluate(&plan(), &results(4000, 8000, 40000));
        assert_eq!(evaluation.verdicts[0].met, Some(false));
        assert_eq!(evaluation.verdicts[1].met, Some(false));
    }

    fn policies(names: &[&str]) -> Plan {
        Plan {
            policies: names.iter().map(|&it| it.into()).collect(),
            ..plan()
        }
    }

    #[test]
    fn runs_keep_their_labels_and_policies_add_theirs() {
        let labels = |plan: &Plan| -> Vec<_> {
            let runs = Latency.runs(plan).unwrap();
            runs.into_iter().map(|it| it.label).collect()
        };
        assert_eq!(labels(&plan()), ["bare", "idle", "hackbench", "disk"]);
        assert_eq!(
            labels(&policies(&["none", "steal", "trap"])),
            [
                "bare",
                "idle",
                "hackbench",
                "hackbench-steal",
                "idle-trap",
                "hackbench-trap",
                "disk"
            ]
        );
        for run in Latency.runs(&policies(&["steal"])).unwrap() {
            if let Machine::Spumone(system) = run.machine {
                let steals = run.label == "hackbench-steal";
                assert_eq!(system.policy == "steal", steals, "{}", run.label);
            }
        }
    }

    #[test]
    fn each_policy_has_its_own_aim() {
        let mut results = results(4000, 8000, 8000);
        // In ns, 4 for an instruction.
        for (label, max) in [
            ("hackbench-steal", 4000 + 4 * 1501),
            ("hackbench-ondemand", 4000 + 4 * 2500),
            ("idle-trap", 40_000),
            ("hackbench-trap", 40_000 + 4 * 500),
            ("hackbench-delay", 400_000),
        ] {
            results.add(samples::rt(label, 1, [400, 800, 1200, max]));
        }
        let plan = policies(&["steal", "ondemand", "trap", "delay"]);
        let evaluation = Latency.evaluate(&plan, &results);
        let met: Vec<_> = evaluation.verdicts.iter().map(|it| it.met).collect();
        assert_eq!(met[..4], [Some(false), Some(true), Some(true), None]);
        assert_eq!(evaluation.verdicts[2].measured, "+ 500");
        assert_eq!(evaluation.verdicts[3].measured, "+ 99,000");
    }

    #[test]
    fn what_is_missing_has_no_verdict() {
        let evaluation = Latency.evaluate(&plan(), &Results::default());
        assert!(evaluation.verdicts.iter().all(|it| it.met.is_none()));
    }

    #[test]
    fn rows_of_several_seeds_add_up() {
        let outcomes = [1, 2].map(|seed| samples::rt("a", seed, [400, 800, 1200, 4000]));
        // 400 ns are 100 instructions, 1200 ns are 300.
        assert_eq!(
            bars(&outcomes, 100.0),
            [(100.0, 200.0, 180), (300.0, 400.0, 18)]
        );
        assert_eq!(bars(&outcomes, 400.0), [(0.0, 400.0, 198)]);
    }

    #[test]
    fn rows_are_of_round_widths() {
        assert_eq!(row_width(5388.0), 40.0);
        assert_eq!(row_width(0.0), 4.0);
    }
}
