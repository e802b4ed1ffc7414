// SPDX-License-Identifier: MIT OR Apache-2.0
//! `timer-on-shared-core`: the first hypothesis of *The influence of spinlocks on Linux on virtualized CPUs*: does
//! Linux measure time wrongly because its time-keeping CPU is preempted?

use super::bursts::{self, Bursts};
use super::yardstick::{self, Yardstick};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::machine::Run;
use crate::plot::{Curve, Figure, Line, Lines};
use crate::results::{Outcome, Results};
use crate::stats::Spread;
use serde_json::json;

/// The figure.
pub struct Timer;

const CORES: u32 = 4;
/// The work that is timed, between marks that the clock records, so that Linux and the clock measure the same.
const YARDSTICK: &str = "forkexec";
/// Aim: largest deviation of Linux's time from the clock's, in parts per million.
const AIM: f64 = 1000.0;
const PER_MILLION: f64 = 1e6;
/// Parts per million in a per cent.
const PER_CENT: f64 = 1e4;
/// Parts per million of a second, in microseconds.
const MICROS: f64 = 1e6;

/// The Linux CPU whose home is the core that the real-time guest shares. CPU 0 boots; a kernel without an idle tick may
/// pass its timekeeping to another CPU.
const HOMES: [(&str, &str, [u32; 4]); 2] = [
    (
        "cpu0",
        "CPU 0, which booted, is on the shared core",
        [0, 1, 2, 3],
    ),
    ("cpu3", "CPU 3 is on the shared core", [1, 2, 3, 0]),
];

impl Timer {
    fn yardstick(plan: &Plan) -> Result<&'static Yardstick, String> {
        yardstick::find(plan.yardstick.as_deref().unwrap_or(YARDSTICK))
    }

    fn loads(plan: &Plan) -> &'static [u32] {
        match plan.quick {
            true => &[0, 50],
            false => &[0, 25, 50, 75],
        }
    }

    /// Seconds of a repeat, and repeats.
    fn size(plan: &Plan) -> (f64, u32) {
        match plan.quick {
            true => (0.3, 1),
            false => (1.5, 2),
        }
    }
}

fn label(homes: &str, load: u32) -> String {
    format!("{homes}-load-{load:02}")
}

/// What Linux measured, and what the clock counted, in seconds, for each repeat.
fn repeats(outcome: &Outcome) -> impl Iterator<Item = (f64, f64)> {
    outcome.seconds().into_iter().zip(outcome.clock.repeats())
}

/// Linux's deviation in parts per million of what the clock counted, for each repeat.
fn deviations(outcome: &Outcome) -> Vec<f64> {
    let share = |(said, was): (f64, f64)| (said - was) / was * PER_MILLION;
    repeats(outcome).map(share).collect()
}

/// The same in microseconds.
fn differences(outcome: &Outcome) -> Vec<f64> {
    let micros = |(said, was): (f64, f64)| (said - was) * MICROS;
    repeats(outcome).map(micros).collect()
}

const ABOUT: About = About {
    name: "timer-on-shared-core",
    title: "Does Linux measure time rightly while its core is taken away?",
    question: "Hypothesis 1 of *The influence of spinlocks on Linux on virtualized CPUs*: when the core that takes Linux's \
        timer interrupt is shared with the real-time guest, ticks are lost and Linux measures too little. \
        There (Linux 2.6.16), measured times indeed became shorter as the load grew, until the interrupt was moved to \
        another core. Here the time that Linux measures is compared with that of the exact clock between the \
        same two points of the same program.",
    defaults: Defaults::THROUGHPUT,
};

