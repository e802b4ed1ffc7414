// SPDX-License-Identifier: MIT OR Apache-2.0
//! `soak`: whether Linux keeps working under every policy and load: its data, its kernel log, its wake-ups.

mod modes;

use super::bursts::{self, Bursts};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::console::number;
use crate::linux::{Linux, Programs};
use crate::machine::Run;
use crate::plot::{Figure, Line, Lines};
use crate::results::{Outcome, Results};
use crate::stats::Spread;
use serde_json::json;

/// The figure.
pub struct Soak;

const CORES: u32 = 4;
/// As for `lhp`: Linux's CPU 3 is on the shared core.
const HOMES: [u32; 4] = [1, 2, 3, 0];
const BURST_MS: u32 = 500;
/// What a round takes four bare cores at the reference speed, about, in seconds; without the wake-ups.
const SECONDS: f64 = 2.0;
/// What wake-ups are measured for, in seconds: several bursts.
const WAKES: u32 = 2;

impl Soak {
    fn loads(plan: &Plan) -> &'static [u32] {
        match plan.quick {
            true => &[60],
            false => &[0, 30, 60, 90],
        }
    }
}

/// What a row of runs has beside the load.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    policy: String,
    /// Whether the power mode changes all the time.
    modes: bool,
}

/// A row for each policy of a plan. If the policy that `[power]` needs is among them, it has a second row, in which the mode changes.
fn cases(plan: &Plan) -> Vec<Case> {
    let case = |policy: &String, modes| Case {
        policy: policy.clone(),
        modes,
    };
    let with = plan.policies.iter().find(|&it| it == modes::POLICY);
    let without = plan.policies.iter().map(|it| case(it, false));
    without.chain(with.map(|it| case(it, true))).collect()
}

impl Case {
    fn label(&self, load: u32) -> String {
        let modes = if self.modes { "-modes" } else { "" };
        format!("{}{modes}-load-{load:02}", self.policy)
    }

    /// Its name on the page.
    fn name(&self) -> String {
        let modes = if self.modes {
            ", power modes change"
        } else {
            ""
        };
        format!("{}{modes}", self.policy)
    }

    fn run(&self, plan: &Plan, load: u32) -> Run {
        let mut linux = Linux::new(CORES, "soak", &[&format!("wakes={WAKES}")]);
        linux.homes = HOMES.to_vec();
        linux.programs = Programs::Bench;
        let bursts = Bursts { load, ms: BURST_MS };
        // The work is the same at every speed.
        let seconds = SECONDS / plan.speed() + f64::from(WAKES);
        let label = self.label(load);
        match self.modes {
            true => modes::run(plan, label, bursts, linux, seconds),
            false => bursts::run_beside(plan, label, &self.policy, bursts, linux, seconds),
        }
    }
}

/// The longest wake-up that cyclictest saw, in microseconds.
fn longest(outcome: &Outcome) -> Vec<f64> {
    let facts = outcome.console.linux.first();
    facts
        .and_then(|it| number(it, "cyclictest_max_us"))
        .into_iter()
        .collect()
}

const ABOUT: About = About {
    name: "soak",
    title: "Does Linux keep working under every policy?",
    question: "Beside a real-time guest that takes a share of one core in long bursts, Linux moves data between its CPUs and \
        compares it, runs hackbench, cyclictest and a parallel build, and checks its kernel's log for complaints (stalls, \
        lockups, anything). Under `steal` it does so also while a guest changes the power mode again and again. A run in which something failed \
        has no result.",
    defaults: Defaults {
        seeds: 5,
        ..Defaults::ALL_POLICIES
    },
};

