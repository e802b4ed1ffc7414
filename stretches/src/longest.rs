// SPDX-License-Identifier: MIT OR Apache-2.0
//! The longest walks through a graph in which each loop is repeated a bounded number of times.
//!
//! A walk goes through nodes that have a length, and ends before a node that has none (a look). Each time that a walk enters a loop
//! from outside, it may go back to the loop's header as many times as the loop's bound says. Under this rule the result is exact.
//!
//! The bound of an inner loop may also be for all its runs together while a loop around it runs. Then a walk pays for all those
//! repetitions when it enters that one, whether it comes to the inner loop or not: the result is a safe limit.

use crate::graph::{Graph, Item, LoopId, Nest, NodeId};
use std::rc::Rc;

/// Index of a step in [`Walks`].
pub type StepId = usize;

/// A walk: its length in instructions, and its last step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walk {
    /// Instructions.
    pub length: u64,
    /// The last step; `None` if it has none yet.
    pub last: Option<StepId>,
}

/// A step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<N> {
    /// The step before it.
    pub before: Option<StepId>,
    /// What it is.
    pub what: What<N>,
    /// Instructions of the walk, with this step.
    pub length: u64,
}

/// What a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<N> {
    /// Through a node, or a part of it.
    Node(N),
    /// A walk that is repeated.
    Repeat {
        /// How many times.
        times: u64,
        /// The last step of the walk.
        last: StepId,
    },
}

/// The steps of all walks.
#[derive(Clone, Debug)]
pub struct Walks<N>(Vec<Step<N>>);

impl<N: Copy> Walks<N> {
    /// No walks.
    pub fn new() -> Self {
        Self(Vec::new())
    }

    /// A walk, and one step more.
    pub fn step(&mut self, walk: Walk, length: u64, node: N) -> Walk {
        self.push(walk.length + length, walk.last, What::Node(node))
    }

    /// A walk, and then another one a number of times.
    pub fn repeat(&mut self, walk: Walk, times: u64, body: Walk) -> Walk {
        let (Some(last), 1..) = (body.last, times) else {
            return walk;
        };
        self.push(
            walk.length + times * body.length,
            walk.last,
            What::Repeat { times, last },
        )
    }

    fn push(&mut self, length: u64, before: Option<StepId>, what: What<N>) -> Walk {
        self.0.push(Step {
            before,
            what,
            length,
        });
        Walk {
            length,
            last: Some(self.0.len() - 1),
        }
    }

    /// The last step of a walk.
    pub fn last(&self, last: Option<StepId>) -> Option<What<N>> {
        self.0.get(last?).map(|it| it.what)
    }

    /// Instructions of the walk that ends with this step.
    pub fn length(&self, last: StepId) -> u64 {
        self.0.get(last).map_or(0, |it| it.length)
    }

    /// The steps of a walk that ends with this one, in order.
    pub fn steps(&self, last: Option<StepId>) -> Vec<What<N>> {
        let mut steps = Vec::new();
        let mut at = last;
        while let Some(step) = at.and_then(|it| self.0.get(it)) {
            steps.push(step.what);
            at = step.before;
        }
        steps.reverse();
        steps
    }
}

impl Walk {
    /// No instruction yet.
    pub const START: Self = Self {
        length: 0,
        last: None,
    };

