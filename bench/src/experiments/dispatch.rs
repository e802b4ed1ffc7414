// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dispatch latency: histograms, a table, the maximum.

use super::beside::Periods;
use super::{Plan, Table};
use crate::plot::{Figure, Histograms, Panel};
use crate::results::{Outcome, Results};
use crate::stats::{Spread, grouped};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Aim: how far the longest wait of a real-time guest beside hackbench may be above the bare machine's, in instructions.
pub const ROOM: f64 = 1500.0;

/// The label of a run, and its name on the page.
pub type Named = (String, String);

/// How latencies are measured.
pub fn definition(periods: Periods, plan: &Plan) -> String {
    format!(
        "{} periods of {} µs. Latency is the counter at the task's first instruction minus the due time, which is \
         absolute and does not drift; the counter runs at 62.5 MHz, so it counts in steps of {} instructions.",
        grouped(periods.count as f64),
        periods.us,
        plan.ipus * 16 / 1000
    )
}

/// How latencies are measured beside a Linux that boots meanwhile.
pub fn method(periods: Periods, plan: &Plan) -> Vec<String> {
    vec![
        definition(periods, plan),
        "Both guests start together. So up to the first three virtual seconds are Linux's boot, even in the run called \
         Linux idle. What Linux does after its boot lasts to the end."
            .into(),
    ]
}

/// The largest latency over all seeds, in instructions.
pub fn worst(results: &Results, label: &str) -> Option<f64> {
    let values = results
        .of(label)
        .iter()
        .filter_map(|it| it.rt_instructions("max_ns"));
    values.reduce(f64::max)
}

/// If the maximum of one case is this many times that of another, the smaller one would be invisible on a linear axis.
const WIDE: f64 = 20.0;

/// A histogram for each case, all seeds together, with rows of the same width on a linear axis.
pub fn figure(cases: &[Named], results: &Results) -> Figure {
    let maxima = || cases.iter().filter_map(|(label, _)| worst(results, label));
    let largest = maxima().fold(0.0, f64::max);
    let logarithmic = largest > WIDE * maxima().fold(f64::INFINITY, f64::min);
    // Not narrower than the guest's own rows, of which 200 contain almost all values.
    let finest = |label: &str| {
        let rows = results.of(label).iter();
        let widths = rows.map(|it| it.instructions(it.console.rt.histogram.width_ns as f64));
        200.0 * widths.fold(0.0, f64::max)
    };
    let same = cases.iter().map(|(label, _)| finest(label));
    let same = row_width(same.fold(largest, f64::max));
    let panels = cases
        .iter()
        .map(|(label, name)| {
            let outcomes = results.of(label);
            let spread = |key| Spread::of(outcomes.iter().filter_map(|it| it.rt_instructions(key)));
            let facts = match (
                spread("min_ns"),
                spread("avg_ns"),
                spread("p99_9_ns"),
                spread("max_ns"),
            ) {
                (Some(min), Some(avg), Some(tail), Some(max)) => format!(
                    "minimum {} · average {} · 99.9 % {} · maximum {}",
                    grouped(min.low),
                    grouped(avg.median),
                    grouped(tail.high),
                    grouped(max.high)
                ),
                _ => "no result".into(),
            };
            let max = spread("max_ns").map(|it| ("max".to_owned(), it.high));
            Panel {
                name: name.clone(),
                bars: bars(
                    outcomes,
                    if logarithmic {
                        row_width(finest(label))
                    } else {
                        same
                    },
                ),
                facts,
                marks: max.into_iter().collect(),
            }
        })
        .collect();
    Figure::Histograms(Histograms {
        title: "Dispatch latency of the real-time guest".into(),
        y_title: match logarithmic {
            true => "periods in each row, all seeds together (logarithmic)".into(),
            false => {
                format!("periods in each {same} instructions, all seeds together (logarithmic)")
            }
        },
        x_title: "instructions from due time to the task's first instruction".into(),
        logarithmic,
        panels,
    })
}

