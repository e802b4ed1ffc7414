// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the governor does with its real times, in each mode: how many cores are on, and how soon that follows the load.

#![allow(clippy::unwrap_used, reason = "a test fails so")]

use spumone_config::packed::PowerMode;
use spumone_core::schedule::Ticks;
use spumone_sim::loads::Load;
use spumone_sim::setup::Powered;
use spumone_sim::{Outcome, PowerOutcome, Setup, TICKS_PER_SECOND, TICKS_PER_US, simulate};

const MODES: [PowerMode; 3] = [
    PowerMode::Performance,
    PowerMode::Balanced,
    PowerMode::Saving,
];

fn setup(mode: PowerMode, load: Load, rt_percent: u8) -> Setup {
    Setup::power(4, mode, load, rt_percent, Ticks(TICKS_PER_SECOND / 2), 1)
}

fn run(mode: PowerMode, load: Load, rt_percent: u8) -> (Outcome, PowerOutcome) {
    let outcome = simulate(&setup(mode, load, rt_percent)).unwrap();
    (outcome, outcome.power.unwrap())
}

/// A sum over cores, as a number of cores.
fn cores(power: &PowerOutcome, sum: u64) -> f64 {
    sum as f64 / power.time as f64
}

fn ms(milliseconds: u64) -> Ticks {
    Ticks(milliseconds * 1_000 * TICKS_PER_US)
}

#[test]
fn cores_that_are_on_follow_the_load() {
    let on = |mode, load| {
        let (_, power) = run(mode, load, 0);
        cores(&power, power.on)
    };
    for load in [Load::Idle, Load::Share(25), Load::Full] {
        let by_mode = MODES.map(|mode| on(mode, load));
        assert_eq!(by_mode[0], 4.0);
        let [_, balanced, saving] = by_mode;
        match load {
            Load::Idle => assert!(balanced < 1.05 && saving < 1.05, "{by_mode:?}"),
            Load::Share(_) => {
                assert!(
                    saving > 1.5 && saving <= balanced && balanced < 3.9,
                    "{by_mode:?}"
                );
            }
            _ => assert!(balanced > 3.8 && saving > 3.8, "{by_mode:?}"),
        }
    }
}

#[test]
fn the_load_is_what_its_name_says() {
    for (load, from, to) in [
        (Load::Idle, 0.0, 0.05),
        (Load::Share(25), 1.0, 1.1),
        (Load::Share(50), 2.0, 2.1),
        (Load::Full, 3.9, 4.0),
    ] {
        let (_, power) = run(PowerMode::Performance, load, 0);
        let works = cores(&power, power.works);
        assert!((from..=to).contains(&works), "{load:?}: {works}");
        assert!(power.works <= power.least && power.least <= power.on);
    }
    // Half of core 0 is the real-time guest's.
    let (_, power) = run(PowerMode::Performance, Load::Idle, 50);
    assert!((0.5..0.55).contains(&cores(&power, power.works)));
}

#[test]
fn bursts_call_all_cores_and_leave_one() {
    let of = |mode| run(mode, Load::Bursts, 0).1;
    let [all, balanced, saving] = MODES.map(of);
    // Five bursts in half a second.
    for power in [all, balanced, saving] {
        let times = power.until_all_work;
        assert_eq!((times.count, times.missed), (5, 0));
    }
    assert!(all.until_all_work.longest < ms(1) && all.until_one_is_on.missed == 5);
    assert!(balanced.until_all_work.longest <= ms(2));
    assert!(saving.until_all_work.longest > balanced.until_all_work.longest);
    for power in [balanced, saving] {
        let times = power.until_one_is_on;
        assert_eq!((times.count, times.missed), (5, 0));
        assert!(times.longest <= ms(10), "{times:?}");
        // Three cores for each burst but the first, after which the last one ends the measurement.
        assert_eq!((power.came_on, power.went_off), (15, 12));
    }
}

#[test]
fn the_governor_has_its_real_times() {
    let of = |power| {
        let setup = Setup {
            power: Some(power),
            ..setup(PowerMode::Balanced, Load::Full, 0)
        };
        simulate(&setup).unwrap().power.unwrap().until_one_is_on
    };
    let real = of(Powered::Governed(PowerMode::Balanced));
    let hasty = of(Powered::Hasty(PowerMode::Balanced));
    // A window is 2 ms, and the load must have been low for one.
    assert!(real.count == 1 && real.longest >= ms(2), "{real:?}");
    assert!(hasty.longest < real.longest, "{hasty:?}");
}

#[test]
fn systems_of_one_machine_have_governors_of_their_own() {
    let small = setup(PowerMode::Balanced, Load::Bursts, 50);
    let one = simulate(&small).unwrap().power.unwrap();
    let four = simulate(&Setup { cores: 16, ..small })
        .unwrap()
        .power
        .unwrap();
    let [on_one, on_four] = [one, four].map(|it| cores(&it, it.on));
    assert!(
        (0.8..1.2).contains(&(on_four / on_one)),
        "{on_one} {on_four}"
    );
    let bursts = |it: &PowerOutcome| it.until_one_is_on.count + it.until_one_is_on.missed;
    assert_eq!(bursts(&four), 4 * bursts(&one));
}

/// A core that comes on needs the time that the firmware takes.
#[test]
fn cores_that_cost_more_come_on_later() {
    let of = |turn_on| {
        let mut setup = setup(PowerMode::Balanced, Load::Bursts, 0);
        setup.costs.turn_on = turn_on;
        simulate(&setup).unwrap().power.unwrap().until_all_work
    };
    let [soon, late] = [5, 105].map(|us| of(us * TICKS_PER_US));
    let more = late.longest.0 - soon.longest.0;
    assert!(
        (80 * TICKS_PER_US..400 * TICKS_PER_US).contains(&more),
        "{soon:?} {late:?}"
    );
}

/// Its vCPUs sleep where the real-time guest is busy, and no timer of theirs has expired.
#[test]
fn an_idle_guest_calls_no_core_while_the_real_time_guest_is_busy() {
    let (_, power) = run(PowerMode::Balanced, Load::Idle, 50);
    let on = cores(&power, power.on);
    assert!(on < 1.3, "{on} cores are on, {} came on", power.came_on);
}
