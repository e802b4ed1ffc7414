// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table: for each point at which stretches begin, the longest one.

use crate::analysis::{Analysis, Place, Start};
use crate::code::End;
use crate::graph::NodeId;
use crate::longest::{StepId, What};
use crate::loops::is_own;
use crate::program::{Frame, FunctionId, Program};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Functions that only look: their caller names the place.
const LOOKERS: [&str; 3] = ["interrupt_pending", "is_interrupted", "acknowledge"];
/// How many functions of a stretch are named in the table.
const NAMED: usize = 3;

/// A row of the table, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// Where stretches begin.
    pub from: String,
    /// Where the longest of them ends.
    pub to: String,
    /// How long that one is at most, in instructions; with the instruction that ends it.
    pub instructions: u64,
}

/// A row with what else is known of it.
#[derive(Clone, Debug)]
pub struct Detail {
    /// The row.
    pub row: Row,
    /// File and line of the start; none for an exit from a guest.
    pub line: Option<(String, u32)>,
    /// The functions that take most of it, inlined or not, with their instructions.
    pub parts: Vec<(String, u64)>,
    /// The last step of the stretch.
    pub last: Option<StepId>,
    /// Addresses of the look, or of the vector.
    pub addresses: BTreeSet<u64>,
    /// If it is a round of a loop that is counted apart: how many there are in one stretch at most.
    pub rounds: u64,
}

/// A place in the sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    function: String,
    file: String,
    line: u32,
}

/// The longest stretch with the rounds of a loop that it may go on with, in instructions: the longest row that ends at a round, and as many
/// rounds as there are in one stretch at most.
pub fn longest(rows: &[Detail]) -> u64 {
    let whole = rows.iter().map(|it| {
        let rounds = rows
            .iter()
            .find(|round| round.rounds > 0 && round.row.from == it.row.to);
        // The row of a round is counted with the rounds already.
        it.row.instructions
            + rounds
                .filter(|_| it.rounds == 0)
                .map_or(0, |round| round.rounds * round.row.instructions)
    });
    whole.max().unwrap_or_default()
}

/// The table of a program, the longest stretch first.
pub fn table(program: &Program, analysis: &mut Analysis<'_>) -> Vec<Detail> {
    let starts = analysis.starts();
    let names = Names::of(program, analysis, &starts);
    let mut rows = BTreeMap::<String, Detail>::new();
    for start in starts {
        let Some(walk) = analysis.stretch(start) else {
            continue;
        };
        let (from, line) = names.of_start(program, analysis, start);
        let to = names.of_end(program, analysis, walk.last);
        let address = address(program, analysis, start);
        let row = Row {
            from: from.clone(),
            to,
            instructions: walk.length,
        };
        let detail = Detail {
            row,
            line,
            parts: Vec::new(),
            last: walk.last,
            addresses: BTreeSet::from([address]),
            rounds: match start {
                Start::After(..) => 0,
                Start::Round(_, _, times) => times,
            },
        };
        match rows.get_mut(&from) {
            None => {
                rows.insert(from, detail);
            }
            Some(known) => {
                known.addresses.insert(address);
                if walk.length > known.row.instructions {
                    let addresses = std::mem::take(&mut known.addresses);
                    *known = Detail {
                        addresses,
                        ..detail
                    };
                }
            }
        }
    }
    let mut rows: Vec<_> = rows.into_values().collect();
    for row in &mut rows {
        row.parts = parts(program, analysis, row.last);
    }
    rows.sort_by(|a, b| (b.row.instructions, &a.row.from).cmp(&(a.row.instructions, &b.row.from)));
    rows
}

fn address(program: &Program, analysis: &Analysis<'_>, start: Start) -> u64 {
    let (Start::After(id, node) | Start::Round(id, node, _)) = start;
    match analysis.code(id).map(|it| &it.nodes[node]) {
        Some(node) => match node.end {
            End::Vector(vector) => program.functions[vector].range.start,
            _ => node.last(),
        },
        None => 0,
    }
}

/// Names of looks: by function, and by number where a function looks at several lines. A change of lines above does not change them.
struct Names(BTreeMap<(String, String), BTreeSet<u32>>);

impl Names {
    fn of(program: &Program, analysis: &Analysis<'_>, starts: &[Start]) -> Self {
        let mut lines = BTreeMap::<_, BTreeSet<_>>::new();
        for &start in starts {
            if let Some(site) = site(program, address(program, analysis, start)) {
                lines
                    .entry((site.function, site.file))
                    .or_default()
                    .insert(site.line);
            }
        }
        Self(lines)
    }

    fn of_start(
        &self,
        program: &Program,
        analysis: &Analysis<'_>,
        start: Start,
    ) -> (String, Option<(String, u32)>) {
        let at = address(program, analysis, start);
        let (id, node) = match start {
            Start::After(id, node) => (id, node),
            Start::Round(id, ..) => return (round(program, id), None),
        };
        match analysis.code(id).map(|it| &it.nodes[node].end) {
            Some(End::Vector(vector)) => (exit(program, *vector).into(), None),
            Some(End::Sleep) => (self.of_look(program, "sleep", at), line(program, at)),
            _ => (self.of_look(program, "look", at), line(program, at)),
        }
    }

    fn of_look(&self, program: &Program, what: &str, at: u64) -> String {
        let Some(site) = site(program, at) else {
            return format!("{what} at {at:#x}");
        };
        let name = format!("{what} in {} ({})", short(&site.function), file(&site.file));
        let lines = self.0.get(&(site.function, site.file));
        match lines.filter(|it| it.len() > 1) {
            Some(lines) => {
                let number = lines
                    .iter()
                    .position(|it| *it == site.line)
                    .map_or(0, |it| it + 1);
                format!("{name}, number {number}")
            }
            None => name,
        }
    }

