// SPDX-License-Identifier: MIT OR Apache-2.0
//! `energy`: how many cores are on in each mode of `[power]`, what that costs Linux, and whether the real-time guest notices it.

use super::beside::{self, Load, Periods};
use super::dispatch::{self, Named};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::clock::Mark;
use crate::machine::{Machine, Run};
use crate::plot::{Dot, Dots, Figure, Row};
use crate::results::{Outcome, Results};
use crate::stats::{Mean, Spread, grouped};
use serde_json::{Value, json};

/// The figure.
pub struct Energy;

const CORES: u32 = 4;
const POLICY: &str = "steal";
/// The modes of `[power]`; with the first one all cores stay on.
const MODES: [&str; 3] = [PERFORMANCE, "balanced", "saving"];
const PERFORMANCE: &str = "performance";
/// Loads of Linux.
const LOADS: [Load; 2] = [Load::Idle, Load::Hackbench];
/// The marks of the hypervisor when a core goes off, and when one that is off comes back (`hypervisor/src/steps.rs`).
const OFF: u64 = 0xfe01;
const ON: u64 = 0xfe02;
/// Aims: cores that are on while Linux idles, with what a wake-up of one takes; what a mode adds to the longest wait, in instructions; and
/// time of Linux's work over the time with all cores on.
const IDLE_CORES: f64 = 1.05;
const ROOM: f64 = 200.0;
const SLOWDOWN: f64 = 1.01;

fn periods(plan: &Plan) -> Periods {
    Periods {
        us: 1000,
        count: if plan.quick { 500 } else { 3000 },
        // Linux has booted then, and cores that are not needed have gone off.
        warmup: 4500,
        more: "",
    }
}

fn label(load: Load, mode: &str) -> String {
    format!("{}-{mode}", load.name())
}

fn throughput_label(mode: &str) -> String {
    format!("throughput-{mode}")
}

fn in_mode(mut run: Run, mode: &str) -> Run {
    if let Machine::Spumone(system) = &mut run.machine {
        system.power = (mode != PERFORMANCE).then(|| mode.into());
    }
    run
}

fn latency_run(plan: &Plan, load: Load, mode: &str) -> Run {
    let run = beside::run_beside(plan, label(load, mode), POLICY, load, periods(plan), None);
    in_mode(run, mode)
}

fn throughput_run(plan: &Plan, mode: &str) -> Result<Run, String> {
    let run = beside::hackbench_beside(plan, throughput_label(mode), POLICY, 1000)?;
    Ok(in_mode(run, mode))
}

/// How many cores were on, on average, from one time to another in nanoseconds. A core that was off and had something to decide counts as off
/// meanwhile.
fn cores_on(marks: &[Mark], from: u64, to: u64) -> f64 {
    let length = to.saturating_sub(from).max(1) as f64;
    let off: u64 = (0..CORES)
        .map(|core| {
            let changes = marks
                .iter()
                .filter(|it| it.core == Some(core) && matches!(it.mark, OFF | ON));
            let (mut since, mut off) = (None, 0);
            for change in changes {
                match (change.mark, since) {
                    (OFF, None) => since = Some(change.ns),
                    (ON, Some(begin)) => {
                        off += overlap((begin, change.ns), (from, to));
                        since = None;
                    }
                    _ => {}
                }
            }
            off + since.map_or(0, |begin| overlap((begin, to), (from, to)))
        })
        .sum();
    f64::from(CORES) - off as f64 / length
}

/// For how long two spans overlap.
fn overlap(one: (u64, u64), other: (u64, u64)) -> u64 {
    one.1.min(other.1).saturating_sub(one.0.max(other.0))
}

/// How many cores were on during the periods that count.
fn cores_on_in(plan: &Plan, outcome: &Outcome) -> f64 {
    let periods = periods(plan);
    let to = (beside::START_US + periods.length_us()) * 1000;
    let from = to.saturating_sub(periods.us * periods.count * 1000);
    cores_on(&outcome.clock.marks, from, to)
}

