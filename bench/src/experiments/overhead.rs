//! `overhead`: what Spumone costs Linux where there is nothing to share, and beside a real-time guest that only
//! takes its tick.

use super::yardstick::{self, Yardstick};
use super::{Defaults, Evaluation, Experiment, Plan, Table, Verdict, shares};
use crate::machine::{Linux, Machine, Order, Run};
use crate::plot::{Dot, Dots, Figure, Row};
use crate::results::{Outcome, Results};
use crate::stats::Spread;
use crate::system::System;
use serde_json::json;

/// The figure.
pub struct Overhead;

const CORES: u32 = 4;
/// Aim: time over the bare machine's, in both cases.
const AIM: f64 = 1.01;
/// What is measured by.
const YARDSTICKS: [&str; 3] = ["hackbench", "build", "dhrystone"];

/// What is under Linux and beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case {
    Bare,
    Alone,
    Tick,
}

const CASES: [Case; 3] = [Case::Bare, Case::Alone, Case::Tick];

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Alone => "alone",
            Self::Tick => "tick",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Bare => "bare machine",
            Self::Alone => "under Spumone alone",
            Self::Tick => "beside a 1 kHz tick",
        }
    }

    fn machine(self, linux: Linux, rt_seconds: f64) -> Machine {
        let rt = match self {
            Self::Bare => return Machine::BareLinux(linux),
            Self::Alone => None,
            Self::Tick => Some(format!(
                "period=1ms load=0% duration={}ms histogram=off",
                (rt_seconds * 1000.0).ceil()
            )),
        };
        Machine::Spumone(System {
            cores: CORES,
            policy: "none".into(),
            interrupt_priorities: None,
            rt,
            linux: Some(linux),
            disk: false,
            ..System::default()
        })
    }
}

fn label(yardstick: &Yardstick, case: Case) -> String {
    format!("{}-{}", yardstick.name, case.name())
}

/// Those of this plan.
fn yardsticks(plan: &Plan) -> Result<Vec<&'static Yardstick>, String> {
    match &plan.yardstick {
        Some(name) => Ok(vec![yardstick::find(name)?]),
        None if plan.quick => Ok(vec![yardstick::find(YARDSTICKS[0])?]),
        None => YARDSTICKS
            .iter()
            .map(|name| yardstick::find(name))
            .collect(),
    }
}

/// Length on four bare cores in seconds, and repeats.
fn size(plan: &Plan) -> (f64, u32) {
    match plan.quick {
        true => (0.3, 1),
        false => (1.0, 3),
    }
}

