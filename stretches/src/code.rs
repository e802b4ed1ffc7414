// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flow of control in one function.

use crate::graph::{Graph, NodeId};
use crate::instruction::{Flow, SIZE, flow};
use crate::problem::Problem;
use crate::program::{FunctionId, Program};
use crate::values::Values;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A piece of code that is executed from its first instruction to its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its addresses; empty for what has no instructions of its own.
    pub range: Range<u64>,
    /// What its last instruction is.
    pub end: End,
}

/// The end of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It goes on with the node's successors, if there are any.
    Flow,
    /// A look for interrupts.
    Look,
    /// `WFI`.
    Sleep,
    /// A guest runs; the successors are its vectors.
    EnterGuest,
    /// A guest has left: the code of a vector. Then the function returns.
    Vector(FunctionId),
    /// A call of a function.
    Call(Callee),
    /// A jump to a function, which returns in place of this one.
    TailCall(Callee),
    /// `BLR`: a call of what is not known.
    IndirectCall,
    /// `BR`: a jump to what is not known, which may return in place of this function.
    IndirectJump,
    /// The function returns.
    Return,
}

/// A function, and the length of what it copies or fills, in bytes, if that is constant.
pub type Callee = (FunctionId, Option<u64>);

/// A function: nodes, and which follow which. Node 0 is its first instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// Their successors.
    pub graph: Graph,
}

impl Node {
    /// Instructions.
    pub fn length(&self) -> u64 {
        (self.range.end - self.range.start) / SIZE
    }

    /// The address of the last instruction.
    pub fn last(&self) -> u64 {
        self.range.end.saturating_sub(SIZE).max(self.range.start)
    }
}

impl Code {
    /// The flow of control in a function.
    pub fn of(program: &Program, id: FunctionId) -> Result<Self, Problem> {
        let range = program.functions[id].range.clone();
        let builder = Builder {
            leaders: leaders(program, &range),
            program,
            id,
            range,
        };
        builder.build()
    }

    /// Nodes with this end.
    pub fn ending(&self, with: impl Fn(&End) -> bool) -> impl Iterator<Item = NodeId> {
        (0..self.nodes.len()).filter(move |&it| with(&self.nodes[it].end))
    }
}

/// Where nodes begin.
fn leaders(program: &Program, range: &Range<u64>) -> BTreeSet<u64> {
    let mut leaders = BTreeSet::from([range.start]);
    for address in (range.start..range.end).step_by(SIZE as usize) {
        let Some(word) = program.instruction(address) else {
            continue;
        };
        match flow(word, address) {
            Flow::Next => continue,
            Flow::Branch(to) | Flow::Conditional(to) | Flow::Call(to) if range.contains(&to) => {
                leaders.insert(to);
            }
            _ => {}
        }
        leaders.insert(address + SIZE);
    }
    leaders
}

struct Builder<'a> {
    program: &'a Program,
    id: FunctionId,
    range: Range<u64>,
    leaders: BTreeSet<u64>,
}

