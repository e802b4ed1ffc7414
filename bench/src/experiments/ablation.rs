// SPDX-License-Identifier: MIT OR Apache-2.0
//! `ablation`: the effect of each mechanism of policy `steal`: the load experiment with one of them turned off at a time.

use super::loads::{self, Loads};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table};
use crate::machine::{Machine, Run};
use crate::plot::{Dot, Dots, Figure, Row};
use crate::results::Results;
use crate::stats::{Spread, grouped};
use serde_json::json;

/// The figure.
pub struct Ablation;

/// The policy with all its mechanisms.
const POLICY: &str = "steal";
/// In labels, between the policy and the mechanism that is turned off.
const WITHOUT: &str = "-without-";
/// The mechanisms that are turned off in turn, by their names in descriptions (`[scheduler] without`).
const MECHANISMS: [&str; 6] = [
    "grace",
    "yield-on-spin",
    "patience",
    "ipi-pull",
    "out-of-turn",
    "short-turns",
];

/// The policy, and the policy without each mechanism.
fn variants() -> Vec<String> {
    let without = MECHANISMS.map(|it| format!("{POLICY}{WITHOUT}{it}"));
    [POLICY.to_owned()].into_iter().chain(without).collect()
}

/// The name on the page.
fn title(variant: &str) -> String {
    match variant.split_once(WITHOUT) {
        Some((_, mechanism)) => format!("without {mechanism}"),
        None => format!("{variant}, all of it"),
    }
}

/// [`Loads`] with the variants in place of policies.
fn variant_plan(plan: &Plan) -> Plan {
    Plan {
        policies: variants(),
        ..plan.clone()
    }
}

impl Ablation {
    /// Where the loads are those of `lhp`, the runs are the same.
    fn loads(plan: &Plan) -> Result<Loads, String> {
        Loads::new(plan, loads::yardstick(plan), &[50], &[30, 50, 70, 90])
    }
}

/// The longest wait of the real-time guest under a variant at any load, in instructions.
fn worst_latency(results: &Results, loads: &Loads, variant: &str) -> Option<f64> {
    let labels = loads.loads.iter().map(|&load| loads.label(variant, load));
    labels
        .flat_map(|label| {
            results.values(&label, |it| {
                let wait = it.clock.longest_wait_ns();
                wait.map(|ns| it.instructions(ns as f64))
                    .into_iter()
                    .collect()
            })
        })
        .reduce(f64::max)
}

const ABOUT: About = About {
    name: "ablation",
    title: "What each mechanism of policy steal is worth",
    question: "Policy `steal` has six mechanisms. At the end of its time slice a vCPU gets grace in its kernel. A vCPU that spins \
        gets no grace. A vCPU that the real-time guest preempts is kept for a while before it is parked and other cores are \
        notified (`patience`). A core that has an interrupt for a sleeping vCPU whose host core runs a higher band pulls \
        that vCPU (`ipi-pull`). A vCPU for which an interrupt has come runs before its turn (`out-of-turn`). While a vCPU that was in its kernel waits for its turn, \
        a vCPU of its guest has a short one, and a longer one the next time (`short-turns`). What does Linux lose when one of these is turned off, and what does the real-time guest \
        gain?",
    defaults: Defaults::THROUGHPUT,
};

