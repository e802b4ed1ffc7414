// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use crate::clock::{Exits, Profiled};
use crate::experiments::loads::tests::plan;
use crate::machine::{Machine, arguments};
use crate::results::samples;
use std::collections::BTreeSet;

/// Exits with this end, and a longest stretch of so many instructions.
fn exits(end: &str, longest_deaf: u64) -> Exits {
    Exits {
        end: end.into(),
        longest_deaf,
        ..Exits::default()
    }
}

/// Results in which each TCP run of KVM has executed `kvm` times as many instructions as that of Spumone, and the round trip over
/// the memory link took `memory_ns`.
fn results(plan: &Plan, kvm: u64, memory_ns: u64) -> Results {
    let mut results = Results::default();
    let (runs, mib) = transfers(plan);
    let bytes = u64::from(runs * mib) << 20;
    for (below, cores) in tcp_cases(plan) {
        let log = "linux-result scenario=iperf ok=1 rates=900,1000,1200\n";
        let mut outcome = samples::outcome(&tcp_label(below, cores), 1, log);
        let share = bytes * if below == Below::Kvm { kvm } else { 1 };
        outcome.clock.profiled = Profiled {
            el0: share,
            el1: 3 * share,
            el2: 4 * share,
            ..Profiled::default()
        };
        outcome.clock.exits.push(exits("stays", 450));
        results.add(outcome);
    }
    let mut add = |label: &str, log: &str| results.add(samples::outcome(label, 1, log));
    let log = "linux-result scenario=sockets ok=1 round_trip_ns=80000 large_ns=900000 messages_ns=200000 bytes=1000000 seconds=0.1\n";
    add(SOCKETS, log);
    add(KVM_SOCKETS, log);
    add(
        MEMORY,
        &format!(
            "linux-result scenario=link ok=1 trip_ns=1 trip_avg_ns={memory_ns} messages=2000 ns=1000000000\n\
             rt-result lost=0 late=0\n"
        ),
    );
    add(
        RT_TCP,
        "linux-result scenario=rtnet ok=1 streamed=1000000 stream_seconds=0.05\nrt-result lost=0 late=0\n",
    );
    results
}

#[test]
fn all_that_all_cores_execute_is_counted() {
    let plan = plan();
    let label = tcp_label(Below::Spumone, 2);
    let results = results(&plan, 2, 20_000);
    let bytes = tcp_efficiency(&plan, &results, &label).unwrap();
    assert_eq!(bytes.median, 125.0);
    let levels = per_level(&plan, &results, &label).map(|it| it.unwrap().median);
    assert_eq!(levels, [1024.0, 3072.0, 4096.0]);
    // 1000 Mbit/s are 125 bytes in a microsecond, in which two cores could execute 500 instructions.
    let row = &tcp_table(&plan, &results).rows[0];
    assert_eq!(row[2..4], ["125", "250 (225 to 300)"]);
}

#[test]
fn rates_are_in_the_units_of_the_page() {
    let plan = plan();
    let results = results(&plan, 2, 20_000);
    let rates = streams(&plan, &results).into_iter();
    let rates: Vec<_> = rates.map(|it| it.1.unwrap().median).collect();
    assert_eq!(rates, [1000.0, 1000.0, 1000.0, 1000.0, 80.0, 80.0, 160.0]);
    assert!((messages(&results).unwrap().median - 2000.0).abs() < 1e-6);
    assert_eq!(trip(&results, Trip::MEMORY).unwrap().median, 20.0);
}

#[test]
fn the_cheaper_system_and_the_shortest_trip_decide() {
    let met = |kvm, memory_ns| -> Vec<_> {
        let plan = plan();
        let verdicts = Links
            .evaluate(&plan, &results(&plan, kvm, memory_ns))
            .verdicts;
        verdicts.iter().map(|it| it.met).collect()
    };
    assert_eq!(met(2, 20_000), [Some(true); 5]);
    let mut plan = plan();
    plan.quick = true;
    assert_eq!(verdicts(&plan, &results(&plan, 1, 1)).len(), 4);
    assert_eq!(met(2, 80_001)[2], Some(false));
    // Without results nothing is decided.
    let none = Links.evaluate(&plan, &Results::default()).verdicts;
    assert!(none.iter().all(|it| it.met.is_none()));
}

#[test]
fn only_stretches_beside_running_guests_count() {
    let plan = plan();
    let stretch = |end, instructions| {
        let mut results = results(&plan, 2, 20_000);
        let log = "linux-result scenario=sockets ok=1\n";
        let mut outcome = samples::outcome(SOCKETS, 2, log);
        outcome.clock.exits.push(exits(end, instructions));
        results.add(outcome);
        let verdicts = verdicts(&plan, &results);
        let verdict = &verdicts[verdicts.len() - 2];
        (verdict.met, verdict.measured.clone())
    };
    let expected = |sockets| {
        format!("longest stretch: TCP on 2 cores 450, TCP on 4 cores 450, sockets {sockets}")
    };
    assert_eq!(stretch("stays", 501), (Some(false), expected(501)));
    assert_eq!(stretch("switches", 500), (Some(true), expected(500)));
    let (met, measured) = stretch("unfinished", 2000);
    assert_eq!(met, Some(true));
    assert!(!measured.contains("sockets"), "{measured}");
}

#[test]
fn a_late_period_of_freertos_is_seen() {
    let plan = plan();
    let mut results = results(&plan, 2, 20_000);
    let log = "linux-result scenario=link ok=1\nrt-result lost=0 late=1\n";
    results.add(samples::outcome(MEMORY, 2, log));
    let last = verdicts(&plan, &results).pop().unwrap();
    assert_eq!(
        (last.met, last.measured.as_str()),
        (Some(false), "1 lost or late")
    );
}

#[test]
fn both_systems_have_the_same_guests() {
    let runs = Links.runs(&plan()).unwrap();
    for &cores in tcp_cores(&plan()) {
        let of = |below| {
            let label = tcp_label(below, cores);
            let run = runs.iter().find(|it| it.label == label).unwrap();
            match run.machine.clone() {
                Machine::Spumone(system) => {
                    let mut peer = *system.peer.unwrap();
                    assert_eq!(peer.homes.iter().max(), Some(&(cores - 1)));
                    peer.homes.clear();
                    (system.cores, system.linux.unwrap(), peer)
                }
                Machine::KvmPair(pair) => (pair.cores, pair.linux, pair.peer.unwrap()),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(of(Below::Spumone), of(Below::Kvm));
    }
}

#[test]
fn a_link_needs_no_card_of_the_machine() {
    let runs = Links.runs(&plan()).unwrap();
    let texts = runs.iter().map(|run| {
        let words = arguments(run, |role| format!("{{{role}}}").into());
        words.join(" ")
    });
    let texts: BTreeSet<_> = texts.collect();
    assert!(texts.iter().all(|it| !it.contains("netdev")), "{texts:?}");
    let kvm = texts.iter().filter(|it| it.contains("{kvm-pair.cpio}"));
    assert_eq!(kvm.count(), 3);
}
