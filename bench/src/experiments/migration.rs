//! `migration`: what it costs that a vCPU goes to another core and comes back, on both sides, in instructions at EL2.
//!
//! The hypervisor passes steps (`hypervisor/src/steps.rs`), and the clock counts visits to EL2 apart by the steps that they
//! passed. So each visit that has to do with a move is known, whole and in parts.

use super::latency::{self, Load, Periods};
use super::{Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::clock::{Part, Visits};
use crate::machine::{Machine, Run};
use crate::plot::{Dot, Dots, Figure, Row};
use crate::results::Results;
use crate::stats::{Spread, grouped};
use serde_json::json;

/// The figure.
pub struct Migration;

/// Aim for a round trip, in instructions of both cores together.
const AIM: f64 = 3000.0;
/// A round trip is two moves.
const MOVES: f64 = 2.0;
/// Without policies that move vCPUs in the plan.
const POLICY: &str = "steal";
/// Nothing moves.
const STAYS: &str = "none";
/// The real-time guest is active for 3 ms of every 10, so that vCPUs have a reason to move.
const BUSY: &str = " load=30% burst=10ms histogram=off";

/// Linux's CPU 3 is the one at home on the real-time guest's core. Were it CPU 0, which boots, EL2 would load the guest
/// there in visits as long as the pauses of the real-time guest.
const HOMES: [u32; 4] = [1, 2, 3, 0];

/// Guests are loaded in the first visit of a core.
const START: &str = "start of a core";

/// Steps by number, as in `hypervisor/src/steps.rs`.
const LOOK: u32 = 0;
const TAKE: u32 = 1;
const TAKEN: u32 = 2;
const PARK: u32 = 3;
const PARKED: u32 = 4;
const TOLD: u32 = 5;

/// What a visit did about moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Gave a vCPU up, and told another core.
    Gave,
    /// Took one.
    Took,
    /// Took one, and gave up the one that it had.
    Exchanged,
    /// Looked, or told, and left all as it was: not yet, or too late.
    Looked,
}

const KINDS: [(Kind, &str); 4] = [
    (Kind::Gave, "gives a vCPU up"),
    (Kind::Took, "takes one"),
    (Kind::Exchanged, "takes one, gives one up"),
    (Kind::Looked, "looks or tells, nothing moves"),
];

/// The ways to steps, and behind the last one, in the order of a visit.
const PARTS: [(Option<u32>, &str); 7] = [
    (
        Some(LOOK),
        "interrupt, decision, a glance at what is parked",
    ),
    (Some(TAKE), "choice and claim"),
    (
        Some(TAKEN),
        "settling: interrupts and timers follow, run queue",
    ),
    (Some(PARK), "switch, save of the vCPU that makes room"),
    (Some(PARKED), "parking"),
    (Some(TOLD), "telling another core"),
    (None, "load, entry"),
];

/// Visits, or parts of them, together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Sum {
    count: f64,
    instructions: f64,
    most: f64,
}

impl Sum {
    fn add(&mut self, count: u64, part: Part) {
        self.count += count as f64;
        self.instructions += part.instructions as f64;
        self.most = self.most.max(part.most as f64);
    }

    fn mean(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.instructions / self.count)
    }

    /// A dot at the mean, and a bar to the largest.
    fn spread(self) -> Option<Spread> {
        let mean = self.mean()?;
        Some(Spread {
            low: mean,
            median: mean,
            high: self.most,
            count: self.count as usize,
        })
    }

    fn cells(self) -> [String; 3] {
        [
            grouped(self.count),
            self.mean().map_or("-".into(), grouped),
            match self.count > 0.0 {
                true => grouped(self.most),
                false => "-".into(),
            },
        ]
    }
}

/// What moves cost under one policy, over all seeds.
#[derive(Debug, Default)]
struct Costs {
    /// Whole visits, as [`KINDS`].
    kinds: [Sum; KINDS.len()],
    /// Parts of visits that took and gave up a vCPU, as [`PARTS`].
    parts: [Sum; PARTS.len()],
    /// Visits that parked a vCPU which an earlier visit had saved.
    kept: f64,
}

