// SPDX-License-Identifier: MIT OR Apache-2.0
//! `overhead`: what Spumone costs Linux if there is no other guest, and beside a real-time guest that only
//! takes its tick.

use super::yardstick::{self, Yardstick};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict, shares};
use crate::linux::Linux;
use crate::machine::{Machine, Order, Run};
use crate::plot::{Dot, Dots, Figure, Row};
use crate::results::{Outcome, Results};
use crate::stats::{Mean, Spread};
use crate::system::{Rt, System};
use serde_json::json;

/// The figure.
pub struct Overhead;

const CORES: u32 = 4;
/// Aim: time divided by the bare machine's, in both cases.
const AIM: f64 = 1.01;
/// The yardsticks.
const YARDSTICKS: [&str; 3] = ["hackbench", "build", "dhrystone"];

/// The machine below Linux, and the guest beside it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Case<'a> {
    Bare,
    /// Under Spumone, with a policy.
    Alone(&'a str),
    /// The same beside a real-time guest that only takes its tick.
    Tick(&'a str),
}

impl Case<'_> {
    /// The name in labels.
    fn name(self) -> String {
        match self {
            Self::Bare => "bare".into(),
            Self::Alone(policy) => format!("alone-{policy}"),
            Self::Tick(policy) => format!("tick-{policy}"),
        }
    }

    /// The name on the page.
    fn title(self) -> String {
        match self {
            Self::Bare => "bare machine".into(),
            Self::Alone(policy) => format!("policy `{policy}`, alone"),
            Self::Tick(policy) => format!("policy `{policy}`, beside a 1 kHz tick"),
        }
    }

    fn machine(self, linux: Linux, rt_seconds: f64) -> Machine {
        let (policy, rt) = match self {
            Self::Bare => return Machine::BareLinux(linux),
            Self::Alone(policy) => (policy, Vec::new()),
            Self::Tick(policy) => {
                let ms = (rt_seconds * 1000.0).ceil();
                let bootargs = format!("period=1ms load=0% duration={ms}ms histogram=off");
                (policy, vec![Rt::new(bootargs)])
            }
        };
        Machine::Spumone(System {
            cores: CORES,
            policy: policy.into(),
            interrupt_priorities: None,
            rt,
            linux: Some(linux),
            disk: false,
            ..System::default()
        })
    }
}

/// The cases under Spumone.
fn cases(plan: &Plan) -> impl Iterator<Item = Case<'_>> {
    let policies = plan.policies.iter().map(String::as_str);
    policies.flat_map(|policy| [Case::Alone(policy), Case::Tick(policy)])
}

fn label(yardstick: &Yardstick, case: Case) -> String {
    format!("{}-{}", yardstick.name, case.name())
}

/// The yardsticks of this plan.
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

/// Length on four bare cores in seconds.
fn seconds(plan: &Plan) -> f64 {
    match plan.quick {
        true => 0.3,
        false => 1.0,
    }
}

/// Repeats in a run: more for what varies more, so that the mean's error is small
/// compared with the aim.
fn repeats(plan: &Plan, yardstick: &Yardstick) -> u32 {
    match (plan.quick, yardstick.name) {
        (true, _) => 2,
        (false, "hackbench") => 12,
        (false, _) => 3,
    }
}

const ABOUT: About = About {
    name: "overhead",
    title: "What Linux pays for the hypervisor",
    question: "How much slower is Linux under Spumone than on the bare machine: alone, and beside a real-time guest \
        that only takes its 1 kHz tick? The experiment repeats the kernel build of *Towards Co-existing of Linux and Real-Time OSes* (2011), \
        which took 1.4 % longer.",
    defaults: Defaults {
        ipus: 250,
        quantum: 500,
        seeds: 3,
        policies: &["none", "steal"],
        quick_policies: &["none", "steal"],
        ..Defaults::THROUGHPUT
    },
};

