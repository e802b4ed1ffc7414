// SPDX-License-Identifier: MIT OR Apache-2.0
//! The cost of moves of vCPUs, from the clock's exits to EL2: which of them parked or claimed a vCPU, and the instructions
//! for it.

use crate::clock::{Exits, Part};
use crate::results::Results;
use crate::stats::{Spread, grouped};

/// A round trip is two moves.
const MOVES: f64 = 2.0;

/// Guests are loaded in the first exit of a core.
const START: &str = "start of a core";

/// Steps by number, as in `hypervisor/src/steps.rs`.
const LOOK: u32 = 0;
const TAKE: u32 = 1;
const TAKEN: u32 = 2;
const SAVE: u32 = 3;
const PARK: u32 = 4;
const PARKED: u32 = 5;
const TOLD: u32 = 6;
const LOAD: u32 = 7;
const LOADED: u32 = 8;

/// What an exit did about moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Parked a vCPU, and notified another core.
    Gave,
    /// Claimed one.
    Took,
    /// Claimed one, and parked its own.
    Exchanged,
    /// Searched or notified, and moved nothing: too early or too late.
    Looked,
}

/// All kinds, with their names on the page.
pub const KINDS: [(Kind, &str); 4] = [
    (Kind::Gave, "parks a vCPU"),
    (Kind::Took, "takes one"),
    (Kind::Exchanged, "claims one, parks one"),
    (Kind::Looked, "searches or notifies, nothing moves"),
];

/// The part from the step before it, or from the last step to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    to: Option<u32>,
    /// Its name on the page.
    pub name: &'static str,
    /// The side of a move that it belongs to, if the step before it was this one; `None`: other work of the exit.
    of_move: Option<(u32, Side)>,
}

/// The side of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The core that a vCPU leaves.
    GivesUp,
    /// The core that it comes to.
    Accepts,
}

impl Way {
    /// Whether it is work of one side of a move.
    pub fn is_of_a_move(&self) -> bool {
        self.of_move.is_some()
    }

    /// Its name, marked if it is [of a move](Self::is_of_a_move).
    pub fn label(&self) -> String {
        match self.is_of_a_move() {
            true => format!("• {}", self.name),
            false => self.name.into(),
        }
    }
}

const fn way(to: u32, name: &'static str, of_move: Option<(u32, Side)>) -> Way {
    Way {
        to: Some(to),
        name,
        of_move,
    }
}

/// All parts, in the order of an exit.
pub const PARTS: [Way; 10] = [
    way(
        LOOK,
        "exception, interrupt, reading the parking slots",
        None,
    ),
    way(TAKE, "choice and claim", Some((LOOK, Side::Accepts))),
    way(
        TAKEN,
        "settling: interrupts and timers follow, run queue",
        Some((TAKE, Side::Accepts)),
    ),
    way(
        SAVE,
        "decision, notifying other cores; priority mask, alarm",
        None,
    ),
    way(PARK, "save", Some((SAVE, Side::GivesUp))),
    way(PARKED, "parking", Some((PARK, Side::GivesUp))),
    way(
        TOLD,
        "notifying another core",
        Some((PARKED, Side::GivesUp)),
    ),
    way(LOAD, "alarm, a check for interrupts", None),
    way(LOADED, "load", Some((LOAD, Side::Accepts))),
    Way {
        to: None,
        name: "entry",
        of_move: None,
    },
];

/// A sum of exits, or of parts of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// Their number.
    pub count: f64,
    /// Their instructions.
    pub instructions: f64,
    /// Instructions of the longest one.
    pub most: f64,
}

impl Sum {
    fn add(&mut self, count: u64, part: Part) {
        self.count += count as f64;
        self.instructions += part.instructions as f64;
        self.most = self.most.max(part.most as f64);
    }

    /// Mean instructions.
    pub fn mean(self) -> Option<f64> {
        (self.count > 0.0).then(|| self.instructions / self.count)
    }