fn has(visits: &Visits, step: u32) -> bool {
    visits.steps.iter().any(|it| it.step == step)
}

/// `None`: nothing about moves. A core that parks a vCPU and tells nobody has one that sleeps, and makes room for
/// another one of its own.
fn kind(visits: &Visits) -> Option<Kind> {
    let starts = visits.cause == START;
    match (has(visits, TAKE), has(visits, PARK)) {
        _ if starts || visits.steps.is_empty() => None,
        (true, true) => Some(Kind::Exchanged),
        (true, false) => Some(Kind::Took),
        (false, true) => has(visits, TOLD).then_some(Kind::Gave),
        (false, false) => Some(Kind::Looked),
    }
}

impl Costs {
    fn of(results: &Results, label: &str) -> Self {
        let mut costs = Self::default();
        let all = results.of(label).iter().flat_map(|it| &it.clock.visits);
        for visits in all {
            if let Some(kind) = kind(visits) {
                costs.add(visits, kind);
            }
        }
        costs
    }

    fn add(&mut self, visits: &Visits, kind: Kind) {
        for (sum, (it, _)) in self.kinds.iter_mut().zip(KINDS) {
            if it == kind {
                let whole = Part {
                    instructions: visits.instructions,
                    most: visits.most,
                };
                sum.add(visits.visits, whole);
            }
        }
        match kind {
            // The core runs somebody more urgent, who has not been interrupted for anything else.
            Kind::Gave if !has(visits, LOOK) && visits.end == "stays" => {
                self.kept += visits.visits as f64;
            }
            // Only there each step follows the one before it.
            Kind::Exchanged if has(visits, LOOK) => {
                for (sum, (step, _)) in self.parts.iter_mut().zip(PARTS) {
                    let part = match step {
                        Some(step) => visits.steps.iter().find(|it| it.step == step),
                        None => None,
                    };
                    let part = part.map(|it| it.part);
                    let rest = visits.rest.filter(|_| step.is_none());
                    if let Some(part) = part.or(rest) {
                        sum.add(visits.visits, part);
                    }
                }
            }
            _ => {}
        }
    }

    fn kind(&self, wanted: Kind) -> Sum {
        let found = KINDS.iter().zip(self.kinds).find(|it| it.0.0 == wanted);
        found.map_or(Sum::default(), |it| it.1)
    }

    fn part(&self, step: u32) -> Sum {
        let found = PARTS.iter().zip(self.parts);
        let mut found = found.filter(|it| it.0.0 == Some(step));
        found.next().map_or(Sum::default(), |it| it.1)
    }

    /// vCPUs that changed cores; one at least in each visit that took.
    fn moves(&self) -> f64 {
        self.kind(Kind::Took).count + self.kind(Kind::Exchanged).count
    }

    /// A round trip: all visits that gave or took, over the number of moves, times two.
    fn mean(&self) -> Option<f64> {
        let visits = [Kind::Gave, Kind::Took, Kind::Exchanged].map(|it| self.kind(it).instructions);
        let save = self.part(PARK).mean().unwrap_or(0.0);
        self.per_trip(visits.iter().sum::<f64>() + self.kept * save)
    }

    /// What is executed for a round trip without moving anybody: until a vCPU lets go, or another core is found.
    fn in_vain(&self) -> Option<f64> {
        self.per_trip(self.kind(Kind::Looked).instructions)
    }

    fn per_trip(&self, instructions: f64) -> Option<f64> {
        let moves = self.moves();
        (moves > 0.0).then(|| MOVES * instructions / moves)
    }

