// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the simulator must show: the same order of the policies as on the testbed, and that a switch costs the same on
//! machines of all sizes.

#![allow(clippy::unwrap_used, reason = "a test fails so")]

use spumone_config::packed::Policy;
use spumone_core::schedule::Ticks;
use spumone_sim::ideal::Bare;
use spumone_sim::outcome::Counters;
use spumone_sim::{Decisions, End, Setup, TICKS_PER_SECOND, TICKS_PER_US, simulate};

fn setup(policy: Policy, load: u8, seed: u64) -> Setup {
    Setup {
        // Three periods of the real-time guest.
        end: End::Time(Ticks(TICKS_PER_SECOND * 3 / 2)),
        ..Setup::new(4, Decisions::Policy(policy), load, seed)
    }
}

/// The mean over some seeds.
fn over_ideal(bare: &Bare, policy: Policy, load: u8) -> f64 {
    const SEEDS: u64 = 3;
    let of = |seed| bare.ideal(load) / simulate(&setup(policy, load, seed)).unwrap().throughput();
    (1..=SEEDS).map(of).sum::<f64>() / SEEDS as f64
}

#[test]
fn policies_are_in_the_testbeds_order() {
    let bare = Bare::of(&setup(Policy::None, 0, 1)).unwrap();
    // docs/results/yardsticks.md: hackbench is nearly proportional to its cores.
    assert!((1.25..1.4).contains(&(bare.all / bare.one_less)));
    for load in [50, 90] {
        let none = over_ideal(&bare, Policy::None, load);
        let steal = over_ideal(&bare, Policy::Steal, load);
        assert!(none > 1.2, "none at {load} %: {none}");
        assert!((0.98..1.12).contains(&steal), "steal at {load} %: {steal}");
    }
    let alone = over_ideal(&bare, Policy::Steal, 0);
    assert!((0.98..1.03).contains(&alone), "without load: {alone}");
}

#[test]
fn each_policy_has_the_effect_that_it_is_for() {
    let of = |policy| simulate(&setup(policy, 50, 1)).unwrap();
    let none = of(Policy::None);
    // Longer than any step at EL2 here.
    let late = Ticks(TICKS_PER_US * 30);
    let delay = of(Policy::Delay);
    assert!(delay.longest_dispatch > late);
    assert_eq!(delay.counters.migrations, 0);
    let cosched = of(Policy::Cosched);
    assert_eq!(cosched.counters.migrations, 0);
    let trap = of(Policy::Trap);
    // How long a vCPU spins depends on where the real-time guest preempts the holder of a lock, so the sums of some seeds are compared.
    let spun = |policy| -> u64 {
        let of = |seed| simulate(&setup(policy, 50, seed)).unwrap().work.spun;
        (1..=4).map(of).sum()
    };
    let spun_under_none = spun(Policy::None);
    assert!(spun(Policy::Cosched) < spun_under_none / 2);
    assert!(spun(Policy::Trap) < spun_under_none / 2);
    let ondemand = of(Policy::OnDemand);
    // While the real-time guest is not busy, each of its ticks sends a vCPU away, and that vCPU returns; `steal` has a park
    // delay. While it is busy, vCPUs migrate at the ends of turns under both.
    let half = ondemand.activations / 2;
    assert!(ondemand.counters.migrations > half && ondemand.counters.sent_away > 0);
    let (steal, ondemand_all) = (of(Policy::Steal).counters, ondemand.counters.migrations);
    assert_eq!(steal.sent_away, 0);
    assert!(steal.migrations < ondemand_all * 3 / 4);
    let random = of(Policy::Random);
    assert!(random.counters.sent_away > ondemand.counters.sent_away);
    for prompt in [none, cosched, trap, ondemand, random, of(Policy::Balance)] {
        assert!(prompt.longest_dispatch < late);
    }
}

#[test]
fn the_same_setup_has_the_same_outcome() {
    let run = |seed| simulate(&setup(Policy::Steal, 50, seed)).unwrap();
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn the_work_of_a_decision_does_not_grow_with_the_machine() {
    let on = |cores| {
        let setup = Setup {
            cores,
            // The period of the real-time guest, so that each system has the same load.
            end: End::Time(Ticks(TICKS_PER_SECOND / 2)),
            ..setup(Policy::Steal, 50, 1)
        };
        simulate(&setup).unwrap()
    };
    // One system is one of many here: only its random numbers differ.
    let (small, large) = (on(16), on(48));
    let counts: [fn(&Counters) -> f64; 3] = [
        Counters::slots_read_per_decision,
        Counters::asked_per_notification,
        Counters::kicks_per_switch,
    ];
    for count in counts {
        let ratio = count(&large.counters) / count(&small.counters);
        assert!((0.85..1.15).contains(&ratio), "{ratio}");
    }
}
