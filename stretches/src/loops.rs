// SPDX-License-Identifier: MIT OR Apache-2.0
//! How often each loop of a function is repeated at most.

use crate::annotations::{Annotation, Annotations, Scope};
use crate::code::Code;
use crate::foreign::{Foreign, ForeignFunction};
use crate::graph::{Item, LoopId, Nest, NodeId};
use crate::instruction::{SIZE, is_load_exclusive, is_store_exclusive};
use crate::problem::Problem;
use crate::program::{Frame, FunctionId, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The project's own sources that are part of the EL2 program.
pub const OWN_SOURCES: [&str; 3] = ["config/src", "core/src", "hypervisor/src"];

/// Bounds of the loops of one function.
pub struct Bounds {
    bounds: Vec<Bound>,
    payers: Vec<Option<LoopId>>,
}

/// The bound of a loop.
pub enum Bound {
    /// A comment in the sources names it.
    Annotated(Annotation),
    /// The file of what is not the project's own names it: the entry, and the number of the loop in its function.
    Foreign(ForeignFunction, usize),
    /// An atomic operation is tried again this many times.
    Exclusive(u64),
    /// Nothing names it.
    Missing(Problem),
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotated(it) => {
                write!(f, "{} ({:?}) {}:{}", it.times, it.scope, it.file, it.line)
            }
            Self::Foreign(entry, index) => write!(f, "foreign.toml: {}, loop {index}", entry.name),
            Self::Exclusive(times) => write!(f, "{times} atomic"),
            Self::Missing(_) => f.write_str("none"),
        }
    }
}

impl Bounds {
    /// The bounds of all loops of a function.
    pub fn of(
        program: &Program,
        id: FunctionId,
        code: &Code,
        nest: &Nest,
        annotations: &Annotations,
        foreign: &Foreign,
    ) -> Self {
        let entry = foreign.loops_of(&program.functions[id].name);
        let mut heads: Vec<_> = nest.loops.iter().map(|it| it.header).collect();
        heads.sort_unstable();
        let loops = Loops {
            program,
            id,
            code,
            nest,
            annotations,
        };
        let mut bounds: Vec<Bound> = Vec::new();
        // Inner loops come before those around them.
        for (number, this) in nest.loops.iter().enumerate() {
            let taken: BTreeSet<_> = (0..number)
                .filter(|&it| this.contains(nest.loops[it].header))
                .filter_map(|it| match &bounds[it] {
                    Bound::Annotated(annotation) => Some(annotation.clone()),
                    _ => None,
                })
                .collect();
            let index = heads
                .iter()
                .position(|&it| it == this.header)
                .unwrap_or_default();
            if loops.is_exclusive(number) {
                bounds.push(Bound::Exclusive(foreign.exclusive.times));
                continue;
            }
            let bound = match (loops.annotated(number, &taken), entry) {
                (Some(annotation), _) => Bound::Annotated(annotation),
                (None, Some(entry)) => Bound::Foreign(entry.clone(), index),
                (None, None) => Bound::Missing(loops.missing(number)),
            };
            bounds.push(bound);
        }
        let payers = (0..bounds.len())
            .map(|it| payer(nest, &bounds, it))
            .collect();
        Self { bounds, payers }
    }

    /// How often a loop goes back to its header at most; `bytes` is the length that the function is called with, if it is known.
    pub fn repetitions(&self, of: LoopId, bytes: Option<u64>) -> Result<u64, Problem> {
        match &self.bounds[of] {
            Bound::Annotated(annotation) => Ok(annotation.times),
            Bound::Exclusive(times) => Ok(*times),
            Bound::Foreign(entry, index) => entry.repetitions(*index, bytes).ok_or_else(|| {
                Problem::new(
                    format!("foreign.toml: {}", entry.name),
                    format!("it names no bound for loop {index} of the function"),
                    "add a number to `times` or `bytes_a_round`",
                )
            }),
            Bound::Missing(problem) => Err(problem.clone()),
        }
    }

    /// The loop around this one, if the bound is for all runs together while the loop around it runs once.
    pub fn payer(&self, of: LoopId) -> Option<LoopId> {
        self.payers[of]
    }

    /// How many rounds of the loop there are in one stretch at most, if they are counted apart.
    pub fn apart(&self, of: LoopId) -> Option<u64> {
        match &self.bounds[of] {
            Bound::Annotated(annotation) if annotation.scope == Scope::Apart => {
                Some(annotation.times)
            }
            _ => None,
        }
    }

