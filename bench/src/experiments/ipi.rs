// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ipi`: the time of an interrupt between two vCPUs of a guest, while its target runs, was preempted, or has therefore changed
//! cores.

use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::machine::{Machine, Order, Run};
use crate::plot::{Figure, Histograms, Panel};
use crate::results::{Outcome, Results};
use crate::stats::grouped;
use crate::system::{Probe, Rt, System};
use serde_json::json;
use std::collections::BTreeMap;

/// The figure.
pub struct Ipi;

/// Marks of the probe's suite (`tests/guests/src/suites/ipi.rs`): begin and end of the measurement; the sender is about to write; an
/// interrupt is taken; the sender has written.
const BEGIN: u64 = 1;
const END: u64 = 2;
const SENT: u64 = 16;
const TAKEN: u64 = 17;
const GOES_ON: u64 = 18;

/// The compared policies, if the user names only the base.
const BASE: &str = "none";
const POLICIES: [&str; 2] = [BASE, "steal"];
const CORES: u32 = 3;
/// The sender has core 1, the target core 0 with the real-time guest, the third vCPU core 2.
const HOMES: [u32; 3] = [1, 0, 2];
/// Longest pause between two SGIs in microseconds: as long as a burst of the real-time guest and the pause after it, so
/// that SGIs are sent at all points of it.
const GAP_US: u64 = 5000;
const RT: &str = "period=1ms load=80% burst=5ms histogram=off";
/// Longest time for an SGI and the pause before it, in milliseconds; and for the start of both guests.
const EACH_MS: u64 = 10;
const START_MS: u64 = 200;
/// The aims where all cores are busy, in instructions: for 99.9 % of the interrupts, and for all.
const BUSY_999: f64 = 5_000.0;
const BUSY_MOST: f64 = 50_000.0;
/// A write that takes longer is one at which the sender has lost its core, in instructions: the others take some 200.
const LONGEST_WRITE: f64 = 5_000.0;
/// Rows of the histograms for each power of ten.
const ROWS_PER_DECADE: f64 = 20.0;

/// One run.
struct Case {
    label: String,
    /// The name on the page.
    name: String,
    policy: String,
    /// Whether there is a real-time guest.
    rt: bool,
    /// Whether the third vCPU always uses its core.
    busy: bool,
}

fn policies(plan: &Plan) -> Vec<String> {
    match &plan.policies[..] {
        [one] if one == BASE => POLICIES.map(Into::into).into(),
        named => named.to_vec(),
    }
}

fn cases(plan: &Plan) -> Vec<Case> {
    let mut cases = vec![Case {
        label: "running".into(),
        name: "the target runs".into(),
        policy: BASE.into(),
        rt: false,
        busy: false,
    }];
    for policy in policies(plan) {
        let name = format!("real-time guest on the target's core, policy {policy}");
        if policy == BASE {
            // No vCPU changes cores, so the load of the other cores does not matter.
            cases.push(Case {
                label: policy.clone(),
                name,
                policy,
                rt: true,
                busy: false,
            });
            continue;
        }
        for (suffix, others, busy) in [
            ("idle", "a core is idle", false),
            ("busy", "all cores are busy", true),
        ] {
            cases.push(Case {
                label: format!("{policy}-{suffix}"),
                name: format!("{name}, {others}"),
                policy: policy.clone(),
                rt: true,
                busy,
            });
        }
    }
    cases
}

fn count(plan: &Plan) -> u64 {
    if plan.quick { 150 } else { 1000 }
}

/// The time of an interrupt.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Time {
    /// In instructions, from the write to the handler. If the sender has lost its core, from when it goes on.
    instructions: f64,
    /// Whether the sender lost its core at the write, and the interrupt was taken after it went on.
    has_lost_core: bool,
}

/// The times of one run, in order.
fn times(outcome: &Outcome) -> Vec<Time> {
    let marks = &outcome.clock.marks;
    let at = |number| marks.iter().find(|it| it.mark == number).map(|it| it.ns);
    let (Some(begin), Some(end)) = (at(BEGIN), at(END)) else {
        return Vec::new();
    };
    let of = |number| {
        let meant = marks.iter().filter(move |it| it.mark == number);
        meant
            .map(|it| it.ns)
            .filter(|ns| (begin..=end).contains(ns))
    };
    // The next SGI is sent when the last one was taken, so the marks come in pairs.
    let between = |from: u64, to: u64| outcome.instructions(to as f64 - from as f64);
    of(SENT)
        .zip(of(TAKEN))
        .zip(of(GOES_ON))
        .map(|((sent, taken), goes_on)| {
            let has_lost_core = between(sent, goes_on) > LONGEST_WRITE && taken > goes_on;
            let from = if has_lost_core { goes_on } else { sent };
            Time {
                instructions: between(from, taken),
                has_lost_core,
            }
        })
        .collect()
}

/// The times of all seeds, sorted.
fn sorted(times: &[Time]) -> Vec<f64> {
    let mut times: Vec<_> = times.iter().map(|it| it.instructions).collect();
    times.sort_by(f64::total_cmp);
    times
}