/// A round width with which `largest` is in about row 200.
fn row_width(largest: f64) -> f64 {
    // A multiple of a counter tick at 250 instructions per microsecond, so that all rows span the same number of ticks.
    const WIDTHS: [f64; 9] = [4.0, 8.0, 20.0, 40.0, 100.0, 200.0, 400.0, 1000.0, 2000.0];
    let wanted = largest / 200.0;
    WIDTHS
        .into_iter()
        .find(|&it| it >= wanted)
        .unwrap_or(wanted)
}

/// Rows of this width over all seeds, in instructions: from, to, count.
fn bars(outcomes: &[Outcome], width: f64) -> Vec<(f64, f64, u64)> {
    let mut rows: BTreeMap<u64, u64> = BTreeMap::new();
    let mut bars = Vec::new();
    for outcome in outcomes {
        let histogram = &outcome.console.rt.histogram;
        for &(start, count) in &histogram.rows {
            let row = (outcome.instructions(start as f64) / width) as u64;
            *rows.entry(row).or_default() += count;
        }
        // Values above the last row of the coarse table: only their range is known.
        if let (Some(max), Some(&(last, _))) =
            (outcome.rt_instructions("max_ns"), histogram.rows.last())
            && histogram.above > 0
        {
            let from = outcome.instructions((last + histogram.width_ns) as f64);
            bars.push((from, max.max(from), histogram.above));
        }
    }
    bars.extend(rows.into_iter().map(|(row, count)| {
        let from = row as f64 * width;
        (from, from + width, count)
    }));
    bars
}

/// Latencies in instructions.
pub fn table(cases: &[Named], results: &Results) -> Table {
    let columns = [
        "", "minimum", "average", "99.9 %", "maximum", "lost", "late",
    ];
    let mut table = Table::new(
        "Latency in instructions: median of the seeds, and their range",
        &columns,
    );
    for (label, name) in cases {
        let outcomes = results.of(label);
        let cell = |key: &str| {
            let spread = Spread::of(outcomes.iter().filter_map(|it| it.rt_instructions(key)));
            spread.map_or("-".into(), show)
        };
        let count = |key: &str| {
            let sum: f64 = outcomes.iter().filter_map(|it| it.rt(key)).sum();
            match outcomes.is_empty() {
                true => "-".into(),
                false => grouped(sum),
            }
        };
        let mut row = vec![name.clone()];
        row.extend(["min_ns", "avg_ns", "p99_9_ns", "max_ns"].map(cell));
        row.extend(["lost", "late"].map(count));
        table.rows.push(row);
    }
    table
}

/// A latency: the median, and the range if there is one.
pub fn show(spread: Spread) -> String {
    let (low, median, high) = (
        grouped(spread.low),
        grouped(spread.median),
        grouped(spread.high),
    );
    match low == high {
        true => median,
        false => format!("{median} ({low} to {high})"),
    }
}

/// For the JSON file.
pub fn summary(cases: &[Named], results: &Results) -> Value {
    let mut all = serde_json::Map::new();
    for (label, _) in cases {
        let spread = |key| {
            Spread::of(
                results
                    .of(label)
                    .iter()
                    .filter_map(|it| it.rt_instructions(key)),
            )
        };
        all.insert(
            label.clone(),
            json!({
                "minimum": spread("min_ns"),
                "average": spread("avg_ns"),
                "p99_9": spread("p99_9_ns"),
                "maximum": spread("max_ns"),
            }),
        );
    }
    json!({ "latency_instructions": all })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::samples;

    #[test]
    fn rows_of_several_seeds_add_up() {
        let outcomes = [1, 2].map(|seed| samples::rt("a", seed, [400, 800, 1200, 4000]));
        // 400 ns are 100 instructions, 1200 ns are 300.
        assert_eq!(
            bars(&outcomes, 100.0),
            [(100.0, 200.0, 180), (300.0, 400.0, 18)]
        );
        assert_eq!(bars(&outcomes, 400.0), [(0.0, 400.0, 198)]);
    }

    #[test]
    fn rows_are_of_round_widths() {
        assert_eq!(row_width(5388.0), 40.0);
        assert_eq!(row_width(0.0), 4.0);
    }
}