    /// The bound of a loop.
    pub fn get(&self, of: LoopId) -> &Bound {
        &self.bounds[of]
    }
}

struct Loops<'a> {
    program: &'a Program,
    id: FunctionId,
    code: &'a Code,
    nest: &'a Nest,
    annotations: &'a Annotations,
}

impl Loops<'_> {
    /// The annotation of a loop. `taken`: the annotations of inner loops. An annotation in `taken` counts for this loop only if it bounds all
    /// loops of its statement. An inner loop without an annotation may have taken that of this loop; then this loop is reported.
    fn annotated(&self, number: LoopId, taken: &BTreeSet<Annotation>) -> Option<Annotation> {
        let control = self.chains(&self.control(number));
        let own = self.chains(&self.own_instructions(number));
        // The compiler merges instructions of different places: some of the loop may seem to be from elsewhere.
        let most = majority(&own);
        let taken_alone = taken
            .iter()
            .filter(|it| !is_of_several(it))
            .cloned()
            .collect();
        for excluded in [taken, &taken_alone] {
            let found = [&own, &control, &most].map(|it| self.annotated_at(it, &control, excluded));
            let innermost = found
                .into_iter()
                .flatten()
                .max_by_key(|it| (it.0, it.1.times));
            if let Some((_, annotation)) = innermost {
                return Some(annotation);
            }
        }
        None
    }

    /// The annotation of a loop with these instructions, and how deep it is: in the innermost function, inlined or not, that all of them
    /// are in; else of the call of that function, and so on outwards.
    fn annotated_at(
        &self,
        all: &[Chain],
        control: &[Chain],
        excluded: &BTreeSet<Annotation>,
    ) -> Option<(usize, Annotation)> {
        let home = innermost_common(all)?;
        for depth in (0..=home).rev() {
            let annotation = |chain: &Chain| {
                let frame = chain.get(depth).filter(|it| is_own(it))?;
                let is_inside = all.first()?.get(..depth) == chain.get(..depth);
                let found = self.annotations.at(&frame.file, frame.line)?;
                (is_inside && !excluded.contains(found)).then(|| found.clone())
            };
            let longest = |of: &[Chain]| of.iter().filter_map(annotation).max_by_key(|it| it.times);
            // Where the compiler has merged the code of several loops, the largest bound is safe.
            if let Some(found) = longest(control).or_else(|| longest(all)) {
                return Some((depth, found));
            }
        }
        None
    }

    fn chains(&self, instructions: &[u64]) -> Vec<Chain> {
        instructions
            .iter()
            .filter_map(|&it| self.chain(it))
            .collect()
    }

    /// The functions at an instruction, the outermost first; `None` if the compiler does not say where it comes from.
    fn chain(&self, address: u64) -> Option<Chain> {
        let frames = self.program.frames(address);
        let is_known = frames.iter().all(|it| it.line != 0) && !frames.is_empty();
        is_known.then(|| frames.iter().rev().cloned().collect())
    }

    /// Whether the loop is nothing but one atomic operation: an exclusive load and an exclusive store, tried until the store succeeds.
    fn is_exclusive(&self, number: LoopId) -> bool {
        /// No such loop of the compiler is longer.
        const LONGEST: usize = 16;
        let is_innermost = self.nest.loops[number]
            .body
            .iter()
            .all(|it| matches!(it, Item::Node(_)));
        let own = self.own_instructions(number);
        let has = |is: fn(u32) -> bool| {
            own.iter()
                .any(|&it| self.program.instruction(it).is_some_and(is))
        };
        is_innermost && own.len() <= LONGEST && has(is_load_exclusive) && has(is_store_exclusive)
    }

    /// The nodes that go back to the header.
    fn back(&self, number: LoopId) -> Vec<NodeId> {
        let this = &self.nest.loops[number];
        let nodes = this.nodes.iter().copied();
        nodes
            .filter(|&it| self.code.graph.0[it].contains(&this.header))
            .collect()
    }

    /// The last instructions of the header, and of the nodes that go back to it.
    fn control(&self, number: LoopId) -> Vec<u64> {
        let nodes = self
            .back(number)
            .into_iter()
            .chain([self.nest.loops[number].header]);
        nodes.map(|it| self.code.nodes[it].last()).collect()
    }

    /// The instructions that are in no inner loop.
    fn own_instructions(&self, number: LoopId) -> Vec<u64> {
        let nodes = self.nest.loops[number]
            .body
            .iter()
            .filter_map(|it| match it {
                Item::Node(node) => Some(*node),
                Item::Loop(_) => None,
            });
        nodes.flat_map(|it| self.instructions(it)).collect()
    }

    fn instructions(&self, node: NodeId) -> impl Iterator<Item = u64> + use<> {
        self.code.nodes[node].range.clone().step_by(SIZE as usize)
    }

    /// A loop without a bound: where it is, as far as the debug information says.
    fn missing(&self, number: LoopId) -> Problem {
        let control = self.control(number);
        let own = self.own_instructions(number);
        let lines = |addresses: &[u64]| {
            let mut lines = Vec::<(String, usize)>::new();
            for &address in addresses {
                let frames = self.program.frames(address);
                let own = frames.iter().filter(|it| is_own(it));
                let chain: Vec<_> = own.map(|it| format!("{}:{}", it.file, it.line)).collect();
                if chain.is_empty() {
                    continue;
                }
                let line = chain[..chain.len().min(4)].join(" < ");
                match lines.iter_mut().find(|it| it.0 == line) {
                    Some(known) => known.1 += 1,
                    None => lines.push((line, 1)),
                }
            }
            lines
        };
        let name = &self.program.functions[self.id].name;
        let (control, all) = (lines(&control), lines(&own));
        let header = self.code.nodes[self.nest.loops[number].header].range.start;
        if all.is_empty() {
            return Problem::new(
                name,
                format!(
                    "the loop at {header:#x} has no bound, and is not in the project's own sources"
                ),
                "name its bound in foreign.toml, under [[function]]",
            );
        }
        let show = |lines: &[(String, usize)]| {
            lines
                .iter()
                .map(|it| it.0.clone())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let place = if control.is_empty() { &all } else { &control };
        Problem::new(
            show(place),
            format!("a loop in {name} has no bound"),
            "write above it \"// At most N times: what limits it\"",
        )
    }
}