    /// The longer one of two.
    pub fn longer(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.length > a.length { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// A walk that begins after a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Begun {
    /// The node.
    pub after: NodeId,
    /// It goes on to this successor only.
    pub to: Option<NodeId>,
    /// What comes before.
    pub walk: Walk,
}

/// What the search for walks asks about nodes and loops.
pub trait Lengths {
    /// A walk that has arrived at a node, after the node; `None` if no walk goes through it.
    fn through(&mut self, walk: Walk, node: NodeId) -> Option<Walk>;
    /// How many times at most a walk goes back to the header of a loop, until it leaves the loop; at least once.
    fn repetitions(&mut self, of: LoopId) -> u64;
    /// The loop around this one, if that is meant of all runs together while the loop around it runs once.
    fn payer(&self, of: LoopId) -> Option<LoopId>;
    /// Whether a walk ends where it goes back to the header of the loop.
    fn is_apart(&self, of: LoopId) -> bool;
    /// Appends a walk a number of times.
    fn repeat(&mut self, walk: Walk, times: u64, body: Walk) -> Walk;
}

/// A graph, its loops, and the longest walk once around each loop as far as it is known.
#[derive(Clone, Debug)]
pub struct Search {
    graph: Rc<Graph>,
    nest: Rc<Nest>,
    /// For each loop: not known yet, or the longest walk from the header back to it, if there is one.
    around: Vec<Option<Option<Walk>>>,
}

/// The state of one search.
struct Wave {
    /// The longest walk that arrives at each node.
    arrived: Vec<Option<Walk>>,
    /// The longest walk that goes back to the header of each loop.
    back: Vec<Option<Walk>>,
    /// Walks that begin after a node.
    begun: Vec<Begun>,
    /// The longest walk that has ended at a loop that is counted apart.
    ended: Option<Walk>,
}

impl Search {
    /// A search through a graph.
    pub fn new(graph: Rc<Graph>, nest: Rc<Nest>) -> Self {
        let around = vec![None; nest.loops.len()];
        Self {
            graph,
            nest,
            around,
        }
    }

    /// Returns the longest walk to each node, and the longest walk to the start of a round of a loop that is counted apart. A walk may
    /// come into the graph at the node of `entered`, or begin after one of the nodes of `begun`.
    pub fn longest(
        &mut self,
        entered: Option<(NodeId, Walk)>,
        begun: &[Begun],
        lengths: &mut impl Lengths,
    ) -> (Vec<Option<Walk>>, Option<Walk>) {
        let mut paid = Vec::new();
        for &(mut begun) in begun {
            for id in 0..self.nest.loops.len() {
                if self.nest.loops[id].contains(begun.after) {
                    begun.walk = self.pay(id, begun.walk, lengths);
                }
            }
            paid.push(begun);
        }
        let mut wave = self.wave(&paid);
        if let Some((node, walk)) = entered {
            wave.arrived[node] = Some(walk);
        }
        let nest = self.nest.clone();
        self.pass(&nest.whole, None, &mut wave, lengths);
        (wave.arrived, wave.ended)
    }

    fn wave(&self, begun: &[Begun]) -> Wave {
        Wave {
            arrived: vec![None; self.graph.0.len()],
            back: vec![None; self.nest.loops.len()],
            begun: begun.to_vec(),
            ended: None,
        }
    }

    /// Goes once through the parts of a loop, or of the whole graph.
    fn pass(
        &mut self,
        parts: &[Item],
        of: Option<LoopId>,
        wave: &mut Wave,
        lengths: &mut impl Lengths,
    ) {
        for &part in parts {
            match part {
                Item::Node(node) => self.leave(node, of, wave, lengths),
                Item::Loop(inner) => self.enter(inner, wave, lengths),
            }
        }
    }

    /// Goes from a node to its successors.
    fn leave(&self, node: NodeId, of: Option<LoopId>, wave: &mut Wave, lengths: &mut impl Lengths) {
        let through = wave.arrived[node].and_then(|it| lengths.through(it, node));
        for &to in &self.graph.0[node] {
            let begun = wave
                .begun
                .iter()
                .filter(|it| it.after == node && it.to.is_none_or(|it| it == to));
            let walk = begun.fold(through, |walk, it| Walk::longer(walk, Some(it.walk)));
            if walk.is_none() {
                continue;
            }
            // Back to the header of a loop around the node, or forward.
            let head = self.nest.heads[to]
                .filter(|&it| of.is_some() && self.nest.loops[it].contains(node));
            let place = match head {
                Some(head) => &mut wave.back[head],
                None => &mut wave.arrived[to],
            };
            *place = Walk::longer(*place, walk);
        }
    }

    /// Pays for the repetitions of all inner loops for which a walk pays when it enters this loop.
    fn pay(&mut self, id: LoopId, mut walk: Walk, lengths: &mut impl Lengths) -> Walk {
        for inner in 0..self.nest.loops.len() {
            if lengths.payer(inner) == Some(id)
                && let Some(around) = self.once_around(inner, lengths)
            {
                let times = lengths.repetitions(inner);
                walk = lengths.repeat(walk, times, around);
            }
        }
        walk
    }

    /// Goes through a loop as often as it may be repeated.
    fn enter(&mut self, id: LoopId, wave: &mut Wave, lengths: &mut impl Lengths) {
        let nest = self.nest.clone();
        let this = &nest.loops[id];
        let begins_inside = wave.begun.iter().any(|it| this.contains(it.after));
        // Usually only the header is reached from outside; code that the compiler has rearranged may have other entries.
        let mut outside = Vec::new();
        for &node in &this.nodes {
            let walk = wave.arrived[node].map(|it| self.pay(id, it, lengths));
            wave.arrived[node] = walk;
            outside.push(walk);
        }
        if outside.iter().all(Option::is_none) && !begins_inside {
            return;
        }
        wave.back[id] = None;
        self.pass(&this.body, Some(id), wave, lengths);
        let Some(back) = wave.back[id] else {
            return;
        };
        if lengths.is_apart(id) {
            wave.ended = Walk::longer(wave.ended, Some(back));
            return;
        }
        let repeated = match self.once_around(id, lengths) {
            Some(around) => {
                let more = match lengths.payer(id) {
                    Some(_) => 0,
                    None => lengths.repetitions(id).saturating_sub(1),
                };
                lengths.repeat(back, more, around)
            }
            // There is a look on each way around.
            None => back,
        };
        // The second pass has all walks of the first one again.
        for (&node, &walk) in this.nodes.iter().zip(&outside) {
            wave.arrived[node] = walk;
        }
        let header = &mut wave.arrived[this.header];
        *header = Walk::longer(*header, Some(repeated));
        self.pass(&this.body, Some(id), wave, lengths);
    }

    /// The longest walk from the header of a loop back to it.
    fn once_around(&mut self, id: LoopId, lengths: &mut impl Lengths) -> Option<Walk> {
        if let Some(known) = self.around[id] {
            return known;
        }
        let nest = self.nest.clone();
        let mut wave = self.wave(&[]);
        wave.arrived[nest.loops[id].header] = Some(Walk::START);
        self.pass(&nest.loops[id].body, Some(id), &mut wave, lengths);
        let walk = wave.back[id];
        self.around[id] = Some(walk);
        walk
    }
}

#[cfg(test)]
#[path = "longest_tests.rs"]
mod tests;
