// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figure of results whose numbers are known.

use super::cores::tests::{mark, with_value};
use super::cores::{OFF, ON, PIECE, PIECE_DONE};
use super::*;
use crate::clock::{MARK_BEGIN, MARK_END, MARK_WAIT, Profiled};
use crate::experiments::loads::tests::plan;
use crate::results::{Outcome, samples};

const MS: u64 = 1_000_000;
/// When loads begin and end.
const BEGIN: u64 = 1000 * MS;
const END: u64 = 2000 * MS;

/// A run of which cores from `on` to 3 are off during the load and after it, if they may be. It takes `seconds`, and the real-time guest waits for
/// `wait_ns`.
fn outcome(case: Case, on: u32, seconds: f64, wait_ns: u64) -> Outcome {
    let mut outcome = samples::linux(&case.label(), 1, &[seconds, seconds]);
    outcome.clock.virtual_ns = END + 300 * MS;
    let busy: f64 = match case.load {
        Load::Idle => 0.02,
        Load::Share(percent) => 0.04 * f64::from(percent) + f64::from(case.rt) / 100.0,
        _ => 3.9,
    };
    outcome.clock.profiled = Profiled {
        from_ns: BEGIN,
        to_ns: END,
        el1: (busy * 250e6) as u64,
        ..Profiled::default()
    };
    outcome.clock.marks = vec![
        mark(0, MARK_BEGIN, BEGIN),
        with_value(MARK_WAIT, wait_ns, BEGIN),
        mark(0, MARK_END, END),
    ];
    outcome
        .clock
        .marks
        .extend((on..CORES).map(|core| mark(core, OFF, 500 * MS)));
    outcome
}

/// All that an ideal governor would do.
fn results(plan: &Plan) -> Results {
    let mut results = Results::default();
    for case in cases(plan) {
        let saves = matches!(case.kind, Kind::Mode(mode) if mode != PERFORMANCE);
        let on = match (saves, case.load) {
            (false, _) => CORES,
            (true, Load::Idle | Load::Bursts) => 1,
            (true, QUARTER) => 2,
            (true, HALF) => 3,
            (true, _) => CORES,
        };
        let mut outcome = outcome(case, on, 1.0, 2000);
        if saves && case.load == Load::Bursts {
            outcome.clock.marks.extend([
                with_value(PIECE, 1, BEGIN),
                with_value(PIECE_DONE, 1, BEGIN + 20 * MS),
            ]);
        }
        if saves && matches!(case.load, Load::Bursts | Load::Full) {
            for core in 1..CORES {
                let on = mark(core, ON, BEGIN + MS);
                let ended = match case.load {
                    Load::Bursts => BEGIN + 20 * MS,
                    _ => END,
                };
                outcome
                    .clock
                    .marks
                    .extend([on, mark(core, OFF, ended + MS)]);
            }
        }
        results.add(outcome);
    }
    results
}

fn met(plan: &Plan, results: &Results, part: &str) -> Vec<Option<bool>> {
    let verdicts = Energy.evaluate(plan, results).verdicts.into_iter();
    let found: Vec<_> = verdicts
        .filter(|it| it.aim.contains(part))
        .map(|it| it.met)
        .collect();
    assert!(!found.is_empty(), "{part}");
    found
}

#[test]
fn an_ideal_governor_meets_all_aims() {
    let plan = plan();
    let evaluation = Energy.evaluate(&plan, &results(&plan));
    for verdict in &evaluation.verdicts {
        assert_eq!(
            verdict.met,
            Some(true),
            "{}: {}",
            verdict.aim,
            verdict.measured
        );
    }
    assert!(evaluation.verdicts.len() > 20);
}

#[test]
fn each_aim_is_missed_by_what_it_is_about() {
    let plan = plan();
    let with = |load, rt, on, seconds, wait_ns| {
        let kind = Kind::Mode("balanced");
        let case = Case { load, rt, kind };
        let mut results = Results::default();
        let all = results_without(&plan, case);
        all.into_iter().for_each(|it| results.add(it));
        results.add(outcome(case, on, seconds, wait_ns));
        results
    };
    let missed = |results: &Results, part: &str| met(&plan, results, part) == [Some(false)];
    let idle = with(Load::Idle, 0, 2, 1.0, 2000);
    assert!(missed(&idle, "Linux idle, `balanced`: at most 1.05"));
    let half = with(HALF, 0, 4, 1.0, 2000);
    assert!(missed(
        &half,
        "Linux busy for 50 %, `balanced`: core-seconds"
    ));
    let full = with(Load::Full, 0, 4, 1.02, 2000);
    assert!(missed(&full, "hackbench, `balanced`: throughput"));
    // 900 ns more are 225 instructions.
    let late = with(QUARTER, 0, 2, 1.0, 2900);
    assert!(missed(
        &late,
        "Linux busy for 25 %, `balanced`: the longest wait"
    ));
    // No core goes off after the load.
    assert!(missed(&full, "hackbench, `balanced`: one core on"));
}

/// The ideal results of all other cases.
fn results_without(plan: &Plan, case: Case) -> Vec<Outcome> {
    let results = results(plan);
    let others = results.all().filter(|it| it.label != case.label());
    others.cloned().collect()
}

#[test]
fn the_picture_has_work_and_cores() {
    let plan = plan();
    let results = results(&plan);
    let lines = by_work(&results);
    let names: Vec<_> = lines.lines.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "performance",
            "balanced",
            "saving",
            "bare Linux, CPU hotplug"
        ]
    );
    let balanced = &lines.lines[1].points;
    assert_eq!(balanced.len(), STEPS.len());
    let (work, cores) = balanced[2];
    assert!((work - 2.0).abs() < 1e-6 && (cores.median - 3.0).abs() < 1e-6);
    let least = &lines.curves[0].points;
    assert_eq!(least.first(), Some(&(0.0, 1.0)));
    assert_eq!(least.last(), Some(&(4.0, 4.0)));
}
