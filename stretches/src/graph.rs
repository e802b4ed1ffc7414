// SPDX-License-Identifier: MIT OR Apache-2.0
//! A graph of control flow, and its nest of loops.

/// Index of a node.
pub type NodeId = usize;
/// Index of a loop.
pub type LoopId = usize;

/// The successors of each node. Execution begins at node 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Graph(pub Vec<Vec<NodeId>>);

/// A loop: nodes each of which leads to all others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    /// Where it is entered, and where its repetitions begin. It may be entered elsewhere, too.
    pub header: NodeId,
    /// Its nodes and inner loops, so that what follows without a repetition comes later; the header is first.
    pub body: Vec<Item>,
    /// All its nodes, also those of inner loops; sorted.
    pub nodes: Vec<NodeId>,
}

/// A part of a loop, or of the whole graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A node that is in no inner loop.
    Node(NodeId),
    /// An inner loop.
    Loop(LoopId),
}

/// The nest of loops of a graph.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nest {
    /// All loops.
    pub loops: Vec<Loop>,
    /// The parts of the whole graph, in the order of execution.
    pub whole: Vec<Item>,
    /// For each node that is the header of a loop: that loop.
    pub heads: Vec<Option<LoopId>>,
}

impl Loop {
    /// Whether a node is in the loop.
    pub fn contains(&self, node: NodeId) -> bool {
        self.nodes.binary_search(&node).is_ok()
    }
}

impl Nest {
    /// The nest of loops of the nodes that execution reaches from node 0.
    pub fn of(graph: &Graph) -> Self {
        let count = graph.0.len();
        let mut nest = Self {
            heads: vec![None; count],
            ..Self::default()
        };
        if count == 0 {
            return nest;
        }
        let inside = reached(graph);
        nest.whole = nest.parts(graph, &inside, 0, None);
        nest
    }

    /// The parts of the nodes `inside`, in which execution begins at `entry`; edges to `header` are repetitions, which do not count.
    fn parts(
        &mut self,
        graph: &Graph,
        inside: &[bool],
        entry: NodeId,
        header: Option<NodeId>,
    ) -> Vec<Item> {
        let next = |node: NodeId| {
            let all = graph.0[node].iter().copied();
            all.filter(move |&to| inside[to] && Some(to) != header)
        };
        let mut parts = Vec::new();
        // Components come so that successors are first.
        for component in components(graph.0.len(), entry, &next) {
            let is_loop = component.len() > 1 || next(component[0]).any(|to| to == component[0]);
            if is_loop {
                parts.push(Item::Loop(self.add(graph, inside, component, entry)));
            } else {
                parts.push(Item::Node(component[0]));
            }
        }
        parts.reverse();
        parts
    }

    fn add(
        &mut self,
        graph: &Graph,
        around: &[bool],
        mut nodes: Vec<NodeId>,
        entry: NodeId,
    ) -> LoopId {
        nodes.sort_unstable();
        let is_in = |node: NodeId| nodes.binary_search(&node).is_ok();
        let mut entries: Vec<_> = nodes
            .iter()
            .copied()
            .filter(|&node| node == entry)
            .collect();
        for (from, next) in graph.0.iter().enumerate() {
            if around[from] && !is_in(from) {
                entries.extend(next.iter().copied().filter(|&to| is_in(to)));
            }
        }
        // Code that the compiler has rearranged may have several entries; any of them will do.
        let header = entries.into_iter().min().unwrap_or(nodes[0]);
        let mut inside = vec![false; graph.0.len()];
        for &node in &nodes {
            inside[node] = true;
        }
        let body = self.parts(graph, &inside, header, Some(header));
        self.loops.push(Loop {
            header,
            body,
            nodes,
        });
        let id = self.loops.len() - 1;
        self.heads[header] = Some(id);
        id
    }
}

fn reached(graph: &Graph) -> Vec<bool> {
    let mut reached = vec![false; graph.0.len()];
    let mut todo = vec![0];
    while let Some(node) = todo.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            todo.extend(&graph.0[node]);
        }
    }
    reached
}

/// The strongly connected components that are reached from `entry`, successors first (Tarjan's algorithm, without recursion).
fn components<I: Iterator<Item = NodeId>>(
    count: usize,
    entry: NodeId,
    next: &impl Fn(NodeId) -> I,
) -> Vec<Vec<NodeId>> {
    const UNSEEN: usize = usize::MAX;
    let mut order = vec![UNSEEN; count];
    let mut low = vec![UNSEEN; count];
    let mut open = vec![false; count];
    let mut stack = Vec::new();
    let mut found = Vec::new();
    let mut seen = 0;
    let mut path: Vec<(NodeId, Vec<NodeId>)> = Vec::new();
    let mut begin = Some(entry);
    loop {
        if let Some(node) = begin.take() {
            order[node] = seen;
            low[node] = seen;
            seen += 1;
            open[node] = true;
            stack.push(node);
            path.push((node, next(node).collect()));
        }
        let Some((node, todo)) = path.last_mut() else {
            return found;
        };
        let node = *node;
        if let Some(to) = todo.pop() {
            if order[to] == UNSEEN {
                begin = Some(to);
            } else if open[to] {
                low[node] = low[node].min(order[to]);
            }
            continue;
        }
        path.pop();
        if let Some((parent, _)) = path.last() {
            low[*parent] = low[*parent].min(low[node]);
        }
        if low[node] == order[node] {
            let first = stack.iter().rposition(|&it| it == node).unwrap_or_default();
            let component = stack.split_off(first);
            for &it in &component {
                open[it] = false;
            }
            found.push(component);
        }
    }
}
