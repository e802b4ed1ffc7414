// SPDX-License-Identifier: MIT OR Apache-2.0
//! The flow of control in one function.

use crate::graph::{Graph, NodeId};
use crate::instruction::{Flow, SIZE, flow};
use crate::problem::Problem;
use crate::program::{FunctionId, Program};
use crate::values::{Value, Values, jump};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// No table of the compiler has more entries: a larger limit is none.
const MOST_ENTRIES: u64 = 4096;

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
    /// A call of one of these functions.
    Call(Callees),
    /// A jump to one of these functions, which returns in place of this one.
    TailCall(Callees),
    /// The function returns.
    Return,
}

/// What a call calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callees {
    /// This function. The length of what it copies or fills, in bytes, if that is constant.
    Direct(FunctionId, Option<u64>),
    /// An unknown function, by an address in a register.
    Indirect,
}

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
    /// The flow of control in a function. `known`: addresses that something refers to.
    pub fn of(program: &Program, id: FunctionId, known: &BTreeSet<u64>) -> Result<Self, Problem> {
        let range = program.functions[id].range.clone();
        let mut leaders = leaders(program, &range);
        loop {
            match Builder::new(program, id, known, &leaders).build()? {
                Outcome::Done(code) => return Ok(code),
                Outcome::Targets(targets) => leaders.extend(targets),
            }
        }
    }

    /// Nodes with this end.
    pub fn ending(&self, with: impl Fn(&End) -> bool) -> impl Iterator<Item = NodeId> {
        (0..self.nodes.len()).filter(move |&it| with(&self.nodes[it].end))
    }
}

/// Where nodes begin, as far as it is seen without tables.
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

/// Addresses that the code or the data of the program refer to.
pub fn referred(program: &Program) -> BTreeSet<u64> {
    let mut known = BTreeSet::new();
    for function in &program.functions {
        let mut values = Values::unknown();
        for address in (function.range.start..function.range.end).step_by(SIZE as usize) {
            let Some(word) = program.instruction(address) else {
                continue;
            };
            if flow(word, address) != Flow::Next {
                continue;
            }
            values.execute(word, address);
            if let Value::Constant(value) = values.get((word & 0x1f) as u8) {
                known.insert(value);
            }
        }
    }
    known
}

enum Outcome {
    Done(Code),
    Targets(BTreeSet<u64>),
}

struct Builder<'a> {
    program: &'a Program,
    id: FunctionId,
    range: Range<u64>,
    known: &'a BTreeSet<u64>,
    leaders: &'a BTreeSet<u64>,
    /// What is known where a node begins.
    entered: BTreeMap<u64, Values>,
    todo: Vec<u64>,
    nodes: BTreeMap<u64, (Node, Vec<u64>)>,
}

impl<'a> Builder<'a> {
    fn new(
        program: &'a Program,
        id: FunctionId,
        known: &'a BTreeSet<u64>,
        leaders: &'a BTreeSet<u64>,
    ) -> Self {
        let range = program.functions[id].range.clone();
        Self {
            program,
            id,
            known,
            leaders,
            entered: BTreeMap::from([(range.start, Values::unknown())]),
            todo: vec![range.start],
            nodes: BTreeMap::new(),
            range,
        }
    }

    fn build(mut self) -> Result<Outcome, Problem> {
        while let Some(start) = self.todo.pop() {
            let Some(values) = self.entered.get(&start).cloned() else {
                continue;
            };
            self.node(start, values)?;
        }
        let nodes = self.nodes.values();
        let targets: BTreeSet<_> = nodes.flat_map(|it| it.1.iter().copied()).collect();
        let new: BTreeSet<_> = targets
            .into_iter()
            .filter(|it| !self.leaders.contains(it))
            .collect();
        if new.is_empty() {
            Ok(Outcome::Done(self.finish()))
        } else {
            Ok(Outcome::Targets(new))
        }
    }