/// Whether a comment may be for several loops, one around the other.
fn is_of_several(annotation: &Annotation) -> bool {
    matches!(annotation.scope, Scope::Statement | Scope::Apart)
}

/// The loop that pays for the repetitions of another one, if that one does not do so itself.
fn payer(nest: &Nest, bounds: &[Bound], id: LoopId) -> Option<LoopId> {
    let Bound::Annotated(own) = &bounds[id] else {
        return None;
    };
    // Loops around another one come after it, the innermost of them first.
    let mut around =
        (id + 1..nest.loops.len()).filter(|&it| nest.loops[it].contains(nest.loops[id].header));
    match own.scope {
        Scope::Run | Scope::Apart => None,
        Scope::Around => around.next(),
        Scope::Statement => around
            .take_while(|&it| matches!(&bounds[it], Bound::Annotated(other) if other == own))
            .last(),
    }
}

/// The functions at an instruction, the outermost first.
type Chain = Vec<Frame>;

/// Those of the chains that agree with most others as far inwards as they do.
fn majority(all: &[Chain]) -> Vec<Chain> {
    /// Four fifths.
    fn are_most(some: usize, all: usize) -> bool {
        5 * some >= 4 * all
    }
    let mut kept: Vec<&Chain> = all.iter().collect();
    for depth in 0.. {
        let mut groups = BTreeMap::<(&str, &str, u32), Vec<&Chain>>::new();
        for &chain in &kept {
            if let Some(it) = chain.get(depth) {
                groups
                    .entry((&it.function, &it.file, it.line))
                    .or_default()
                    .push(chain);
            }
        }
        match groups.into_values().max_by_key(Vec::len) {
            Some(largest) if are_most(largest.len(), all.len()) => kept = largest,
            _ => break,
        }
    }
    kept.into_iter().cloned().collect()
}

/// How deep the innermost function is that all these instructions are in.
fn innermost_common(chains: &[Chain]) -> Option<usize> {
    let first = chains.first()?;
    let mut depth = 0;
    loop {
        let here = first.get(depth)?;
        let is_same = |it: &Chain| it.get(depth) == Some(here);
        let goes_on = |it: &Chain| {
            it.get(depth + 1).map(|it| &it.function) == first.get(depth + 1).map(|it| &it.function)
        };
        if first.len() == depth + 1 || !chains.iter().all(is_same) || !chains.iter().all(goes_on) {
            return Some(depth);
        }
        depth += 1;
    }
}

/// Whether a frame is in the project's own sources.
pub fn is_own(frame: &Frame) -> bool {
    OWN_SOURCES.iter().any(|it| frame.file.starts_with(it))
}