impl Experiment for Timer {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let yardstick = Self::yardstick(plan)?;
        let (seconds, repeats) = Self::size(plan);
        let length = seconds * f64::from(repeats);
        let mut runs = Vec::new();
        for (homes, _, cores) in HOMES {
            for &load in Self::loads(plan) {
                let mut linux = yardstick.linux(plan, CORES, seconds, repeats);
                linux.homes = cores.to_vec();
                let bursts = Bursts {
                    load,
                    ms: if plan.quick { 100 } else { 500 },
                };
                let label = label(homes, load);
                runs.push(bursts::run_beside(
                    plan, label, "none", bursts, linux, length,
                ));
            }
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let mut table = Table::new(
            "How far off Linux was, in parts per million of what passed, and the time itself in seconds by the clock",
            &["", "load", "ppm", "seconds"],
        );
        let mut lines = Vec::new();
        let mut findings = Vec::new();
        let mut summary = serde_json::Map::new();
        let mut farthest: Option<f64> = None;
        let mut micros = Vec::new();
        for (homes, title, _) in HOMES {
            let mut points = Vec::new();
            for &load in Self::loads(plan) {
                let name = label(homes, load);
                let off = Spread::of(results.values(&name, deviations));
                micros.extend(results.values(&name, differences));
                let time = Spread::of(results.values(&name, |it| it.clock.repeats()));
                if let Some(off) = off {
                    points.push((f64::from(load), off));
                    let distance = off.low.abs().max(off.high.abs());
                    farthest = Some(farthest.map_or(distance, |it| it.max(distance)));
                }
                table.rows.push(vec![
                    title.into(),
                    format!("{load} %"),
                    off.map_or("-".into(), |it| it.show(1)),
                    time.map_or("-".into(), |it| it.show(3)),
                ]);
                summary.insert(name, json!({ "deviation_ppm": off, "seconds": time }));
            }
            lines.push(Line {
                name: match homes {
                    "cpu0" => "CPU 0 shared".into(),
                    _ => "CPU 3 shared".into(),
                },
                points,
            });
        }
        if let Some((farthest, micros)) = farthest.zip(Spread::of(micros)) {
            findings.push(format!(
                "What Linux measured was never farther than {:.4} % from what passed: {:+.0} to {:+.0} µs a repeat.",
                farthest / PER_CENT,
                micros.low,
                micros.high
            ));
            findings.push(match farthest <= AIM {
                true => "The hypothesis no longer holds: today's Linux reads the architected counter, which counts on while \
                         a vCPU does not run, so a late tick loses nothing."
                    .into(),
                false => "So times that Linux measures cannot be used.".to_owned(),
            });
        }
        let end = Self::loads(plan).iter().copied().max().unwrap_or(90);
        Evaluation {
            figure: Figure::Lines(Lines {
                title: "Time as Linux measures it, and the time that passed".into(),
                y_title: "measured minus real, in parts per million; median, and the range over seeds and repeats".into(),
                x_title: "load of the real-time guest on the shared core, in %".into(),
                lines,
                curves: vec![Curve {
                    name: "right".into(),
                    points: vec![(0.0, 0.0), (f64::from(end), 0.0)],
                }],
                references: Vec::new(),
            }),
            further: Vec::new(),
            caption: "How far the time that Linux measures is from the time that passed, by load".into(),
            findings,
            verdicts: vec![Verdict {
                aim: format!("Linux's time is within {} % of the clock's at every load", AIM / PER_CENT),
                measured: farthest.map_or("no result".into(), |it| format!("{:.4} %", it / PER_CENT)),
                met: farthest.map(|it| it <= AIM),
            }],
            tables: vec![table],
            method: vec![
                format!(
                    "The measuring program passes a mark that the exact clock records, reads CLOCK_MONOTONIC, does its work, \
                     reads the clock again and passes a second mark. The marks enclose the readings, so Linux measures less by \
                     what is executed between them: at this speed a microsecond is {} instructions.",
                    plan.ipus
                ),
                "Homes of Linux's vCPUs: `[0, 1, 2, 3]` and `[1, 2, 3, 0]`; the real-time guest is on core 0.".into(),
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

    /// Two virtual seconds passed in each repeat; Linux measured these times with its time-keeping CPU on the shared core,
    /// by load, and the right time with the other one.
    fn evaluation(said: impl Fn(u32) -> f64) -> Evaluation {
        let mut results = Results::default();
        for (homes, _, _) in HOMES {
            for &load in Timer::loads(&plan()) {
                let said = if homes == "cpu0" { said(load) } else { 2.0 };
                let mut outcome = samples::linux(&label(homes, load), 1, &[said]);
                outcome.clock.marks = [(1, 5_000_000_000), (2, 7_000_000_000)]
                    .map(|(mark, ns)| Mark {
                        mark,
                        ns,
                        core: None,
                        x0: None,
                    })
                    .into();
                results.add(outcome);
            }
        }
        Timer.evaluate(&plan(), &results)
    }

    #[test]
    fn a_clock_that_goes_wrong_is_seen() {
        let evaluation = evaluation(|load| if load == 75 { 1.8 } else { 2.0 });
        assert_eq!(evaluation.verdicts[0].measured, "10.0000 %");
        assert_eq!(evaluation.verdicts[0].met, Some(false));
    }

    #[test]
    fn small_deviations_are_seen_in_the_picture() {
        // Too short by 21 to 96 microseconds.
        let evaluation = evaluation(|load| 2.0 - f64::from(load + 21) / MICROS);
        let Figure::Lines(lines) = &evaluation.figure else {
            panic!("not lines")
        };
        let first = lines.lines[0].points.iter();
        let medians: Vec<_> = first
            .map(|(_, it)| (it.median * 10.0).round() / 10.0)
            .collect();
        assert_eq!(medians, [-10.5, -23.0, -35.5, -48.0]);
        assert!(lines.lines[1].points.iter().all(|it| it.1.median == 0.0));
        let svg = evaluation.figure.svg().unwrap();
        assert!(svg.contains("-40") && svg.contains("parts per million"));
        assert_eq!(evaluation.tables[0].rows[3][2], "-48.0");
        assert_eq!(
            evaluation.findings[0],
            "What Linux measured was never farther than 0.0048 % from what passed: -96 to +0 µs a repeat."
        );
        assert_eq!(evaluation.verdicts[0].met, Some(true));
    }
}
