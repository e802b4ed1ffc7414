// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where the hypervisor's instructions are: the code that exits of one kind execute, by source line, and that of the longest stretches
//! without a look for interrupts.

use crate::clock::{Block, ClockReport};
use crate::code_names::CodeNames;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Bytes of an A64 instruction.
const INSTRUCTION: u64 = 4;
/// How many functions, or source lines, are listed.
const ROWS: usize = 40;
/// How many stretches are listed.
const STRETCHES: usize = 3;

/// A table of the code that the exits of this kind have executed, and of the longest stretches. `None`: the run has recorded none.
pub fn table(report: &ClockReport, names: &CodeNames, kind: &str) -> Option<String> {
    let trails = report.trails.as_ref()?;
    let mut text = String::new();
    let exits = trails.visits.max(1) as f64;
    let of_lines = by_line(&trails.blocks, names);
    let sum: u64 = of_lines.values().sum();
    let _ = writeln!(
        text,
        "{kind}: {} exits of {:.0} instructions on average\n\n  functions:",
        trails.visits,
        sum as f64 / exits
    );
    let mut functions = BTreeMap::<&str, u64>::new();
    for (place, count) in &of_lines {
        *functions.entry(&place.function).or_default() += count;
    }
    for (function, count) in most(functions) {
        let _ = writeln!(text, "  {:8.1}  {function}", count as f64 / exits);
    }
    let _ = writeln!(text, "\n  source lines:");
    let lines = of_lines.iter().map(|(place, count)| (place, *count));
    for (place, count) in most(lines.collect()) {
        let _ = writeln!(
            text,
            "  {:8.1}  {} in {}",
            count as f64 / exits,
            place.line,
            place.function
        );
    }
    let mut longest: Vec<_> = report
        .exits
        .iter()
        .filter(|it| !it.deaf_blocks.is_empty() && it.cause != "start of a core")
        .collect();
    longest.sort_by_key(|it| std::cmp::Reverse(it.longest_deaf));
    for exit in longest.into_iter().take(STRETCHES) {
        let _ = writeln!(
            text,
            "\n{} that {}: a stretch of {} instructions without a look for interrupts",
            exit.cause, exit.end, exit.longest_deaf
        );
        let mut functions = BTreeMap::<String, u64>::new();
        for (place, count) in by_line(&exit.deaf_blocks, names) {
            *functions.entry(place.function).or_default() += count;
        }
        for (function, count) in most(functions) {
            let _ = writeln!(text, "  {count:8}  {function}");
        }
    }
    Some(text)
}

/// A place in the sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    line: String,
    function: String,
}

/// How many instructions were executed of each place.
fn by_line(blocks: &[Block], names: &CodeNames) -> BTreeMap<Place, u64> {
    let mut places = BTreeMap::new();
    for block in blocks {
        let Some(start) = block.address() else {
            continue;
        };
        for number in 0..block.instructions {
            let address = start + number * INSTRUCTION;
            let (function, line) = names.place(address);
            *places.entry(Place { line, function }).or_default() += block.runs;
        }
    }
    places
}

/// The entries with the largest counts first.
fn most<K: Ord>(counts: BTreeMap<K, u64>) -> Vec<(K, u64)> {
    let mut all: Vec<_> = counts.into_iter().collect();
    all.sort_by(|(a, m), (b, n)| n.cmp(m).then(a.cmp(b)));
    all.truncate(ROWS);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_counts_come_first() {
        let counts = [("a", 1), ("b", 3), ("c", 3)].into();
        assert_eq!(most(counts), [("b", 3), ("c", 3), ("a", 1)]);
    }

    #[test]
    fn each_instruction_of_a_block_counts_as_often_as_the_block() {
        let names = CodeNames::open(&std::env::current_exe().unwrap()).unwrap();
        let block = Block {
            start: "0x10".into(),
            instructions: 3,
            runs: 5,
        };
        let counts = by_line(&[block.clone(), block], &names);
        assert_eq!(counts.values().sum::<u64>(), 30);
    }
}
