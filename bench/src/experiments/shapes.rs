// SPDX-License-Identifier: MIT OR Apache-2.0
//! `shapes`: throughput of Linux and dispatch latency in systems other than the usual one: more real-time guests, more vCPUs
//! than cores, a vCPU of Linux with the highest priority.

mod systems;

use self::systems::{ABOVE_PRIORITY, ALL, Shape, USUAL};
use super::beside::{self, Load, Periods, run_bare};
use super::dispatch::ROOM;
use super::loads::{self, Bare, Loads};
use super::{About, Defaults, Evaluation, Experiment, Plan, Table, Verdict, dispatch, lhp, shares};
use crate::machine::Run;
use crate::plot::{Dot, Dots, Figure, Row};
use crate::results::Results;
use crate::stats::{Spread, grouped};
use crate::system::RT_PRIORITY;
use serde_json::{Value, json};

/// The figure.
pub struct Shapes;

/// The policy whose throughput has an aim; other policies are there for comparison.
const JUDGED: &str = "steal";
/// The label of the real-time guest on the bare machine.
const BARE_RT: &str = "latency-bare";

const ABOUT: About = About {
    name: "shapes",
    title: "Systems of other shapes",
    question: "The other figures have one real-time guest above a Linux of four vCPUs on four cores. Does what they show \
        hold with two real-time guests, with more vCPUs than cores, and where a vCPU of Linux comes before the real-time \
        guest, which then has to keep its periods on other cores?",
    defaults: Defaults {
        policies: &["steal"],
        quick_policies: &["steal"],
        ..Defaults::THROUGHPUT
    },
};

fn loads(plan: &Plan) -> Result<Loads, String> {
    Loads::new(plan, loads::yardstick(plan), &[0, 50], &[0, 50, 90])
}

/// The guests measure from power on, and Linux boots for more than two seconds, so the measurement must be longer.
fn periods(plan: &Plan) -> Periods {
    Periods {
        us: 100,
        count: if plan.quick { 30_000 } else { 50_000 },
        warmup: 0,
        more: " histogram=off",
    }
}

/// The shapes of each policy of a plan.
fn cases(plan: &Plan) -> impl Iterator<Item = (&str, &'static Shape)> {
    let policies = plan.policies.iter().map(String::as_str);
    policies.flat_map(|policy| Shape::of(policy).map(move |shape| (policy, shape)))
}

/// The label of a run for throughput. Those of the usual shape are also runs of `lhp`.
fn load_label(loads: &Loads, policy: &str, shape: &Shape, load: u32) -> String {
    match *shape == USUAL {
        true => loads.label(policy, load),
        false => loads.label(&format!("{policy}-{}", shape.name), load),
    }
}

/// The label of a run for latency.
fn latency_label(policy: &str, shape: &Shape) -> String {
    format!("latency-{policy}-{}", shape.name)
}

/// The run that measures throughput under a load in per cent. Linux's CPU 0 has a core without a real-time guest, so that
/// its boot does not depend on the load.
fn load_run(plan: &Plan, loads: &Loads, policy: &str, shape: &Shape, load: u32) -> Run {
    let run = Run {
        label: load_label(loads, policy, shape, load),
        ..loads.run(plan, policy, load)
    };
    shape.shaped(run, shape.guests as u32)
}

/// The run that measures latency, with the homes of vCPUs that `latency` has.
fn latency_run(plan: &Plan, policy: &str, shape: &Shape) -> Run {
    let label = latency_label(policy, shape);
    let plan = plan.for_latency();
    let run = beside::run_beside(&plan, label, policy, Load::Hackbench, periods(&plan), None);
    shape.shaped(run, 0)
}

/// Time over the ideal at a load in per cent.
fn over_ideal(
    loads: &Loads,
    results: &Results,
    (policy, shape): (&str, &Shape),
    load: u32,
) -> Option<Spread> {
    let time = loads.spread(results, &load_label(loads, policy, shape, load))?;
    Some(time.over(ideal(&loads.bare(results)?, shape, load)))
}

fn ideal(bare: &Bare, shape: &Shape, load: u32) -> f64 {
    bare.ideal_beside(shape.guests, f64::from(load) / 100.0)
}

