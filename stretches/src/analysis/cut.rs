// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is part of no stretch, because it leads to the death of EL2 only.

use super::Analysis;
use crate::code::{Code, End};
use crate::graph::NodeId;

impl Analysis<'_> {
    /// Nothing follows an instruction of an inlined function that is not part of any stretch.
    pub(super) fn end_at_inlined(&self, code: &mut Code) {
        let outside = &self.foreign.outside;
        for (node, next) in code.nodes.iter_mut().zip(&mut code.graph.0) {
            let frames = self.program.frames(node.last());
            let is_outside = |name: &str| outside.iter().any(|it| it.inlined && it.name == name);
            if frames.iter().any(|it| is_outside(&it.function)) {
                node.end = End::Flow;
                next.clear();
            }
        }
    }
    /// Removes all from which neither a return, a look nor an indirect branch is reached: what leads to the death of EL2 only.
    pub(super) fn cut(&self, codes: &mut [Option<Code>]) {
        // Whether a function returns, and whether it comes to a look.
        let mut returns = vec![false; codes.len()];
        let mut looks = vec![false; codes.len()];
        loop {
            let mut changed = false;
            for (id, code) in codes.iter().enumerate() {
                let Some(code) = code else { continue };
                let (live, reached) = live(code, &returns, &looks);
                let is =
                    |end: &dyn Fn(&End) -> bool| code.ending(end).any(|it| live[it] && reached[it]);
                let returns_now = is(&|it| match it {
                    End::Return | End::IndirectJump => true,
                    End::TailCall((callee, _)) => returns[*callee],
                    _ => false,
                });
                let looks_now = is(&|it| match it {
                    End::Look | End::Sleep | End::EnterGuest => true,
                    End::Call((callee, _)) | End::TailCall((callee, _)) => looks[*callee],
                    _ => false,
                });
                changed |= returns_now != returns[id] || looks_now != looks[id];
                returns[id] = returns_now;
                looks[id] = looks_now;
            }
            if !changed {
                break;
            }
        }
        for slot in codes.iter_mut() {
            let Some(code) = slot else { continue };
            let (live, reached) = live(code, &returns, &looks);
            if !live.first().is_some_and(|it| *it) {
                *slot = None;
                continue;
            }
            for (from, next) in code.graph.0.iter_mut().enumerate() {
                next.retain(|&to| live[to] && reached[from]);
            }
        }
    }
}

/// For each node, whether a return, a look or an indirect branch is reached from it, and whether it is reached itself.
fn live(code: &Code, returns: &[bool], looks: &[bool]) -> (Vec<bool>, Vec<bool>) {
    let passes = |node: NodeId| match &code.nodes[node].end {
        End::Call((callee, _)) => returns[*callee],
        _ => true,
    };
    let mut live: Vec<_> = code
        .nodes
        .iter()
        .map(|node| match &node.end {
            End::Look | End::Sleep | End::EnterGuest | End::Return => true,
            // Where it goes is not known, so that it is not cut but refused.
            End::IndirectCall | End::IndirectJump => true,
            End::Call((callee, _)) => looks[*callee],
            End::TailCall((callee, _)) => looks[*callee] || returns[*callee],
            End::Flow | End::Vector(_) => false,
        })
        .collect();
    loop {
        let mut changed = false;
        for node in (0..live.len()).rev() {
            if !live[node] && passes(node) && code.graph.0[node].iter().any(|&to| live[to]) {
                live[node] = true;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let mut reached = vec![false; live.len()];
    let mut todo = vec![0];
    while let Some(node) = todo.pop() {
        if live[node] && !std::mem::replace(&mut reached[node], true) && passes(node) {
            todo.extend(&code.graph.0[node]);
        }
    }
    (live, reached)
}