/// The value below which this share of all values is.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get((last as f64 * share).ceil() as usize).copied()
}

/// Rows of equal width on a logarithmic axis.
fn bars(times: &[f64]) -> Vec<(f64, f64, u64)> {
    let mut rows: BTreeMap<i32, u64> = BTreeMap::new();
    for time in times {
        let row = (time.max(1.0).log10() * ROWS_PER_DECADE).floor() as i32;
        *rows.entry(row).or_default() += 1;
    }
    let edge = |row: i32| 10_f64.powf(f64::from(row) / ROWS_PER_DECADE);
    rows.into_iter()
        .map(|(row, count)| (edge(row), edge(row + 1), count))
        .collect()
}

/// Also in microseconds.
fn with_micros(instructions: f64, plan: &Plan) -> String {
    let micros = instructions / f64::from(plan.ipus);
    format!("{} instructions ({micros:.1} µs)", grouped(instructions))
}

const ABOUT: About = About {
    name: "ipi",
    title: "Interrupts between vCPUs whose target runs, was preempted, or moved",
    question: "How long does it take from the write of ICC_SGI1R_EL1 to the first instruction of the other vCPU's handler? In \
        *Solving the Lock Holder Preemption Problem* (2012), section 4.2, trap-based migration failed because interrupts \
        between CPUs were late.",
    defaults: Defaults {
        quantum: 50,
        ..Defaults::LATENCY
    },
};

