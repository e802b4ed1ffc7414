// SPDX-License-Identifier: MIT OR Apache-2.0
//! `workloads`: the load experiment with other work than hackbench, each compared with its own ideal.

use super::lhp;
use super::loads::Loads;
use super::{About, Defaults, Evaluation, Experiment, Plan, Verdict, shares};
use crate::machine::Run;
use crate::plot::{Dot, Dots, Figure, Row};
use crate::results::Results;
use crate::stats::Spread;
use serde_json::Value;

/// The figure.
pub struct Workloads;

/// The yardsticks; hackbench is in `lhp`.
const YARDSTICKS: [&str; 4] = ["build", "forkexec", "loopback", "dhrystone"];

impl Workloads {
    fn all(plan: &Plan) -> Result<Vec<Loads>, String> {
        let names = match &plan.yardstick {
            Some(name) => vec![name.as_str()],
            None => YARDSTICKS.to_vec(),
        };
        let loads = names.into_iter().map(|name| lhp::loads_of(plan, name));
        loads.collect()
    }
}

/// Time over the ideal, median of seeds: at the load where it is worst, and from the load where it is best.
fn over_ideal(loads: &Loads, results: &Results, policy: &str) -> Option<Spread> {
    let bare = loads.bare(results)?;
    let ratios = loads.loads.iter().filter_map(|&load| {
        let time = loads.spread(results, &loads.label(policy, load))?.median;
        Some(time / bare.ideal(f64::from(load) / 100.0))
    });
    let all = Spread::of(ratios)?;
    Some(Spread {
        median: all.high,
        ..all
    })
}

const ABOUT: About = About {
    name: "workloads",
    title: "Other work in Linux beside a loaded real-time guest",
    question: "`lhp` asks how much Linux loses with hackbench. This experiment asks the same for other work: a parallel compilation, \
        processes and files that come and go, TCP within the machine, and computing only. How much more than the real-time \
        guest's share does each lose?",
    defaults: Defaults::ALL_POLICIES,
};

impl Experiment for Workloads {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let all = Self::all(plan)?;
        Ok(all.iter().flat_map(|it| it.runs(plan)).collect())
    }

    fn once(&self, run: &Run) -> bool {
        lhp::is_compared(run)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        // `runs` has accepted the plan.
        let Ok(all) = Self::all(plan) else {
            return Evaluation::empty();
        };
        let mut findings = Vec::new();
        let mut verdicts = Vec::new();
        for policy in &plan.policies {
            let mut said = Vec::new();
            for loads in &all {
                let name = loads.yardstick.name;
                let bare = loads.bare(results);
                let worst = bare
                    .as_ref()
                    .and_then(|bare| loads.worst(results, bare, policy));
                if let Some((ratio, load)) = worst {
                    said.push(format!("`{name}` {ratio:.2} ({load} % load)"));
                }
                // Which benchmark shows the problem is the question, so this has no aim.
                if policy != "none" {
                    let aims = lhp::aims(loads, results, bare.as_ref(), policy, worst);
                    verdicts.extend(aims.into_iter().map(|it| Verdict {
                        aim: format!("`{name}`: {}", it.aim),
                        ..it
                    }));
                }
            }
            if !said.is_empty() {
                findings.push(format!(
                    "Policy `{policy}`, times the ideal at worst: {}.",
                    said.join(", ")
                ));
            }
        }
        let rows = all.iter().map(|loads| Row {
            name: loads.yardstick.name.into(),
            dots: plan
                .policies
                .iter()
                .map(|policy| Dot {
                    name: policy.clone(),
                    value: over_ideal(loads, results, policy),
                    decimals: 2,
                })
                .collect(),
        });
        let most = all.iter().flat_map(|it| &it.loads).max().copied();
        let most = most.unwrap_or_default();
        let runs = all.iter().flat_map(|loads| {
            let name = loads.yardstick.name;
            let bare = (format!("`{name}`, 4 bare cores"), loads.bare_label(4));
            let policies = plan.policies.iter().map(move |policy| {
                let row = format!("`{name}`, `{policy}`, {most} %");
                (row, loads.label(policy, most))
            });
            [bare].into_iter().chain(policies)
        });
        let runs = runs.map(|(row, label)| (row, results.of(&label)));
        let mut tables: Vec<_> = all.iter().map(|it| it.table(plan, results)).collect();
        tables.extend(all.iter().map(|it| it.bare_table(results)));
        tables.push(shares::table(runs));
        Evaluation {
            figure: Figure::Dots(Dots {
                title: "Time of Linux's work over the ideal, beside a loaded real-time guest"
                    .into(),
                subtitle: "dot: the worst load; bar: from the best one".into(),
                x_title: "time over the ideal under the same load".into(),
                one: Some("ideal".into()),
                rows: rows.collect(),
            }),
            further: Vec::new(),
            caption: "Time of several kinds of work in Linux over the ideal, a dot for each policy"
                .into(),
            findings,
            verdicts,
            tables,
            method: method(&all, plan),
            summary: all
                .iter()
                .map(|it| it.summary(plan, results))
                .collect::<Value>(),
        }
    }
}

/// The method: what several kinds of work have in common appears once.
fn method(all: &[Loads], plan: &Plan) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in all.iter().flat_map(|it| it.method(plan)) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.extend(lhp::compared_line(plan));
    lines.push(lhp::WINDOW.into());
    if !plan.quick {
        lines.push(lhp::BURSTS.into());
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    fn results(plan: &Plan, slowdown: impl Fn(&str, u32) -> f64) -> Results {
        let mut results = Results::default();
        for loads in Workloads::all(plan).unwrap() {
            for (cores, time) in [(2, 2.0), (3, 4.0 / 3.0), (4, 1.0)] {
                results.add(samples::linux(&loads.bare_label(cores), 1, &[time]));
            }
            let bare = loads.bare(&results).unwrap();
            for policy in &plan.policies {
                for &load in &loads.loads {
                    let ideal = bare.ideal(f64::from(load) / 100.0);
                    let time = ideal * slowdown(loads.yardstick.name, load);
                    results.add(samples::linux(&loads.label(policy, load), 1, &[time]));
                }
            }
        }
        results
    }

    #[test]
    fn each_kind_of_work_is_judged_by_its_own_ideal() {
        let plan = Plan {
            policies: vec!["steal".into()],
            ..plan()
        };
        let results = results(&plan, |name, load| match (name, load) {
            ("loopback", 70) => 1.06,
            _ => 1.01,
        });
        let evaluation = Workloads.evaluate(&plan, &results);
        for verdict in &evaluation.verdicts {
            let bad = verdict
                .aim
                .starts_with("`loopback`: policy `steal`: at most");
            assert_eq!(verdict.met, Some(!bad), "{}", verdict.aim);
        }
        assert_eq!(evaluation.verdicts.len(), 2 * YARDSTICKS.len());
        assert_eq!(
            evaluation.findings,
            [
                "Policy `steal`, times the ideal at worst: `build` 1.01 (90 % load), `forkexec` 1.01 (90 % load), \
              `loopback` 1.06 (70 % load), `dhrystone` 1.01 (90 % load)."
            ]
        );
        let shared = evaluation.method.iter();
        assert_eq!(shared.filter(|it| it.starts_with("Ideal:")).count(), 1);
    }

    #[test]
    fn none_has_no_aim_here() {
        let plan = plan();
        let results = results(&plan, |_, _| 3.0);
        assert_eq!(Workloads.evaluate(&plan, &results).verdicts, []);
    }
}