impl Experiment for Ablation {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let mut runs = Self::loads(plan)?.runs(&variant_plan(plan));
        for run in &mut runs {
            if let Machine::Spumone(system) = &mut run.machine
                && let Some((policy, mechanism)) = system.policy.split_once(WITHOUT)
            {
                system.without = vec![mechanism.into()];
                system.policy = policy.into();
            }
        }
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        // `runs` has accepted the plan.
        let Ok(loads) = Self::loads(plan) else {
            return Evaluation::empty();
        };
        let bare = loads.bare(results);
        let ratio = |variant: &str, load: u32| -> Option<Spread> {
            let ideal = bare.as_ref()?.ideal(f64::from(load) / 100.0);
            Some(
                loads
                    .spread(results, &loads.label(variant, load))?
                    .over(ideal),
            )
        };
        let mut columns = vec![String::new()];
        columns.extend(loads.loads.iter().map(|it| format!("{it} %")));
        columns.push("longest wait of the real-time guest".into());
        let mut table = Table {
            title: format!(
                "Time of `{}` over the ideal, by load; longest wait in instructions",
                loads.yardstick.name
            ),
            columns,
            rows: Vec::new(),
        };
        let mut rows = Vec::new();
        let mut findings = Vec::new();
        let mut summary = serde_json::Map::new();
        for variant in variants() {
            let wait = worst_latency(results, &loads, &variant);
            let mut row = vec![title(&variant)];
            row.extend(
                loads
                    .loads
                    .iter()
                    .map(|&load| ratio(&variant, load).map_or("-".into(), |it| it.show(2))),
            );
            row.push(wait.map_or("-".into(), grouped));
            table.rows.push(row);
            let worst = loads
                .loads
                .iter()
                .filter_map(|&load| Some((ratio(&variant, load)?.median, load)))
                .max_by(|a, b| a.0.total_cmp(&b.0));
            if let (Some((worst, load)), Some(wait)) = (worst, wait) {
                findings.push(format!(
                    "`{POLICY}` {}: at worst {worst:.2} times the ideal, at {load} % load; the real-time guest waits {} \
                     instructions at most.",
                    title(&variant).trim_start_matches("steal, "),
                    grouped(wait)
                ));
            }
            let points: Vec<_> = loads
                .loads
                .iter()
                .map(|&load| json!({ "load_percent": load, "over_ideal": ratio(&variant, load) }))
                .collect();
            rows.push(Row {
                name: title(&variant),
                dots: loads
                    .loads
                    .iter()
                    .map(|&load| Dot {
                        name: format!("{load} % load"),
                        value: ratio(&variant, load),
                        decimals: 2,
                    })
                    .collect(),
            });
            summary.insert(variant, json!({ "loads": points, "longest_wait": wait }));
        }
        let variants = variant_plan(plan);
        Evaluation {
            figure: Figure::Dots(Dots {
                title: "What each mechanism of policy steal is worth".into(),
                subtitle: format!(
                    "time of {} over the ideal; median, and the range over seeds",
                    loads.yardstick.name
                ),
                x_title: "time over the ideal".into(),
                one: Some("ideal".into()),
                rows,
            }),
            further: Vec::new(),
            caption:
                "Time over the ideal with all of policy steal, and without each of its mechanisms"
                    .into(),
            findings,
            verdicts: Vec::new(),
            tables: vec![table, loads.bare_table(results)],
            method: {
                let mut method = loads.method(&variants);
                method.push(
                    "`[scheduler] without` turns one mechanism off (`docs/migration.md`); nothing else changes.".into(),
                );
                method
            },
            summary: summary.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Mark;
    use crate::experiments::lhp::Lhp;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    #[test]
    fn each_mechanism_is_turned_off_once_at_each_load() {
        let mut off = Vec::new();
        for run in Ablation.runs(&plan()).unwrap() {
            if let Machine::Spumone(system) = run.machine {
                assert_eq!(system.policy, POLICY, "{}", run.label);
                off.push(system.without.concat());
            }
        }
        assert_eq!(off.len(), 4 * (1 + MECHANISMS.len()));
        for mechanism in MECHANISMS {
            assert_eq!(off.iter().filter(|it| *it == mechanism).count(), 4);
        }
    }

    #[test]
    fn what_lhp_has_measured_is_not_measured_again() {
        let plan = Plan {
            policies: vec![POLICY.into()],
            ..plan()
        };
        let known = Lhp.runs(&plan).unwrap();
        let whole = Ablation.runs(&plan).unwrap();
        let mut whole = whole.iter().filter(|it| !it.label.contains(WITHOUT));
        assert!(whole.all(|run| known.contains(run)));
    }

    #[test]
    fn the_worst_load_of_each_variant_is_told() {
        let loads = Ablation::loads(&plan()).unwrap();
        let mut results = Results::default();
        for (cores, time) in [(2, 4.0), (3, 8.0 / 3.0), (4, 2.0)] {
            results.add(samples::linux(&loads.bare_label(cores), 1, &[time]));
        }
        for (variant, slowdown) in [("steal", 1.0), ("steal-without-grace", 1.5)] {
            let bare = loads.bare(&results).unwrap();
            for (load, more) in [(50, 1.0), (90, 1.2)] {
                let time = bare.ideal(f64::from(load) / 100.0) * slowdown * more;
                let label = loads.label(variant, load);
                let mut outcome = samples::linux(&label, 1, &[time]);
                outcome.clock.marks = vec![Mark {
                    mark: 14,
                    ns: 1,
                    core: None,
                    x0: Some(format!("{:#x}", load * 400)),
                }];
                results.add(outcome);
            }
        }
        let evaluation = Ablation.evaluate(&plan(), &results);
        assert_eq!(evaluation.findings.len(), 2);
        assert!(
            evaluation.findings[1].starts_with(
                "`steal` without grace: at worst 1.80 times the ideal, at 90 % load; the real-time guest waits 9,000"
            ),
            "{}",
            evaluation.findings[1]
        );
        let row = &evaluation.tables[0].rows[1];
        assert_eq!(row[..3], ["without grace", "-", "1.50"]);
    }
}
