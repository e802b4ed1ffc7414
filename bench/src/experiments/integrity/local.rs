// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a guest pays that runs from local memory, by the size of that memory: latency, throughput, pages that are brought.

use super::super::beside::Periods;
use super::super::dispatch::{self, Named};
use super::super::{Picture, Plan, Table, Verdict};
use crate::clock::Exits;
use crate::machine::{Machine, Order, Run};
use crate::plot::{Curve, Figure, Line, Lines};
use crate::results::{Outcome, Results};
use crate::stats::{Spread, grouped};
use crate::system::{Probe, Protected, Rt, System};
use serde_json::{Value, json};

/// Sizes of local memory, in KiB. The smallest has room for little more than what the guest's task and the walk use at a time.
const SIZES: [u32; 7] = [128, 160, 192, 256, 384, 512, 1024];
/// The table through which the guest walks, in KiB.
const TABLE_KIB: u32 = 128;
/// The share of the time in which it walks, in per cent, and of which time, in milliseconds.
const LOAD: u32 = 50;
const BURST_MS: u32 = 5;
/// Aim: what a page-in with its check costs on average, in instructions.
const AIM: f64 = 15_000.0;
/// The steps of the hypervisor when a page is wanted, one was written back, one was brought (`hypervisor/src/steps.rs`).
const WANTED: u32 = 9;
const WRITTEN_BACK: u32 = 10;
const BROUGHT: u32 = 11;

/// What runs beside the guest.
const BESIDE: [(&str, &str); 2] = [("alone", "alone"), ("busy", "beside a busy guest")];

/// How much local memory the guest has; `None`: it runs from main memory.
type Size = Option<u32>;

fn sizes() -> impl Iterator<Item = Size> {
    SIZES.into_iter().map(Some).chain([None])
}

fn label(size: Size, beside: &str) -> String {
    match size {
        Some(kib) => format!("local-{kib}-{beside}"),
        None => format!("local-none-{beside}"),
    }
}

fn size_name(size: Size) -> String {
    size.map_or("without `protect`".into(), |kib| format!("{kib} KiB"))
}

fn periods(plan: &Plan) -> Periods {
    Periods {
        us: 1000,
        count: if plan.quick { 500 } else { 1000 },
        warmup: 0,
        more: "",
    }
}

