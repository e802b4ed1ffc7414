// SPDX-License-Identifier: MIT OR Apache-2.0
//! Findings, aims, tables, and the method.

use super::super::{Plan, Table, Verdict};
use super::measured::{
    self, Measured, OFF_US, ON_US, full, least_of, load, mean_throughput, spread, throughput, wait,
};
use super::runs::{
    BURST_PERIOD_US, BURST_US, CORES, Case, HALF, Kind, Load, PERFORMANCE, QUARTER, REST_MS,
    RT_LOADS, SAVING, SETTLE_MS, cases,
};
use crate::results::Results;
use crate::stats::{Spread, grouped};
use serde_json::{Value, json};

/// Aims: cores that are on while Linux idles, with what a wake-up of one takes; core-seconds over the least possible; throughput under full
/// load over that with all cores on; in milliseconds, until all cores are on when a burst begins, and until one is when a load has ended; and
/// what a mode adds to the longest wait, in instructions.
const IDLE_CORES: f64 = 1.05;
const OVER_LEAST: f64 = 1.10;
const THROUGHPUT: f64 = 0.99;
const ALL_MS: f64 = 2.0;
const ONE_MS: f64 = 10.0;
const ROOM: f64 = 200.0;

/// The cases of modes in which cores go off.
fn saving(plan: &Plan) -> impl Iterator<Item = Case> {
    cases(plan)
        .into_iter()
        .filter(|it| matches!(it.kind, Kind::Mode(mode) if mode != PERFORMANCE))
}

pub(super) fn findings(plan: &Plan, results: &Results) -> Vec<String> {
    let of_cores = saving(plan).filter_map(|case| {
        let on = spread(results, case, Measured::paid)?;
        let changes = spread(results, case, Measured::changes_per_second)?;
        let mut said = format!(
            "{}, mode {}: {} cores are on, on average, where {} execute while all are on",
            case.title(),
            case.kind.title(),
            on.show(2),
            load(results, case)?.show(2),
        );
        if let Some(least) = least_of(results, case) {
            said += &format!(", and {least} would be the least possible");
        }
        if let Some(done) = throughput(results, case) {
            said += &format!("; Linux does {} times the work in a second", done.show(3));
        }
        said += &format!("; cores change {} times in a second.", changes.show(1));
        Some(said)
    });
    let of_bursts = saving(plan).filter_map(|case| {
        let times = measured::until_all(results, case);
        let bursts = measured::bursts(results, case);
        (bursts > 0).then(|| match times.len() {
            0 => format!(
                "{}, mode {}: all cores are on already when each of the {bursts} bursts begins.",
                case.title(),
                case.kind.title()
            ),
            few => format!(
                "{}, mode {}: for {few} of {bursts} bursts cores have to come on; until all are on: {}.",
                case.title(),
                case.kind.title(),
                measured::show(&times)
            ),
        })
    });
    let alone = cases(plan).into_iter().filter_map(|case| {
        let on = spread(results, case, Measured::paid)?;
        match case.kind {
            Kind::Bare => Some(format!(
                "{}, bare Linux alone: {} cores are not in WFI, on average.",
                case.title(),
                on.show(2)
            )),
            Kind::Hotplug => Some(format!(
                "{}, bare Linux alone with CPU hotplug: {} CPUs are online, on average.",
                case.title(),
                on.show(2)
            )),
            Kind::Mode(_) => None,
        }
    });
    of_cores.chain(of_bursts).chain(alone).collect()
}

/// An aim of one value: at most, or at least, so much.
fn aim(aim: String, measured: Option<(String, bool)>) -> Verdict {
    let (measured, met) = match measured {
        Some((said, met)) => (said, Some(met)),
        None => ("no result".into(), None),
    };
    Verdict { aim, measured, met }
}

pub(super) fn verdicts(plan: &Plan, results: &Results) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for case in saving(plan) {
        let name = format!("{}, {}", case.title(), case.kind.title());
        verdicts.extend(match case.load {
            Load::Idle => Some(idle(&name, results, case)),
            QUARTER | HALF => Some(near_least(&name, results, case)),
            Load::Full if case.kind == Kind::Mode(SAVING[0]) => {
                Some(full_speed(&name, results, case))
            }
            Load::Bursts => Some(all_on(&name, results, case)),
            _ => None,
        });
        if matches!(case.load, Load::Bursts | Load::Full) {
            verdicts.push(one_on(&name, results, case));
        }
        verdicts.push(waits(&name, results, case));
    }
    verdicts
}

