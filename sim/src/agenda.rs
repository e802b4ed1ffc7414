// SPDX-License-Identifier: MIT OR Apache-2.0
//! The next event of each core, in a tournament tree: the winner is the next event of the machine.

use spumone_core::schedule::Ticks;

/// The next event of each core.
#[derive(Debug)]
pub struct Agenda {
    /// Node n has the children 2n and 2n + 1; the cores are the second half. Each node is the earlier of its children; if
    /// both are equal, the core with the lower number.
    nodes: Vec<(Ticks, u32)>,
}

impl Agenda {
    /// No core has an event.
    pub fn new(cores: usize) -> Self {
        let leaves = cores.next_power_of_two().max(2);
        let mut nodes = vec![(Ticks::NEVER, 0); 2 * leaves];
        for (leaf, node) in nodes[leaves..].iter_mut().enumerate() {
            node.1 = leaf as u32;
        }
        Self { nodes }
    }

    /// Sets the time of a core's next event.
    #[inline]
    pub fn set(&mut self, core: usize, at: Ticks) {
        let mut node = self.nodes.len() / 2 + core;
        if self.nodes[node].0 == at {
            return;
        }
        self.nodes[node].0 = at;
        while node > 1 {
            let (left, right) = (self.nodes[node & !1], self.nodes[node | 1]);
            let winner = if right.0 < left.0 { right } else { left };
            node /= 2;
            if self.nodes[node] == winner {
                return;
            }
            self.nodes[node] = winner;
        }
    }

    /// The next event of the machine: its time and its core.
    #[inline]
    pub fn next(&self) -> (Ticks, usize) {
        let (at, core) = self.nodes[1];
        (at, core as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn the_earliest_of_the_lowest_core_wins(
            cores in 1_usize..20,
            changes in proptest::collection::vec((0_usize..20, 0_u64..30), 1..60),
        ) {
            let mut agenda = Agenda::new(cores);
            let mut times = vec![Ticks::NEVER; cores];
            for (core, at) in changes {
                let core = core % cores;
                agenda.set(core, Ticks(at));
                times[core] = Ticks(at);
                let expected = times.iter().enumerate().min_by_key(|(_, at)| **at);
                let (core, at) = expected.unwrap();
                assert_eq!(agenda.next(), (*at, core));
            }
        }
    }
}
