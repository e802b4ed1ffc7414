// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::experiments::loads::tests::plan;
use crate::results::samples;

fn both() -> Plan {
    Plan {
        policies: vec!["none".into(), "steal".into()],
        ..plan()
    }
}

fn results(plan: &Plan, share: impl Fn(&str, Loaded) -> f64) -> Results {
    let mut results = Results::default();
    let mut add = |label: &str, mbits: f64| {
        let rates = format!("{mbits},{mbits}");
        let log = format!("linux-result scenario=iperf ok=1 rates={rates}\n");
        results.add(samples::outcome(label, 1, &log));
    };
    for policy in &plan.policies {
        add(&label(policy, (0, 0)), 200.0);
        for loaded in loads(plan) {
            add(&label(policy, loaded), 200.0 * share(policy, loaded));
        }
    }
    results
}

#[test]
fn a_policy_is_judged_by_its_worst_load() {
    let plan = both();
    let share = |policy: &str, loaded| match (policy, loaded) {
        ("none", _) => 0.1,
        (_, (70, 500)) => 0.94,
        _ => 0.99,
    };
    let results = results(&plan, share);
    let evaluation = Network.evaluate(&plan, &results);
    assert_eq!(
        evaluation.verdicts[0].measured,
        "94.0 ± 0.0 % (70 %, 500 ms)"
    );
    assert_eq!(evaluation.verdicts[0].met, Some(false));
    assert!(
        evaluation.findings[0].contains("`none`: 200 Mbit/s without load; at worst 10.0 ± 0.0 %")
    );
    assert!(
        evaluation.findings[1]
            .contains("at worst 94.0 ± 0.0 % of that, at 70 % load in periods of 500 ms")
    );
    // No waits were measured.
    assert_eq!(evaluation.verdicts[1].met, None);
}

#[test]
fn the_longest_wait_of_all_directions_counts() {
    let plan = both();
    let mut results = Results::default();
    for (label, max) in [
        (BASELINE, 8_000),
        ("latency-to", 8_100),
        ("latency-from", 9_300),
        ("latency-both", 8_200),
    ] {
        results.add(samples::rt(label, 1, [1, 2, 3, max]));
    }
    let verdicts = Network.evaluate(&plan, &results).verdicts;
    let last = verdicts.last().unwrap();
    assert_eq!(last.met, Some(false), "{}", last.measured);
}

#[test]
fn both_guests_have_a_card_and_cores_of_their_own() {
    let runs = Network.runs(&both()).unwrap();
    for run in runs.iter().filter(|it| it.label != BASELINE) {
        let Machine::Spumone(system) = &run.machine else {
            panic!("no system")
        };
        assert_eq!(system.cores, 6);
        let peer = system.peer.as_ref().unwrap();
        assert_eq!(peer.homes, [4, 5]);
        let text = crate::machine::arguments(run, |role| format!("{{{role}}}").into()).join(" ");
        assert!(
            text.contains("netdev=left,bus=virtio-mmio-bus.31") && text.contains("netdev=right")
        );
    }
}