/// The same over all seeds.
fn spread(plan: &Plan, results: &Results, load: Load, mode: &str) -> Option<Spread> {
    let outcomes = results.of(&label(load, mode)).iter();
    Spread::of(outcomes.map(|it| cores_on_in(plan, it)))
}

/// Time of hackbench over the time with all cores on.
fn slowdown(results: &Results, mode: &str) -> Option<Mean> {
    let time = |mode| Mean::of(results.values(&throughput_label(mode), Outcome::seconds));
    Some(time(mode)?.over(time(PERFORMANCE)?))
}

/// All pairs of a load and a mode.
fn cases() -> impl Iterator<Item = (Load, &'static str)> {
    LOADS
        .into_iter()
        .flat_map(|load| MODES.into_iter().map(move |mode| (load, mode)))
}

fn named() -> Vec<Named> {
    let name =
        |(load, mode): (Load, &str)| (label(load, mode), format!("{}, `{mode}`", load.title()));
    cases().map(name).collect()
}

const ABOUT: About = About {
    name: "energy",
    title: "Cores that follow the load",
    question: "With `[power]`, cores that are not needed go off. How many cores are on in each mode, with a Linux that idles or works beside a \
        real-time guest? What does that cost Linux, and does the real-time guest notice it?",
    defaults: Defaults {
        policies: &[POLICY],
        quick_policies: &[POLICY],
        ..Defaults::LATENCY
    },
};

impl Experiment for Energy {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let mut runs: Vec<_> = cases()
            .map(|(load, mode)| latency_run(plan, load, mode))
            .collect();
        for mode in MODES {
            runs.push(throughput_run(plan, mode)?);
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        Evaluation {
            figure: Figure::Dots(Dots {
                title: "Cores that are on".into(),
                subtitle: format!(
                    "mean of {CORES} cores, beside a real-time guest with a period of 1 ms on core 0"
                ),
                x_title: "cores".into(),
                one: None,
                rows: LOADS
                    .map(|load| Row {
                        name: load.title().into(),
                        dots: MODES
                            .map(|mode| Dot {
                                name: mode.into(),
                                value: spread(plan, results, load, mode),
                                decimals: 2,
                            })
                            .into(),
                    })
                    .into(),
            }),
            further: Vec::new(),
            caption: "How many cores are on, by load and mode".into(),
            findings: findings(plan, results),
            verdicts: verdicts(plan, results),
            tables: vec![dispatch::table(&named(), results), cost_table(results)],
            method: method(plan),
            summary: summary(plan, results),
        }
    }
}

fn findings(plan: &Plan, results: &Results) -> Vec<String> {
    let of_cores = cases().filter_map(|(load, mode)| {
        let on = spread(plan, results, load, mode)?;
        let longest = dispatch::worst(results, &label(load, mode))?;
        Some(format!(
            "{}, mode `{mode}`: {} cores are on, on average; the real-time guest waits {} instructions at most.",
            load.title(),
            on.show(2),
            grouped(longest)
        ))
    });
    let of_work = MODES[1..].iter().filter_map(|mode| {
        Some(format!(
            "In mode `{mode}`, hackbench takes {} times as long as with all cores on.",
            slowdown(results, mode)?.show(3)
        ))
    });
    of_cores.chain(of_work).collect()
}