/// The largest median over the ideal, and its load; `None` unless there is a result at every load.
fn worst_load(loads: &Loads, results: &Results, case: (&str, &Shape)) -> Option<(f64, u32)> {
    let each = loads.loads.iter();
    let ratios: Option<Vec<_>> = each
        .map(|&load| Some((over_ideal(loads, results, case, load)?.median, load)))
        .collect();
    ratios?.into_iter().max_by(|a, b| a.0.total_cmp(&b.0))
}

/// The longest wait of each real-time guest over all seeds, in instructions; `None` without a result.
fn longest_waits(results: &Results, (policy, shape): (&str, &Shape)) -> Option<Vec<f64>> {
    let outcomes = results.of(&latency_label(policy, shape));
    let longest = |guest: String| {
        let waits = outcomes.iter();
        let waits = waits.filter_map(|it| it.rt_instructions_of(&guest, "max_ns"));
        waits.reduce(f64::max)
    };
    shape.guest_names().map(longest).collect()
}

/// Periods of all real-time guests and seeds that were lost or late.
fn untimely(results: &Results, (policy, shape): (&str, &Shape)) -> f64 {
    let outcomes = results.of(&latency_label(policy, shape)).iter();
    let counts = outcomes.flat_map(|outcome| {
        shape
            .guest_names()
            .flat_map(|guest| ["lost", "late"].map(|key| outcome.rt_of(&guest, key).unwrap_or(0.0)))
    });
    counts.fold(0.0, |sum, it| sum + it)
}

impl Experiment for Shapes {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn runs(&self, plan: &Plan) -> Result<Vec<Run>, String> {
        let loads = loads(plan)?;
        let mut runs: Vec<_> = loads.bare_runs(plan).collect();
        for (policy, shape) in cases(plan) {
            let each = loads.loads.iter();
            runs.extend(each.map(|&load| load_run(plan, &loads, policy, shape, load)));
        }
        let latency = plan.for_latency();
        runs.push(run_bare(&latency, BARE_RT.into(), periods(&latency)));
        runs.extend(cases(plan).map(|(policy, shape)| latency_run(plan, policy, shape)));
        Ok(runs)
    }

    fn evaluate(&self, plan: &Plan, results: &Results) -> Evaluation {
        // `runs` has accepted the plan.
        let Ok(loads) = loads(plan) else {
            return Evaluation::empty();
        };
        let verdicts = cases(plan).flat_map(|case| verdicts(&loads, results, case));
        Evaluation {
            figure: Figure::Dots(figure(&loads, plan, results)),
            further: Vec::new(),
            caption: format!(
                "Time of {} over the ideal, for each shape of the system and each load",
                loads.yardstick.name
            ),
            findings: findings(&loads, plan, results),
            verdicts: verdicts.collect(),
            tables: vec![
                throughput_table(&loads, plan, results),
                latency_table(plan, results),
                loads.bare_table(results),
                shares_table(&loads, plan, results),
            ],
            method: method(&loads, plan),
            summary: summary(&loads, plan, results),
        }
    }
}

fn figure(loads: &Loads, plan: &Plan, results: &Results) -> Dots {
    let rows = cases(plan).map(|case| Row {
        name: named(plan, case),
        dots: loads
            .loads
            .iter()
            .map(|&load| Dot {
                name: format!("{load} % load"),
                value: over_ideal(loads, results, case, load),
                decimals: 2,
            })
            .collect(),
    });
    Dots {
        title: "Time of Linux's work over the ideal, in systems of other shapes".into(),
        subtitle: format!(
            "{}; median, and the range over seeds; load: of each real-time guest on its core",
            loads.yardstick.name
        ),
        x_title: "time over the ideal of the same shape under the same load".into(),
        one: Some("ideal".into()),
        rows: rows.collect(),
    }
}

/// The name of a case on the page: with its policy if there are several.
fn named(plan: &Plan, (policy, shape): (&str, &Shape)) -> String {
    match plan.policies.len() {
        1 => shape.name.into(),
        _ => format!("{}, {policy}", shape.name),
    }
}

