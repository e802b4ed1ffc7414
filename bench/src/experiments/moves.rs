// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the clock's visits to EL2 tell of moves of vCPUs: which of them gave one up or took one, and what that cost.

use crate::clock::{Part, Visits};
use crate::results::Results;
use crate::stats::{Spread, grouped};

/// A round trip is two moves.
const MOVES: f64 = 2.0;

/// Guests are loaded in the first visit of a core.
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

/// What a visit did about moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Gave a vCPU up, and told another core.
    Gave,
    /// Took one.
    Took,
    /// Took one, and gave up the one that it had.
    Exchanged,
    /// Looked, or told, and left all as it was: not yet, or too late.
    Looked,
}

/// All kinds, with their names for people.
pub const KINDS: [(Kind, &str); 4] = [
    (Kind::Gave, "gives a vCPU up"),
    (Kind::Took, "takes one"),
    (Kind::Exchanged, "takes one, gives one up"),
    (Kind::Looked, "looks or notifies, nothing moves"),
];

/// The way to a step from the one before it, or behind the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    to: Option<u32>,
    /// Its name for people.
    pub name: &'static str,
    /// Whose work on a move it is, where the step before it was this one; `None`: what a visit does besides.
    of_move: Option<(u32, Side)>,
}

/// Whose work a part of a move is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Of the core that a vCPU leaves.
    GivesUp,
    /// Of the core that it comes to.
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

/// All ways, in the order of a visit.
pub const PARTS: [Way; 10] = [
    way(
        LOOK,
        "exception, interrupt, a look at the parking slots",
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
    way(LOAD, "alarm, a look for interrupts", None),
    way(LOADED, "load", Some((LOAD, Side::Accepts))),
    Way {
        to: None,
        name: "entry",
        of_move: None,
    },
];

/// Visits, or parts of them, together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sum {
    /// How many.
    pub count: f64,
    /// Instructions of all.
    pub instructions: f64,
    /// Instructions of the longest.
    pub most: f64,
}

impl Sum {
    fn add(&mut self, count: u64, part: Part) {
        self.count += count as f64;
        self.instructions += part.instructions as f64;
        self.most = self.most.max(part.most as f64);
    }

    /// Instructions of one.
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

/// What moves cost under one policy, over all seeds.
#[derive(Debug, Default)]
pub struct Costs {
    /// Whole visits, as [`KINDS`].
    pub kinds: [Sum; KINDS.len()],
    /// Parts of visits that took and gave up a vCPU, as [`PARTS`].
    pub parts: [Sum; PARTS.len()],
    /// The same parts of all visits that gave one up or took one, where they are of a move.
    pieces: [Sum; PARTS.len()],
    /// Visits that parked a vCPU which an earlier visit had saved.
    kept: f64,
}

/// The way to a step, or behind the last one.
fn part(visits: &Visits, to: Option<u32>) -> Option<Part> {
    match to {
        Some(step) => visits
            .steps
            .iter()
            .find(|it| it.step == step)
            .map(|it| it.part),
        None => visits.rest,
    }
}

fn has(visits: &Visits, step: u32) -> bool {
    visits.steps.iter().any(|it| it.step == step)
}

/// `None`: nothing about moves. A core that parks a vCPU and tells nobody has one that sleeps, and makes room for
/// another one of its own.
fn kind(visits: &Visits) -> Option<Kind> {
    let starts = visits.cause == START;
    match (has(visits, TAKE), has(visits, PARK)) {
        _ if starts || visits.steps.is_empty() => None,
        (true, true) => Some(Kind::Exchanged),
        (true, false) => Some(Kind::Took),
        (false, true) => has(visits, TOLD).then_some(Kind::Gave),
        (false, false) => (has(visits, LOOK) || has(visits, TOLD)).then_some(Kind::Looked),
    }
}

impl Costs {
    /// Of all seeds of a run.
    pub fn of(results: &Results, label: &str) -> Self {
        let mut costs = Self::default();
        let all = results.of(label).iter().flat_map(|it| &it.clock.visits);
        for visits in all {
            if let Some(kind) = kind(visits) {
                costs.add(visits, kind);
            }
        }
        costs
    }

    fn add(&mut self, visits: &Visits, kind: Kind) {
        for (sum, (it, _)) in self.kinds.iter_mut().zip(KINDS) {
            if it == kind {
                let whole = Part {
                    instructions: visits.instructions,
                    most: visits.most,
                };
                sum.add(visits.visits, whole);
            }
        }
        if kind != Kind::Looked {
            self.add_pieces(visits, kind);
        }
        match kind {
            Kind::Gave if !has(visits, SAVE) => self.kept += visits.visits as f64,
            // Only there each step follows the one before it.
            Kind::Exchanged if has(visits, LOOK) => {
                for (sum, way) in self.parts.iter_mut().zip(PARTS) {
                    if let Some(part) = part(visits, way.to) {
                        sum.add(visits.visits, part);
                    }
                }
            }
            _ => {}
        }
    }

