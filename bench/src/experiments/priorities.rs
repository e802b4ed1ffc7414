// SPDX-License-Identifier: MIT OR Apache-2.0
//! `priorities`: the effect of splitting the GIC's priorities between the guests.

use super::beside::{Load, Periods, run_beside};
use super::dispatch;
use super::{About, Defaults, Evaluation, Experiment, Plan, Verdict, exits};
use crate::machine::Run;
use crate::plot::Figure;
use crate::results::Results;
use crate::stats::grouped;

/// The figure.
pub struct Priorities;

const SPLIT: &str = "split";
const FLAT: &str = "flat";
/// The real-time guest runs for 3 ms of every 10, so that Linux's interrupts find it running.
const BUSY: &str = " load=30% burst=10ms";
/// By how much a maximum may be larger before it counts as larger: one run more or less changes it.
const SAME: f64 = 1.05;
const LOADS: [Load; 2] = [Load::Hackbench, Load::Disk];

/// Why the difference is small: `docs/interrupts.md`, and `take_interrupts`, `alarm_expired` of the hypervisor.
const WHY_SO_LITTLE: &str = "\
    With and without the split, all interrupts come to EL2, and Linux can mask only its own. The difference is an interrupt \
    for Linux (of a device, or a kick from another core) that comes while the real-time guest runs, or is about to run. \
    Without the split the core takes it at once; with the split, when the real-time guest sleeps. EL2 notes it for Linux, \
    and no code of Linux runs. So the real-time guest waits longer by one exit, rarely more. Linux's timer never \
    interrupts the real-time guest.";

impl Priorities {
    fn periods(plan: &Plan) -> Periods {
        Periods {
            us: 100,
            count: if plan.quick { 20_000 } else { 60_000 },
            warmup: 0,
            more: BUSY,
        }
    }

    fn cases() -> Vec<(String, String, Load, &'static str)> {
        let mut cases = Vec::new();
        for load in LOADS {
            for kind in [SPLIT, FLAT] {
                let label = format!("{}-{kind}", load.name());
                cases.push((
                    label,
                    format!("{}, priorities {kind}", load.title()),
                    load,
                    kind,
                ));
            }
        }
        cases
    }
}

const ABOUT: About = About {
    name: "priorities",
    title: "Dispatch latency with and without split interrupt priorities",
    question: "While the real-time guest runs, the GIC holds Linux's interrupts back, because they have lower \
        priorities. What changes if all have the same priority? The experiment repeats the comparison of *Towards Co-existing of Linux and \
        Real-Time OSes* (2011): over 100 µs without the separation, all within 40 µs with it.",
    defaults: Defaults::LATENCY,
};

impl Experiment for Priorities {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let runs = Self::cases().into_iter().map(|(label, _, load, kind)| {
            run_beside(plan, label, "none", load, Self::periods(plan), Some(kind))
        });
        Ok(runs.collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let cases: Vec<_> = Self::cases()
            .into_iter()
            .map(|(label, name, ..)| (label, name))
            .collect();
        let mut findings = Vec::new();
        let mut verdicts = Vec::new();
        let mut gains = Vec::new();
        for load in LOADS {
            let worst = |kind: &str| dispatch::worst(results, &format!("{}-{kind}", load.name()));
            let both = worst(SPLIT).zip(worst(FLAT));
            if let Some((split, flat)) = both {
                gains.push(flat - split);
                findings.push(format!(
                    "{}: at most {} instructions with split priorities, {} without.",
                    load.title(),
                    grouped(split),
                    grouped(flat)
                ));
            }
            verdicts.push(Verdict {
                aim: format!(
                    "{}: the split does not make the maximum larger by more than 5 %",
                    load.title()
                ),
                measured: both.map_or("no result".into(), |(split, flat)| {
                    format!("{} split, {} flat", grouped(split), grouped(flat))
                }),
                met: both.map(|(split, flat)| split <= flat * SAME),
            });
        }
        if gains.len() == LOADS.len() {
            let most = gains.into_iter().fold(0.0, f64::max);
            findings.push(format!(
                "So the split shortens the longest wait by {} instructions at most.",
                grouped(most)
            ));
        }
        let mut figure = dispatch::figure(&cases, results);
        if let Figure::Histograms(histograms) = &mut figure {
            histograms.title =
                "Dispatch latency with split and with flat interrupt priorities".into();
        }
        Evaluation {
            figure,
            further: Vec::new(),
            caption: "Histograms of dispatch latency with split and with flat interrupt priorities"
                .into(),
            findings,
            verdicts,
            tables: vec![
                dispatch::table(&cases, results),
                exits::table(results, &cases[0].0),
                exits::table(results, &cases[1].0),
            ],
            method: {
                let mut method = dispatch::method(Self::periods(plan), plan);
                method.push(
                    "Besides its periodic task, the real-time guest computes for 3 ms of every 10 ms on the shared core, so \
                     that Linux's interrupts come while it runs."
                        .into(),
                );
                method.push(WHY_SO_LITTLE.into());
                method
            },
            summary: dispatch::summary(&cases, results),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiments::loads::tests::plan;
    use crate::machine::Machine;
    use crate::results::samples;

    #[test]
    fn both_kinds_are_in_the_descriptions() {
        let runs = Priorities.runs(&plan()).unwrap();
        let kinds: Vec<_> = runs
            .iter()
            .map(|run| match &run.machine {
                Machine::Spumone(system) => system.interrupt_priorities.clone(),
                _ => None,
            })
            .collect();
        assert_eq!(kinds.iter().flatten().filter(|it| *it == FLAT).count(), 2);
        assert_eq!(kinds.iter().flatten().filter(|it| *it == SPLIT).count(), 2);
    }

    #[test]
    fn what_the_split_is_worth_is_said_and_why_no_more() {
        let mut results = Results::default();
        for (label, max) in [
            ("hackbench-split", 7600),
            ("hackbench-flat", 8400),
            ("disk-split", 8800),
        ] {
            results.add(samples::rt(label, 1, [400, 800, 1200, max]));
        }
        assert_eq!(Priorities.evaluate(&plan(), &results).findings.len(), 1);
        // In ns; an instruction takes 4.
        results.add(samples::rt("disk-flat", 1, [400, 800, 1200, 8900]));
        let evaluation = Priorities.evaluate(&plan(), &results);
        assert_eq!(
            evaluation.findings[2],
            "So the split shortens the longest wait by 200 instructions at most."
        );
        assert!(
            evaluation
                .method
                .iter()
                .any(|it| it.contains("one exit, rarely more"))
        );
    }

    #[test]
    fn a_split_that_makes_it_worse_is_said() {
        let mut results = Results::default();
        results.add(samples::rt("hackbench-split", 1, [400, 800, 1200, 9000]));
        results.add(samples::rt("hackbench-flat", 1, [400, 800, 1200, 8000]));
        let evaluation = Priorities.evaluate(&plan(), &results);
        assert_eq!(evaluation.verdicts[0].met, Some(false));
        assert_eq!(evaluation.verdicts[1].met, None);
    }
}