/// For each policy: throughput, waits, and periods that were not kept.
fn findings(loads: &Loads, plan: &Plan, results: &Results) -> Vec<String> {
    let mut findings = Vec::new();
    for policy in &plan.policies {
        let list = |words: &dyn Fn(&'static Shape) -> Option<String>| {
            let said =
                Shape::of(policy).filter_map(|it| Some(format!("`{}` {}", it.name, words(it)?)));
            let said = said.collect::<Vec<_>>().join(", ");
            (!said.is_empty()).then_some(said)
        };
        let times = list(&|shape| {
            let (ratio, load) = worst_load(loads, results, (policy, shape))?;
            Some(format!("{ratio:.2} ({load} % load)"))
        });
        findings
            .extend(times.map(|it| format!("Policy `{policy}`, times the ideal at worst: {it}.")));
        let waits = list(&|shape| {
            let waits = longest_waits(results, (policy, shape))?;
            Some(
                waits
                    .into_iter()
                    .map(grouped)
                    .collect::<Vec<_>>()
                    .join(" and "),
            )
        });
        let Some(waits) = waits else { continue };
        findings.push(format!(
            "Policy `{policy}`, longest wait of each real-time guest beside hackbench, in instructions: {waits}."
        ));
        let untimely = list(&|shape| {
            let count = untimely(results, (policy, shape));
            (count > 0.0).then(|| grouped(count))
        });
        findings.push(match untimely {
            Some(counts) => format!(
                "Policy `{policy}`, periods that were lost or late: {counts}; none in other shapes."
            ),
            None => format!("Policy `{policy}`: no period was lost or late."),
        });
    }
    findings
}

/// The aims of a policy in a shape.
fn verdicts(loads: &Loads, results: &Results, case: (&str, &Shape)) -> Vec<Verdict> {
    let (policy, shape) = case;
    let said = |aim: String| format!("`{}`: policy `{policy}`: {aim}", shape.name);
    let worst = worst_load(loads, results, case);
    let throughput = Verdict {
        aim: said(format!("at most {} × the ideal at every load", lhp::AIM)),
        measured: worst.map_or("no result".into(), |(ratio, load)| {
            format!("{ratio:.3} × at {load} %")
        }),
        met: worst.map(|(ratio, _)| ratio <= lhp::AIM),
    };
    let longest = longest_waits(results, case).and_then(|it| it.into_iter().reduce(f64::max));
    let above = longest
        .zip(dispatch::worst(results, BARE_RT))
        .map(|(longest, bare)| longest - bare);
    let latency = Verdict {
        aim: said(format!(
            "maximum (Linux runs hackbench) at most the bare machine's + {}",
            grouped(ROOM)
        )),
        measured: above.map_or("no result".into(), |it| format!("+ {}", grouped(it))),
        met: above.map(|it| it <= ROOM),
    };
    match policy {
        JUDGED => vec![throughput, latency],
        "none" => vec![latency],
        _ => Vec::new(),
    }
}

/// Times by shape and load.
fn throughput_table(loads: &Loads, plan: &Plan, results: &Results) -> Table {
    let title = format!(
        "Time of `{}` in seconds, and over the ideal",
        loads.yardstick.name
    );
    let mut table = Table::new(&title, &["", "load", "ideal", "seconds", "over the ideal"]);
    let bare = loads.bare(results);
    for case in cases(plan) {
        for &load in &loads.loads {
            let time = loads.spread(results, &load_label(loads, case.0, case.1, load));
            let ideal = bare.as_ref().map(|it| ideal(it, case.1, load));
            table.rows.push(vec![
                named(plan, case),
                format!("{load} %"),
                ideal.map_or("-".into(), |it| format!("{it:.3}")),
                time.map_or("-".into(), |it| it.show(3)),
                over_ideal(loads, results, case, load).map_or("-".into(), |it| it.show(3)),
            ]);
        }
    }
    table
}

