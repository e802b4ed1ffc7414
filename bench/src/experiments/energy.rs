// SPDX-License-Identifier: MIT OR Apache-2.0
//! `energy`: how many cores are on in each mode of `[power]`, by the load; what that costs Linux, and whether the real-time guest notices it.

pub(super) mod cores;
mod measured;
mod runs;
mod words;

pub use self::cores::least;
pub use self::measured::full;

use self::measured::{Measured, load, spread, throughput};
use self::runs::{
    CORES, Case, HALF, Kind, Load, PERFORMANCE, POLICY, QUARTER, SAVING, cases, kinds, loads,
};
use super::{About, Defaults, Evaluation, Experiment, Picture, Plan};
use crate::machine::Run;
use crate::plot::{Curve, Dot, Dots, Figure, Line, Lines, Row};
use crate::results::Results;

/// The figure.
pub struct Energy;

/// The loads of the picture, from none to the whole machine.
const STEPS: [Load; 4] = [Load::Idle, QUARTER, HALF, Load::Full];

const ABOUT: About = About {
    name: "energy",
    title: "Cores that follow the load",
    question: "With `[power]`, cores that are not needed go off. How many cores are on in each mode, by what Linux does beside a real-time \
        guest, and how many are the least possible? What does that cost Linux, how soon do cores come and go, and does the real-time guest \
        notice it?",
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
        cases(plan).into_iter().map(|it| it.run(plan)).collect()
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        Evaluation {
            figure: Figure::Lines(by_work(results)),
            caption: "How many cores are on by the work that they do, a line for each mode".into(),
            further: vec![
                Picture {
                    name: "cores",
                    figure: Figure::Dots(cores(plan, results)),
                    caption: "How many cores are on, by load and by what turns cores off".into(),
                },
                Picture {
                    name: "throughput",
                    figure: Figure::Dots(throughputs(plan, results)),
                    caption: "Work that Linux does in a second, by load and mode, over that with all cores on"
                        .into(),
                },
            ],
            findings: words::findings(plan, results),
            verdicts: words::verdicts(plan, results),
            tables: vec![
                words::cores_table(plan, results),
                words::times_table(plan, results),
                words::waits_table(plan, results),
            ],
            method: words::method(),
            summary: words::summary(plan, results),
        }
    }
}

/// Cores that are on, by work.
fn by_work(results: &Results) -> Lines {
    let line = |kind| {
        let points = STEPS.into_iter().filter_map(|load| {
            let case = Case { load, rt: 0, kind };
            Some((work(results, case)?, spread(results, case, Measured::paid)?))
        });
        Line {
            name: kind.title().replace('`', ""),
            points: points.collect(),
        }
    };
    let all = [Kind::Mode(PERFORMANCE)]
        .into_iter()
        .chain(SAVING.map(Kind::Mode))
        .chain([Kind::Hotplug]);
    let least = |mode: &str| {
        let full = full(mode)?;
        // A line from one number of cores to the next, as cores are whole.
        let steps = (1..=CORES).flat_map(|cores| {
            let [from, to] = [cores - 1, cores].map(|it| f64::from(it) * full);
            let to = if cores == CORES { f64::from(CORES) } else { to };
            [(from, f64::from(cores)), (to, f64::from(cores))]
        });
        Some(Curve {
            name: "least, with a reserve".into(),
            points: steps.collect(),
        })
    };
    let busy = Curve {
        name: "cores that execute".into(),
        points: vec![(0.0, 0.0), (f64::from(CORES), f64::from(CORES))],
    };
    Lines {
        title: "Cores that are on, by the work done".into(),
        y_title: "core-seconds in a second, with what it costs to turn cores off and on".into(),
        x_title: "work done in a second: cores that it keeps busy (idle, 25 %, 50 %, hackbench)"
            .into(),
        lines: all.map(line).collect(),
        curves: least(SAVING[0]).into_iter().chain([busy]).collect(),
        references: Vec::new(),
    }
}

/// The work that is done in a second, in the number of cores that it keeps busy while all are on.
fn work(results: &Results, case: Case) -> Option<f64> {
    let done = throughput(results, case).map_or(1.0, |it| it.median);
    Some(load(results, case)?.median * done)
}

fn rows(plan: &Plan, dot: impl Fn(Case) -> Option<Dot>) -> Vec<Row> {
    let row = |(load, rt)| {
        let cases = kinds(rt).into_iter().map(|kind| Case { load, rt, kind });
        let name = cases.clone().next()?.short();
        let dots: Vec<_> = cases.filter_map(&dot).collect();
        (!dots.is_empty()).then_some(Row { name, dots })
    };
    loads(plan).into_iter().filter_map(row).collect()
}

fn cores(plan: &Plan, results: &Results) -> Dots {
    Dots {
        title: "Cores that are on".into(),
        subtitle: format!(
            "mean of {CORES} cores, with what changes cost; bare Linux with cpuidle: cores that are not in WFI; rt: the real-time guest's share of core 0"
        ),
        x_title: "cores".into(),
        one: None,
        rows: rows(plan, |case| {
            Some(Dot {
                name: case.kind.title().replace('`', ""),
                value: spread(results, case, Measured::paid),
                decimals: 2,
            })
        }),
    }
}

fn throughputs(plan: &Plan, results: &Results) -> Dots {
    Dots {
        title: "Work that Linux does in a second, over that with all cores on".into(),
        subtitle: "median, and the range over seeds and repeats; rt: the real-time guest's share of core 0".into(),
        x_title: format!("throughput over that in mode {PERFORMANCE}"),
        one: Some(PERFORMANCE.into()),
        rows: rows(plan, |case| {
            let is_compared = matches!(case.kind, Kind::Mode(mode) if mode != PERFORMANCE);
            (is_compared && case.load != Load::Idle).then(|| Dot {
                name: case.kind.title().replace('`', ""),
                value: throughput(results, case),
                decimals: 3,
            })
        }),
    }
}

#[cfg(test)]
mod tests;
