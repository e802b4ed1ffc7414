// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the figure `shapes`.

use super::*;
use crate::experiments::lhp::Lhp;
use crate::experiments::loads::tests::plan as whole;
use crate::machine::{Machine, Order};
use crate::results::samples;

fn plan(policy: &str) -> Plan {
    Plan {
        quick: true,
        policies: vec![policy.into()],
        ..whole()
    }
}

/// Perfect scaling, and `slowdown` of the ideal of each shape; waits in instructions (of 4 ns) over the bare machine's.
fn results(slowdown: impl Fn(&str, u32) -> f64, wait: impl Fn(&str, &str) -> u64) -> Results {
    let mut results = Results::default();
    let plan = plan("steal");
    let loads = loads(&plan).unwrap();
    for (cores, time) in [(2, 2.0), (3, 4.0 / 3.0), (4, 1.0)] {
        results.add(samples::linux(&loads.bare_label(cores), 1, &[time]));
    }
    results.add(samples::rt(BARE_RT, 1, [400, 800, 1200, 4000]));
    for (policy, shape) in cases(&plan) {
        for &load in &loads.loads {
            let cores = 4.0 - shape.guests as f64 * f64::from(load) / 100.0;
            let time = 4.0 / cores * slowdown(shape.name, load);
            let label = load_label(&loads, policy, shape, load);
            results.add(samples::linux(&label, 1, &[time]));
        }
        let lines: Vec<_> = shape
            .guest_names()
            .map(|guest| {
                let max = 4000 + 4 * wait(shape.name, &guest);
                format!("{guest} | rt-result lost=0 late=3 min_ns=400 avg_ns=400 p99_9_ns=800 max_ns={max}\r\n")
            })
            .collect();
        results.add(samples::outcome(
            &latency_label(policy, shape),
            1,
            &lines.concat(),
        ));
    }
    results
}

#[test]
fn each_shape_is_judged_by_its_own_ideal() {
    let results = results(
        |name, load| {
            if (name, load) == ("two-rt", 50) {
                1.06
            } else {
                1.01
            }
        },
        |_, _| 1500,
    );
    let evaluation = Shapes.evaluate(&plan("steal"), &results);
    assert_eq!(evaluation.verdicts.len(), 2 * ALL.len());
    for verdict in &evaluation.verdicts {
        let bad = verdict.aim.starts_with("`two-rt`: policy `steal`: at most");
        assert_eq!(
            verdict.met,
            Some(!bad),
            "{}: {}",
            verdict.aim,
            verdict.measured
        );
    }
    assert!(evaluation.findings[0].contains("`two-rt` 1.06 (50 % load), `six` 1.01"));
    assert_eq!(evaluation.tables[0].rows.len(), 2 * ALL.len());
}

#[test]
fn the_longest_wait_of_any_real_time_guest_counts() {
    let results = results(
        |_, _| 1.0,
        |shape, guest| {
            if (shape, guest) == ("two-rt", "rt2") {
                1501
            } else {
                100
            }
        },
    );
    let evaluation = Shapes.evaluate(&plan("steal"), &results);
    let missed = evaluation
        .verdicts
        .iter()
        .filter(|it| it.met == Some(false));
    let missed: Vec<_> = missed
        .map(|it| (it.aim.as_str(), it.measured.as_str()))
        .collect();
    let aim = "`two-rt`: policy `steal`: maximum (Linux runs hackbench) at most the bare machine's + 1,500";
    assert_eq!(missed, [(aim, "+ 1,501")]);
    assert!(
        evaluation.findings[1].contains("`two-rt` 1,100 and 2,501, "),
        "{}",
        evaluation.findings[1]
    );
    assert!(
        evaluation.findings[2].contains("`usual` 3, `two-rt` 6, "),
        "{}",
        evaluation.findings[2]
    );
    // The bare machine, five shapes, and the second guest of one of them.
    assert_eq!(evaluation.tables[1].rows.len(), 7);
    assert_eq!(evaluation.tables[1].rows[3][1], "rt2");
}

#[test]
fn a_policy_that_is_compared_has_no_aim_for_throughput() {
    let verdicts = Shapes.evaluate(&plan("none"), &Results::default()).verdicts;
    assert_eq!(verdicts.len(), 4);
    assert!(
        verdicts
            .iter()
            .all(|it| it.met.is_none() && it.aim.contains("maximum"))
    );
}

#[test]
fn the_usual_shape_under_load_is_a_run_of_lhp() {
    let plan = Plan {
        policies: vec!["steal".into()],
        ..whole()
    };
    let known = Lhp.runs(&plan).unwrap();
    let shared = Shapes
        .runs(&plan)
        .unwrap()
        .into_iter()
        .filter(|it| known.contains(it));
    // Three bare machines, and three loads.
    assert_eq!(shared.count(), 6);
}

#[test]
fn latency_has_the_clock_of_its_figure() {
    for run in Shapes.runs(&plan("steal")).unwrap() {
        let is_latency = run.label.starts_with("latency");
        assert_eq!(run.clock.quantum == 200, is_latency, "{}", run.label);
        if let Machine::Spumone(_) = run.machine {
            assert_eq!(run.order == Order::RtFirst, is_latency, "{}", run.label);
        }
    }
}
