// SPDX-License-Identifier: MIT OR Apache-2.0
//! `integrity`: how long a round over the protected memory of a guest takes, by how busy the cores are; and what the guest notices of it.
//! What a guest pays that runs from local memory.

mod local;

use super::beside::Periods;
use super::dispatch::{self, Named};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict};
use crate::machine::{Machine, Order, Run};
use crate::plot::{Figure, Line, Lines};
use crate::results::{Outcome, Results};
use crate::stats::{Spread, grouped};
use crate::system::{Probe, Protected, Rt, System};
use serde_json::{Value, json};

/// The figure.
pub struct Integrity;

/// Two cores. The protected guest is on core 0; on each core is a guest of a lower priority that is busy.
const CORES: u32 = 2;
const POLICY: &str = "none";
/// The mark of the hypervisor when a round has ended (`hypervisor/src/steps.rs`).
const ROUND_ENDED: u64 = 0xfe00;
/// The `round` of the guest, in milliseconds.
const ROUND_MS: u32 = 20;
/// How busy the others are, in per cent of each core's time. 100: they never sleep.
const BUSY: [u32; 5] = [0, 25, 50, 75, 100];
const ALWAYS: u32 = 100;
/// The priority of the busy guests: below the protected one's, and the lowest.
const BUSY_PRIORITY: u8 = 50;
/// The busy guests compute for a part of each so many milliseconds.
const BURST_MS: u32 = 5;
/// Aim: what checks add to the longest wait, in instructions.
const ROOM: f64 = 500.0;
/// How busy the others are in the runs without `protect`.
const UNPROTECTED: [u32; 2] = [0, ALWAYS];

fn periods(plan: &Plan) -> Periods {
    Periods {
        us: 1000,
        count: if plan.quick { 500 } else { 3000 },
        warmup: 0,
        more: " load=10%",
    }
}

fn label(busy: u32) -> String {
    format!("busy-{busy}")
}

fn label_unprotected(busy: u32) -> String {
    format!("unprotected-{busy}")
}

fn run(plan: &Plan, label: String, busy: u32, protected: bool) -> Run {
    let ms = periods(plan).length_us() / 1000;
    let mut rt = Rt::new(periods(plan).bootargs());
    rt.protected = protected.then(|| Protected::Checked(format!("{ROUND_MS}ms")));
    let others = (0..CORES).filter(|_| busy < ALWAYS && busy > 0);
    let others = others.map(|core| Rt {
        core,
        priority: Some(BUSY_PRIORITY),
        ..Rt::new(format!(
            "period=1ms load={busy}% burst={BURST_MS}ms histogram=off duration={ms}ms"
        ))
    });
    let probe = Probe {
        homes: (0..CORES).collect(),
        bootargs: format!("suite=spin all=1 ms={ms}"),
        sets_power: false,
    };
    Run {
        label,
        machine: Machine::Spumone(System {
            cores: CORES,
            policy: POLICY.into(),
            rt: [rt].into_iter().chain(others).collect(),
            probe: (busy == ALWAYS).then_some(probe),
            ..System::default()
        }),
        disk_mib: 0,
        clock: plan.clock(None),
        order: Order::Any,
    }
}

/// The times from the end of a round to the end of the next one, in milliseconds.
fn rounds(outcome: &Outcome) -> Vec<f64> {
    let marks = outcome.clock.marks.iter();
    let ends: Vec<u64> = marks
        .filter(|it| it.mark == ROUND_ENDED)
        .map(|it| it.ns)
        .collect();
    ends.windows(2)
        .map(|pair| (pair[1] - pair[0]) as f64 / 1e6)
        .collect()
}

/// The times of all seeds.
fn all_rounds(results: &Results, busy: u32) -> Option<Spread> {
    let outcomes = results.of(&label(busy)).iter();
    Spread::of(outcomes.flat_map(rounds))
}

const ABOUT: About = About {
    name: "integrity",
    title: "How soon a change of protected memory is found",
    question: "With `protect` the hypervisor compares the code and constants of a guest with their hashes, a round after the other. How long \
        does a round take on busy cores, and does the guest notice it? With `protect = \"local\"` the guest runs from local memory: what does it cost, by the size of \
        that memory?",
    defaults: Defaults {
        policies: &[POLICY],
        quick_policies: &[POLICY],
        ..Defaults::LATENCY
    },
};

impl Experiment for Integrity {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let without = UNPROTECTED.map(|busy| run(plan, label_unprotected(busy), busy, false));
        let others = BUSY.map(|busy| run(plan, label(busy), busy, true));
        let rounds = without.into_iter().chain(others);
        Ok(rounds.chain(local::runs(plan)).collect())
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        Evaluation {
            figure: Figure::Lines(Lines {
                title: "A round over the protected memory of a guest".into(),
                y_title: "ms from the end of a round to the end of the next".into(),
                x_title: "% of each core's time that guests of lower priority use".into(),
                lines: lines(results),
                curves: Vec::new(),
                references: Vec::new(),
            }),
            caption: "The time of a round, by how busy the cores are".into(),
            further: local::pictures(results),
            findings: [findings(results), local::findings(results)].concat(),
            verdicts: verdicts(results)
                .into_iter()
                .chain([local::verdict(results)])
                .collect(),
            tables: vec![
                table(results),
                local::table(results),
                dispatch::table(&[cases(), local::cases()].concat(), results),
            ],
            method: method(plan),
            summary: summary(results),
        }
    }
}

