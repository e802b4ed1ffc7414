// SPDX-License-Identifier: MIT OR Apache-2.0
//! `early`: what a switch to the real-time guest before its timer expires (`wake-early`) is worth, and what it costs Linux.

use super::beside::{self, Load, Periods};
use super::dispatch::{self, Named};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::machine::{Machine, Run};
use crate::plot::{Curve, Figure, Line, Lines};
use crate::results::{Outcome, Results};
use crate::stats::{Mean, Spread, grouped};
use serde_json::{Value, json};

/// The figure.
pub struct EarlySwitches;

/// How early the real-time guest is woken.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Early {
    /// When its timer expires.
    Off,
    /// As early as a switch takes, as it is without `wake-early`.
    BySwitch,
    /// So many microseconds.
    Microseconds(u32),
}

impl Early {
    fn label(self) -> String {
        match self {
            Self::Off => "off".into(),
            Self::BySwitch => "auto".into(),
            Self::Microseconds(us) => us.to_string(),
        }
    }

    /// The value of `wake-early`.
    fn value(self) -> String {
        match self {
            Self::Microseconds(us) => format!("{us}us"),
            word => word.label(),
        }
    }

    fn title(self) -> String {
        match self {
            Self::Off => "woken when its timer expires".into(),
            Self::BySwitch => "woken as early as a switch takes (the default)".into(),
            Self::Microseconds(us) => format!("woken {us} µs early"),
        }
    }
}

/// How early it is woken beside hackbench.
const ALL: [Early; 5] = [
    Early::Off,
    Early::BySwitch,
    Early::Microseconds(2),
    Early::Microseconds(4),
    LONG,
];
/// How early it is woken beside all loads, and where Linux's throughput is measured.
const MAIN: [Early; 3] = [Early::Off, Early::BySwitch, LONG];
/// The longest time, which is long enough for a switch and for what a core does at EL2 meanwhile.
const LONG_US: u32 = 8;
const LONG: Early = Early::Microseconds(LONG_US);
/// Loads of Linux.
const LOADS: [Load; 3] = [Load::Idle, Load::Hackbench, Load::Disk];
/// Aims with [`LONG_US`], in instructions above the bare machine's longest wait: for the longest wait, and for the average.
const ROOM: [f64; 2] = [1000.0, 700.0];
/// Aim: time of Linux's work beside a 1 kHz task, over the time without early switches.
const AIM: f64 = 1.01;
/// Periods of the task beside which Linux's throughput is measured, in microseconds.
const PERIODS_US: [u64; 2] = [1000, 100];
const POLICY: &str = "steal";
const BARE: &str = "bare";

fn periods(plan: &Plan) -> Periods {
    Periods {
        us: 100,
        count: if plan.quick { 2_000 } else { 20_000 },
        // Linux has booted then.
        warmup: 30_000,
        more: "",
    }
}

/// What the latencies are measured beside, and how early the guest is woken.
fn latencies(plan: &Plan) -> Vec<(Load, Early)> {
    let loads = if plan.quick { &LOADS[1..2] } else { &LOADS[..] };
    let each = loads
        .iter()
        .flat_map(|&load| ALL.map(|early| (load, early)));
    each.filter(|(load, early)| MAIN.contains(early) || *load == Load::Hackbench && !plan.quick)
        .collect()
}

fn latency_label(load: Load, early: Early) -> String {
    format!("{}-early-{}", load.name(), early.label())
}

fn throughput_label(period_us: u64, early: Early) -> String {
    format!("period-{period_us}-early-{}", early.label())
}

/// Has the real-time guest of a run be woken early.
fn woken_early(mut run: Run, early: Early) -> Run {
    if let Machine::Spumone(system) = &mut run.machine {
        system
            .rt
            .iter_mut()
            .for_each(|rt| rt.wake_early = Some(early.value()));
    }
    run
}

fn latency_run(plan: &Plan, load: Load, early: Early) -> Run {
    let label = latency_label(load, early);
    let run = beside::run_beside(plan, label, POLICY, load, periods(plan), None);
    woken_early(run, early)
}

fn throughput_run(plan: &Plan, period_us: u64, early: Early) -> Result<Run, String> {
    let run =
        beside::hackbench_beside(plan, throughput_label(period_us, early), POLICY, period_us)?;
    Ok(woken_early(run, early))
}

/// One latency of all seeds, in instructions.
fn wait(results: &Results, label: &str, key: &str) -> Option<Spread> {
    let outcomes = results.of(label).iter();
    Spread::of(outcomes.filter_map(|it| it.rt_instructions(key)))
}

/// Time of hackbench over the time without early switches.
fn cost(results: &Results, period_us: u64, early: Early) -> Option<Mean> {
    let time = |early| {
        let label = throughput_label(period_us, early);
        Mean::of(results.values(&label, Outcome::seconds))
    };
    Some(time(early)?.over(time(Early::Off)?))
}