/// Latencies of each real-time guest, in instructions.
fn latency_table(plan: &Plan, results: &Results) -> Table {
    let title =
        "Latency in instructions, Linux runs hackbench: median of the seeds, and their range";
    let columns = [
        "", "guest", "minimum", "average", "99.9 %", "maximum", "lost", "late",
    ];
    let mut table = Table::new(title, &columns);
    let mut add = |name: String, label: &str, guest: &str| {
        let outcomes = results.of(label);
        let mut row = vec![name, guest.to_owned()];
        row.extend(["min_ns", "avg_ns", "p99_9_ns", "max_ns"].map(|key| {
            let spread = Spread::of(
                outcomes
                    .iter()
                    .filter_map(|it| it.rt_instructions_of(guest, key)),
            );
            spread.map_or("-".into(), dispatch::show)
        }));
        row.extend(["lost", "late"].map(|key| {
            let counts: Vec<_> = outcomes
                .iter()
                .filter_map(|it| it.rt_of(guest, key))
                .collect();
            match counts.is_empty() {
                true => "-".into(),
                false => grouped(counts.iter().sum()),
            }
        }));
        table.rows.push(row);
    };
    for guest in USUAL.guest_names() {
        add("bare machine".into(), BARE_RT, &guest);
    }
    for case in cases(plan) {
        for guest in case.1.guest_names() {
            add(named(plan, case), &latency_label(case.0, case.1), &guest);
        }
    }
    table
}

/// Where the time went at the highest load.
fn shares_table(loads: &Loads, plan: &Plan, results: &Results) -> Table {
    let most = loads.loads.iter().copied().max().unwrap_or_default();
    let bare = (
        "4 bare cores".to_owned(),
        results.of(&loads.bare_label(loads::CORES)),
    );
    let shaped = cases(plan).map(|case| {
        let label = load_label(loads, case.0, case.1, most);
        (
            format!("{}, {most} %", named(plan, case)),
            results.of(&label),
        )
    });
    shares::table([bare].into_iter().chain(shaped))
}

fn method(loads: &Loads, plan: &Plan) -> Vec<String> {
    let latency = plan.for_latency();
    let others = ALL.iter().filter(|it| **it != USUAL);
    let others: Vec<_> = others
        .map(|it| format!("`{}`: {}", it.name, it.what))
        .collect();
    let mut lines = loads.method(plan);
    lines.push(format!(
        "That is the shape `{}`: {}. What the others have in its place: {}.",
        USUAL.name,
        USUAL.what,
        others.join("; ")
    ));
    lines.push(
        "With two real-time guests, two cores lose the share f: the ideal is 1 / (T(2) + (1 - f) × (T(4) - T(2))). Both start \
         together, so their bursts are at the same time."
            .into(),
    );
    lines.push(format!(
        "`above`: the vCPU of Linux on core 0 has priority {ABOVE_PRIORITY}, the real-time guest {RT_PRIORITY}. The ideal \
         is that of `usual`: on whatever core it is, the real-time guest takes the same share of one. A policy under which \
         it could not leave core 0 does not have this shape."
    ));
    lines.push(format!(
        "vCPUs of Linux go round the cores. For throughput CPU 0 is on the first core without a real-time guest, as in \
         `lhp`; for latency on core 0, as in `latency`. Latency has cores of {} instructions per microsecond, and quanta of \
         {} instructions.",
        latency.ipus, latency.quantum
    ));
    lines.extend(dispatch::method(periods(plan), &latency));
    lines.push(lhp::WINDOW.into());
    if !plan.quick {
        lines.push(lhp::BURSTS.into());
    }
    lines
}

/// For the JSON file.
fn summary(loads: &Loads, plan: &Plan, results: &Results) -> Value {
    let each = cases(plan).map(|case| {
        let points: Vec<_> = loads
            .loads
            .iter()
            .map(|&load| {
                json!({ "load_percent": load, "over_ideal": over_ideal(loads, results, case, load) })
            })
            .collect();
        json!({
            "policy": case.0,
            "shape": case.1.name,
            "throughput": points,
            "longest_waits_instructions": longest_waits(results, case),
            "lost_or_late": untimely(results, case),
        })
    });
    json!({
        "yardstick": loads.yardstick.name,
        "bare_longest_wait_instructions": dispatch::worst(results, BARE_RT),
        "shapes": each.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests;
