// SPDX-License-Identifier: MIT OR Apache-2.0
//! `migration`: the cost of a vCPU's way to another core and back, on both cores, in instructions at EL2.
//!
//! The hypervisor passes steps (`hypervisor/src/steps.rs`), and the clock counts exits separately by the steps that they
//! passed. So the cost of each exit that has to do with a move is known, as a whole and in parts.

use super::beside::{Load, Periods, run_beside};
use super::moves::{Costs, KINDS, Kind, PARTS, Side, Sum};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::machine::{Machine, Run};
use crate::plot::{Dot, Dots, Figure, Row};
use crate::results::Results;
use crate::stats::{Spread, grouped};
use serde_json::json;

/// The figure.
pub struct Migration;

/// Aim for a round trip, in instructions of both cores together.
const AIM: f64 = 3000.0;
/// The policies if the plan has none that moves vCPUs.
const POLICY: &str = "steal";
/// A policy that moves no vCPU.
const STAYS: &str = "none";
/// The real-time guest is active for 3 ms of every 10, so that vCPUs have a reason to move.
const BUSY: &str = " load=30% burst=10ms histogram=off";

/// Linux's CPU 3 has its home on the real-time guest's core. With CPU 0, which boots, EL2 would load the guest
/// there in exits as long as the pauses of the real-time guest.
const HOMES: [u32; 4] = [1, 2, 3, 0];

/// Policies that move vCPUs.
fn policies(plan: &Plan) -> Vec<String> {
    let moving: Vec<_> = plan
        .policies
        .iter()
        .filter(|&it| it != STAYS)
        .cloned()
        .collect();
    match moving.is_empty() {
        true => vec![POLICY.into()],
        false => moving,
    }
}

impl Migration {
    fn periods(plan: &Plan) -> Periods {
        Periods {
            us: 1000,
            count: if plan.quick { 3_000 } else { 20_000 },
            warmup: 0,
            more: BUSY,
        }
    }

    fn tables(policy: &str, costs: &Costs) -> [Table; 2] {
        let mut whole = Table::new(
            &format!(
                "Policy `{policy}`: exits to EL2 in which the core did something about moves, as a whole"
            ),
            &["the core", "exits", "mean instructions", "most"],
        );
        for ((_, name), sum) in KINDS.iter().zip(costs.kinds) {
            whole.rows.push(row(name, sum.cells()));
        }
        let mut parts = Table::new(
            &format!(
                "Policy `{policy}`: exits in which the core took a vCPU and gave one up, in parts"
            ),
            &["part", "exits", "mean instructions", "most"],
        );
        for (way, sum) in PARTS.iter().zip(costs.parts) {
            parts.rows.push(row(&way.label(), sum.cells()));
        }
        let all = costs.kind(Kind::Exchanged);
        parts.rows.push(row("the whole exit", all.cells()));
        [whole, parts]
    }
}

fn row(name: &str, cells: [String; 3]) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    row.extend(cells);
    row
}

const ABOUT: About = About {
    name: "migration",
    title: "What a round trip of a vCPU costs",
    question: "How many instructions do both cores execute at EL2, so that a vCPU leaves one core for another and comes back? \
        The experiment repeats a measurement of *Solving the Lock Holder Preemption Problem* (2012): about 50 µs for each of \
        the two.",
    defaults: Defaults::LATENCY,
};