fn idle(name: &str, results: &Results, case: Case) -> Verdict {
    let on = spread(results, case, Measured::paid);
    aim(
        format!("{name}: at most {IDLE_CORES} cores on"),
        on.map(|it| (it.show(2), it.high <= IDLE_CORES)),
    )
}

fn near_least(name: &str, results: &Results, case: Case) -> Verdict {
    let both = spread(results, case, Measured::paid).zip(least_of(results, case));
    aim(
        format!("{name}: core-seconds at most 10 % above the least possible"),
        both.map(|(on, least)| {
            let most = OVER_LEAST * f64::from(least);
            (
                format!("{} in a second, least {least}", on.show(2)),
                on.high <= most,
            )
        }),
    )
}

fn full_speed(name: &str, results: &Results, case: Case) -> Verdict {
    let done = mean_throughput(results, case);
    Verdict {
        aim: format!("{name}: throughput at most 1 % below `{PERFORMANCE}`"),
        measured: done.map_or("no result".into(), |it| it.show(3)),
        // Few repeats do not show so little.
        met: done
            .filter(|it| it.error <= 1.0 - THROUGHPUT)
            .map(|it| it.mean >= THROUGHPUT),
    }
}

fn all_on(name: &str, results: &Results, case: Case) -> Verdict {
    let times = measured::until_all(results, case);
    let bursts = measured::bursts(results, case);
    let said = match times.is_empty() {
        true => format!("all on before each of {bursts}"),
        false => measured::show(&times),
    };
    let met = times.is_empty() || measured::longest(&times).is_some_and(|it| it <= ALL_MS);
    aim(
        format!("{name}: all cores on at most {ALL_MS} ms after a burst begins"),
        (bursts > 0).then_some((said, met)),
    )
}

fn one_on(name: &str, results: &Results, case: Case) -> Verdict {
    let times = measured::until_one(results, case);
    let met = measured::longest(&times).is_some_and(|it| it <= ONE_MS);
    aim(
        format!("{name}: one core on at most {ONE_MS} ms after the load ends"),
        (!times.is_empty()).then(|| (measured::show(&times), met)),
    )
}

fn waits(name: &str, results: &Results, case: Case) -> Verdict {
    let both = wait(results, case).zip(wait(results, case.performance()));
    aim(
        format!("{name}: the longest wait is at most that of `{PERFORMANCE}` + {ROOM}"),
        both.map(|(value, all)| {
            (
                format!("{}, `{PERFORMANCE}` {}", grouped(value), grouped(all)),
                value <= all + ROOM,
            )
        }),
    )
}

pub(super) fn cores_table(plan: &Plan, results: &Results) -> Table {
    let mut table = Table::new(
        "Cores, by load and by what turns them off: median of the seeds, and their range",
        &[
            "load",
            "",
            "throughput",
            "core-seconds",
            "cores on",
            "of these, changes cost",
            "least",
            "execute",
            "changes in a second",
        ],
    );
    let show = |value: Option<Spread>, decimals| value.map_or("-".into(), |it| it.show(decimals));
    for case in cases(plan) {
        let value = |of: fn(&Measured) -> f64| spread(results, case, of);
        table.rows.push(vec![
            case.title(),
            case.kind.title(),
            show(throughput(results, case), 3),
            show(value(Measured::core_seconds), 3),
            show(value(Measured::paid), 3),
            show(value(Measured::switching), 4),
            least_of(results, case).map_or("-".into(), |it| it.to_string()),
            show(value(Measured::busy), 3),
            show(value(Measured::changes_per_second), 1),
        ]);
    }
    table
}

pub(super) fn times_table(plan: &Plan, results: &Results) -> Table {
    let mut table = Table::new(
        "How soon cores come and go, and how long the work of a thread takes from when it is due: median and longest",
        &[
            "load",
            "",
            "bursts",
            "began with cores off",
            "until all are on",
            "after the end, until one is on",
            "a thread's work: median",
            "longest",
        ],
    );
    for case in cases(plan) {
        let until_all = measured::until_all(results, case);
        let bursts = measured::bursts(results, case);
        let is_burst = case.load == Load::Bursts;
        let taken = |key: &str| {
            let all = results.of(&case.label()).iter();
            let us = Spread::of(all.filter_map(|it| it.linux(key)));
            us.map_or("-".into(), |it| format!("{} ms", it.over(1000.0).show(2)))
        };
        table.rows.push(vec![
            case.title(),
            case.kind.title(),
            if is_burst {
                bursts.to_string()
            } else {
                "-".into()
            },
            if is_burst {
                until_all.len().to_string()
            } else {
                "-".into()
            },
            measured::show(&until_all),
            match case.kind {
                Kind::Mode(PERFORMANCE) => "-".into(),
                _ => measured::show(&measured::until_one(results, case)),
            },
            taken("median_us"),
            taken("longest_us"),
        ]);
    }
    table
}