    /// No round trip can have cost more: the longest visits of all, after each other. Whoever is taken in exchange was
    /// given up in a visit of that kind, so the longest of either counts, and a save that came before it.
    fn most(&self) -> Option<f64> {
        let of = |kind| self.kind(kind).most;
        let took = of(Kind::Took).max(of(Kind::Exchanged));
        let gave = of(Kind::Gave) + self.part(PARK).most;
        (self.moves() > 0.0).then_some(MOVES * (gave + took))
    }
}

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
            more: BUSY,
        }
    }

    fn tables(policy: &str, costs: &Costs) -> [Table; 2] {
        let mut whole = Table::new(
            &format!(
                "Policy `{policy}`: visits to EL2 in which the core did something about moves, whole"
            ),
            &["the core", "visits", "mean instructions", "most"],
        );
        for ((_, name), sum) in KINDS.iter().zip(costs.kinds) {
            whole.rows.push(row(name, sum.cells()));
        }
        let mut parts = Table::new(
            &format!("Policy `{policy}`: visits that took a vCPU and gave one up, in parts"),
            &["part", "visits", "mean instructions", "most"],
        );
        for ((_, name), sum) in PARTS.iter().zip(costs.parts) {
            parts.rows.push(row(name, sum.cells()));
        }
        let all = costs.kind(Kind::Exchanged);
        parts.rows.push(row("the whole visit", all.cells()));
        [whole, parts]
    }
}

fn row(name: &str, cells: [String; 3]) -> Vec<String> {
    let mut row = vec![name.to_owned()];
    row.extend(cells);
    row
}

