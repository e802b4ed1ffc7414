// SPDX-License-Identifier: MIT OR Apache-2.0
//! `dhrystone`: the second hypothesis of *The influence of spinlocks on Linux on virtualized CPUs*: does the
//! slowdown depend on the benchmark?

use super::loads::Loads;
use super::{About, Defaults, Evaluation, Experiment, Plan, Verdict};
use crate::machine::Run;
use crate::plot::{Curve, Figure, Line, Lines};
use crate::results::Results;

/// The figure.
pub struct Dhrystone;

/// A benchmark that only computes holds no lock: it should lose the load's share and no more.
const AIM: f64 = 1.10;
/// How much longer Dhrystone runs than hackbench. Its begin and its end may each wait for the end of a burst, which would
/// appear as a slowdown in a short run.
const LONGER: f64 = 4.0;
/// The policy with which the paper saw the slowdown.
const POLICY: &str = "none";

impl Dhrystone {
    fn loads(plan: &Plan) -> Result<[Loads; 2], String> {
        let of = |name| Loads::new(plan, name, &[0, 90], &[0, 30, 60, 90]);
        let mut dhrystone = of("dhrystone")?;
        dhrystone.seconds *= LONGER;
        Ok([dhrystone, of("hackbench")?])
    }

    /// One policy, whatever the plan has: the question is about benchmarks.
    fn plan(plan: &Plan) -> Plan {
        Plan {
            policies: vec![POLICY.into()],
            ..plan.clone()
        }
    }
}

const ABOUT: About = About {
    name: "dhrystone",
    title: "Does the slowdown depend on the benchmark?",
    question: "Hypothesis 2 of *The influence of spinlocks on Linux on virtualized CPUs*: hackbench slows down because \
        its processes wait for each other, so one slow core delays all of them; a benchmark without communication \
        would not slow down. There, Dhrystone slowed down with the load as well, and the hypothesis was dropped. \
        Here each benchmark is compared with its own ideal. The ideal separates the share that the real-time guest takes \
        from what is lost beyond that share.",
    defaults: Defaults::THROUGHPUT,
};

impl Experiment for Dhrystone {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let plan = Self::plan(plan);
        Ok(Self::loads(&plan)?
            .iter()
            .flat_map(|it| it.runs(&plan))
            .collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let plan = Self::plan(plan);
        // These yardsticks exist.
        let Ok(both) = Self::loads(&plan) else {
            return Evaluation::empty();
        };
        let mut lines = Vec::new();
        let mut findings = Vec::new();
        let mut worst_of = Vec::new();
        for loads in &both {
            let name = loads.yardstick.name;
            let bare = loads.bare(results);
            let worst = bare
                .as_ref()
                .and_then(|bare| loads.worst(results, bare, POLICY));
            if let (Some(bare), Some((ratio, load))) = (&bare, worst) {
                findings.push(format!(
                    "`{name}`: at worst {ratio:.2} times its ideal, at {load} % load."
                ));
                let points = loads.loads.iter().filter_map(|&load| {
                    let spread = loads.spread(results, &loads.label(POLICY, load))?;
                    let ideal = bare.ideal(f64::from(load) / 100.0);
                    Some((f64::from(load), spread.over(ideal)))
                });
                lines.push(Line {
                    name: name.into(),
                    points: points.collect(),
                });
            }
            worst_of.push(worst.map(|it| it.0));
        }
        if let [Some(dhrystone), Some(hackbench)] = worst_of[..] {
            findings.push(match dhrystone <= AIM && hackbench > AIM {
                true => "So the slowdown beyond the load's share depends on the benchmark: computing alone does not show \
                         it."
                    .into(),
                false => format!(
                    "Both lose beyond the load's share, or neither does: {dhrystone:.2} and {hackbench:.2}."
                ),
            });
        }
        let end = both[0].loads.iter().copied().max().unwrap_or(90);
        Evaluation {
            figure: Figure::Lines(Lines {
                title: "Dhrystone and hackbench, each against its own ideal".into(),
                y_title: "time over the ideal under this load; median, and the range over seeds".into(),
                x_title: "load of the real-time guest on one of four cores, in %".into(),
                lines,
                curves: vec![Curve {
                    name: "ideal".into(),
                    points: vec![(0.0, 1.0), (f64::from(end), 1.0)],
                }],
                references: Vec::new(),
            }),
            further: Vec::new(),
            caption: "Time of Dhrystone and of hackbench over their ideals, by the load of the real-time guest".into(),
            findings,
            verdicts: vec![Verdict {
                aim: format!("Dhrystone loses no more than the load's share (at most {AIM} × its ideal)"),
                measured: worst_of[0].map_or("no result".into(), |it| format!("{it:.2} ×")),
                met: worst_of[0].map(|it| it <= AIM),
            }],
            tables: both
                .iter()
                .flat_map(|it| [it.table(&plan, results), it.bare_table(results)])
                .collect(),
            method: both[0].method(&plan),
            summary: both.iter().map(|it| it.summary(&plan, results)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    #[test]
    fn a_benchmark_that_loses_its_share_only_is_told_apart() {
        let mut results = Results::default();
        let both = Dhrystone::loads(&plan()).unwrap();
        for (loads, slowdown) in both.iter().zip([1.0, 2.0]) {
            for (cores, time) in [(2, 2.0), (3, 4.0 / 3.0), (4, 1.0)] {
                results.add(samples::linux(&loads.bare_label(cores), 1, &[time]));
            }
            let bare = loads.bare(&results).unwrap();
            for &load in &loads.loads {
                let time = bare.ideal(f64::from(load) / 100.0) * slowdown;
                results.add(samples::linux(&loads.label(POLICY, load), 1, &[time]));
            }
        }
        let evaluation = Dhrystone.evaluate(&plan(), &results);
        assert_eq!(evaluation.verdicts[0].met, Some(true));
        assert!(evaluation.findings[2].contains("depends on the benchmark"));
    }
}