    /// Numbers the nodes in the order of their addresses.
    fn finish(self) -> Code {
        let numbers: BTreeMap<_, _> = self
            .nodes
            .keys()
            .enumerate()
            .map(|(number, &at)| (at, number))
            .collect();
        let mut nodes = Vec::new();
        let mut graph = Vec::new();
        for (node, next) in self.nodes.into_values() {
            let mut next: Vec<_> = next
                .iter()
                .filter_map(|it| numbers.get(it).copied())
                .collect();
            next.sort_unstable();
            next.dedup();
            nodes.push(node);
            graph.push(next);
        }
        // What comes after a guest has run.
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
        Code {
            nodes,
            graph: Graph(graph),
        }
    }

    /// Notes that execution comes to an address.
    fn go(&mut self, to: u64, values: &Values, next: &mut Vec<u64>) {
        if !self.range.contains(&to) {
            return;
        }
        next.push(to);
        match self.entered.get_mut(&to) {
            Some(before) => {
                if before.join(values) {
                    self.todo.push(to);
                }
            }
            None => {
                self.entered.insert(to, values.clone());
                self.todo.push(to);
            }
        }
    }

    fn node(&mut self, start: u64, mut values: Values) -> Result<(), Problem> {
        let mut next = Vec::new();
        let mut address = start;
        let end = loop {
            let Some(word) = self
                .program
                .instruction(address)
                .filter(|_| address < self.range.end)
            else {
                // Nothing comes after the call of a function that never returns.
                break End::Flow;
            };
            let after = address + SIZE;
            match flow(word, address) {
                Flow::Next => {
                    values.execute(word, address);
                    if self.leaders.contains(&after) {
                        self.go(after, &values, &mut next);
                        address = after;
                        break End::Flow;
                    }
                    address = after;
                    continue;
                }
                Flow::Branch(to) => {
                    address = after;
                    if self.range.contains(&to) {
                        self.go(to, &values, &mut next);
                        break End::Flow;
                    }
                    break End::TailCall(self.callee(to, &values, address - SIZE)?);
                }
                Flow::Conditional(to) => {
                    let mut taken = values.clone();
                    taken.branch(word, true);
                    self.go(to, &taken, &mut next);
                    values.branch(word, false);
                    self.go(after, &values, &mut next);
                    address = after;
                    break End::Flow;
                }
                // A call into its own function goes on there: `guest_exit` (hypervisor/src/hardware/guest.rs) makes one for its effect on predictions.
                Flow::Call(to) if self.range.contains(&to) && to != self.range.start => {
                    address = after;
                    self.go(to, &values, &mut next);
                    break End::Flow;
                }
                Flow::Call(to) => {
                    let callee = self.callee(to, &values, address)?;
                    values.call();
                    self.go(after, &values, &mut next);
                    address = after;
                    break End::Call(callee);
                }
                Flow::CallRegister(_) => {
                    values.call();
                    self.go(after, &values, &mut next);
                    address = after;
                    break End::Call(Callees::Indirect);
                }
                Flow::BranchRegister(register) => {
                    let targets = self.targets(values.get(register));
                    address = after;
                    if let Some(targets) = targets {
                        for to in targets {
                            self.go(to, &values, &mut next);
                        }
                        break End::Flow;
                    }
                    break End::TailCall(Callees::Indirect);
                }
                Flow::Return => {
                    address = after;
                    break End::Return;
                }
                Flow::EnterGuest => {
                    address = after;
                    break End::EnterGuest;
                }
                Flow::Sleep | Flow::Look => {
                    let end = if flow(word, address) == Flow::Look {
                        End::Look
                    } else {
                        End::Sleep
                    };
                    values.execute(word, address);
                    self.go(after, &values, &mut next);
                    address = after;
                    break end;
                }
                Flow::Trap => {
                    address = after;
                    break End::Flow;
                }
            }
        };
        let range = start..address;
        self.nodes.insert(start, (Node { range, end }, next));
        Ok(())
    }

