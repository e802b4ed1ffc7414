// SPDX-License-Identifier: MIT OR Apache-2.0
//! Throughput over core-seconds, a line for each mode.

use super::mode_name;
use super::row::Row;
use crate::failure::Failure;
use crate::outfile;
use spumone_bench::plot::{Curve, Figure, Line, Lines};
use spumone_bench::stats::Spread;
use spumone_config::packed::PowerMode;
use spumone_sim::loads::Load;
use std::collections::BTreeMap;
use std::path::Path;

/// What a line is for: a machine, the share of the real-time guest, and a mode.
type Key = (usize, u8, &'static str);

/// Draws the constant loads into this file. A load that comes in bursts is not on a line with them.
pub(super) fn draw(rows: &[Row], path: &Path) -> Result<(), Failure> {
    let svg = Figure::Lines(lines(rows)).svg()?;
    outfile::write(path, svg.as_bytes()).map_err(|error| Failure::io("write", path, &error))
}

fn lines(rows: &[Row]) -> Lines {
    let mut by_line: BTreeMap<Key, BTreeMap<Load, Vec<&Row>>> = BTreeMap::new();
    for row in rows.iter().filter(|it| it.run.load != Load::Bursts) {
        let key = (row.run.cores, row.run.rt_percent, mode_name(row.run.mode));
        let line = by_line.entry(key).or_default();
        line.entry(row.run.load).or_default().push(row);
    }
    let several = |of: fn(&Row) -> usize| {
        let mut values = rows.iter().map(of);
        let first = values.next();
        values.any(|it| Some(it) != first)
    };
    let (machines, shares) = (
        several(|it| it.run.cores),
        several(|it| it.run.rt_percent.into()),
    );
    let name = |(cores, rt, mode): Key| {
        let mut name = mode.to_owned();
        if machines {
            name += &format!(", {cores} cores");
        }
        if shares {
            name += &format!(", rt {rt} %");
        }
        name
    };
    let mut least: BTreeMap<(usize, u8), Vec<(f64, f64)>> = BTreeMap::new();
    let mut drawn = Vec::new();
    for (key, loads) in by_line {
        let mut points = Vec::new();
        for same in loads.into_values() {
            let done = same.iter().map(|it| it.work * it.throughput.unwrap_or(1.0));
            let on = Spread::of(same.iter().map(|it| it.on));
            points.extend(on.zip(Spread::of(done)).map(|(on, done)| (on.median, done)));
            if key.2 != mode_name(PowerMode::Performance) {
                continue;
            }
            let both = same.iter().map(|it| (it.least, it.work)).next();
            least.entry((key.0, key.1)).or_default().extend(both);
        }
        points.sort_by(|one, other| one.1.median.total_cmp(&other.1.median));
        drawn.push(Line {
            name: name(key),
            points,
        });
    }
    let curves = least.into_iter().map(|((cores, rt), mut points)| {
        points.sort_by(|one, other| one.1.total_cmp(&other.1));
        Curve {
            name: name((cores, rt, "least")),
            points,
        }
    });
    Lines {
        title: "Throughput over core-seconds, simulated".into(),
        y_title: "work done in a second: cores that it keeps busy while all are on; idle, shares of the cores, full load".into(),
        x_title: "core-seconds in a second that cores are on, with what changes cost".into(),
        curves: curves.collect(),
        lines: drawn,
        references: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::row;
    use super::*;

    #[test]
    fn each_mode_has_a_line_from_idle_to_full() {
        let mut rows = Vec::new();
        for mode in [PowerMode::Performance, PowerMode::Saving] {
            for load in [Load::Full, Load::Idle, Load::Bursts] {
                rows.push(row(mode, load));
            }
        }
        let lines = lines(&rows);
        let names: Vec<_> = lines.lines.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["performance", "saving"]);
        for line in &lines.lines {
            let [idle, full] = line.points[..] else {
                panic!("{} points", line.points.len());
            };
            assert!(idle.1.median < 0.1 && full.1.median > 7.0);
            assert!(full.0 > 7.0);
        }
        assert!(lines.lines[1].points[0].0 < 2.1);
        assert_eq!(lines.curves.len(), 1);
        assert!(Figure::Lines(lines).svg().is_ok());
    }
}