    fn of_end(&self, program: &Program, analysis: &Analysis<'_>, last: Option<StepId>) -> String {
        let (id, node) = match end(analysis, last) {
            Some(Place::Node(id, node)) => (id, node),
            Some(Place::Round(id)) => return round(program, id),
            _ => return "the same instruction".into(),
        };
        let at = address(program, analysis, Start::After(id, node));
        match analysis.code(id).map(|it| &it.nodes[node].end) {
            Some(End::EnterGuest) => "entry of a guest".into(),
            Some(End::Sleep) => self.of_look(program, "sleep", at),
            _ => self.of_look(program, "look", at),
        }
    }
}

/// A round of a loop that is counted apart.
fn round(program: &Program, id: FunctionId) -> String {
    format!("round of {}", short(&program.functions[id].name))
}

/// Where a stretch ends.
fn end(analysis: &Analysis<'_>, last: Option<StepId>) -> Option<Place> {
    match analysis.walks.last(last)? {
        What::Node(place @ (Place::Node(..) | Place::Round(_))) => Some(place),
        What::Node(Place::Walk(inner)) => end(analysis, Some(inner)),
        What::Repeat { last, .. } => end(analysis, Some(last)),
    }
}

/// What the guest did that has led to this vector (Arm ARM DDI 0487, D1.3.1.5).
fn exit(program: &Program, vector: FunctionId) -> &'static str {
    match program.functions[vector].range.start / 128 % 4 {
        0 => "exit by a synchronous exception",
        3 => "exit by an SError",
        _ => "exit by an interrupt",
    }
}

fn line(program: &Program, at: u64) -> Option<(String, u32)> {
    site(program, at).map(|it| (it.file, it.line))
}

/// The innermost place in the project's own sources that does more than look.
fn site(program: &Program, at: u64) -> Option<Site> {
    let frames = program.frames(at);
    let looks = |frame: &Frame| {
        LOOKERS.contains(&short(&frame.function)) || short(&frame.function).starts_with("call")
    };
    // What only reads a register is not what a reader looks for.
    let is_in_hardware = |it: &Frame| it.file.contains("/hardware/");
    let own = || frames.iter().filter(|it| is_own(it) && !looks(it));
    let frame = own()
        .find(|it| !is_in_hardware(it))
        .or_else(|| own().next())?;
    Some(Site {
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
    })
}

/// A function's own name, without its path; for a closure the function that contains it.
pub fn short(name: &str) -> &str {
    let mut parts = name.rsplit("::");
    parts
        .find(|it| !it.starts_with('{') && !it.is_empty())
        .unwrap_or(name)
}

/// A file without the folders that all have.
fn file(name: &str) -> &str {
    name.split_once("/src/").map_or(name, |it| it.1)
}

/// The functions that take most of a stretch.
fn parts(program: &Program, analysis: &Analysis<'_>, last: Option<StepId>) -> Vec<(String, u64)> {
    let mut counts = BTreeMap::new();
    let mut sums = BTreeMap::new();
    visits(analysis, last, &mut counts, 1, &mut BTreeMap::new());
    for ((id, node), times) in counts {
        let Some(code) = analysis.code(id) else {
            continue;
        };
        for address in code.nodes[node]
            .range
            .clone()
            .step_by(crate::instruction::SIZE as usize)
        {
            *sums.entry(owner(program, id, address)).or_insert(0) += times;
        }
    }
    let mut parts: Vec<_> = sums.into_iter().collect();
    parts.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    parts.truncate(NAMED);
    parts
}

/// The innermost function of the project's own at an instruction; else the function in the program.
fn owner(program: &Program, id: FunctionId, address: u64) -> String {
    let frames = program.frames(address);
    let own = frames.iter().find(|it| is_own(it));
    let name = own.map_or(program.functions[id].name.as_str(), |it| {
        it.function.as_str()
    });
    short(name).into()
}

/// How often a stretch visits each node. What a step contains is counted once and then multiplied.
type Visits = BTreeMap<(FunctionId, NodeId), u64>;

fn visits(
    analysis: &Analysis<'_>,
    last: Option<StepId>,
    counts: &mut Visits,
    times: u64,
    known: &mut BTreeMap<StepId, Visits>,
) {
    for step in analysis.walks.steps(last) {
        let (inner, times) = match step {
            What::Node(Place::Node(id, node)) => {
                *counts.entry((id, node)).or_insert(0) += times;
                continue;
            }
            What::Node(Place::Walk(inner)) => (inner, times),
            What::Node(Place::Round(_)) => continue,
            What::Repeat { times: more, last } => (last, times.saturating_mul(more)),
        };
        if !known.contains_key(&inner) {
            let mut own = Visits::new();
            visits(analysis, Some(inner), &mut own, 1, known);
            known.insert(inner, own);
        }
        for (&node, &count) in known.get(&inner).into_iter().flatten() {
            let sum = counts.entry(node).or_insert(0);
            *sum = sum.saturating_add(count.saturating_mul(times));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short() {
        assert_eq!(
            short("spumone_core::vgic::fill::<impl spumone_core::vgic::CpuInterface>::fill"),
            "fill"
        );
        assert_eq!(
            short("spumone_hypervisor::console::drain::{{closure}}"),
            "drain"
        );
        assert_eq!(file("core/src/vgic/fill.rs"), "vgic/fill.rs");
    }
}
