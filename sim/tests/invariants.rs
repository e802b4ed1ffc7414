// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every invariant, on machines and guests of all shapes: a simulation in which one does not hold has no outcome.

#![allow(clippy::unwrap_used, reason = "a test fails so")]

use proptest::prelude::*;
use spumone_config::packed::{Policy, PowerMode};
use spumone_core::schedule::Ticks;
use spumone_sim::setup::{Duty, Powered, Rt, Storm};
use spumone_sim::{Decisions, End, Failed, Setup, TICKS_PER_US, Workload, simulate};

const fn us(microseconds: u64) -> Ticks {
    Ticks(microseconds * TICKS_PER_US)
}

/// Real-time guests: none, short activations at 1 kHz, long bursts, both.
fn rt() -> impl Strategy<Value = Option<Rt>> {
    let short = (20_u64..900).prop_map(|busy| Rt {
        period: us(1000),
        busy: us(busy),
        tick: None,
    });
    let long = (1_000_u64..19_000, 200_u64..2_000).prop_map(|(busy, tick)| Rt {
        period: us(20_000),
        busy: us(busy),
        tick: Some(us(tick)),
    });
    prop_oneof![
        1 => Just(None),
        2 => short.prop_map(Some),
        2 => long.prop_map(Some)
    ]
}

fn policy() -> impl Strategy<Value = Policy> {
    proptest::sample::select(&Policy::ALL)
}

fn shape() -> impl Strategy<Value = (usize, usize, usize)> {
    (1_usize..=8, 0_usize..=12, 1_usize..=3)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn moves_by_chance_break_nothing(
        (cores, more, systems) in shape(),
        rt in rt(),
        // Longer than a switch.
        quantum in 20_u64..300,
        catches_exit: bool,
        seed: u64,
    ) {
        let setup = Setup {
            cores: cores * systems,
            guest_cores: cores,
            guest_vcpus: cores + more,
            rt,
            quantum: us(quantum),
            catches_exit,
            end: End::Time(us(100_000)),
            ..Setup::churn(cores, seed, 1)
        };
        simulate(&setup).unwrap();
    }

    #[test]
    fn policies_break_nothing(
        (cores, more, systems) in shape(),
        rt in rt(),
        policy in policy(),
        churns: bool,
        catches_exit: bool,
        seed: u64,
    ) {
        let setup = Setup {
            cores: cores * systems,
            guest_cores: cores,
            guest_vcpus: cores + more,
            workload: if churns { Workload::Churn } else { Workload::Messages },
            rt,
            catches_exit,
            end: End::Time(us(100_000)),
            ..Setup::new(cores, Decisions::Policy(policy), 0, seed)
        };
        simulate(&setup).unwrap();
    }
}

/// Threads that all work at the same time, for a third of each 3 ms.
const DUTY: Workload = Workload::Duty(Duty {
    period: us(3_000),
    busy: us(1_000),
    apart: Ticks(0),
});