    /// A dot at the mean, and a bar to the largest.
    pub fn spread(self) -> Option<Spread> {
        let mean = self.mean()?;
        Some(Spread {
            low: mean,
            median: mean,
            high: self.most,
            count: self.count as usize,
        })
    }

    /// Cells of a table: count, mean, most.
    pub fn cells(self) -> [String; 3] {
        [
            grouped(self.count),
            self.mean().map_or("-".into(), grouped),
            match self.count > 0.0 {
                true => grouped(self.most),
                false => "-".into(),
            },
        ]
    }
}

/// The cost of moves under one policy, over all seeds.
#[derive(Debug, Default)]
pub struct Costs {
    /// Whole exits, as [`KINDS`].
    pub kinds: [Sum; KINDS.len()],
    /// Parts of exits that claimed and parked a vCPU, as [`PARTS`].
    pub parts: [Sum; PARTS.len()],
    /// The parts that belong to a move, of all exits that parked or claimed a vCPU.
    pieces: [Sum; PARTS.len()],
    /// Exits that parked a vCPU which an earlier exit had saved.
    kept: f64,
}

/// The part up to a step, or after the last one.
fn part(exits: &Exits, to: Option<u32>) -> Option<Part> {
    match to {
        Some(step) => exits
            .steps
            .iter()
            .find(|it| it.step == step)
            .map(|it| it.part),
        None => exits.rest,
    }
}

fn has(exits: &Exits, step: u32) -> bool {
    exits.steps.iter().any(|it| it.step == step)
}

/// `None`: nothing about moves. A core that parks a vCPU and notifies no core has one that sleeps, and makes room for
/// another vCPU of its own.
fn kind(exits: &Exits) -> Option<Kind> {
    let starts = exits.cause == START;
    match (has(exits, TAKE), has(exits, PARK)) {
        _ if starts || exits.steps.is_empty() => None,
        (true, true) => Some(Kind::Exchanged),
        (true, false) => Some(Kind::Took),
        (false, true) => has(exits, TOLD).then_some(Kind::Gave),
        (false, false) => (has(exits, LOOK) || has(exits, TOLD)).then_some(Kind::Looked),
    }
}

impl Costs {
    /// The costs of all seeds of a run.
    pub fn of(results: &Results, label: &str) -> Self {
        let mut costs = Self::default();
        let all = results.of(label).iter().flat_map(|it| &it.clock.exits);
        for exits in all {
            if let Some(kind) = kind(exits) {
                costs.add(exits, kind);
            }
        }
        costs
    }

    fn add(&mut self, exits: &Exits, kind: Kind) {
        for (sum, (it, _)) in self.kinds.iter_mut().zip(KINDS) {
            if it == kind {
                let whole = Part {
                    instructions: exits.instructions,
                    most: exits.most,
                };
                sum.add(exits.count, whole);
            }
        }
        if kind != Kind::Looked {
            self.add_pieces(exits, kind);
        }
        match kind {
            Kind::Gave if !has(exits, SAVE) => self.kept += exits.count as f64,
            // Only in these exits each step follows the one before it.
            Kind::Exchanged if has(exits, LOOK) => {
                for (sum, way) in self.parts.iter_mut().zip(PARTS) {
                    if let Some(part) = part(exits, way.to) {
                        sum.add(exits.count, part);
                    }
                }
            }
            _ => {}
        }
    }

    fn add_pieces(&mut self, exits: &Exits, kind: Kind) {
        for (sum, way) in self.pieces.iter_mut().zip(PARTS) {
            let Some((_, side)) = way.of_move.filter(|&(from, _)| has(exits, from)) else {
                continue;
            };
            // A core that has only parked a vCPU loads one of its own.
            let is_own = side == Side::Accepts && kind == Kind::Gave;
            if let Some(part) = part(exits, way.to).filter(|_| !is_own) {
                sum.add(exits.count, part);
            }
        }
    }

    /// Whole exits of this kind.
    pub fn kind(&self, wanted: Kind) -> Sum {
        let found = KINDS.iter().zip(self.kinds).find(|it| it.0.0 == wanted);
        found.map_or(Sum::default(), |it| it.1)
    }

