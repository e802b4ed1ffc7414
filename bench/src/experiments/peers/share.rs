// SPDX-License-Identifier: MIT OR Apache-2.0
//! How much of its load a real-time guest got. It spins by the clock, so time that is taken from it counts as spun:
//! Linux then gains throughput at its cost.

use super::super::loads::Loads;
use super::systems::{Kind, Peer};
use crate::clock::Function;
use crate::results::{Outcome, Results};
use crate::stats::Spread;

/// The exception level of a guest's kernel, where FreeRTOS runs. It has no names, unlike Linux's kernel.
const EL1: u32 = 1;
/// A guest that got less of its load than this part had its core taken away.
const ENOUGH: f64 = 0.9;

/// Part of the load, if it is less than what was asked for: the median of the seeds.
pub(super) fn shortfall(loads: &Loads, results: &Results, peer: &Peer, load: u32) -> Option<f64> {
    if load == 0 || matches!(peer.kind, Kind::Threads(..)) {
        return None;
    }
    let asked = f64::from(load) / 100.0;
    let outcomes = results.of(&loads.label(peer.name, load)).iter();
    let got = Spread::of(outcomes.filter_map(share))?.median / asked;
    (got < ENOUGH).then_some(got)
}

/// The share of one core that the real-time guest had while Linux measured.
fn share(outcome: &Outcome) -> Option<f64> {
    let profiled = &outcome.clock.profiled;
    let ns = profiled.to_ns.checked_sub(profiled.from_ns)?;
    let functions = outcome.clock.profile.iter();
    let own: u64 = functions
        .filter(|it| it.el == EL1 && it.function == Function::NO_NAME)
        .map(|it| it.instructions)
        .sum();
    (ns > 0).then(|| own as f64 / outcome.instructions(ns as f64))
}

#[cfg(test)]
mod tests {
    use super::super::systems::{OTHERS, OWN};
    use super::*;
    use crate::experiments::loads::tests::loads;
    use crate::results::samples;

    /// What a system got of a load of 50 %, if its guest executed so many instructions in a second of 250 million.
    fn shortfall_of(peer: &Peer, instructions: u64) -> Option<f64> {
        let mut outcome = samples::linux(&loads().label(peer.name, 50), 1, &[1.0]);
        outcome.clock.profiled.to_ns = 1_000_000_000;
        outcome.clock.profile = [(1, "?"), (1, "schedule"), (0, "?")]
            .map(|(el, function)| Function {
                el,
                function: function.into(),
                instructions,
                polled_ns: 0,
            })
            .into();
        let mut results = Results::default();
        results.add(outcome);
        shortfall(&loads(), &results, peer, 50)
    }

    #[test]
    fn a_guest_that_had_too_little_is_found() {
        assert_eq!(shortfall_of(OWN, 124_000_000), None);
        let got = shortfall_of(OWN, 62_500_000).unwrap();
        assert!((got - 0.5).abs() < 1e-9);
        assert_eq!(shortfall_of(&OTHERS[0], 0), None, "threads are not a guest");
    }
}