fn powered() -> impl Strategy<Value = Powered> {
    prop_oneof![
        2 => Just(Powered::Chance),
        1 => Just(Powered::Hasty(PowerMode::Balanced)),
        1 => Just(Powered::Hasty(PowerMode::Saving)),
        2 => Just(Powered::Changing),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Cores go off and come back: no vCPU is lost, none waits for too long, and the real-time vCPU meets its deadlines.
    #[test]
    fn cores_that_go_off_break_nothing(
        (cores, more, systems) in shape(),
        rt in rt(),
        power in powered(),
        workload in proptest::sample::select(&[Workload::Churn, Workload::Messages, Workload::Naps, DUTY][..]),
        seed: u64,
    ) {
        let setup = Setup {
            cores: cores * systems,
            guest_cores: cores,
            guest_vcpus: cores + more,
            workload,
            rt,
            power: Some(power),
            end: End::Time(us(100_000)),
            ..Setup::new(cores, Decisions::Policy(Policy::Steal), 0, seed)
        };
        simulate(&setup).unwrap();
    }
}

/// With little to do, the governor turns cores off; chance turns them off again and again.
#[test]
fn cores_go_off_in_simulations() {
    let off = |power| {
        let setup = Setup {
            power,
            guest_vcpus: 4,
            workload: Workload::Naps,
            end: End::Time(us(100_000)),
            ..Setup::new(4, Decisions::Policy(Policy::Steal), 5, 1)
        };
        simulate(&setup).unwrap().counters.off
    };
    assert_eq!(off(None), 0);
    assert!(off(Some(Powered::Hasty(PowerMode::Saving))) > 0);
    assert!(off(Some(Powered::Changing)) > 0);
    assert_eq!(off(Some(Powered::Governed(PowerMode::Performance))), 0);
    assert!(off(Some(Powered::Chance)) > 100);
}

/// Interrupts for vCPUs that move arrive at the real-time guest's core without end, and each keeps EL2 busy for far longer than a
/// decision. The real-time vCPU waits for one of them at most: its alarm is armed before the next one is handled.
#[test]
fn a_storm_of_interrupts_delays_the_real_time_vcpu_by_one_of_them() {
    for policy in [Policy::None, Policy::Steal, Policy::Random] {
        for (interval, quantum) in [(1, 20), (300, 100), (2_000, 2_000)] {
            let setup = Setup {
                guest_vcpus: 5,
                workload: Workload::Churn,
                rt: Some(Rt {
                    period: us(1_000),
                    busy: us(100),
                    tick: None,
                }),
                storm: Some(Storm {
                    interval: Ticks(interval),
                    cost: 20_000,
                }),
                quantum: us(quantum),
                end: End::Time(us(200_000)),
                ..Setup::new(4, Decisions::Policy(policy), 0, 1)
            };
            let outcome = simulate(&setup).unwrap();
            assert!(outcome.counters.storm > 500, "{:?}", outcome.counters);
        }
    }
}

/// The alarm of a core is due at each check, and the real-time vCPU, which sleeps there, is still loaded. Its timer interrupt
/// must not wait until the alarm is silent.
#[test]
fn an_alarm_that_is_always_due_does_not_hide_the_timer_of_the_loaded_vcpu() {
    let setup = Setup {
        guest_vcpus: 17,
        rt: Some(Rt {
            period: us(1_000),
            busy: us(802),
            tick: None,
        }),
        quantum: us(52),
        catches_exit: false,
        end: End::Time(us(100_000)),
        ..Setup::churn(6, 8_634_239_006_458_287_442, 1)
    };
    simulate(&setup).unwrap();
}

/// A core sends away its last vCPU, no other core claims it, and the core, which now idles, must fetch it back.
#[test]
fn a_vcpu_that_no_core_claims_is_fetched_back() {
    let setup = Setup {
        rt: Some(Rt {
            period: us(1000),
            busy: us(73),
            tick: None,
        }),
        guest_vcpus: 2,
        quantum: us(68),
        end: End::Time(us(1_000_000)),
        ..Setup::churn(2, 1, 1)
    };
    for seed in 1..=8 {
        simulate(&Setup { seed, ..setup }).unwrap();
    }
}

/// A short run of what `spm sim --policy chance --migrations 1000000000` does.
#[test]
fn many_moves_by_chance() {
    let outcome = simulate(&Setup::churn(4, 1, 300_000)).unwrap();
    assert!(outcome.counters.migrations >= 300_000);
    assert!(outcome.activations > 0);
}

#[test]
fn impossible_setups_are_refused() {
    let good = Setup::new(4, Decisions::Chance, 50, 1);
    let bad = [
        Setup { cores: 0, ..good },
        Setup { cores: 6, ..good },
        Setup {
            cores: 32,
            guest_cores: 32,
            guest_vcpus: 32,
            ..good
        },
        Setup {
            guest_vcpus: 3,
            ..good
        },
        Setup {
            rt: Some(Rt {
                period: us(1),
                busy: us(1),
                tick: None,
            }),
            ..good
        },
    ];
    for setup in bad {
        assert!(
            matches!(simulate(&setup), Err(Failed::Setup(_))),
            "{setup:?}"
        );
    }
    assert!(good.check().is_ok());
}
