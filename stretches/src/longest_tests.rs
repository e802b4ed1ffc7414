// SPDX-License-Identifier: MIT OR Apache-2.0
//! The search against all walks, one by one.

use super::*;
use proptest::prelude::*;

fn begun(after: NodeId) -> Begun {
    Begun {
        after,
        to: None,
        walk: Walk::START,
    }
}

/// Lengths of nodes, `None` for a look, and bounds of loops.
struct Small<'a> {
    lengths: &'a [Option<u64>],
    bounds: &'a [u64],
    walks: Walks<NodeId>,
    /// An inner and an outer loop: the bound of the inner loop counts all its rounds in one run of the outer loop.
    shares: Option<(LoopId, LoopId)>,
    /// A loop whose rounds are counted apart.
    apart: Option<LoopId>,
}

impl Lengths for Small<'_> {
    fn through(&mut self, walk: Walk, node: NodeId) -> Option<Walk> {
        let length = self.lengths[node]?;
        Some(self.walks.step(walk, length, node))
    }

    fn repetitions(&mut self, of: LoopId) -> u64 {
        self.bounds[of]
    }

    fn payer(&self, of: LoopId) -> Option<LoopId> {
        self.shares.filter(|it| it.0 == of).map(|it| it.1)
    }

    fn is_apart(&self, of: LoopId) -> bool {
        self.apart == Some(of)
    }

    fn repeat(&mut self, walk: Walk, times: u64, body: Walk) -> Walk {
        self.walks.repeat(walk, times, body)
    }
}

impl Small<'_> {
    /// The nodes of a walk, with repetitions written out.
    fn nodes(&self, last: Option<StepId>) -> Vec<NodeId> {
        let mut nodes = Vec::new();
        for step in self.walks.steps(last) {
            match step {
                What::Node(node) => nodes.push(node),
                What::Repeat { times, last } => {
                    let body = self.nodes(Some(last));
                    nodes.extend((0..times).flat_map(|_| body.clone()));
                }
            }
        }
        nodes
    }
}

/// All walks, by brute force: what the search has to find.
struct Brute<'a> {
    graph: &'a Graph,
    nest: &'a Nest,
    lengths: &'a [Option<u64>],
    bounds: &'a [u64],
    shares: Option<(LoopId, LoopId)>,
    longest: Vec<Option<u64>>,
    steps_left: u64,
}

impl Brute<'_> {
    /// Goes on after `node`. `left`: how often the walk may still go back to each header, until it leaves the loop.
    fn leave(&mut self, node: NodeId, length: u64, left: &[u64]) {
        for &to in &self.graph.0[node] {
            let mut left = left.to_vec();
            if let Some(head) = self.nest.heads[to]
                && self.nest.loops[head].contains(node)
            {
                if left[head] == 0 {
                    continue;
                }
                left[head] -= 1;
            }
            // A loop inside another one is entered anew in each repetition of that one.
            for (id, inner) in self.nest.loops.iter().enumerate() {
                let ends = match self.shares.filter(|it| it.0 == id) {
                    Some((_, around)) => !self.nest.loops[around].contains(to),
                    None => !inner.contains(to),
                };
                if ends {
                    left[id] = self.bounds[id];
                }
            }
            self.arrive(to, length, &left);
        }
    }

    fn arrive(&mut self, node: NodeId, length: u64, left: &[u64]) {
        self.steps_left = self.steps_left.saturating_sub(1);
        if self.steps_left == 0 {
            return;
        }
        let longest = &mut self.longest[node];
        *longest = (*longest).max(Some(length));
        if let Some(own) = self.lengths[node] {
            self.leave(node, length + own, left);
        }
    }
}