fn cases() -> Vec<Named> {
    let without = UNPROTECTED.map(|busy| {
        let name = format!("{busy} % busy, without `protect`");
        (label_unprotected(busy), name)
    });
    let others = BUSY.map(|busy| (label(busy), format!("{busy} % busy")));
    without.into_iter().chain(others).collect()
}

fn lines(results: &Results) -> Vec<Line> {
    vec![Line {
        name: "round".into(),
        points: BUSY
            .into_iter()
            .filter_map(|busy| Some((f64::from(busy), all_rounds(results, busy)?)))
            .collect(),
    }]
}

fn findings(results: &Results) -> Vec<String> {
    let finding = |busy| {
        let rounds = all_rounds(results, busy)?;
        Some(format!(
            "Guests of lower priority use {busy} % of the cores: a round takes {} ms, and {} ms at most.",
            rounds.show(1),
            format_args!("{:.1}", rounds.high),
        ))
    };
    BUSY.into_iter().filter_map(finding).collect()
}

fn verdicts(results: &Results) -> Vec<Verdict> {
    let all = BUSY.iter().filter_map(|&busy| all_rounds(results, busy));
    let longest = all.map(|it| it.high).max_by(f64::total_cmp);
    let round = Verdict {
        aim: format!("a round takes at most {ROUND_MS} ms, however busy the cores are"),
        measured: longest.map_or("no result".into(), |it| format!("{it:.1} ms")),
        met: longest.map(|it| it <= f64::from(ROUND_MS)),
    };
    let waits = UNPROTECTED.iter().map(|&busy| {
        let both = dispatch::worst(results, &label(busy))
            .zip(dispatch::worst(results, &label_unprotected(busy)));
        Verdict {
            aim: format!(
                "the others use {busy} %: the guest waits at most {ROOM} instructions longer than without `protect`"
            ),
            measured: both.map_or("no result".into(), |(wait, without)| {
                format!("{}, without {}", grouped(wait), grouped(without))
            }),
            met: both.map(|(wait, without)| wait <= without + ROOM),
        }
    });
    [round].into_iter().chain(waits).collect()
}

fn table(results: &Results) -> Table {
    let mut table = Table::new(
        "Rounds: median and range of all seeds, in milliseconds",
        &["the others use", "rounds", "ms"],
    );
    for busy in BUSY {
        let outcomes = results.of(&label(busy)).iter();
        let count: usize = outcomes.map(|it| rounds(it).len()).sum();
        let Some(times) = all_rounds(results, busy) else {
            continue;
        };
        table.rows.push(vec![
            format!("{busy} %"),
            grouped(count as f64),
            times.show(1),
        ]);
    }
    table
}

fn method(plan: &Plan) -> Vec<String> {
    vec![
        dispatch::definition(periods(plan), plan),
        format!(
            "Two cores. FreeRTOS on core 0 is protected, with `round = \"{ROUND_MS}ms\"`, and computes for a tenth of each period. On each core a guest of \
             a lower priority, another FreeRTOS, computes for a part of each {BURST_MS} ms; with {ALWAYS} % it is the bare-metal program, which never sleeps."
        ),
        "The hypervisor marks the end of each round (`hypervisor/src/steps.rs`). Cores that idle check what is due; what is late is checked in the time \
         of the guests below (`docs/architecture.md`)."
            .into(),
        local::method(plan),
    ]
}

fn summary(results: &Results) -> Value {
    let each = BUSY.into_iter().map(|busy| {
        let rounds = all_rounds(results, busy);
        json!({ "busy_percent": busy, "round_ms": rounds.map(|it| it.median), "longest_ms": rounds.map(|it| it.high) })
    });
    json!({ "rounds": each.collect::<Vec<_>>(), "waits": dispatch::summary(&cases(), results), "local": local::summary(results) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Mark;
    use crate::experiments::loads::tests::plan;
    use crate::results::samples;

    fn outcome(busy: u32, ends_ms: &[u64]) -> Outcome {
        let mut outcome = samples::rt(&label(busy), 1, [1, 2, 3, 2_000]);
        outcome.clock.marks = ends_ms
            .iter()
            .map(|ms| Mark {
                mark: ROUND_ENDED,
                ns: ms * 1_000_000,
                core: None,
                x0: None,
            })
            .collect();
        outcome
    }

    #[test]
    fn all_guests_but_the_first_have_a_lower_priority() {
        let runs = Integrity.runs(&plan()).unwrap();
        for run in runs.iter().filter(|it| !it.label.starts_with("local")) {
            let Machine::Spumone(system) = &run.machine else {
                panic!("{}", run.label);
            };
            let is_protected = !run.label.starts_with("unprotected");
            assert_eq!(system.rt[0].protected.is_some(), is_protected);
            assert!(
                system.rt[1..]
                    .iter()
                    .all(|it| it.priority == Some(BUSY_PRIORITY))
            );
        }
    }

    #[test]
    fn a_round_that_takes_too_long_misses_its_aim() {
        let mut results = Results::default();
        results.add(outcome(0, &[20, 40, 60]));
        let met = |results: &Results| {
            let evaluation = Integrity.evaluate(&plan(), results);
            let met: Vec<_> = evaluation.verdicts.iter().map(|it| it.met).collect();
            met
        };
        assert_eq!(met(&results), [Some(true), None, None, None]);
        results.add(outcome(ALWAYS, &[40, 80, 160]));
        assert_eq!(met(&results), [Some(false), None, None, None]);
    }
}