const ABOUT: About = About {
    name: "early",
    title: "What a switch before the timer is worth",
    question: "With `wake-early` a core switches to the real-time guest some microseconds before the guest's timer expires, and waits. \
        How much sooner does the guest's task begin, and what does that cost Linux?",
    defaults: Defaults {
        policies: &[POLICY],
        quick_policies: &[POLICY],
        ..Defaults::LATENCY
    },
};

impl Experiment for EarlySwitches {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let mut runs = vec![beside::run_bare(plan, BARE.into(), periods(plan))];
        let latencies = latencies(plan).into_iter();
        runs.extend(latencies.map(|(load, early)| latency_run(plan, load, early)));
        if !plan.quick {
            for period_us in PERIODS_US {
                for early in MAIN {
                    runs.push(throughput_run(plan, period_us, early)?);
                }
            }
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        Evaluation {
            figure: Figure::Lines(Lines {
                title: "Waits of the real-time guest beside hackbench, by how early it is woken"
                    .into(),
                y_title: "instructions from due time to the task's first instruction".into(),
                x_title: "µs before its timer".into(),
                lines: lines(plan, results),
                // Not a reference: the picture would end a little above it.
                curves: bare_curve(results).into_iter().collect(),
                references: Vec::new(),
            }),
            further: Vec::new(),
            caption: "Average and longest wait of the real-time guest, by how early it is woken"
                .into(),
            findings: findings(results),
            verdicts: verdicts(plan, results),
            tables: vec![dispatch::table(&cases(plan), results), cost_table(results)],
            method: method(plan),
            summary: summary(plan, results),
        }
    }
}

/// The runs that measure latency, with their names on the page.
fn cases(plan: &Plan) -> Vec<Named> {
    let name = |load: Load, early: Early| format!("{}, {}", load.title(), early.title());
    let bare = (BARE.to_owned(), "bare machine".to_owned());
    let others = latencies(plan).into_iter();
    let others = others.map(|(load, early)| (latency_label(load, early), name(load, early)));
    [bare].into_iter().chain(others).collect()
}

fn lines(plan: &Plan, results: &Results) -> Vec<Line> {
    let keys = [
        ("longest", "max_ns"),
        ("99.9 %", "p99_9_ns"),
        ("average", "avg_ns"),
    ];
    let line = |(name, key): (&str, &str)| Line {
        name: name.into(),
        points: latencies(plan)
            .into_iter()
            .filter(|it| it.0 == Load::Hackbench)
            .filter_map(|(load, early)| {
                let us = match early {
                    Early::Off => 0,
                    // How early that is, varies.
                    Early::BySwitch => return None,
                    Early::Microseconds(us) => us,
                };
                let wait = wait(results, &latency_label(load, early), key)?;
                Some((f64::from(us), wait))
            })
            .collect(),
    };
    keys.into_iter().map(line).collect()
}

/// The longest wait on the bare machine.
fn bare_curve(results: &Results) -> Option<Curve> {
    let longest = dispatch::worst(results, BARE)?;
    Some(Curve {
        name: "bare machine, longest".into(),
        points: [0.0, f64::from(LONG_US)].map(|us| (us, longest)).to_vec(),
    })
}

fn findings(results: &Results) -> Vec<String> {
    let mut findings = Vec::new();
    for load in LOADS {
        for early in MAIN {
            let value = |key| wait(results, &latency_label(load, early), key);
            if let (Some(average), Some(longest)) = (value("avg_ns"), value("max_ns")) {
                findings.push(format!(
                    "{}, the real-time guest {}: its task begins {} instructions after its due time on average, and {} at most.",
                    load.title(),
                    early.title(),
                    grouped(average.median),
                    grouped(longest.high),
                ));
            }
        }
    }
    for period_us in PERIODS_US {
        for early in &MAIN[1..] {
            if let Some(cost) = cost(results, period_us, *early) {
                findings.push(format!(
                    "Beside a task with a period of {period_us} µs that is {}, hackbench takes {} times as long as without early switches.",
                    early.title(),
                    cost.show(3)
                ));
            }
        }
    }
    findings
}

