// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest stretches that runs on the exact clock have measured, beside the static ones.

use crate::problem::Problem;
use crate::program::Program;
use crate::rows::Detail;
use serde::Deserialize;
use spumone_bench::clock::ClockReport;
use spumone_bench::code_names::CodeNames;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A block of the exact clock that contains a look begins at most so many instructions before it.
const LONGEST_BLOCK: u64 = 64;
/// The clock counts no exit before a guest has run.
const START: &str = "start of a core";

#[derive(Deserialize)]
struct Run {
    clock: ClockReport,
}

/// The longest stretch that was measured from each place, in instructions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured(BTreeMap<(Kind, String), u64>);

/// How a stretch that was measured has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Look,
    Interrupt,
    SystemError,
    Synchronous,
}

impl Measured {
    /// Reads all run files in a folder, and in the folders in it.
    pub fn read(&mut self, folder: &Path) -> Result<(), Problem> {
        let failed = |error: std::io::Error| {
            Problem::new(
                folder.display().to_string(),
                error.to_string(),
                "name a folder with runs of `spm bench`",
            )
        };
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                self.read(&path)?;
            } else if path.extension().is_some_and(|it| it == "json")
                && let Ok(text) = std::fs::read_to_string(&path)
                && let Ok(run) = serde_json::from_str::<Run>(&text)
            {
                self.add(&run.clock);
            }
        }
        Ok(())
    }

    /// Adds the stretches of a run.
    pub fn add(&mut self, report: &ClockReport) {
        for exit in &report.exits {
            let Some(from) = exit.deaf_from.as_ref().filter(|_| exit.cause != START) else {
                continue;
            };
            let is_entry = ["`el2_vectors`", "`guest_exit`"].contains(&from.as_str());
            let kind = match exit.cause.as_str() {
                _ if !is_entry => Kind::Look,
                "IRQ" | "FIQ" => Kind::Interrupt,
                "SError" => Kind::SystemError,
                _ => Kind::Synchronous,
            };
            let name = if is_entry {
                String::new()
            } else {
                from.clone()
            };
            let longest = self.0.entry((kind, name)).or_default();
            *longest = (*longest).max(exit.longest_deaf);
        }
    }

    /// The longest stretch that was measured from the start of a row. Where a function looks several times, the runs do not say at
    /// which look a stretch began: all those rows get the longest one.
    pub fn of(&self, row: &Detail, program: &Program, names: &CodeNames) -> Option<u64> {
        let kind = match row.row.from.as_str() {
            "exit by an interrupt" => Kind::Interrupt,
            "exit by an SError" => Kind::SystemError,
            "exit by a synchronous exception" => Kind::Synchronous,
            _ => Kind::Look,
        };
        if kind != Kind::Look {
            return self.0.get(&(kind, String::new())).copied();
        }
        let near = row.addresses.iter().flat_map(|&look| before(program, look));
        let blocks: BTreeSet<_> = near.filter_map(|it| names.at(it)).collect();
        // The look itself is named alike everywhere.
        let blocks = blocks
            .into_iter()
            .filter(|it| !it.starts_with("`interrupt_pending`"));
        blocks
            .filter_map(|it| self.0.get(&(kind, it)).copied())
            .max()
    }
}

/// Addresses at which the block with this look may begin: back to the last branch.
fn before(program: &Program, look: u64) -> Vec<u64> {
    use crate::instruction::{Flow, SIZE, flow};
    let mut found = vec![look];
    let mut at = look;
    for _ in 0..LONGEST_BLOCK {
        at -= SIZE;
        match program.instruction(at).map(|it| flow(it, at)) {
            Some(Flow::Next) => found.push(at),
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_all_runs_counts() {
        let exit = |cause: &str, from: &str, longest: u64| {
            format!(
                r#"{{"cause": "{cause}", "visits": 1, "instructions": 1, "most": 1, "most_at_ns": 0, "most_on_core": 0,
                    "longest_deaf": {longest}, "deaf_from": "{from}"}}"#
            )
        };
        let exits = [
            exit("IRQ", "`guest_exit`", 300),
            exit("data abort", "`guest_exit`", 200),
            exit("IRQ", "`fill` (vgic/fill.rs)", 100),
            exit("HVC", "`fill` (vgic/fill.rs)", 120),
            exit(START, "`fill` (vgic/fill.rs)", 9000),
        ];
        let text = format!(
            r#"{{"virtual_ns": 1, "hash": "", "outside_events": 0, "disk_calls": 0, "cores": [], "visits": [{}], "marks": [],
                "host": {{"seconds": 1.0}}}}"#,
            exits.join(",")
        );
        let mut measured = Measured::default();
        measured.add(&serde_json::from_str(&text).unwrap());
        let of = |kind, name: &str| measured.0.get(&(kind, name.to_string())).copied();
        assert_eq!(of(Kind::Interrupt, ""), Some(300));
        assert_eq!(of(Kind::Synchronous, ""), Some(200));
        assert_eq!(of(Kind::Look, "`fill` (vgic/fill.rs)"), Some(120));
    }
}