impl Experiment for Soak {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let cases = cases(plan);
        let runs = cases.iter().flat_map(|case| {
            let loads = Self::loads(plan).iter();
            loads.map(|&load| case.run(plan, load))
        });
        Ok(runs.collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let mut table = Table::new(
            "Runs that were well, and the longest wake-up that cyclictest saw there, in ms",
            &["policy", "load", "runs", "longest wake-up"],
        );
        let mut lines = Vec::new();
        let mut verdicts = Vec::new();
        let mut summary = serde_json::Map::new();
        let mut well = 0;
        let mut waits_of = Vec::new();
        for case in cases(plan) {
            let mut points = Vec::new();
            let mut unwell = Vec::new();
            for &load in Self::loads(plan) {
                let name = case.label(load);
                let waits = results.values(&name, longest);
                let milliseconds: Vec<_> = waits.iter().map(|it| it / 1000.0).collect();
                let spread = Spread::of(milliseconds);
                if let Some(spread) = spread {
                    points.push((f64::from(load), spread));
                }
                let all = waits.len() + results.missing_of(&name);
                let share = format!("{} of {all}", waits.len());
                if waits.is_empty() || waits.len() < all {
                    unwell.push(format!("{share} at {load} %"));
                }
                well += waits.len();
                table.rows.push(vec![
                    case.name(),
                    format!("{load} %"),
                    share,
                    spread.map_or("-".into(), |it| it.show(2)),
                ]);
                summary.insert(name, json!({ "well": waits.len(), "longest_ms": spread }));
            }
            let longest = points.iter().max_by(|a, b| a.1.high.total_cmp(&b.1.high));
            if let Some((load, spread)) = longest {
                waits_of.push(format!(
                    "`{}` {:.1} ms ({load} %)",
                    case.name(),
                    spread.high
                ));
            }
            verdicts.push(Verdict {
                aim: format!("policy `{}`: Linux is well at every load", case.name()),
                measured: match unwell.is_empty() {
                    true => "well".into(),
                    false => format!("well in {}", unwell.join(", ")),
                },
                met: Some(unwell.is_empty()),
            });
            lines.push(Line {
                name: format!("policy {}", case.name()),
                points,
            });
        }
        let mut findings = vec![format!(
            "{well} runs in which all data was right and the kernel had nothing to complain about."
        )];
        if !waits_of.is_empty() {
            findings.push(format!(
                "The longest that any thread of Linux waited for its wake-up, and at which load: {}.",
                waits_of.join(", ")
            ));
        }
        let changes = modes::Changes::of(Self::loads(plan), results);
        findings.extend(changes.findings());
        verdicts.extend(changes.verdicts());
        let tables = [table].into_iter().chain(changes.table()).collect();
        summary.extend(changes.summary());
        Evaluation {
            figure: Figure::Lines(Lines {
                title: "The longest that a thread of Linux waited for its wake-up".into(),
                y_title: "milliseconds, as cyclictest saw it; median, and the range over seeds".into(),
                x_title: "load of the real-time guest on one of four cores, in %".into(),
                lines,
                curves: Vec::new(),
                references: Vec::new(),
            }),
            further: Vec::new(),
            caption: "Longest wake-ups in Linux by the load of the real-time guest, a line for each policy".into(),
            findings,
            verdicts,
            tables,
            method: vec![
                "FreeRTOS spins for the given share of every 500 ms on core 0, above Linux's four vCPUs (one at home on each of \
                 four cores; CPU 3 on core 0), and takes its 1 kHz tick."
                    .into(),
                format!(
                    "Linux runs one round of the scenario `soak` (guests/linux): 256 KiB of random data from each CPU through a \
                     second to a third and compared, hackbench, {WAKES} s of cyclictest with a thread on each CPU, which wakes \
                     every 1 to 2.5 ms, a build of zlib whose result is run; then it searches its log."
                ),
                modes::method(),
                "A thread of cyclictest that begins late, because its CPU waits for its core, may see no wake-up at all within that \
                 time: where a CPU waits for whole bursts, a short longest wake-up proves nothing."
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
    fn every_load_of_every_policy_is_asked_for() {
        let mut results = Results::default();
        for load in [0, 30, 60, 90] {
            let log = "linux-result scenario=soak ok=1 rounds=1 kib=1024 cyclictest_max_us=1500\n";
            results.add(samples::outcome(&format!("none-load-{load:02}"), 1, log));
        }
        let of = |policies: &[&str], results: &Results| {
            let policies = policies.iter().map(|&it| it.to_owned()).collect();
            Soak.evaluate(&Plan { policies, ..plan() }, results)
        };
        let evaluation = of(&["none"], &results);
        assert_eq!(evaluation.verdicts[0].met, Some(true));
        assert_eq!(evaluation.tables[0].rows[0][3], "1.50");
        assert!(evaluation.findings[1].ends_with("`none` 1.5 ms (90 %)."));
        let evaluation = of(&["none", "steal"], &results);
        assert_eq!(evaluation.verdicts[1].met, Some(false));
        // With `steal`, the mode also changes.
        let aims: Vec<_> = evaluation.verdicts.iter().map(|it| &it.aim).collect();
        assert!(aims.len() == 3 && aims[2].contains("`steal, power modes change`"));
        results.missing.push("none-load-30 seed 2".into());
        let evaluation = of(&["none"], &results);
        assert_eq!(evaluation.verdicts[0].measured, "well in 1 of 2 at 30 %");
        assert_eq!(evaluation.verdicts[0].met, Some(false));
        assert_eq!(Soak.runs(&plan()).map(|it| it.len()), Ok(4));
    }
}