/// A run for each size, alone and beside a guest of a lower priority that never sleeps.
pub fn runs(plan: &Plan) -> Vec<Run> {
    let each = |(beside, _): (&'static str, _)| sizes().map(move |size| run(plan, size, beside));
    BESIDE.into_iter().flat_map(each).collect()
}

fn run(plan: &Plan, size: Size, beside: &str) -> Run {
    let periods = periods(plan);
    let rt = Rt {
        protected: size.map(|kib| Protected::Local(format!("{kib}KiB"))),
        memory: "4MiB".into(),
        ..Rt::new(format!(
            "{} load={LOAD}% burst={BURST_MS}ms table={TABLE_KIB}KiB",
            periods.bootargs()
        ))
    };
    let probe = Probe {
        homes: vec![0],
        bootargs: format!("suite=spin all=1 ms={}", periods.length_us() / 1000),
        sets_power: false,
    };
    Run {
        label: label(size, beside),
        machine: Machine::Spumone(System {
            cores: 1,
            policy: super::POLICY.into(),
            rt: vec![rt],
            probe: (beside != BESIDE[0].0).then_some(probe),
            ..System::default()
        }),
        disk_mib: 0,
        clock: plan.clock(None),
        order: Order::Any,
    }
}

/// Words that the guest has changed in its table, in millions a second.
fn throughput(outcome: &Outcome) -> Option<f64> {
    Some(outcome.rt("walked")? / outcome.rt("walked_ns")? * 1e3)
}

/// Of exits that have passed all of `passed` and none of `not`: how many, and their instructions.
fn exits(outcome: &Outcome, passed: &[u32], not: &[u32]) -> (f64, f64) {
    let has = |exits: &Exits, step| exits.steps.iter().any(|it| it.step == step);
    let exits = outcome.clock.exits.iter().filter(|it| {
        passed.iter().all(|&step| has(it, step)) && !not.iter().any(|&step| has(it, step))
    });
    exits.fold((0.0, 0.0), |(count, sum), it| {
        (count + it.count as f64, sum + it.instructions as f64)
    })
}

/// Pages that were brought, in a second.
fn rate(outcome: &Outcome) -> f64 {
    let (brought, _) = exits(outcome, &[BROUGHT], &[]);
    brought / outcome.clock.virtual_ns as f64 * 1e9
}

/// The mean instructions of an exit in which a page was brought, and of one in which another page was also written back; all runs and seeds together.
fn costs(results: &Results) -> [Option<f64>; 2] {
    let mean = |passed: &[u32], not: &[u32]| {
        let of = cases()
            .into_iter()
            .flat_map(|(label, _)| results.of(&label));
        let (count, sum) = of
            .map(|it| exits(it, passed, not))
            .fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
        (count > 0.0).then(|| sum / count)
    };
    [
        mean(&[WANTED, BROUGHT], &[WRITTEN_BACK]),
        mean(&[WANTED, WRITTEN_BACK, BROUGHT], &[]),
    ]
}

pub fn cases() -> Vec<Named> {
    let each = |(beside, name): (&'static str, &'static str)| {
        sizes().map(move |size| (label(size, beside), format!("{}, {name}", size_name(size))))
    };
    BESIDE.into_iter().flat_map(each).collect()
}

/// Of all seeds.
fn spread(
    results: &Results,
    label: &str,
    value: impl Fn(&Outcome) -> Option<f64>,
) -> Option<Spread> {
    Spread::of(results.of(label).iter().filter_map(value))
}

/// Lines by the size of local memory, with the values without it for comparison.
fn picture(
    results: &Results,
    title: &str,
    y_title: &str,
    value: impl Fn(&Outcome) -> Option<f64> + Copy,
) -> Figure {
    let lines = BESIDE.map(|(beside, name)| Line {
        name: name.into(),
        points: SIZES
            .into_iter()
            .filter_map(|kib| {
                let spread = spread(results, &label(Some(kib), beside), value)?;
                Some((f64::from(kib), spread))
            })
            .collect(),
    });
    let without = spread(results, &label(None, BESIDE[0].0), value);
    Figure::Lines(Lines {
        title: title.into(),
        y_title: y_title.into(),
        x_title: "KiB of local memory".into(),
        lines: lines.into(),
        // Not a reference, above which lines are cut off.
        curves: without
            .map(|it| Curve {
                name: "without protect".into(),
                points: [SIZES.first(), SIZES.last()]
                    .into_iter()
                    .flatten()
                    .map(|&kib| (f64::from(kib), it.median))
                    .collect(),
            })
            .into_iter()
            .collect(),
        references: Vec::new(),
    })
}

pub fn pictures(results: &Results) -> Vec<Picture> {
    vec![
        Picture {
            name: "throughput",
            figure: picture(
                results,
                "Throughput of a guest that runs from local memory",
                "million words a second that the guest changes in its table",
                throughput,
            ),
            caption: "The throughput of FreeRTOS, by the size of local memory".into(),
        },
        Picture {
            name: "latency",
            figure: picture(
                results,
                "Latency of a guest that runs from local memory",
                "instructions from due time to the task's first instruction, 99.9 % of all",
                |it| it.rt_instructions("p99_9_ns"),
            ),
            caption: "The latency of FreeRTOS, by the size of local memory".into(),
        },
    ]
}

pub fn findings(results: &Results) -> Vec<String> {
    let alone = BESIDE[0].0;
    let without = spread(results, &label(None, alone), throughput).map(|it| it.median);
    let finding = |size: Size| {
        let label = label(size, alone);
        let part = spread(results, &label, throughput)?.over(without? / 100.0);
        let rate = spread(results, &label, |it| Some(rate(it)))?;
        Some(format!(
            "With {} of local memory FreeRTOS gets {} % of the work done that it does without, and {} pages a second are brought.",
            size_name(size),
            part.show(1),
            grouped(rate.median.round()),
        ))
    };
    SIZES
        .into_iter()
        .filter_map(|kib| finding(Some(kib)))
        .collect()
}

pub fn verdict(results: &Results) -> Verdict {
    let [page, with_another] = costs(results);
    Verdict {
        aim: format!(
            "a page-in with its check takes at most {} instructions on average",
            grouped(AIM)
        ),
        measured: page.map_or("no result".into(), |page| {
            let more = with_another.map(|it| {
                format!(
                    "; {} if another page was written back before",
                    grouped(it.round())
                )
            });
            format!("{}{}", grouped(page.round()), more.unwrap_or_default())
        }),
        met: page.map(|it| it <= AIM),
    }
}

pub fn table(results: &Results) -> Table {
    let mut table = Table::new(
        "From local memory: median of the seeds, and their range",
        &[
            "",
            "million words a second",
            "pages brought a second",
            "of these, another one written back before",
        ],
    );
    for (label, name) in cases() {
        let shown = |value: &dyn Fn(&Outcome) -> Option<f64>, decimals| {
            spread(results, &label, value).map_or("-".into(), |it| it.show(decimals))
        };
        let written_back = |outcome: &Outcome| {
            let (all, _) = exits(outcome, &[BROUGHT], &[]);
            let (some, _) = exits(outcome, &[WRITTEN_BACK], &[]);
            (all > 0.0).then(|| 100.0 * some / all)
        };
        table.rows.push(vec![
            name,
            shown(&throughput, 2),
            shown(&|it| Some(rate(it)), 0),
            match shown(&written_back, 0) {
                none if none == "-" => none,
                percent => format!("{percent} %"),
            },
        ]);
    }
    table
}

pub fn method(plan: &Plan) -> String {
    format!(
        "Local memory: one core, {} periods. FreeRTOS has 4 MiB. Local memory holds its tables and hashes (44 KiB), and as many of its pages as there is room for. Its periodic task is as above; for {LOAD} % of each \
         {BURST_MS} ms it walks through a table of {TABLE_KIB} KiB (`table=`), and changes each word of 64 bits: the throughput is how many. The periodic task has the higher priority. \
         The busy guest is the bare-metal program, on the same core. QEMU has no local memory: a range of its main memory stands for it, and costs the same. \
         A page-in is an exit in which a page was copied to local memory and its hash compared; exits that an interrupt has cut short are not among those whose mean is given.",
        grouped(periods(plan).count as f64),
    )
}

pub fn summary(results: &Results) -> Value {
    let each = cases().into_iter().map(|(label, _)| {
        json!({
            "label": label,
            "million_words_per_s": spread(results, &label, throughput),
            "pages_per_s": spread(results, &label, |it| Some(rate(it))),
        })
    });
    let [page, with_another] = costs(results);
    json!({
        "runs": each.collect::<Vec<_>>(),
        "waits": dispatch::summary(&cases(), results),
        "page_in_instructions": page,
        "page_in_and_write_back_instructions": with_another,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Part, Step};
    use crate::results::samples;

    fn outcome(walked: u32, exits: &[(&[u32], u64, u64)]) -> Outcome {
        let log = format!(
            "rt-result periods=1 lost=0 late=0 table=131072 walked={walked} walked_ns=1000000\n"
        );
        let mut outcome = samples::outcome(&label(Some(128), "alone"), 1, &log);
        outcome.clock.virtual_ns = 500_000_000;
        outcome.clock.exits = exits
            .iter()
            .map(|(steps, count, instructions)| Exits {
                steps: steps
                    .iter()
                    .map(|&step| Step {
                        step,
                        part: Part::default(),
                    })
                    .collect(),
                count: *count,
                instructions: *instructions,
                ..Exits::default()
            })
            .collect();
        outcome
    }

    #[test]
    fn throughput_is_the_work_in_the_time_in_which_it_was_done() {
        assert_eq!(throughput(&outcome(5000, &[])), Some(5.0));
    }

    #[test]
    fn pages_are_counted_when_they_have_been_brought() {
        let exits: [(&[u32], u64, u64); 4] = [
            (&[WANTED, BROUGHT], 10, 120_000),
            (&[WANTED, WRITTEN_BACK, BROUGHT], 5, 150_000),
            // An interrupt came before the end.
            (&[WANTED], 7, 7_000),
            (&[], 100, 1),
        ];
        let outcome = outcome(1, &exits);
        assert!((rate(&outcome) - 30.0).abs() < 1e-9);
        let mut results = Results::default();
        results.add(outcome);
        assert_eq!(costs(&results), [Some(12_000.0), Some(30_000.0)]);
        let verdict = verdict(&results);
        assert_eq!(verdict.met, Some(true));
        assert!(verdict.measured.contains("30,000"), "{}", verdict.measured);
    }
}
