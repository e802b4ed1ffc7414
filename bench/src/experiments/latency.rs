// SPDX-License-Identifier: MIT OR Apache-2.0
//! `latency`: the time from a task's due time to its first instruction in the real-time guest,
//! beside a Linux that idles, computes or writes to a disk.

use super::beside::{Load, Periods, run_bare, run_beside};
use super::dispatch::{ROOM, figure, method, summary, table, worst};
use super::{About, Defaults, Evaluation, Experiment, Plan, Verdict, exits};
use crate::machine::Run;
use crate::results::Results;
use crate::stats::grouped;
use std::collections::BTreeMap;

/// The figure.
pub struct Latency;

/// The policy of all runs that do not compare policies.
const BASE: &str = "none";

/// How much a policy may cost the real-time guest, in instructions.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Aim {
    /// Room of its maximum beside hackbench above the bare machine's maximum.
    AboveBare(f64),
    /// Room above its own maximum with Linux idle: the policy prevents what would make Linux's load matter.
    AboveIdle(f64),
    /// None: this policy trades latency for Linux's throughput, and the figure shows how much.
    Shown,
}

/// The aim of a policy.
fn aim(policy: &str) -> Aim {
    match policy {
        "none" | "steal" => Aim::AboveBare(ROOM),
        // The vCPU is sent away before the real-time guest begins.
        "ondemand" => Aim::AboveBare(2500.0),
        "trap" => Aim::AboveIdle(500.0),
        _ => Aim::Shown,
    }
}

/// The label of a run with a policy.
fn with_policy(label: &str, policy: &str) -> String {
    match policy {
        BASE => label.to_owned(),
        _ => format!("{label}-{policy}"),
    }
}

/// What makes the mean of one kind of exits large.
const LOADING: &str = "\
    At its start, EL2 copies Linux's images whenever the real-time guest sleeps, and checks for interrupts in between. \
    For that reason, exits by WFI in which the guest stays are few and long.";