    fn add_pieces(&mut self, visits: &Visits, kind: Kind) {
        for (sum, way) in self.pieces.iter_mut().zip(PARTS) {
            let Some((_, side)) = way.of_move.filter(|&(from, _)| has(visits, from)) else {
                continue;
            };
            // What a core loads that has only given one up was its own already.
            let is_own = side == Side::Accepts && kind == Kind::Gave;
            if let Some(part) = part(visits, way.to).filter(|_| !is_own) {
                sum.add(visits.visits, part);
            }
        }
    }

    /// Whole visits of this kind.
    pub fn kind(&self, wanted: Kind) -> Sum {
        let found = KINDS.iter().zip(self.kinds).find(|it| it.0.0 == wanted);
        found.map_or(Sum::default(), |it| it.1)
    }

    fn part(&self, step: u32) -> Sum {
        let found = PARTS.iter().zip(self.parts);
        let mut found = found.filter(|it| it.0.to == Some(step));
        found.next().map_or(Sum::default(), |it| it.1)
    }

    /// vCPUs that changed cores; one at least in each visit that took.
    pub fn moves(&self) -> f64 {
        self.kind(Kind::Took).count + self.kind(Kind::Exchanged).count
    }

    /// A departure and a return: in each of the two moves one core gives the vCPU up, and another accepts it.
    pub fn mean(&self) -> Option<f64> {
        Some(MOVES * (self.side(Side::GivesUp)? + self.side(Side::Accepts)?))
    }

    /// One side of one move: its parts, on average.
    pub fn side(&self, side: Side) -> Option<f64> {
        self.sum_of(side, Sum::mean)
    }

    /// No departure and return can have cost more: the longest of each part, in any visit.
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

    /// The same with all that is done besides: visits that gave or took, whole.
    pub fn whole(&self) -> Option<f64> {
        let visits = [Kind::Gave, Kind::Took, Kind::Exchanged].map(|it| self.kind(it).instructions);
        self.per_trip(visits.iter().sum::<f64>() + self.kept_saves())
    }

    /// Instructions of saves in earlier visits.
    fn kept_saves(&self) -> f64 {
        self.kept * self.part(PARK).mean().unwrap_or(0.0)
    }

    /// What is executed for a round trip without moving anybody: until a vCPU lets go, or another core is found.
    pub fn in_vain(&self) -> Option<f64> {
        self.per_trip(self.kind(Kind::Looked).instructions)
    }

    fn per_trip(&self, instructions: f64) -> Option<f64> {
        let moves = self.moves();
        (moves > 0.0).then(|| MOVES * instructions / moves)
    }

    /// No round trip can have cost more: the longest visits of all, after each other. Whoever is taken in exchange was
    /// given up in a visit of that kind, so the longest of either counts, and a save that came before it.
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

    /// Visits that passed steps, with so many instructions before each, and 100 behind the last one.
    fn visits(end: &str, visits: u64, steps: &[(u32, u64)]) -> Visits {
        let part = |it| Part {
            instructions: it * visits,
            most: it + 1,
        };
        let way: u64 = steps.iter().map(|it| it.1).sum::<u64>() + 100;
        Visits {
            cause: "IRQ".into(),
            intid: Some(1),
            end: end.into(),
            visits,
            instructions: way * visits,
            most: way + 1,
            longest_deaf: 0,
            deaf_from: None,
            deaf_to: None,
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

    /// Ten vCPUs are parked by a core that runs somebody urgent, and taken in exchange.
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
        outcome.clock.visits = vec![
            visits("stays", 10, &[(PARK, 200), (PARKED, 20), (TOLD, 30)]),
            visits("stays", 10, &exchange),
            visits("stays", 5, &[(LOOK, 200)]),
            // It sleeps, and another one of the same core runs.
            visits("stays", 40, &[(PARK, 900), (PARKED, 70)]),
            Visits {
                cause: START.into(),
                ..visits("switches", 1, &[(TOLD, 1_000_000)])
            },
            visits("switches", 100, &[]),
            // From one vCPU to another of the same core.
            visits("switches", 100, &[(SAVE, 500), (LOAD, 300), (LOADED, 70)]),
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
        // 350 + 1350, and a save before.
        assert_eq!(costs.whole(), Some(2.0 * (350.0 + 1350.0 + 300.0)));
        // Half a look for each move.
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
        // One makes room for another of the same core: what that one needs is no part of a move.
        let steps = [
            (SAVE, 9),
            (PARK, 700),
            (PARKED, 20),
            (TOLD, 30),
            (LOAD, 9),
            (LOADED, 800),
        ];
        outcome.clock.visits = vec![visits("switches", 10, &steps)];
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