impl Experiment for Overhead {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let seconds = seconds(plan);
        let mut runs = Vec::new();
        for yardstick in yardsticks(plan)? {
            let repeats = repeats(plan, yardstick);
            let length = seconds * f64::from(repeats);
            for case in [Case::Bare].into_iter().chain(cases(plan)) {
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
                });
            }
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let yardsticks = yardsticks(plan).unwrap_or_default();
        let mut table = Table::new(
            "Seconds: median and range of seeds and repeats; mean over the bare machine's, with its standard error",
            &["", "measured", "seconds", "ratio"],
        );
        let mut rows = Vec::new();
        let mut findings = Vec::new();
        let mut summary = serde_json::Map::new();
        for yardstick in &yardsticks {
            let mut row = Row {
                name: yardstick.name.into(),
                dots: Vec::new(),
            };
            for case in [Case::Bare].into_iter().chain(cases(plan)) {
                let label = label(yardstick, case);
                let seconds = Spread::of(results.values(&label, Outcome::seconds));
                let mean = mean(results, yardstick, case);
                // All ratios are relative to the bare machine, so the other cases have its error, too.
                let ratio = ratio(results, yardstick, case).filter(|_| case != Case::Bare);
                if case != Case::Bare {
                    row.dots.push(Dot {
                        name: case.title().replace('`', ""),
                        value: ratio.map(Mean::interval),
                        decimals: 3,
                    });
                }
                table.rows.push(vec![
                    format!("{}, {}", yardstick.name, case.title()),
                    seconds.map_or("-".into(), |it| format!("{} times", it.count)),
                    seconds.map_or("-".into(), |it| it.show(3)),
                    ratio.map_or("-".into(), |it| format!("{:.3} ± {:.3}", it.mean, it.error)),
                ]);
                summary.insert(
                    label,
                    json!({ "seconds": seconds, "mean": mean, "ratio": ratio }),
                );
            }
            for policy in &plan.policies {
                if let (Some(alone), Some(tick)) = (
                    ratio(results, yardstick, Case::Alone(policy)),
                    ratio(results, yardstick, Case::Tick(policy)),
                ) {
                    findings.push(format!(
                        "`{}`, policy `{policy}`: {} alone, {} beside the tick.",
                        yardstick.name,
                        with_error(alone),
                        with_error(tick)
                    ));
                }
            }
            rows.push(row);
        }
        let runs = yardsticks.iter().flat_map(|it| {
            let cases = [Case::Bare].into_iter().chain(cases(plan));
            cases.map(|case| (*it, case))
        });
        let runs = runs.map(|(yardstick, case)| {
            let name = format!("`{}`, {}", yardstick.name, case.title());
            (name, results.of(&label(yardstick, case)))
        });
        Evaluation {
            figure: Figure::Dots(Dots {
                title: "Time of Linux's work over that on the bare machine".into(),
                subtitle: "dot: mean of seeds and repeats; bar: two standard errors to each side".into(),
                x_title: "time over the bare machine's (4 cores)".into(),
                one: Some("bare".into()),
                rows,
            }),
            further: Vec::new(),
            caption: "Time of Linux's work under Spumone over that on the bare machine".into(),
            findings,
            verdicts: cases(plan)
                .map(|case| verdict(results, &yardsticks, case))
                .collect(),
            tables: vec![table, shares::table(runs)],
            method: vec![
                "The same kernel, command line, CPUs and memory on the bare machine (no EL2) and under Spumone. With policy `none` \
                 no vCPU moves."
                    .into(),
                format!(
                    "Linux measures itself, several times a run: {}.",
                    yardsticks
                        .iter()
                        .map(|it| format!("`{}` {}", it.name, repeats(plan, it)))
                        .collect::<Vec<_>>()
                        .join(", ")
                ),
                "The times of one case differ by more than the difference in question, so means are compared. The value after \
                 ± is the standard error of the ratio, from the spread of both times. Two of three such figures are nearer to \
                 the true value than one error, and a difference of less than two errors may be no difference. An aim counts as \
                 met, or as not met, only if that also holds two errors away."
                    .into(),
                "The cost of stage 2 in TLB misses is not included, since the model has none: expect more on a chip."
                    .into(),
                "The table of where the time went is from the last repeat. The shares of the hypervisor and of the real-time guest \
                 vary less than the times do."
                    .into(),
            ],
            summary: summary.into(),
        }
    }
}

/// The mean time of a case in seconds.
fn mean(results: &Results, yardstick: &Yardstick, case: Case) -> Option<Mean> {
    Mean::of(results.values(&label(yardstick, case), Outcome::seconds))
}

/// The mean time of a case over that of the bare machine.
fn ratio(results: &Results, yardstick: &Yardstick, case: Case) -> Option<Mean> {
    Some(mean(results, yardstick, case)?.over(mean(results, yardstick, Case::Bare)?))
}

