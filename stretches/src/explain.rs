// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of a stretch, line by line.

use crate::analysis::{Analysis, Place};
use crate::longest::{StepId, What};
use crate::loops::is_own;
use crate::program::{FunctionId, Program};
use crate::rows::short;

/// Parts of a stretch that are shorter than this part of it are summed up.
const SMALL: u64 = 200;

/// The path of a stretch of this length, as indented text.
pub fn path(
    program: &Program,
    analysis: &Analysis<'_>,
    last: Option<StepId>,
    length: u64,
) -> String {
    let mut text = Text {
        program,
        analysis,
        least: (length / SMALL).max(1),
        out: String::new(),
    };
    text.walk(last, 0, 1);
    text.out
}

struct Text<'a, 'p> {
    program: &'a Program,
    analysis: &'a Analysis<'p>,
    least: u64,
    out: String,
}

impl Text<'_, '_> {
    /// Writes the steps of a walk that is repeated so often in all.
    fn walk(&mut self, last: Option<StepId>, depth: usize, times: u64) {
        let mut here: Option<(String, u64)> = None;
        let mut small = 0;
        for step in self.analysis.walks.steps(last) {
            let length = self.length(&step);
            let is_small = length.saturating_mul(times) < self.least;
            if let What::Node(Place::Node(id, node)) = step {
                let line = self.line(id, node);
                match &mut here {
                    Some((known, sum)) if *known == line => *sum += length,
                    _ => {
                        self.flush(&mut here, &mut small, depth, times);
                        here = Some((line, length));
                    }
                }
                continue;
            }
            if is_small {
                small += length;
                continue;
            }
            self.flush(&mut here, &mut small, depth, times);
            match step {
                What::Node(Place::Node(..) | Place::Round(_)) => {}
                What::Node(Place::Walk(inner)) => {
                    let name = self.function(inner);
                    self.put(depth, length.saturating_mul(times), &name);
                    self.walk(Some(inner), depth + 1, times);
                }
                What::Repeat { times: more, last } => {
                    self.put(
                        depth,
                        length.saturating_mul(times),
                        &format!("{more} times more:"),
                    );
                    self.walk(Some(last), depth + 1, times.saturating_mul(more));
                }
            }
        }
        self.flush(&mut here, &mut small, depth, times);
    }

    fn flush(
        &mut self,
        here: &mut Option<(String, u64)>,
        small: &mut u64,
        depth: usize,
        times: u64,
    ) {
        if let Some((line, sum)) = here.take() {
            if sum.saturating_mul(times) < self.least {
                *small += sum;
            } else {
                self.put(depth, sum.saturating_mul(times), &line);
            }
        }
        let rest = std::mem::take(small).saturating_mul(times);
        if rest >= self.least {
            self.put(depth, rest, "…");
        } else {
            *small = rest / times.max(1);
        }
    }

    fn put(&mut self, depth: usize, instructions: u64, what: &str) {
        self.out += &format!(
            "{instructions:>12}  {:indent$}{what}\n",
            "",
            indent = 2 * depth
        );
    }

    fn length(&self, step: &What<Place>) -> u64 {
        match *step {
            What::Node(Place::Node(id, node)) => self
                .analysis
                .code(id)
                .map_or(0, |it| it.nodes[node].length()),
            What::Node(Place::Walk(inner)) => self.analysis.walks.length(inner),
            What::Node(Place::Round(_)) => 0,
            What::Repeat { times, last } => times.saturating_mul(self.analysis.walks.length(last)),
        }
    }

    /// The line of the project's own sources at the start of a node.
    fn line(&self, id: FunctionId, node: usize) -> String {
        let name = &self.program.functions[id].name;
        let Some(code) = self.analysis.code(id) else {
            return name.clone();
        };
        let frames = self.program.frames(code.nodes[node].range.start);
        match frames.iter().find(|it| is_own(it) && it.line > 0) {
            Some(frame) => format!("{} ({}:{})", short(&frame.function), frame.file, frame.line),
            None => short(name).into(),
        }
    }

    /// The function in which a walk begins.
    fn function(&self, last: StepId) -> String {
        match self.analysis.walks.steps(Some(last)).first() {
            Some(What::Node(Place::Node(id, _))) => {
                format!("{}:", short(&self.program.functions[*id].name))
            }
            Some(What::Node(Place::Walk(inner))) => self.function(*inner),
            Some(What::Node(Place::Round(_))) | None => String::new(),
            Some(What::Repeat { last, .. }) => self.function(*last),
        }
    }
}