fn verdicts(plan: &Plan, results: &Results) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for mode in &MODES[1..] {
        let on = spread(plan, results, Load::Idle, mode);
        verdicts.push(Verdict {
            aim: format!("`{mode}`, Linux idle: at most {IDLE_CORES} cores on"),
            measured: on.map_or("no result".into(), |it| it.show(2)),
            met: on.map(|it| it.high <= IDLE_CORES),
        });
    }
    for load in LOADS {
        let longest = |mode| dispatch::worst(results, &label(load, mode));
        for mode in &MODES[1..] {
            let both = longest(mode).zip(longest(PERFORMANCE));
            verdicts.push(Verdict {
                aim: format!(
                    "`{mode}`, {}: the longest wait is at most that of `{PERFORMANCE}` + {ROOM}",
                    load.title()
                ),
                measured: both.map_or("no result".into(), |(value, all)| {
                    format!("{}, `{PERFORMANCE}` {}", grouped(value), grouped(all))
                }),
                met: both.map(|(value, all)| value <= all + ROOM),
            });
        }
    }
    let cost = slowdown(results, MODES[1]);
    verdicts.push(Verdict {
        aim: format!(
            "`{}`: hackbench takes at most 1 % longer than in `{PERFORMANCE}`",
            MODES[1]
        ),
        measured: cost.map_or("no result".into(), |it| it.show(3)),
        met: cost.map(|it| it.mean <= SLOWDOWN),
    });
    verdicts
}

fn cost_table(results: &Results) -> Table {
    let mut table = Table::new(
        "Seconds of hackbench in Linux: median and range of seeds and repeats; mean over the mean with all cores on, with its standard error",
        &["mode", "seconds", "ratio"],
    );
    for mode in MODES {
        let seconds = results.values(&throughput_label(mode), Outcome::seconds);
        if let Some(seconds) = Spread::of(seconds) {
            let ratio = match mode {
                PERFORMANCE => "1".into(),
                _ => slowdown(results, mode).map_or("-".into(), |it| it.show(3)),
            };
            table.rows.push(vec![mode.into(), seconds.show(3), ratio]);
        }
    }
    table
}

fn method(plan: &Plan) -> Vec<String> {
    let periods = periods(plan);
    vec![
        dispatch::definition(periods, plan),
        format!(
            "Both guests start together; the first {} periods do not count. Linux has booted then. Its four vCPUs may run on all four cores.",
            grouped(periods.warmup as f64)
        ),
        "A core is off from the time at which it has published that until it comes back because it is wanted (marks of the hypervisor, \
         `hypervisor/src/steps.rs`). It waits in WFI meanwhile; the hypervisor does not turn it off by a firmware call yet."
            .into(),
        "Cost: the same work in Linux, beside a task that takes a timer interrupt every 1 ms and does nothing else.".into(),
    ]
}

fn summary(plan: &Plan, results: &Results) -> Value {
    let on: Vec<_> = cases()
        .map(|(load, mode)| json!({ "load": load.name(), "mode": mode, "cores_on": spread(plan, results, load, mode) }))
        .collect();
    let cost = MODES
        .map(|mode| json!({ "mode": mode, "hackbench_over_performance": slowdown(results, mode) }));
    json!({ "cores": on, "waits": dispatch::summary(&named(), results), "costs": cost })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;

    fn mark(core: u32, mark: u64, ns: u64) -> Mark {
        Mark {
            mark,
            core: Some(core),
            ns,
            x0: None,
        }
    }

    #[test]
    fn a_core_is_off_between_its_marks() {
        let marks = [
            mark(3, OFF, 50),
            mark(2, OFF, 120),
            // It had something to decide meanwhile, and went off again.
            mark(2, OFF, 130),
            mark(2, ON, 140),
            mark(3, ON, 250),
            mark(1, OFF, 180),
        ];
        // Core 3 was off all the time, core 2 for a fifth of it, core 1 for another fifth.
        assert!((cores_on(&marks, 100, 200) - 2.6).abs() < 1e-9);
        assert!((cores_on(&marks, 300, 400) - 3.0).abs() < 1e-9);
        assert!((cores_on(&[], 0, 0) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn each_run_has_the_mode_that_its_label_says() {
        for run in Energy.runs(&plan()).unwrap() {
            let Machine::Spumone(system) = &run.machine else {
                panic!("{}", run.label);
            };
            let mode = system.power.as_deref().unwrap_or(PERFORMANCE);
            assert!(run.label.ends_with(mode), "{}: {mode}", run.label);
        }
    }
}