    fn part(&self, step: u32) -> Sum {
        let found = PARTS.iter().zip(self.parts);
        let mut found = found.filter(|it| it.0.to == Some(step));
        found.next().map_or(Sum::default(), |it| it.1)
    }

    /// vCPUs that changed cores: at least one in each exit that claimed.
    pub fn moves(&self) -> f64 {
        self.kind(Kind::Took).count + self.kind(Kind::Exchanged).count
    }

    /// A round trip: in each of its two moves one core parks the vCPU, and another one claims it.
    pub fn mean(&self) -> Option<f64> {
        Some(MOVES * (self.side(Side::GivesUp)? + self.side(Side::Accepts)?))
    }

    /// One side of a move: the sum of its parts' means.
    pub fn side(&self, side: Side) -> Option<f64> {
        self.sum_of(side, Sum::mean)
    }

    /// An upper bound of a round trip: the longest of each part, in any exit.
    pub fn worst(&self) -> Option<f64> {
        let most = |sum: Sum| (sum.count > 0.0).then_some(sum.most);
        let sides = [Side::GivesUp, Side::Accepts].map(|side| self.sum_of(side, most));
        Some(MOVES * (sides[0]? + sides[1]?))
    }

    fn sum_of(&self, side: Side, value: impl Fn(Sum) -> Option<f64>) -> Option<f64> {
        let pieces = PARTS.iter().zip(self.pieces);
        pieces
            .filter(|(way, _)| way.of_move.is_some_and(|it| it.1 == side))
            .map(|(_, sum)| value(sum))
            .sum()
    }

    /// The same with all other work: whole exits that parked or claimed.
    pub fn whole(&self) -> Option<f64> {
        let exits = [Kind::Gave, Kind::Took, Kind::Exchanged].map(|it| self.kind(it).instructions);
        self.per_trip(exits.iter().sum::<f64>() + self.kept_saves())
    }

    /// Instructions of saves in earlier exits.
    fn kept_saves(&self) -> f64 {
        self.kept * self.part(PARK).mean().unwrap_or(0.0)
    }

    /// Instructions per round trip that move no vCPU: notifications and searches that come too early or too late.
    pub fn in_vain(&self) -> Option<f64> {
        self.per_trip(self.kind(Kind::Looked).instructions)
    }

    fn per_trip(&self, instructions: f64) -> Option<f64> {
        let moves = self.moves();
        (moves > 0.0).then(|| MOVES * instructions / moves)
    }