impl Experiment for Ipi {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let count = count(plan);
        let length_ms = START_MS + EACH_MS * count;
        let runs = cases(plan).into_iter().map(|case| Run {
            label: case.label,
            machine: Machine::Spumone(System {
                cores: CORES,
                policy: case.policy,
                rt: case
                    .rt
                    .then(|| Rt::new(format!("{RT} duration={length_ms}ms")))
                    .into_iter()
                    .collect(),
                probe: Some(Probe {
                    homes: HOMES.into(),
                    bootargs: format!(
                        "suite=ipi count={count} gap={GAP_US} busy={}",
                        u8::from(case.busy)
                    ),
                    sets_power: false,
                }),
                ..System::default()
            }),
            disk_mib: 0,
            clock: plan.clock(None),
            order: match case.rt {
                true => Order::LinuxFirst {
                    rt_until: length_ms * 1_000_000,
                },
                false => Order::Any,
            },
        });
        Ok(runs.collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let mut table = Table::new(
            "From the write to the handler, in instructions, all seeds together",
            &[
                "",
                "interrupts",
                "minimum",
                "median",
                "99 %",
                "99.9 %",
                "maximum",
                "sender lost its core",
            ],
        );
        let (mut findings, mut verdicts) = (Vec::new(), Vec::new());
        let mut panels = Vec::new();
        let mut summary = serde_json::Map::new();
        for case in cases(plan) {
            let all = results.values(&case.label, times);
            let lost = all.iter().filter(|it| it.has_lost_core).count();
            let times = sorted(&all);
            let of = |share| quantile(&times, share);
            let cell = |share| of(share).map_or("-".into(), grouped);
            table.rows.push(vec![
                case.name.clone(),
                grouped(times.len() as f64),
                cell(0.0),
                cell(0.5),
                cell(0.99),
                cell(0.999),
                cell(1.0),
                grouped(lost as f64),
            ]);
            // Of 1,000 interrupts or fewer, 99.9 % would be all.
            let shown = |share| of(share).filter(|_| share == 1.0 || times.len() > 1_000);
            if case.busy {
                for (what, share, aim) in [("99.9 %", 0.999, BUSY_999), ("all", 1.0, BUSY_MOST)] {
                    verdicts.push(Verdict {
                        aim: format!("{}: {what} within {} instructions", case.name, grouped(aim)),
                        measured: shown(share).map_or("no result".into(), grouped),
                        met: shown(share).map(|it| it <= aim),
                    });
                }
            }
            if let (Some(median), Some(most)) = (of(0.5), of(1.0)) {
                findings.push(format!(
                    "{}: median {}, at most {}.",
                    case.name,
                    with_micros(median, plan),
                    with_micros(most, plan)
                ));
            }
            panels.push(Panel {
                name: case.name,
                bars: bars(&times),
                facts: match of(1.0) {
                    Some(_) => format!("median {} · maximum {}", cell(0.5), cell(1.0)),
                    None => "no result".into(),
                },
                marks: of(1.0)
                    .map(|it| ("max".to_owned(), it))
                    .into_iter()
                    .collect(),
            });
            summary.insert(
                case.label,
                json!({ "interrupts": times.len(), "minimum": of(0.0), "median": of(0.5), "p99": of(0.99),
                    "p999": of(0.999), "maximum": of(1.0), "sender_lost_core": lost }),
            );
        }
        Evaluation {
            figure: Figure::Histograms(Histograms {
                title: "Interrupts between vCPUs".into(),
                y_title: "interrupts, all seeds together; both axes logarithmic".into(),
                x_title: "instructions from the write of ICC_SGI1R_EL1 to the handler's first".into(),
                logarithmic: true,
                panels,
            }),
            further: Vec::new(),
            caption: "Histograms of the time that an interrupt between vCPUs takes, both axes logarithmic".into(),
            findings,
            verdicts,
            tables: vec![table],
            method: vec![
                format!(
                    "A bare-metal guest with three vCPUs on three cores. vCPU 0 sends {} SGIs to vCPU 1, which spins, each at a \
                     random time up to {} ms after the last one was taken, at other times with each seed. vCPU 2 sleeps, or spins.",
                    grouped(count(plan) as f64),
                    GAP_US / 1000
                ),
                "Where there is a real-time guest, FreeRTOS computes for 4 ms of every 5 ms on the core of vCPU 1.".into(),
                "Both vCPUs pass marks of the exact clock: the sender right before and after the write, the target as the first instruction \
                 of its vector."
                    .into(),
                "If the sender loses its core at the write, it is not known whether the interrupt was sent before that or after. If the target \
                 takes it after the sender went on, the time counts from there, and may be too short; the last column says how often that was \
                 so."
                    .into(),
                "A core sees the actions of another core up to a quantum early or late, so these times are exact to a quantum. On \
                 the bare machine the model has no time between write and handler, so a quantum is all that is measured there."
                    .into(),
            ],
            summary: summary.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Mark;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    fn outcome(label: &str, marks: &[(u64, u64)]) -> Outcome {
        let mut outcome = samples::outcome(label, 1, "");
        outcome.clock.marks = marks
            .iter()
            .map(|&(mark, ns)| Mark {
                mark,
                ns,
                core: None,
                x0: None,
            })
            .collect();
        outcome
    }

    #[test]
    fn each_write_meets_its_interrupt() {
        let marks = [
            // Before the begin and after the end: the probe's own wake-ups.
            (TAKEN, 5),
            (BEGIN, 1000),
            (SENT, 2000),
            (GOES_ON, 3000),
            (TAKEN, 6000),
            (SENT, 10_000),
            (TAKEN, 10_400),
            (GOES_ON, 10_800),
            (END, 20_000),
            (TAKEN, 21_000),
        ];
        let found = times(&outcome("a", &marks));
        assert_eq!(sorted(&found), [100.0, 1000.0]);
        assert!(found.iter().all(|it| !it.has_lost_core));
        assert!(times(&outcome("a", &marks[..4])).is_empty());
    }

    /// Only if the target has not taken the interrupt before the sender goes on.
    #[test]
    fn a_time_does_not_count_for_which_the_sender_had_no_core() {
        for (taken, instructions, has_lost_core) in
            [(4_000_000, 1_000_000.0, false), (8_004_000, 1_000.0, true)]
        {
            let mut marks = [
                (BEGIN, 0),
                (SENT, 0),
                (TAKEN, taken),
                (GOES_ON, 8_000_000),
                (END, u64::MAX),
            ];
            marks.sort_by_key(|&(_, ns)| ns);
            let expected = Time {
                instructions,
                has_lost_core,
            };
            assert_eq!(times(&outcome("a", &marks)), [expected]);
        }
    }

    #[test]
    fn every_case_has_its_numbers() {
        let mut results = Results::default();
        for (label, ns) in [("running", 2400), ("none", 16_000_000)] {
            let marks = [
                (BEGIN, 0),
                (SENT, 1000),
                (GOES_ON, 1800),
                (TAKEN, 1000 + ns),
                (END, u64::MAX),
            ];
            results.add(outcome(label, &marks));
        }
        let evaluation = Ipi.evaluate(&plan(), &results);
        assert_eq!(evaluation.tables[0].rows.len(), 4);
        assert_eq!(evaluation.tables[0].rows[1][5], "4,000,000");
        assert_eq!(evaluation.findings.len(), 2);
        evaluation.figure.svg().unwrap();
    }

    #[test]
    fn quantiles_are_values_that_were_measured() {
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&values, 0.0), Some(1.0));
        assert_eq!(quantile(&values, 0.5), Some(3.0));
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn what_is_too_short_to_be_told_is_in_the_first_row() {
        assert_eq!(bars(&[-40.0, 0.5, 1.0])[0].2, 3);
        let rows = bars(&[100.0]);
        assert!(rows[0].0 <= 100.0 && rows[0].1 > 100.0);
    }

    #[test]
    fn policies_are_compared_unless_named() {
        let labels = |names: &[&str]| -> Vec<_> {
            let plan = Plan {
                policies: names.iter().map(|&it| it.into()).collect(),
                ..plan()
            };
            cases(&plan).into_iter().map(|it| it.label).collect()
        };
        let both = ["running", "none", "steal-idle", "steal-busy"];
        assert_eq!(labels(&["none"]), both);
        assert_eq!(labels(&["trap"]), ["running", "trap-idle", "trap-busy"]);
    }
}