fn verdicts(plan: &Plan, results: &Results) -> Vec<Verdict> {
    let bare = dispatch::worst(results, BARE);
    let above = |early: Early, what: &str, room: f64, key: &str| {
        let label = latency_label(Load::Hackbench, early);
        let both = wait(results, &label, key).map(|it| it.high).zip(bare);
        Verdict {
            aim: format!(
                "{} beside hackbench: {what} at most the bare machine's longest + {room}",
                early.title()
            ),
            measured: both.map_or("no result".into(), |(value, bare)| {
                format!("{}, bare {}", grouped(value), grouped(bare))
            }),
            met: both.map(|(value, bare)| value <= bare + room),
        }
    };
    let mut verdicts: Vec<_> = MAIN[1..]
        .iter()
        .flat_map(|&early| {
            [
                above(early, "longest wait", ROOM[0], "max_ns"),
                above(early, "average wait", ROOM[1], "avg_ns"),
            ]
        })
        .collect();
    let all = latencies(plan);
    let all = all.iter().map(|&(load, early)| latency_label(load, early));
    let missed: Vec<f64> = all
        .flat_map(|label| results.of(&label))
        .filter_map(|it| Some(it.rt("lost")? + it.rt("late")?))
        .collect();
    let sum = (!missed.is_empty()).then(|| missed.iter().sum::<f64>());
    verdicts.push(Verdict {
        aim: "no period is lost or late".into(),
        measured: sum.map_or("no result".into(), |sum| {
            format!("{} lost or late", grouped(sum))
        }),
        met: sum.map(|sum| sum == 0.0),
    });
    if !plan.quick {
        for early in &MAIN[1..] {
            let cost = cost(results, PERIODS_US[0], *early);
            verdicts.push(Verdict {
                aim: format!(
                    "beside a 1 kHz task that is {}, hackbench takes at most 1 % longer than without early switches",
                    early.title()
                ),
                measured: cost.map_or("no result".into(), |it| it.show(3)),
                met: cost.map(|it| it.mean <= AIM),
            });
        }
    }
    verdicts
}

fn cost_table(results: &Results) -> Table {
    let mut table = Table::new(
        "Seconds of hackbench in Linux: median and range of seeds and repeats; mean over the mean without early switches, with its standard error",
        &["period of the task", "woken early", "seconds", "ratio"],
    );
    for period_us in PERIODS_US {
        for early in MAIN {
            let label = throughput_label(period_us, early);
            let Some(seconds) = Spread::of(results.values(&label, Outcome::seconds)) else {
                continue;
            };
            let ratio = match early {
                Early::Off => None,
                early => cost(results, period_us, early).map(|it| it.show(3)),
            };
            table.rows.push(vec![
                format!("{period_us} µs"),
                early.title(),
                seconds.show(3),
                ratio.unwrap_or_else(|| "1".into()),
            ]);
        }
    }
    table
}

fn method(plan: &Plan) -> Vec<String> {
    let periods = periods(plan);
    vec![
        dispatch::definition(periods, plan),
        format!(
            "Both guests start together, under `{POLICY}`; the first {} periods do not count, and Linux has booted then.",
            grouped(periods.warmup as f64)
        ),
        "While the core waits for the timer, it executes nothing, and no other guest has it. At the end of the wait the timer's interrupt \
         comes to EL2, which delivers it and enters the guest (`docs/scheduling.md`)."
            .into(),
        format!(
            "Cost: the task takes its timer interrupt in each period and does nothing else. At 100 µs, {LONG_US} µs are 8 % of one of four cores."
        ),
    ]
}

fn summary(plan: &Plan, results: &Results) -> Value {
    let costs: Vec<_> = PERIODS_US
        .into_iter()
        .flat_map(|period_us| MAIN[1..].iter().map(move |&early| (period_us, early)))
        .map(|(period_us, early)| {
            json!({ "period_us": period_us, "wake_early": early.value(), "hackbench_over_without": cost(results, period_us, early) })
        })
        .collect();
    json!({ "waits": dispatch::summary(&cases(plan), results), "costs": costs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    #[test]
    fn each_label_says_how_early_the_guest_is_woken() {
        for run in EarlySwitches.runs(&plan()).unwrap() {
            let Machine::Spumone(system) = &run.machine else {
                assert_eq!(run.label, BARE);
                continue;
            };
            let early = system.rt[0].wake_early.as_deref().unwrap();
            let early = early.trim_end_matches("us");
            assert_eq!(run.label.rsplit('-').next(), Some(early));
        }
    }

    #[test]
    fn waits_are_judged_by_the_bare_machine_and_work_by_its_time_without() {
        let mut results = Results::default();
        // In ns; an instruction takes 4.
        results.add(samples::rt(BARE, 1, [1, 2, 3, 2_000]));
        let label = latency_label(Load::Hackbench, LONG);
        results.add(samples::rt(&label, 1, [1, 4_700, 5_000, 6_100]));
        results.add(samples::linux(
            &throughput_label(1000, Early::Off),
            1,
            &[1.0, 1.0],
        ));
        results.add(samples::linux(
            &throughput_label(1000, LONG),
            1,
            &[1.02, 1.02],
        ));
        let verdicts = EarlySwitches.evaluate(&plan(), &results).verdicts;
        let met: Vec<_> = verdicts.iter().map(|it| it.met).collect();
        assert_eq!(
            met,
            [
                None,
                None,
                Some(false),
                Some(true),
                Some(true),
                None,
                Some(false)
            ],
            "{verdicts:?}"
        );
        assert_eq!(verdicts[2].measured, "1,525, bare 500");
        assert_eq!(verdicts[6].measured, "1.020 ± 0.000");
    }
}
