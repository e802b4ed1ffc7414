// SPDX-License-Identifier: MIT OR Apache-2.0
//! `yardsticks`: how Linux's benchmarks scale on the bare machine, from one core to four.

use super::yardstick::{self, Yardstick};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict, shares};
use crate::machine::{Machine, Order, Run};
use crate::plot::{Curve, Figure, Line, Lines};
use crate::results::{Outcome, Results};
use crate::stats::Spread;
use serde_json::json;

/// The figure.
pub struct Yardsticks;

const CORES: [u32; 4] = [1, 2, 3, 4];
/// A yardstick that gains less from three more cores cannot show the loss of one.
const LEAST_GAIN: f64 = 3.0;

fn label(yardstick: &Yardstick, cores: u32) -> String {
    format!("{}-{cores}", yardstick.name)
}

/// The yardsticks of this plan.
fn chosen(plan: &Plan) -> Result<Vec<&'static Yardstick>, String> {
    match &plan.yardstick {
        Some(name) => Ok(vec![yardstick::find(name)?]),
        None => Ok(yardstick::ALL.iter().collect()),
    }
}

/// Repeats in a run: seeds differ more than repeats do.
const REPEATS: u32 = 1;

/// Seconds on four cores.
fn seconds(plan: &Plan) -> f64 {
    match plan.quick {
        true => 0.15,
        false => 0.8,
    }
}

fn counted(cores: u32) -> String {
    match cores {
        1 => "1 core".into(),
        _ => format!("{cores} cores"),
    }
}

fn cores(plan: &Plan) -> &'static [u32] {
    match plan.quick {
        true => &[1, 4],
        false => &CORES,
    }
}

const ABOUT: About = About {
    name: "yardsticks",
    title: "How the yardsticks scale on the bare machine",
    question: "Other figures compare Linux beside a real-time guest with the bare machine with fewer cores. So, how much faster does \
        each yardstick become from one core to four, without a hypervisor?",
    defaults: Defaults::THROUGHPUT,
};

impl Experiment for Yardsticks {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let seconds = seconds(plan);
        let mut runs = Vec::new();
        for yardstick in chosen(plan)? {
            for &cores in cores(plan) {
                runs.push(Run {
                    label: label(yardstick, cores),
                    machine: Machine::BareLinux(yardstick.linux(plan, cores, seconds, REPEATS)),
                    disk_mib: 0,
                    clock: plan.clock(None),
                    order: Order::Any,
                });
            }
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let chosen = chosen(plan).unwrap_or_default();
        let time = |yardstick: &Yardstick, cores| {
            Spread::of(results.values(&label(yardstick, cores), Outcome::seconds))
        };
        let mut columns = vec!["".to_owned()];
        columns.extend(cores(plan).iter().map(|&it| format!("{}, s", counted(it))));
        columns.push("speed-up".into());
        let mut table = Table {
            title: "Seconds, median and range; speed-up from one core to four".into(),
            columns,
            rows: Vec::new(),
        };
        let mut lines = Vec::new();
        let mut summary = serde_json::Map::new();
        let mut gains = Vec::new();
        for yardstick in &chosen {
            let one = time(yardstick, 1).map(|it| it.median);
            let mut row = vec![format!("`{}`: {}", yardstick.name, yardstick.what)];
            let mut points = Vec::new();
            for &cores in cores(plan) {
                let spread = time(yardstick, cores);
                row.push(spread.map_or("-".into(), |it| it.show(3)));
                if let (Some(one), Some(spread)) = (one, spread) {
                    let gains = [spread.low, spread.median, spread.high].map(|it| one / it);
                    points.extend(Spread::of(gains).map(|it| (f64::from(cores), it)));
                }
            }
            let gain = one
                .zip(time(yardstick, 4))
                .map(|(one, four)| one / four.median);
            row.push(gain.map_or("-".into(), |it| format!("{it:.2}")));
            table.rows.push(row);
            let seconds: Vec<_> = cores(plan)
                .iter()
                .map(|&it| json!({ "cores": it, "seconds": time(yardstick, it) }))
                .collect();
            summary.insert(
                yardstick.name.into(),
                json!({ "times": seconds, "speed_up": gain }),
            );
            gains.extend(gain.map(|it| (it, yardstick.name)));
            lines.push(Line {
                name: yardstick.name.into(),
                points,
            });
        }
        gains.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut findings = match (gains.first(), gains.last()) {
            (Some((least, worst)), Some((most, best))) if gains.len() > 1 => vec![format!(
                "From one core to four, `{worst}` becomes {least:.2} times as fast, `{best}` {most:.2} times."
            )],
            (Some((gain, name)), _) => vec![format!(
                "From one core to four, `{name}` becomes {gain:.2} times as fast."
            )],
            _ => Vec::new(),
        };
        // More than the number of cores: they execute less in all.
        for it in &chosen {
            let gain = gains
                .iter()
                .find(|gain| gain.1 == it.name)
                .map_or(0.0, |gain| gain.0);
            let busy = |cores| shares::busy(results.of(&label(it, cores)));
            if gain > 4.0
                && let Some((one, four)) = busy(1).zip(busy(4))
            {
                findings.push(format!(
                    "`{}` gains more than four cores give, since four execute {:.1} % less in all for the same work.",
                    it.name,
                    100.0 * (1.0 - four / one)
                ));
            }
        }
        let verdicts = gains
            .iter()
            .map(|&(gain, name)| Verdict {
                aim: format!(
                    "`{name}` becomes at least {LEAST_GAIN:.0} times as fast on four cores"
                ),
                measured: format!("{gain:.2} times"),
                met: Some(gain >= LEAST_GAIN),
            })
            .collect();
        let both_ends = || {
            let runs = chosen.iter().flat_map(|it| [1, 4].map(|cores| (it, cores)));
            runs.map(|(it, cores)| {
                let name = format!("`{}`, {}", it.name, counted(cores));
                (name, results.of(&label(it, cores)))
            })
        };
        Evaluation {
            figure: Figure::Lines(Lines {
                title: "Speed-up of Linux's yardsticks on the bare machine".into(),
                y_title:
                    "speed over that of one core; median, and the range over seeds"
                        .into(),
                x_title: "cores".into(),
                lines,
                curves: vec![Curve {
                    name: "perfect".into(),
                    points: vec![(1.0, 1.0), (4.0, 4.0)],
                }],
                references: Vec::new(),
            }),
            further: Vec::new(),
            caption: "Speed-up of Linux's yardsticks from one bare core to four".into(),
            findings,
            verdicts,
            tables: vec![
                table,
                shares::table(both_ends()),
                shares::functions(both_ends()),
            ],
            method: vec![
                "The same amount of work on each number of cores, as many processes as cores (hackbench: always 40); \
                 Linux measures itself, once a run."
                    .into(),
            ],
            summary: summary.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    #[test]
    fn the_speed_up_is_told_by_medians() {
        let mut results = Results::default();
        for (label, time) in [
            ("dhrystone-1", 4.0),
            ("dhrystone-4", 1.0),
            ("hackbench-1", 3.0),
            ("hackbench-4", 1.0),
        ] {
            results.add(samples::linux(label, 1, &[time, time * 1.01, time]));
        }
        let evaluation = Yardsticks.evaluate(&plan(), &results);
        assert_eq!(
            evaluation.findings,
            [
                "From one core to four, `hackbench` becomes 3.00 times as fast, `dhrystone` 4.00 times."
            ]
        );
    }
}