/// A graph of a program: a line of nodes, with jumps forward, and back.
fn graphs() -> impl Strategy<Value = (Graph, Vec<Option<u64>>, Vec<u64>, NodeId)> {
    (3_usize..8)
        .prop_flat_map(|count| {
            let jumps = proptest::collection::vec((0..count, 0..count), 0..6);
            let lengths = proptest::collection::vec(
                prop_oneof![4 => (1_u64..9).prop_map(Some), 1 => Just(None)],
                count,
            );
            let bounds = proptest::collection::vec(1_u64..4, count);
            (jumps, lengths, bounds, 0..count)
        })
        .prop_map(|(jumps, lengths, bounds, begin)| {
            let count = lengths.len();
            let mut next: Vec<Vec<_>> = (0..count)
                .map(|it| (it + 1..count).take(1).collect())
                .collect();
            for (from, to) in jumps {
                if !next[from].contains(&to) {
                    next[from].push(to);
                }
            }
            (Graph(next), lengths, bounds, begin)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    #[test]
    fn the_search_finds_what_all_walks_have((graph, lengths, bounds, begin) in graphs(), from_entry: bool) {
        let (found, expected) = both(&graph, &lengths, &bounds, begin, from_entry, None);
        prop_assume!(expected.is_some());
        prop_assert_eq!(Some(found), expected);
    }

    #[test]
    fn a_bound_for_all_runs_of_a_loop_is_safe((graph, lengths, bounds, begin) in graphs(), from_entry: bool) {
        let nest = Nest::of(&graph);
        let around = |inner: usize| (0..nest.loops.len()).find(|&it| it != inner && nest.loops[it].contains(nest.loops[inner].header));
        let shares = (0..nest.loops.len()).find_map(|it| Some((it, around(it)?)));
        prop_assume!(shares.is_some());
        let (found, expected) = both(&graph, &lengths, &bounds, begin, from_entry, shares);
        prop_assume!(expected.is_some());
        for (found, expected) in found.into_iter().zip(expected.unwrap_or_default()) {
            prop_assert!(found >= expected);
        }
    }
}

/// The lengths of the longest walks that the search finds, and those of all walks; `None` if there are too many.
fn both(
    graph: &Graph,
    lengths: &[Option<u64>],
    bounds: &[u64],
    begin: NodeId,
    from_entry: bool,
    shares: Option<(LoopId, LoopId)>,
) -> (Vec<Option<u64>>, Option<Vec<Option<u64>>>) {
    const STEPS: u64 = 100_000;
    let nest = Nest::of(graph);
    let mut brute = Brute {
        graph,
        nest: &nest,
        lengths,
        bounds,
        shares,
        longest: vec![None; lengths.len()],
        steps_left: STEPS,
    };
    if from_entry {
        brute.arrive(0, 0, bounds);
    } else {
        brute.leave(begin, 0, bounds);
    }
    let expected = (brute.steps_left > 0).then_some(brute.longest);
    let mut small = Small {
        lengths,
        bounds,
        walks: Walks::new(),
        shares,
        apart: None,
    };
    let begins = if from_entry {
        vec![]
    } else {
        vec![begun(begin)]
    };
    let mut search = Search::new(Rc::new(graph.clone()), Rc::new(nest));
    let (found, _) = search.longest(from_entry.then_some((0, Walk::START)), &begins, &mut small);
    // The steps of a walk are as long as the walk.
    for walk in found.iter().flatten() {
        let sum: u64 = small
            .nodes(walk.last)
            .iter()
            .filter_map(|&it| lengths[it])
            .sum();
        assert_eq!(sum, walk.length);
    }
    (
        found.iter().map(|it| it.map(|it| it.length)).collect(),
        expected,
    )
}

#[test]
fn a_loop_is_as_long_as_its_repetitions() {
    // 0 → 1 ⇄ 2, 1 → 3
    let graph = Graph(vec![vec![1], vec![2, 3], vec![1], vec![]]);
    let nest = Rc::new(Nest::of(&graph));
    let graph = Rc::new(graph);
    let lengths = [Some(1), Some(10), Some(100), Some(1000)];
    let mut small = Small {
        lengths: &lengths,
        bounds: &[5],
        walks: Walks::new(),
        shares: None,
        apart: None,
    };
    let (found, _) =
        Search::new(graph.clone(), nest.clone()).longest(Some((0, Walk::START)), &[], &mut small);
    assert_eq!(found[3].map(|it| it.length), Some(1 + 5 * 110 + 10));
    // From a look in the loop, as many repetitions may follow.
    let lengths = [Some(1), Some(10), None, Some(1000)];
    small.lengths = &lengths;
    let (found, _) =
        Search::new(graph.clone(), nest.clone()).longest(None, &[begun(2)], &mut small);
    assert_eq!(found[3].map(|it| it.length), Some(10));
}

#[test]
fn a_loop_with_two_entries_has_one_header() {
    // 0 → 1 ⇄ 2, 0 → 2, 1 → 3
    let graph = Rc::new(Graph(vec![vec![1, 2], vec![2, 3], vec![1], vec![]]));
    let nest = Rc::new(Nest::of(&graph));
    assert_eq!((nest.loops.len(), nest.loops[0].header), (1, 1));
    let mut small = Small {
        lengths: &[Some(1000), Some(10), Some(100), None],
        bounds: &[2],
        walks: Walks::new(),
        shares: None,
        apart: None,
    };
    let (found, _) = Search::new(graph, nest).longest(Some((0, Walk::START)), &[], &mut small);
    assert_eq!(found[3].map(|it| it.length), Some(1000 + 2 * 110 + 10));
}

#[test]
fn a_walk_ends_where_a_round_that_is_counted_apart_begins() {
    // 0 → 1 ⇄ 2, 1 → 3
    let graph = Rc::new(Graph(vec![vec![1], vec![2, 3], vec![1], vec![]]));
    let nest = Rc::new(Nest::of(&graph));
    let mut small = Small {
        lengths: &[Some(1), Some(10), Some(100), Some(1000)],
        bounds: &[5],
        walks: Walks::new(),
        shares: None,
        apart: Some(0),
    };
    let mut search = Search::new(graph, nest);
    let (found, ended) = search.longest(Some((0, Walk::START)), &[], &mut small);
    assert_eq!(found[3].map(|it| it.length), Some(1 + 10));
    assert_eq!(ended.map(|it| it.length), Some(1 + 110));
    // A round.
    let (_, ended) = search.longest(Some((1, Walk::START)), &[], &mut small);
    assert_eq!(ended.map(|it| it.length), Some(110));
}