    fn callee(&self, to: u64, values: &Values, at: u64) -> Result<Callees, Problem> {
        /// The third argument: the length of memcpy, memset and memmove.
        const LENGTH: u8 = 2;
        let length = match values.get(LENGTH) {
            Value::Constant(length) => Some(length),
            _ => None,
        };
        match self.program.function_from(to) {
            Some(callee) => Ok(Callees::Direct(callee, length)),
            None => Err(Problem::new(
                format!("{} at {at:#x}", self.program.functions[self.id].name),
                format!("it calls {to:#x}, where no function begins"),
                "give what is there a global symbol",
            )),
        }
    }

    /// Where a jump through a table may lead; `None` if it is no jump through a table.
    fn targets(&self, value: Value) -> Option<BTreeSet<u64>> {
        let (base, entry, shift) = match value {
            Value::Constant(to) if self.range.contains(&to) => return Some(BTreeSet::from([to])),
            Value::Target { base, entry, shift } => (base, entry, shift),
            _ => return None,
        };
        let mut bytes = entry.bytes();
        if entry.last >= MOST_ENTRIES {
            // The compiler knows the limit of the index: the table ends where something else begins.
            let next = self.known.range(entry.table + 1..).next()?;
            bytes = (next - entry.table).min(MOST_ENTRIES * entry.size);
        }
        let table = self.program.bytes(entry.table, bytes)?;
        let entries = table.chunks_exact(entry.size as usize);
        let targets = entries.map(|raw| jump(base, raw, shift));
        Some(
            targets
                .filter(|it| self.range.contains(it) && it.is_multiple_of(SIZE))
                .collect(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOP: u32 = 0xd503_201f;
    const RET: u32 = 0xd65f_03c0;

    /// Successors of each node, by address from the start of the program in instructions.
    fn flow_of(words: &[u32], data: &[u8]) -> Vec<(u64, Vec<u64>)> {
        let program = Program::for_tests(&[("f", "core/src/f.rs", words)], data);
        let code = Code::of(&program, 0, &referred(&program)).unwrap();
        let at = |node: NodeId| (code.nodes[node].range.start - Program::TEST_BASE) / SIZE;
        let next = code.graph.0.iter().enumerate();
        next.map(|(node, next)| (at(node), next.iter().map(|&it| at(it)).collect()))
            .collect()
    }

    #[test]
    fn a_table_of_bytes_is_followed_as_far_as_its_limit_says() {
        let words = [
            0x7100_051f, // cmp w8, #1
            0x5400_0108, // b.hi .+32: 9
            0x1000_0109, // adr x9, .+32: the data
            0x1000_006a, // adr x10, .+12: 6
            0x3868_692b, // ldrb w11, [x9, x8]
            0x8b0b_094a, // add x10, x10, x11, lsl #2
            0xd61f_0140, // br x10
            NOP,
            RET,
            RET,
        ];
        // The third entry is behind the limit.
        let flow = flow_of(&words, &[1, 2, 3]);
        assert_eq!(
            flow,
            [
                (0, vec![2, 9]),
                (2, vec![7, 8]),
                (7, vec![8]),
                (8, vec![]),
                (9, vec![])
            ]
        );
    }

    #[test]
    fn a_table_of_words_without_a_limit_ends_where_something_else_begins() {
        let words = [
            0x1000_0109, // adr x9, .+32: the data
            0x1000_0127, // adr x7, .+36: what follows the table
            0x1000_000a, // adr x10, .
            0xb8a8_792b, // ldrsw x11, [x9, x8, lsl #2]
            0x8b0b_014a, // add x10, x10, x11
            0xd61f_0140, // br x10
            RET,
            RET,
        ];
        let table: Vec<u8> = [20_i32, 16, -8]
            .into_iter()
            .flat_map(i32::to_le_bytes)
            .collect();
        let flow = flow_of(&words, &table);
        assert_eq!(flow, [(0, vec![6, 7]), (6, vec![]), (7, vec![])]);
    }

    #[test]
    fn a_branch_to_what_is_no_function_is_refused() {
        // bl .+8, behind the end
        let program = Program::for_tests(&[("f", "core/src/f.rs", &[0x9400_0002, RET])], &[0; 8]);
        let error = Code::of(&program, 0, &BTreeSet::new()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "f at 0x40200000: it calls 0x40200008, where no function begins; give what is there a global symbol"
        );
    }
}