impl Experiment for Migration {
    fn name(&self) -> &'static str {
        "migration"
    }

    fn title(&self) -> &'static str {
        "What a departure and a return cost"
    }

    fn question(&self) -> &'static str {
        "How many instructions do both cores execute at EL2, so that a vCPU leaves one core for another and comes back? \
         It renews the measurement of *Solving the Lock Holder Preemption Problem* (2012): 50 µs for a round trip."
    }

    fn defaults(&self) -> Defaults {
        Defaults {
            ipus: 250,
            quantum: 200,
            seeds: 3,
            quick_seeds: 1,
        }
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let runs = policies(plan).into_iter().map(|policy| {
            let label = policy.clone();
            let periods = Self::periods(plan);
            let mut run = latency::run_beside(plan, label, &policy, Load::Hackbench, periods, None);
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
            let trip = costs.mean().zip(costs.most());
            if let Some((mean, most)) = trip {
                findings.push(format!(
                    "Policy `{policy}`: a round trip costs {} instructions on both cores together, and never more than {} \
                     ({} moves).",
                    grouped(mean),
                    grouped(most),
                    grouped(costs.moves())
                ));
            }
            if let Some(in_vain) = costs.in_vain() {
                findings.push(format!(
                    "Policy `{policy}`: {} more instructions for each round trip are looks after which nothing moves, mostly \
                     at vCPUs that are to let go and have not left their kernel yet.",
                    grouped(in_vain)
                ));
            }
            verdicts.push(Verdict {
                aim: format!(
                    "policy `{policy}`: a round trip at most {} instructions, both cores together",
                    grouped(AIM)
                ),
                measured: trip.map_or("no result".into(), |(mean, most)| {
                    format!(
                        "{} on average, {} if all goes worst",
                        grouped(mean),
                        grouped(most)
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
            let whole = trip.map(|(mean, most)| Spread {
                low: mean,
                median: mean,
                high: most,
                count: costs.moves() as usize,
            });
            dots.push(dot("round trip", whole));
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
                .map(|((_, name), it)| json!({ "what": name, "cost": sum(it) }))
                .collect();
            summary.insert(
                policy,
                json!({
                    "moves": costs.moves(),
                    "round_trip": { "mean": costs.mean(), "most": costs.most(), "in_vain": costs.in_vain() },
                    "visits": kinds,
                    "parts": parts,
                }),
            );
        }
        Evaluation {
            figure: Figure::Dots(Dots {
                title: "What a departure and a return cost".into(),
                subtitle: "visits to EL2 by what the core does about moves: mean, and a bar to the longest".into(),
                x_title: "instructions at EL2".into(),
                one: None,
                rows,
            }),
            caption: "Instructions at EL2 for each kind of visit that has to do with moves, and for a round trip".into(),
            findings,
            verdicts,
            tables,
            method: vec![
                format!(
                    "Linux runs hackbench on four cores. FreeRTOS computes for 3 ms of every 10 ms on core 0, for {} ms in all; \
                     then Linux's vCPUs share the other three cores and move among them.",
                    grouped(Self::periods(plan).length_us() as f64 / 1000.0)
                ),
                "A visit is what a core executes at EL2 without a break, from the exception to the return, whatever it does \
                 besides. The hypervisor marks steps on its way (one instruction each), and the clock counts visits by the \
                 steps that they passed."
                    .into(),
                "Round trip: the instructions of all visits that took a vCPU, or parked one and told of it, over the number of vCPUs taken, \
                 times two. They contain the switch from and to other vCPUs. Where a vCPU was saved in an earlier visit, \
                 because the real-time guest took the core, the mean of the save (part “switch, save”) is \
                 added. The worst is the longest visit of each side, times two."
                    .into(),
            ],
            summary: summary.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Step;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    /// Visits that passed steps, with so many instructions before each, and 100 behind the last one.
    fn visits(end: &str, visits: u64, steps: &[(u32, u64)]) -> Visits {
        let part = |it| Part {
            instructions: it * visits,
            most: it + 1,
        };
        let way: u64 = steps.iter().map(|it| it.1).sum::<u64>() + 100;
        Visits {
            cause: "IRQ".into(),
            intid: Some(1),
            end: end.into(),
            visits,
            instructions: way * visits,
            most: way + 1,
            longest_deaf: 0,
            most_at_ns: 0,
            most_on_core: 0,
            steps: steps
                .iter()
                .map(|&(step, it)| Step {
                    step,
                    part: part(it),
                })
                .collect(),
            rest: Some(part(100)),
        }
    }

    /// Ten vCPUs are parked by a core that runs somebody urgent, and taken in exchange.
    fn results(save: u64) -> Results {
        let mut outcome = samples::outcome("steal", 1, "");
        let exchange = [
            (LOOK, 200),
            (TAKE, 50),
            (TAKEN, 150),
            (PARK, save),
            (PARKED, 20),
            (TOLD, 30),
        ];
        outcome.clock.visits = vec![
            visits("stays", 10, &[(PARK, 200), (PARKED, 20), (TOLD, 30)]),
            visits("stays", 10, &exchange),
            visits("stays", 5, &[(LOOK, 200)]),
            // It sleeps, and another one of the same core runs.
            visits("stays", 40, &[(PARK, 900), (PARKED, 70)]),
            Visits {
                cause: START.into(),
                ..visits("switches", 1, &[(TOLD, 1_000_000)])
            },
            visits("switches", 100, &[]),
        ];
        let mut results = Results::default();
        results.add(outcome);
        results
    }

    #[test]
    fn all_that_is_about_moves_counts_and_nothing_else() {
        let costs = Costs::of(&results(300), "steal");
        assert_eq!(costs.moves(), 10.0);
        assert_eq!(costs.kind(Kind::Gave).mean(), Some(350.0));
        assert_eq!(costs.kind(Kind::Exchanged).mean(), Some(850.0));
        assert_eq!(costs.kind(Kind::Looked).mean(), Some(300.0));
        // 350 + 850, and a save before.
        assert_eq!(costs.mean(), Some(2.0 * (350.0 + 850.0 + 300.0)));
        // Half a look for each move.
        assert_eq!(costs.in_vain(), Some(2.0 * 150.0));
        assert_eq!(costs.most(), Some(2.0 * (351.0 + 851.0 + 301.0)));
    }

    #[test]
    fn the_parts_of_an_exchange_add_up() {
        let costs = Costs::of(&results(300), "steal");
        let parts: f64 = costs.parts.iter().filter_map(|it| it.mean()).sum();
        assert_eq!(Some(parts), costs.kind(Kind::Exchanged).mean());
        assert_eq!(costs.part(TOLD).mean(), Some(30.0));
    }

    #[test]
    fn the_aim_is_judged_by_the_mean() {
        let met = |save| Migration.evaluate(&plan(), &results(save)).verdicts[0].met;
        // 2 × (350 + 850 + 300) = 3,000; each instruction of a save counts twice, and twice.
        assert_eq!(met(301), Some(false));
        assert_eq!(met(300), Some(true));
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