impl Experiment for Overhead {
    fn name(&self) -> &'static str {
        "overhead"
    }

    fn title(&self) -> &'static str {
        "What Linux pays for the hypervisor"
    }

    fn question(&self) -> &'static str {
        "How much slower is Linux under Spumone than on the bare machine: alone, and beside a real-time guest \
         that only takes its 1 kHz tick? It renews the kernel build of *Towards Co-existing of Linux and Real-Time OSes* (2011), \
         which took 1.4 % longer."
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            ipus: 250,
            quantum: 500,
            seeds: 5,
            quick_seeds: 1,
        }
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let (seconds, repeats) = size(plan);
        let length = seconds * f64::from(repeats);
        let mut runs = Vec::new();
        for yardstick in yardsticks(plan)? {
            for case in CASES {
                let linux = yardstick.linux(plan, CORES, seconds, repeats);
                let allowed = plan.boot_seconds() + 2.0 * length;
                runs.push(Run {
                    label: label(yardstick, case),
                    machine: case.machine(linux, allowed),
                    disk_mib: 0,
                    clock: plan.clock(None),
                    order: Order::LinuxFirst {
                        rt_until: (allowed * 1e9) as u64,
                    },
                    weight: ((2.0 + 4.0 * length * plan.speed()) * 1000.0) as u64,
                });
            }
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let yardsticks = yardsticks(plan).unwrap_or_default();
        let time = |yardstick: &Yardstick, case| {
            Spread::of(results.values(&label(yardstick, case), Outcome::seconds))
        };
        let ratio = |yardstick: &Yardstick, case| {
            let bare = time(yardstick, Case::Bare)?.median;
            Some(time(yardstick, case)?.over(bare))
        };
        let mut table = Table::new(
            "Seconds: median and range of seeds and repeats; over the bare machine's median",
            &["", "seconds", "ratio"],
        );
        let mut rows = Vec::new();
        let mut findings = Vec::new();
        let mut summary = serde_json::Map::new();
        for yardstick in &yardsticks {
            let mut row = Row {
                name: yardstick.name.into(),
                dots: Vec::new(),
            };
            for case in CASES {
                let (seconds, ratio) = (time(yardstick, case), ratio(yardstick, case));
                row.dots.push(Dot {
                    name: case.title().into(),
                    value: ratio,
                    decimals: 3,
                });
                table.rows.push(vec![
                    format!("{}, {}", yardstick.name, case.title()),
                    seconds.map_or("-".into(), |it| it.show(3)),
                    ratio.map_or("-".into(), |it| it.show(3)),
                ]);
                summary.insert(
                    label(yardstick, case),
                    json!({ "seconds": seconds, "ratio": ratio }),
                );
            }
            if let (Some(alone), Some(tick)) =
                (ratio(yardstick, Case::Alone), ratio(yardstick, Case::Tick))
            {
                findings.push(format!(
                    "`{}`: {} alone, {} beside the tick.",
                    yardstick.name,
                    per_cent(alone.median),
                    per_cent(tick.median)
                ));
            }
            let widths = CASES
                .into_iter()
                .filter_map(|case| Some((time(yardstick, case)?.width(), case)));
            let widest = widths.max_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((width, case)) = widest
                && width > AIM - 1.0
            {
                findings.push(format!(
                    "`{}`: its own spread over seeds and repeats, {:.1} % of the median from the smallest to the largest \
                     ({}), is wider than the aim of {:.1} %, so its verdict rests on the medians only.",
                    yardstick.name,
                    width * 100.0,
                    case.title(),
                    (AIM - 1.0) * 100.0
                ));
            }
            rows.push(row);
        }
        let runs = yardsticks
            .iter()
            .flat_map(|it| CASES.map(|case| (*it, case)));
        let runs = runs.map(|(yardstick, case)| {
            let name = format!("`{}`, {}", yardstick.name, case.title());
            (name, results.of(&label(yardstick, case)))
        });
        let verdict = |case: Case| {
            let ratios: Vec<_> = yardsticks
                .iter()
                .filter_map(|it| Some((ratio(it, case)?.median, it.name)))
                .collect();
            let worst = ratios.iter().copied().max_by(|a, b| a.0.total_cmp(&b.0));
            Verdict {
                aim: format!(
                    "{}: at most {} over the bare machine",
                    case.title(),
                    per_cent(AIM)
                ),
                measured: worst.map_or("no result".into(), |(it, name)| {
                    format!("{} ({name})", per_cent(it))
                }),
                met: worst.map(|(ratio, _)| ratio <= AIM),
            }
        };
        Evaluation {
            figure: Figure::Dots(Dots {
                title: "Time of Linux's work over that on the bare machine".into(),
                subtitle: "dot: median; bar: range of seeds and repeats".into(),
                x_title: "time over the bare machine's (4 cores)".into(),
                one: Some("bare".into()),
                rows,
            }),
            caption: "Time of Linux's work under Spumone over that on the bare machine".into(),
            findings,
            verdicts: vec![verdict(Case::Alone), verdict(Case::Tick)],
            tables: vec![table, shares::table(runs)],
            method: vec![
                "The same kernel, command line, CPUs and memory on the bare machine (no EL2) and under Spumone.".into(),
                format!("Linux measures itself, {} times a run.", size(plan).1),
                "What stage 2 costs in TLB misses is not in it, since the model has none: on a chip expect more."
                    .into(),
                "Where the time went is told of the last repeat. What the hypervisor and the real-time guest take there does \
                 not vary as the times do."
                    .into(),
            ],
            summary: summary.into(),
        }
    }
}

/// A ratio as what it adds: `+0.8 %`.
fn per_cent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    #[test]
    fn a_spread_wider_than_the_aim_is_said() {
        let mut results = Results::default();
        for (label, times) in [
            ("hackbench-bare", [1.96, 2.0, 2.03]),
            ("hackbench-alone", [1.94, 2.0, 2.06]),
            ("hackbench-tick", [2.01, 2.01, 2.01]),
            ("build-bare", [1.0, 1.002, 1.009]),
            ("build-alone", [1.0, 1.0, 1.0]),
            ("build-tick", [1.005, 1.006, 1.007]),
        ] {
            for (seed, time) in (1..).zip(times) {
                results.add(samples::linux(label, seed, &[time]));
            }
        }
        assert_eq!(
            Overhead.evaluate(&plan(), &results).findings,
            [
                "`hackbench`: +0.0 % alone, +0.5 % beside the tick.",
                "`hackbench`: its own spread over seeds and repeats, 6.0 % of the median from the smallest to the largest \
                 (under Spumone alone), is wider than the aim of 1.0 %, so its verdict rests on the medians only.",
                "`build`: -0.2 % alone, +0.4 % beside the tick.",
            ]
        );
    }

    #[test]
    fn the_worst_yardstick_decides() {
        let mut results = Results::default();
        for (label, time) in [
            ("hackbench-bare", 2.0),
            ("hackbench-alone", 2.01),
            ("hackbench-tick", 2.04),
            ("dhrystone-bare", 1.0),
            ("dhrystone-alone", 1.001),
            ("dhrystone-tick", 1.06),
        ] {
            results.add(samples::linux(label, 1, &[time]));
        }
        let evaluation = Overhead.evaluate(&plan(), &results);
        assert_eq!(evaluation.verdicts[0].measured, "+0.5 % (hackbench)");
        assert_eq!(evaluation.verdicts[0].met, Some(true));
        assert_eq!(evaluation.verdicts[1].measured, "+6.0 % (dhrystone)");
        assert_eq!(evaluation.verdicts[1].met, Some(false));
    }
}