    /// An upper bound of a whole round trip: the longest exits in a row. A vCPU that is claimed in exchange was
    /// parked in an exit of that kind, so the longer of both counts, and a save before it.
    pub fn most(&self) -> Option<f64> {
        let of = |kind| self.kind(kind).most;
        let took = of(Kind::Took).max(of(Kind::Exchanged));
        let gave = of(Kind::Gave) + self.part(PARK).most;
        (self.moves() > 0.0).then_some(MOVES * (gave + took))
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::clock::Step;
    use crate::results::samples;

    /// Exits that passed steps, with this number of instructions before each, and 100 after the last one.
    fn exits(end: &str, count: u64, steps: &[(u32, u64)]) -> Exits {
        let part = |it| Part {
            instructions: it * count,
            most: it + 1,
        };
        let way: u64 = steps.iter().map(|it| it.1).sum::<u64>() + 100;
        Exits {
            cause: "IRQ".into(),
            intid: Some(1),
            end: end.into(),
            count,
            instructions: way * count,
            most: way + 1,
            longest_deaf: 0,
            deaf_from: None,
            deaf_to: None,
            deaf_blocks: Vec::new(),
            most_at_ns: 0,
            most_on_core: 0,
            steps: steps
                .iter()
                .map(|&(step, it)| Step {
                    step,
                    part: part(it),
                })
                .collect(),
            rest: Some(part(100)),
        }
    }

    /// Ten vCPUs are parked by a core that runs a vCPU of a higher band, and claimed in exchange.
    pub fn results(save: u64) -> Results {
        let mut outcome = samples::outcome("steal", 1, "");
        let exchange = [
            (LOOK, 200),
            (TAKE, 50),
            (TAKEN, 150),
            (SAVE, 400),
            (PARK, save),
            (PARKED, 20),
            (TOLD, 30),
            (LOAD, 40),
            (LOADED, 60),
        ];
        outcome.clock.exits = vec![
            exits("stays", 10, &[(PARK, 200), (PARKED, 20), (TOLD, 30)]),
            exits("stays", 10, &exchange),
            exits("stays", 5, &[(LOOK, 200)]),
            // It sleeps, and another vCPU of the same core runs.
            exits("stays", 40, &[(PARK, 900), (PARKED, 70)]),
            Exits {
                cause: START.into(),
                ..exits("switches", 1, &[(TOLD, 1_000_000)])
            },
            exits("switches", 100, &[]),
            // From one vCPU to another of the same core.
            exits("switches", 100, &[(SAVE, 500), (LOAD, 300), (LOADED, 70)]),
        ];
        let mut results = Results::default();
        results.add(outcome);
        results
    }

    #[test]
    fn all_that_is_about_moves_counts_and_nothing_else() {
        let costs = Costs::of(&results(300), "steal");
        assert_eq!(costs.moves(), 10.0);
        assert_eq!(costs.kind(Kind::Gave).mean(), Some(350.0));
        assert_eq!(costs.kind(Kind::Exchanged).mean(), Some(1350.0));
        assert_eq!(costs.kind(Kind::Looked).mean(), Some(300.0));
        // 350 + 1350, and a save in an earlier exit.
        assert_eq!(costs.whole(), Some(2.0 * (350.0 + 1350.0 + 300.0)));
        // Half a search for each move.
        assert_eq!(costs.in_vain(), Some(2.0 * 150.0));
        assert_eq!(costs.most(), Some(2.0 * (351.0 + 1351.0 + 301.0)));
    }

    #[test]
    fn a_move_is_what_one_side_does_to_give_up_and_the_other_to_accept() {
        let costs = Costs::of(&results(300), "steal");
        let gives_up = 300.0 + 20.0 + 30.0;
        let accepts = 50.0 + 150.0 + 60.0;
        assert_eq!(costs.side(Side::GivesUp), Some(gives_up));
        assert_eq!(costs.side(Side::Accepts), Some(accepts));
        assert_eq!(costs.mean(), Some(2.0 * (gives_up + accepts)));
        // Six parts, each one longer at worst.
        assert_eq!(costs.worst(), Some(2.0 * (gives_up + accepts + 6.0)));
        assert_eq!(Costs::default().mean(), None);
    }

    #[test]
    fn what_any_visit_does_for_a_move_counts() {
        let mut results = results(300);
        let mut outcome = samples::outcome("steal", 2, "");
        // A vCPU makes room for another one of the same core: the switch to that one is no part of a move.
        let steps = [
            (SAVE, 9),
            (PARK, 700),
            (PARKED, 20),
            (TOLD, 30),
            (LOAD, 9),
            (LOADED, 800),
        ];
        outcome.clock.exits = vec![exits("switches", 10, &steps)];
        results.add(outcome);
        let costs = Costs::of(&results, "steal");
        assert_eq!(costs.side(Side::GivesUp), Some(500.0 + 20.0 + 30.0));
        assert_eq!(costs.side(Side::Accepts), Some(260.0));
        assert_eq!(costs.worst(), Some(2.0 * (701.0 + 21.0 + 31.0 + 263.0)));
    }

    #[test]
    fn the_parts_of_an_exchange_add_up() {
        let costs = Costs::of(&results(300), "steal");
        let parts: f64 = costs.parts.iter().filter_map(|it| it.mean()).sum();
        assert_eq!(Some(parts), costs.kind(Kind::Exchanged).mean());
        assert_eq!(costs.part(TOLD).mean(), Some(30.0));
    }
}