impl Builder<'_> {
    fn build(self) -> Result<Code, Problem> {
        // Nodes, by address, and where their successors begin.
        let mut found = BTreeMap::new();
        let mut todo = vec![self.range.start];
        while let Some(start) = todo.pop() {
            if found.contains_key(&start) {
                continue;
            }
            let (node, mut next) = self.node(start)?;
            next.retain(|it| self.range.contains(it));
            todo.extend(&next);
            found.insert(start, (node, next));
        }
        let numbers = found.keys().copied().zip(0..);
        let numbers: BTreeMap<u64, NodeId> = numbers.collect();
        let mut nodes = Vec::new();
        let mut graph = Vec::new();
        for (node, next) in found.into_values() {
            let next = next.iter().filter_map(|it| numbers.get(it).copied());
            let next: BTreeSet<_> = next.collect();
            nodes.push(node);
            graph.push(next.into_iter().collect());
        }
        self.add_exits(&mut nodes, &mut graph);
        Ok(Code {
            nodes,
            graph: Graph(graph),
        })
    }

    /// What comes after a guest has run.
    fn add_exits(&self, nodes: &mut Vec<Node>, graph: &mut Vec<Vec<NodeId>>) {
        for entry in 0..nodes.len() {
            if nodes[entry].end != End::EnterGuest {
                continue;
            }
            let first = nodes.len();
            let vectors = self.program.vectors.iter().map(|&it| End::Vector(it));
            let added: Vec<_> = vectors.chain([End::Return]).collect();
            let returns = first + added.len() - 1;
            graph[entry] = (first..returns).collect();
            for end in added {
                let next = if end == End::Return {
                    vec![]
                } else {
                    vec![returns]
                };
                let range = nodes[entry].range.end..nodes[entry].range.end;
                nodes.push(Node { range, end });
                graph.push(next);
            }
        }
    }

    /// The node that begins at an address, and the addresses after it.
    fn node(&self, start: u64) -> Result<(Node, Vec<u64>), Problem> {
        let mut values = Values::unknown();
        let mut after = start;
        let (end, next) = loop {
            let address = after;
            let word = self.program.instruction(address);
            let Some(word) = word.filter(|_| self.range.contains(&address)) else {
                // Nothing comes after the call of a function that never returns.
                break (End::Flow, vec![]);
            };
            after += SIZE;
            break match flow(word, address) {
                Flow::Next => {
                    values.execute(word);
                    if !self.leaders.contains(&after) {
                        continue;
                    }
                    (End::Flow, vec![after])
                }
                Flow::Branch(to) if self.range.contains(&to) => (End::Flow, vec![to]),
                Flow::Branch(to) => (End::TailCall(self.callee(to, &values, address)?), vec![]),
                Flow::Conditional(to) => (End::Flow, vec![to, after]),
                // A call into its own function goes on there: `guest_exit` (hypervisor/src/hardware/guest.rs) makes one for its effect on predictions.
                Flow::Call(to) if self.range.contains(&to) && to != self.range.start => {
                    (End::Flow, vec![to])
                }
                Flow::Call(to) => (End::Call(self.callee(to, &values, address)?), vec![after]),
                Flow::CallRegister => (End::IndirectCall, vec![after]),
                Flow::BranchRegister => (End::IndirectJump, vec![]),
                Flow::Return => (End::Return, vec![]),
                Flow::EnterGuest => (End::EnterGuest, vec![]),
                Flow::Sleep => (End::Sleep, vec![after]),
                Flow::Look => (End::Look, vec![after]),
                Flow::Trap => (End::Flow, vec![]),
            };
        };
        let range = start..after;
        Ok((Node { range, end }, next))
    }

    fn callee(&self, to: u64, values: &Values, at: u64) -> Result<Callee, Problem> {
        /// The third argument: the length of memcpy, memset and memmove.
        const LENGTH: u32 = 2;
        match self.program.function_from(to) {
            Some(callee) => Ok((callee, values.get(LENGTH))),
            None => Err(Problem::new(
                format!("{} at {at:#x}", self.program.functions[self.id].name),
                format!("it calls {to:#x}, where no function begins"),
                "give what is there a global symbol",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;

    fn code_of(functions: &[(&str, &str, &[u32])]) -> Result<Code, Problem> {
        Code::of(&Program::for_tests(functions), 0)
    }

    #[test]
    fn a_call_into_its_own_function_goes_on_there() {
        // bl .+8
        let code = code_of(&[("f", "core/src/f.rs", &[0x9400_0002, NOP, RET])]).unwrap();
        let ends: Vec<_> = code.nodes.iter().map(|it| it.end.clone()).collect();
        assert_eq!(ends, [End::Flow, End::Return]);
        assert_eq!(code.graph.0, [vec![1], vec![]]);
    }

    #[test]
    fn the_length_of_a_copy_is_known_where_it_is_constant() {
        // mov w2, #40 or mov x2, x9; bl .+8
        for (word, length) in [(0x5280_0502, Some(40)), (0xaa09_03e2, None)] {
            let f = [word, 0x9400_0002, RET];
            let functions: [(&str, &str, &[u32]); 2] = [
                ("f", "core/src/f.rs", &f),
                ("memcpy", "core/src/f.rs", &[RET]),
            ];
            let code = code_of(&functions).unwrap();
            assert_eq!(code.nodes[0].end, End::Call((1, length)));
        }
    }

    #[test]
    fn a_branch_to_what_is_no_function_is_refused() {
        // bl .+8, behind the end
        let error = code_of(&[("f", "core/src/f.rs", &[0x9400_0002, RET])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "f at 0x40200000: it calls 0x40200008, where no function begins; give what is there a global symbol"
        );
    }
}