impl Latency {
    fn periods(plan: &Plan) -> [(&'static str, Periods); 2] {
        let (fast, slow) = match plan.quick {
            true => (40_000, 4_000),
            false => (130_000, 13_000),
        };
        [
            (
                "",
                Periods {
                    us: 100,
                    count: fast,
                    warmup: 0,
                    more: "",
                },
            ),
            (
                "-1khz",
                Periods {
                    us: 1000,
                    count: slow,
                    warmup: 0,
                    more: "",
                },
            ),
        ]
    }

    /// The runs, in the order of the page.
    fn cases(plan: &Plan) -> Vec<Case> {
        let mut cases = Vec::new();
        for (suffix, periods) in Self::periods(plan) {
            let slow = !suffix.is_empty();
            if slow && plan.quick {
                continue;
            }
            let mut add = |load: Option<Load>, policy: &str| {
                let (label, title) = match load {
                    Some(load) => (load.name(), load.title()),
                    None => ("bare", "bare machine"),
                };
                let policed = match policy {
                    BASE => String::new(),
                    _ => format!(", {policy}"),
                };
                let every = if slow { ", every 1 ms" } else { "" };
                cases.push(Case {
                    label: with_policy(&format!("{label}{suffix}"), policy),
                    name: format!("{title}{policed}{every}"),
                    load,
                    policy: policy.to_owned(),
                    periods,
                });
            };
            add(None, BASE);
            if slow {
                // Policies are compared with the short period, which has ten times as many chances for a long wait.
                add(Some(Load::Hackbench), BASE);
                continue;
            }
            add(Some(Load::Idle), BASE);
            for policy in &plan.policies {
                if matches!(aim(policy), Aim::AboveIdle(_)) {
                    add(Some(Load::Idle), policy);
                }
                add(Some(Load::Hackbench), policy);
            }
            add(Some(Load::Disk), BASE);
        }
        cases
    }
}

/// One run of the figure.
struct Case {
    label: String,
    /// The name on the page.
    name: String,
    /// `None`: the bare machine.
    load: Option<Load>,
    policy: String,
    periods: Periods,
}

const ABOUT: About = About {
    name: "latency",
    title: "Dispatch latency of the real-time guest",
    question: "A task of the real-time guest is due at a fixed time. How many instructions later does it begin, and \
        does it matter what Linux does on the same core? The experiment repeats figures 5 to 7 of *Solving the Lock Holder \
        Preemption Problem* (2012), which has averages of 2.3 to 24 µs beside hackbench.",
    defaults: Defaults {
        policies: Defaults::ALL_POLICIES.policies,
        quick_policies: Defaults::ALL_POLICIES.quick_policies,
        ..Defaults::LATENCY
    },
};

impl Experiment for Latency {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let runs = Self::cases(plan).into_iter().map(|it| match it.load {
            None => run_bare(plan, it.label, it.periods),
            Some(load) => run_beside(plan, it.label, &it.policy, load, it.periods, None),
        });
        Ok(runs.collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let cases: Vec<_> = Self::cases(plan)
            .into_iter()
            .map(|it| (it.label, it.name))
            .collect();
        let bare = worst(results, "bare");
        let mut findings = Vec::new();
        let mut verdicts = Vec::new();
        for policy in &plan.policies {
            let loaded = worst(results, &with_policy("hackbench", policy));
            if let (Some(bare), Some(loaded)) = (bare, loaded) {
                findings.push(format!(
                    "Policy `{policy}`: the longest wait beside hackbench was {} instructions, {} more than on the bare \
                     machine ({}).",
                    grouped(loaded),
                    grouped(loaded - bare),
                    grouped(bare)
                ));
            }
            verdicts.push(verdict(results, policy, Load::Hackbench));
        }
        if plan.policies.iter().any(|it| it == BASE) {
            let (idle, loaded) = (worst(results, "idle"), worst(results, "hackbench"));
            verdicts.push(Verdict {
                aim: format!(
                    "policy `{BASE}`: the same maximum with Linux idle or loaded, within 5 %"
                ),
                measured: match (idle, loaded) {
                    (Some(idle), Some(loaded)) => {
                        format!("{} idle, {} loaded", grouped(idle), grouped(loaded))
                    }
                    _ => "no result".into(),
                },
                met: idle.zip(loaded).map(|(idle, loaded)| loaded <= idle * 1.05),
            });
        }
        verdicts.push(verdict(results, BASE, Load::Disk));
        // One run stands for all: interrupts that move no vCPU cost the same with every policy.
        let first = plan.policies.first().map_or(BASE, String::as_str);
        verdicts.extend(exits::verdicts(results, &with_policy("hackbench", first)));
        if results.all().next().is_some() {
            findings.push(untimely(results));
        }
        if let Some((exit, label)) = exits::longest(results, cases.iter().map(|it| it.0.as_str())) {
            findings.push(format!(
                "The longest stretch at EL2 without a check for interrupts, which are masked there, was {} (after an exit by \
                 {}, run `{label}`), apart from the start of a core and the end of a guest.",
                exits::stretch(&exit),
                exit.cause
            ));
        }
        let mut tables = vec![table(&cases, results)];
        let labels = plan.policies.iter().map(|it| with_policy("hackbench", it));
        tables.extend(labels.map(|it| exits::table(results, &it)));
        Evaluation {
            figure: figure(&cases, results),
            further: Vec::new(),
            caption: "Histograms of dispatch latency, counts on a logarithmic axis".into(),
            findings,
            verdicts,
            tables,
            method: {
                let mut lines = method(Self::periods(plan)[0].1, plan);
                lines.push(LOADING.into());
                lines
            },
            summary: summary(&cases, results),
        }
    }
}

/// Whether the maximum beside a loaded Linux meets a policy's aim.
fn verdict(results: &Results, policy: &str, load: Load) -> Verdict {
    let loaded = worst(results, &with_policy(load.name(), policy));
    let (reference, aim, room) = match aim(policy) {
        Aim::AboveBare(room) => (
            worst(results, "bare"),
            format!("at most the bare machine's + {}", grouped(room)),
            Some(room),
        ),
        Aim::AboveIdle(room) => (
            worst(results, &with_policy("idle", policy)),
            format!("at most its own with Linux idle + {}", grouped(room)),
            Some(room),
        ),
        Aim::Shown => (
            worst(results, "bare"),
            "no aim, above the bare machine's".into(),
            None,
        ),
    };
    let above = loaded
        .zip(reference)
        .map(|(loaded, reference)| loaded - reference);
    Verdict {
        aim: format!("policy `{policy}`: maximum ({}) {aim}", load.title()),
        measured: above.map_or("no result".into(), |it| format!("+ {}", grouped(it))),
        met: above.zip(room).map(|(above, room)| above <= room),
    }
}

/// Periods that were lost or late, by run.
fn untimely(results: &Results) -> String {
    let mut by_label: BTreeMap<&str, f64> = BTreeMap::new();
    for outcome in results.all() {
        let number = |key| outcome.rt(key).unwrap_or(0.0);
        *by_label.entry(&outcome.label).or_default() += number("lost") + number("late");
    }
    by_label.retain(|_, number| *number > 0.0);
    if by_label.is_empty() {
        return "No period was lost or late.".into();
    }
    let runs = by_label
        .iter()
        .map(|(label, number)| format!("{} in run `{label}`", grouped(*number)));
    format!(
        "Periods were lost or late: {}; in no other run.",
        runs.collect::<Vec<_>>().join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::results::samples;

    fn plan() -> Plan {
        Plan {
            quick: true,
            policies: vec!["none".into()],
            yardstick: None,
            ipus: 250,
            quantum: 200,
        }
    }

    fn results(bare: u64, idle: u64, loaded: u64) -> Results {
        let mut results = Results::default();
        for (label, max) in [("bare", bare), ("idle", idle), ("hackbench", loaded)] {
            results.add(samples::rt(label, 1, [400, 800, 1200, max]));
        }
        results
    }

    #[test]
    fn the_aim_is_judged_by_the_largest_of_all() {
        let evaluation = Latency.evaluate(&plan(), &results(4000, 8000, 8000));
        // (8000 - 4000) ns are 1000 instructions.
        assert_eq!(evaluation.verdicts[0].measured, "+ 1,000");
        assert_eq!(evaluation.verdicts[0].met, Some(true));
        assert_eq!(evaluation.verdicts[1].met, Some(true));
        let evaluation = Latency.evaluate(&plan(), &results(4000, 8000, 40000));
        assert_eq!(evaluation.verdicts[0].met, Some(false));
        assert_eq!(evaluation.verdicts[1].met, Some(false));
    }

    fn policies(names: &[&str]) -> Plan {
        Plan {
            policies: names.iter().map(|&it| it.into()).collect(),
            ..plan()
        }
    }

    #[test]
    fn runs_keep_their_labels_and_policies_add_theirs() {
        let labels = |plan: &Plan| -> Vec<_> {
            let runs = Latency.runs(plan).unwrap();
            runs.into_iter().map(|it| it.label).collect()
        };
        assert_eq!(labels(&plan()), ["bare", "idle", "hackbench", "disk"]);
        assert_eq!(
            labels(&policies(&["none", "steal", "trap"])),
            [
                "bare",
                "idle",
                "hackbench",
                "hackbench-steal",
                "idle-trap",
                "hackbench-trap",
                "disk"
            ]
        );
        for run in Latency.runs(&policies(&["steal"])).unwrap() {
            if let Machine::Spumone(system) = run.machine {
                let steals = run.label == "hackbench-steal";
                assert_eq!(system.policy == "steal", steals, "{}", run.label);
            }
        }
    }

    #[test]
    fn each_policy_has_its_own_aim() {
        let mut results = results(4000, 8000, 8000);
        // In ns; an instruction takes 4.
        for (label, max) in [
            ("hackbench-steal", 4000 + 4 * 1501),
            ("hackbench-ondemand", 4000 + 4 * 2500),
            ("idle-trap", 40_000),
            ("hackbench-trap", 40_000 + 4 * 500),
            ("hackbench-delay", 400_000),
        ] {
            results.add(samples::rt(label, 1, [400, 800, 1200, max]));
        }
        let plan = policies(&["steal", "ondemand", "trap", "delay"]);
        let evaluation = Latency.evaluate(&plan, &results);
        let met: Vec<_> = evaluation.verdicts.iter().map(|it| it.met).collect();
        assert_eq!(met[..4], [Some(false), Some(true), Some(true), None]);
        assert_eq!(evaluation.verdicts[2].measured, "+ 500");
        assert_eq!(evaluation.verdicts[3].measured, "+ 99,000");
    }

    #[test]
    fn what_is_missing_has_no_verdict() {
        let evaluation = Latency.evaluate(&plan(), &Results::default());
        assert!(evaluation.verdicts.iter().all(|it| it.met.is_none()));
    }
}