pub(super) fn waits_table(plan: &Plan, results: &Results) -> Table {
    let mut table = Table::new(
        "Longest wait of the real-time guest in instructions, of all seeds",
        &["load", PERFORMANCE, SAVING[0], SAVING[1]],
    );
    for case in cases(plan) {
        if case != case.performance() {
            continue;
        }
        let cell = |mode| {
            let kind = Kind::Mode(mode);
            wait(results, Case { kind, ..case }).map_or("-".into(), grouped)
        };
        let cells = [PERFORMANCE, SAVING[0], SAVING[1]].map(cell);
        table
            .rows
            .push([vec![case.title()], cells.to_vec()].concat());
    }
    table
}

pub(super) fn method() -> Vec<String> {
    let fulls = SAVING.map(|mode| {
        let percent = 100.0 * full(mode).unwrap_or(1.0);
        format!("{percent:.0} % in mode `{mode}`")
    });
    let rt = RT_LOADS.iter();
    let rt: Vec<_> = rt.map(|it| format!("{it} %")).collect();
    vec![
        format!(
            "Linux has {CORES} vCPUs, which may run on all {CORES} cores. Above them, on core 0, FreeRTOS takes a timer interrupt each millisecond, and \
             spins for {} of each 10 ms. Waits count from 2.5 s after its start, when Linux has booted.",
            rt.join(" or ")
        ),
        format!(
            "Linux idles for {SETTLE_MS} ms before its load begins (`guests/linux/scenarios/settled`). 25 % and 50 %: four threads that each work for \
             that share of each 10 ms, a quarter of it apart. Bursts: four threads work for {} ms of each {} ms, at the same time. Work is a number of \
             instructions (`guests/linux/programs/duty.c`), so a thread that waits for a core takes longer.",
            BURST_US / 1000,
            BURST_PERIOD_US / 1000
        ),
        "A core is off from the time at which the hypervisor has the firmware turn it off until the firmware has turned it on, also if that is only for \
         something that came for it (marks of the hypervisor, `hypervisor/src/steps.rs`)."
            .into(),
        format!(
            "Cores on and core-seconds contain what the board file says that changes cost (`[power]`: {OFF_US} µs off, {ON_US} µs on), and are counted from \
             the begin of the load to its end. Throughput is the work over its time, relative to that in mode `{PERFORMANCE}`. \"Execute\": \
             cores that execute instructions of guests or of the hypervisor, by the clock, in the last repeat."
        ),
        format!(
            "The least possible is a whole number of cores: the fewest that are not fuller than {}, of the time that the real-time guest leaves; the load is \
             what executes while all cores are on.",
            fulls.join(" and ")
        ),
        format!(
            "A burst begins with the first thread that works, and ends with the last. One core must be on after a burst before the next \
         one begins, and after other loads before the run ends. Such a load ends where Linux begins to idle for {REST_MS} ms: its results are printed by \
         then."
        ),
        "Beside it: the same Linux without the real-time guest on the bare machine. There a CPU that has nothing to do waits in WFI, and counts as off. With CPU \
         hotplug, a script looks at the load each 100 ms, and takes one CPU offline if the others are not fuller than 50 %, or brings one back if CPUs are fuller \
         than 80 %; then CPUs that are offline count as off, and others as on."
            .into(),
    ]
}

pub(super) fn summary(plan: &Plan, results: &Results) -> Value {
    let each = cases(plan).into_iter().map(|case| {
        let value = |of: fn(&Measured) -> f64| spread(results, case, of);
        json!({
            "run": case.label(),
            "throughput_over_performance": throughput(results, case),
            "core_seconds": value(Measured::core_seconds),
            "cores_on": value(Measured::paid),
            "cost_of_changes_in_cores": value(Measured::switching),
            "least_cores": least_of(results, case),
            "cores_that_execute": value(Measured::busy),
            "changes_per_second": value(Measured::changes_per_second),
            "ms_until_all_on": measured::until_all(results, case),
            "ms_until_one_on": measured::until_one(results, case),
            "longest_wait_instructions": wait(results, case),
        })
    });
    each.collect()
}