/// Whether no yardstick takes longer than the aim allows.
fn verdict(results: &Results, yardsticks: &[&'static Yardstick], case: Case) -> Verdict {
    let ratios: Vec<_> = yardsticks
        .iter()
        .filter_map(|it| Some((ratio(results, it, case)?, it.name)))
        .collect();
    let worst = ratios
        .iter()
        .copied()
        .max_by(|a, b| a.0.mean.total_cmp(&b.0.mean));
    let intervals: Vec<_> = ratios.iter().map(|it| it.0.interval()).collect();
    let is_whole = ratios.len() == yardsticks.len();
    Verdict {
        aim: format!(
            "{}: at most {} over the bare machine",
            case.title(),
            per_cent(AIM)
        ),
        measured: worst.map_or("no result".into(), |(it, name)| {
            format!("{} ({name})", with_error(it))
        }),
        // Two errors are enough to judge; in between the result is open.
        met: match () {
            () if intervals.iter().any(|it| it.low > AIM) => Some(false),
            () if is_whole && intervals.iter().all(|it| it.high <= AIM) => Some(true),
            () => None,
        },
    }
}

/// A ratio as a difference to 1: `+0.8 %`.
fn per_cent(ratio: f64) -> String {
    format!("{:+.1} %", (ratio - 1.0) * 100.0)
}

/// The same with its standard error: `+0.82 ± 0.21 %`.
fn with_error(ratio: Mean) -> String {
    format!(
        "{:+.2} ± {:.2} %",
        (ratio.mean - 1.0) * 100.0,
        ratio.error * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    #[test]
    fn means_are_compared_and_have_an_error() {
        let mut results = Results::default();
        for (label, times) in [
            ("hackbench-bare", [1.96, 2.0, 2.04]),
            ("hackbench-alone-none", [1.94, 2.0, 2.06]),
            ("hackbench-tick-none", [2.01, 2.01, 2.01]),
            ("build-bare", [1.0, 1.002, 1.009]),
            ("build-alone-none", [1.0, 1.0, 1.0]),
            ("build-tick-none", [1.005, 1.006, 1.007]),
        ] {
            for (seed, time) in (1..).zip(times) {
                results.add(samples::linux(label, seed, &[time]));
            }
        }
        assert_eq!(
            Overhead.evaluate(&plan(), &results).findings,
            [
                "`hackbench`, policy `none`: +0.00 ± 2.08 % alone, +0.50 ± 1.16 % beside the tick.",
                "`build`, policy `none`: -0.37 ± 0.27 % alone, +0.23 ± 0.28 % beside the tick.",
            ]
        );
    }

    #[test]
    fn the_worst_yardstick_decides() {
        let mut results = Results::default();
        for (label, time) in [
            ("hackbench-bare", 2.0),
            ("hackbench-alone-none", 2.01),
            ("hackbench-tick-none", 2.04),
            ("build-bare", 1.0),
            ("build-alone-none", 1.0),
            ("build-tick-none", 1.0),
            ("dhrystone-bare", 1.0),
            ("dhrystone-alone-none", 1.001),
            ("dhrystone-tick-none", 1.06),
        ] {
            results.add(samples::linux(label, 1, &[time, time]));
        }
        let evaluation = Overhead.evaluate(&plan(), &results);
        assert_eq!(
            evaluation.verdicts[0].measured,
            "+0.50 ± 0.00 % (hackbench)"
        );
        assert_eq!(evaluation.verdicts[0].met, Some(true));
        assert_eq!(
            evaluation.verdicts[1].measured,
            "+6.00 ± 0.00 % (dhrystone)"
        );
        assert_eq!(evaluation.verdicts[1].met, Some(false));
    }

    #[test]
    fn within_two_errors_of_the_aim_nothing_is_said() {
        let met = |times: [f64; 2]| {
            let mut results = Results::default();
            for name in YARDSTICKS {
                for case in ["bare", "alone-none"] {
                    let label = format!("{name}-{case}");
                    results.add(samples::linux(&label, 1, &[1.0, 1.0]));
                }
                results.add(samples::linux(&format!("{name}-tick-none"), 1, &times));
            }
            Overhead.evaluate(&plan(), &results).verdicts[1].met
        };
        assert_eq!(met([1.007, 1.009]), Some(true));
        assert_eq!(met([1.006, 1.012]), None);
        assert_eq!(met([1.008, 1.018]), None);
        assert_eq!(met([1.020, 1.022]), Some(false));
    }
}