impl Experiment for Migration {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let runs = policies(plan).into_iter().map(|policy| {
            let label = policy.clone();
            let periods = Self::periods(plan);
            let mut run = run_beside(plan, label, &policy, Load::Hackbench, periods, None);
            if let Machine::Spumone(system) = &mut run.machine
                && let Some(linux) = &mut system.linux
            {
                linux.homes = HOMES.into();
            }
            run
        });
        Ok(runs.collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        let mut findings = Vec::new();
        let mut verdicts = Vec::new();
        let mut tables = Vec::new();
        let mut rows = Vec::new();
        let mut summary = serde_json::Map::new();
        for policy in policies(plan) {
            let costs = Costs::of(results, &policy);
            let trip = costs.mean().zip(costs.worst());
            let sides = costs.side(Side::GivesUp).zip(costs.side(Side::Accepts));
            if let Some(((mean, worst), (gives_up, accepts))) = trip.zip(sides) {
                findings.push(format!(
                    "Policy `{policy}`: a round trip of a vCPU (to another core and back) costs {} instructions on both cores together: twice {} to give a \
                     vCPU up and {} to accept it; at worst {}.",
                    grouped(mean),
                    grouped(gives_up),
                    grouped(accepts),
                    grouped(worst)
                ));
            }
            if let Some(whole) = costs.whole() {
                findings.push(format!(
                    "Policy `{policy}`: {} with all other work of these exits to EL2: exception and interrupt, decision, alarm, \
                     entry ({} moves).",
                    grouped(whole),
                    grouped(costs.moves())
                ));
            }
            if let Some(in_vain) = costs.in_vain() {
                findings.push(format!(
                    "Policy `{policy}`: {} more instructions for each round trip are searches for parked vCPUs after which no vCPU moves, mostly \
                     while a vCPU in its grace has not left its kernel yet.",
                    grouped(in_vain)
                ));
            }
            verdicts.push(Verdict {
                aim: format!(
                    "policy `{policy}`: a round trip of a vCPU, counted as in the paper, at most {} instructions, both cores together",
                    grouped(AIM)
                ),
                measured: trip.map_or("no result".into(), |(mean, worst)| {
                    format!(
                        "{} on average, {} at worst; {} with all other work of these exits",
                        grouped(mean),
                        grouped(worst),
                        costs.whole().map_or("-".into(), grouped)
                    )
                }),
                met: trip.map(|(mean, _)| mean <= AIM),
            });
            let dot = |name: &str, value| Dot {
                name: name.into(),
                value,
                decimals: 0,
            };
            let mut dots: Vec<_> = KINDS
                .iter()
                .zip(costs.kinds)
                .map(|((_, name), sum)| dot(name, sum.spread()))
                .collect();
            let trips = [
                ("round trip", costs.mean(), costs.worst()),
                ("the same, whole exits", costs.whole(), costs.most()),
            ];
            for (name, mean, most) in trips {
                let spread = mean.zip(most).map(|(mean, most)| Spread {
                    low: mean,
                    median: mean,
                    high: most,
                    count: costs.moves() as usize,
                });
                dots.push(dot(name, spread));
            }
            rows.push(Row {
                name: policy.clone(),
                dots,
            });
            tables.extend(Self::tables(&policy, &costs));
            let sum =
                |sum: Sum| json!({ "visits": sum.count, "mean": sum.mean(), "most": sum.most });
            let kinds: Vec<_> = KINDS
                .iter()
                .zip(costs.kinds)
                .map(|((_, name), it)| json!({ "what": name, "cost": sum(it) }))
                .collect();
            let parts: Vec<_> = PARTS
                .iter()
                .zip(costs.parts)
                .map(|(way, it)| json!({ "what": way.name, "of_a_move": way.is_of_a_move(), "cost": sum(it) }))
                .collect();
            summary.insert(
                policy,
                json!({
                    "moves": costs.moves(),
                    "departure_and_return": { "mean": costs.mean(), "most": costs.worst() },
                    "gives_up": costs.side(Side::GivesUp),
                    "accepts": costs.side(Side::Accepts),
                    "whole_visits": { "mean": costs.whole(), "most": costs.most(), "in_vain": costs.in_vain() },
                    "visits": kinds,
                    "parts": parts,
                }),
            );
        }
        Evaluation {
            figure: Figure::Dots(Dots {
                title: "What a round trip of a vCPU costs".into(),
                subtitle: "exits to EL2 by what the core does about moves: mean, and a bar to the longest".into(),
                x_title: "instructions at EL2".into(),
                one: None,
                rows,
            }),
            further: Vec::new(),
            caption: "Instructions at EL2 for each kind of exit that has to do with moves, and for a round trip".into(),
            findings,
            verdicts,
            tables,
            method: vec![
                format!(
                    "Linux runs hackbench on four cores. FreeRTOS computes for 3 ms of every 10 ms on core 0, for {} ms in all; \
                     then Linux's vCPUs share the other three cores and move among them.",
                    grouped(Self::periods(plan).length_us() as f64 / 1000.0)
                ),
                "An exit is all that a core executes at EL2 without a break, from exit to entry. The hypervisor marks steps on its \
                 way (one instruction each), and the clock counts exits by the steps that were passed."
                    .into(),
                "A round trip is counted as in the paper (figure 10), which adds up the function that gives a vCPU up on one \
                 core and the function that accepts it on the other. Here these are saving, parking and notifying on the one \
                 side, and choosing, claiming, settling and loading on the other. They are the parts marked • above, in all \
                 exits that gave a vCPU up or took one; their means are added up and doubled. Exceptions, interrupts, the \
                 scheduler's decision and alarms are not included; whole exits include them."
                    .into(),
                "Whole exits: the instructions of all exits in which the core took a vCPU, or parked one and notified another core, \
                 divided by the number of vCPUs taken, times two. Where a vCPU was saved in an earlier exit, because the \
                 real-time guest preempted it, the mean of the save is added. At worst: the longest exit of each side, times \
                 two."
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
    use crate::experiments::moves::tests::results;

    #[test]
    fn the_aim_is_judged_by_the_mean() {
        let met = |save| Migration.evaluate(&plan(), &results(save)).verdicts[0].met;
        // 2 × (50 + 260 + 1,190) = 3,000.
        assert_eq!(met(1191), Some(false));
        assert_eq!(met(1190), Some(true));
        let evaluation = Migration.evaluate(&plan(), &Results::default());
        assert_eq!(evaluation.verdicts[0].met, None);
    }

    #[test]
    fn only_policies_that_move_are_asked_for() {
        let labels = |names: &[&str]| -> Vec<_> {
            let plan = Plan {
                policies: names.iter().map(|&it| it.into()).collect(),
                ..plan()
            };
            let runs = Migration.runs(&plan).unwrap();
            runs.into_iter().map(|it| it.label).collect()
        };
        assert_eq!(labels(&["none"]), ["steal"]);
        assert_eq!(labels(&["none", "ondemand"]), ["ondemand"]);
    }
}
