// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stretches that begin with the exit of a guest. The vector says which kind of exit it is, and the code that has entered the guest branches on
//! that: only what this kind leads to is part of the stretch.

use super::{Analysis, Place, begun};
use crate::code::{Code, End};
use crate::graph::NodeId;
use crate::instruction::{Flow, SIZE, flow};
use crate::longest::{Begun, Walk};
use crate::program::{FunctionId, Program};
use crate::values::Values;
use std::ops::Range;

impl Analysis<'_> {
    /// The longest way from the return of the function that has entered a guest, which was left by this vector. The vector decides
    /// what the function returns, so that the caller's first branches are known.
    pub(super) fn after_exit(
        &mut self,
        id: FunctionId,
        vector: FunctionId,
        begin: Walk,
    ) -> Option<Walk> {
        let kind = exit_kind(self.program, vector);
        let mut longest = None;
        for (caller, node) in self.callers.get(&id).cloned().unwrap_or_default() {
            let code = self.code(caller)?.clone();
            let mut at = begun(node, begin);
            let mut values =
                kind.map_or_else(Values::unknown, |kind| Values::knowing(RESULT, kind));
            // As far as constants decide.
            for _ in 0..code.nodes.len() {
                let [next] = successors(self.program, &code, at, &values)[..] else {
                    break;
                };
                at.to = Some(next);
                let next_node = &code.nodes[next];
                let ends = next_node.end != End::Flow || code.graph.0[next].is_empty();
                let mut known = values.clone();
                execute(self.program, &mut known, &next_node.range);
                let after = Begun {
                    after: next,
                    to: None,
                    ..at
                };
                if ends || successors(self.program, &code, after, &known).len() != 1 {
                    break;
                }
                let walk = self
                    .walks
                    .step(at.walk, next_node.length(), Place::Node(caller, next));
                at = begun(next, walk);
                values = known;
            }
            let rest = self.rest_after(caller, at);
            longest = Walk::longer(longest, rest);
        }
        longest
    }
}

/// The register of a function's result.
const RESULT: u32 = 0;

/// What the function that has entered a guest returns after an exit by this vector: the vector passes it on in x1.
fn exit_kind(program: &Program, vector: FunctionId) -> Option<u64> {
    const KIND: u32 = 1;
    let range = &program.functions[vector].range;
    let mut values = Values::unknown();
    for address in range.clone().step_by(SIZE as usize) {
        let word = program.instruction(address)?;
        if flow(word, address) != Flow::Next {
            break;
        }
        values.execute(word);
    }
    values.get(KIND)
}

/// The successors of a node that are possible with what is known of registers.
fn successors(program: &Program, code: &Code, at: Begun, values: &Values) -> Vec<NodeId> {
    let all = &code.graph.0[at.after];
    let last = code.nodes[at.after].last();
    let Some(word) = program.instruction(last) else {
        return all.clone();
    };
    let (Flow::Conditional(to), Some(taken)) = (flow(word, last), values.decides(word)) else {
        return all.clone();
    };
    let to = if taken { to } else { last + SIZE };
    all.iter()
        .copied()
        .filter(|&it| code.nodes[it].range.start == to)
        .collect()
}

fn execute(program: &Program, values: &mut Values, range: &Range<u64>) {
    for address in range.clone().step_by(SIZE as usize) {
        if let Some(word) = program.instruction(address)
            && flow(word, address) == Flow::Next
        {
            values.execute(word);
        }
    }
}
