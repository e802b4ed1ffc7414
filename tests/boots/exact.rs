// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots on the exact clock: times that guests report are meaningful, and each run is the
//! same.
//!
//! The bounds of latency are far above what is measured (docs/results). They detect a wake-up that is
//! lost until something else happens, or a path at EL2 that has become long.

use boot_tests::{Boot, linux, linux_rt, probe, rt};

/// Instructions from the time a period is due to the first one of its task.
const LATENCY: u64 = 3_000;

fn dispatch(name: &str, policy: &'static str, parameters: &str, cores: &[usize]) {
    let console = Boot::new(name)
        .policy(policy)
        .cores(cores.len())
        .memory_mib(1024)
        .exact()
        .guest(rt(parameters))
        .guest(linux("hackbench", "-g,1,-l,50", cores))
        .run();
    console.linux_is_well("linux", "hackbench");
    let latency = console.longest_wait("rt");
    console.demand(latency <= LATENCY, &format!("latency {latency}"));
}

#[test]
fn freertos_meets_its_deadlines_beside_linux_on_four_cores() {
    dispatch(
        "freertos_meets_its_deadlines_beside_linux_on_four_cores",
        "none",
        "period=100us load=30% burst=10ms duration=2s",
        &[0, 1, 2, 3],
    );
}

#[test]
fn freertos_meets_its_deadlines_beside_linux_on_one_core() {
    dispatch(
        "freertos_meets_its_deadlines_beside_linux_on_one_core",
        "none",
        "period=1ms load=60% duration=3s",
        &[0],
    );
}

#[test]
fn freertos_meets_its_deadlines_beside_linux_that_moves() {
    dispatch(
        "freertos_meets_its_deadlines_beside_linux_that_moves",
        "steal",
        "period=1ms load=50% burst=100ms duration=3s",
        &[1, 2, 3, 0],
    );
}

/// Two vCPUs of a Linux share its only core. Under `steal`, a vCPU that waits for a lock gives the core to the vCPU that holds the lock.
#[test]
fn vcpus_that_share_the_only_core_do_not_wait_for_locks() {
    let seconds = ["none", "steal"].map(|policy| {
        let name = format!("vcpus_that_share_the_only_core_do_not_wait_for_locks_{policy}");
        let console = Boot::new(&name)
            .policy(policy)
            .exact()
            .guest(rt("period=1ms load=10% duration=3s"))
            .guest(linux("hackbench", "-g,1,-l,100", &[0, 0]))
            .run();
        console.linux_is_well("linux", "hackbench");
        let latency = console.longest_wait("rt");
        console.demand(latency <= LATENCY, &format!("latency {latency}"));
        let median = console.value("linux", "linux-result scenario=hackbench", "median");
        median.parse().unwrap_or(0.0)
    });
    let [waits, lets_run]: [f64; 2] = seconds;
    assert!(
        0.0 < lets_run && lets_run < 0.75 * waits,
        "{waits} s under none, {lets_run} s under steal"
    );
}

/// A vCPU whose home core is busy with the real-time guest for nine tenths of the time computes elsewhere.
#[test]
fn a_vcpu_that_moves_computes_elsewhere() {
    let loops = ["none", "steal"].map(|policy| {
        let console = Boot::new(&format!("a_vcpu_that_moves_computes_elsewhere_{policy}"))
            .policy(policy)
            .cores(2)
            .exact()
            .guest(rt("period=1ms load=90% burst=100ms duration=1500ms"))
            .guest(probe("spin", "suite=spin ms=1000", &[0, 1]))
            .run();
        console
            .rt_is_well("rt")
            .probe_is_well("spin")
            .machine_ended();
        console.number("spin", "spin-result", "loops")
    });
    let [stays, moves] = loops;
    assert!(
        moves > 5 * stays,
        "{stays} loops at home, {moves} elsewhere"
    );
}

/// A real-time guest whose core is taken by a guest of higher priority keeps its periods on another core, if it may move there.
#[test]
fn a_real_time_guest_keeps_its_periods_on_another_core() {
    let late = ["none", "steal"].map(|policy| {
        let name = "a_real_time_guest_keeps_its_periods_on_another_core";
        let console = Boot::new(&format!("{name}_{policy}"))
            .policy(policy)
            .cores(2)
            .exact()
            .guest(
                rt("period=1ms load=0% duration=600ms")
                    .priority(200)
                    .may_move_to(&[0, 1]),
            )
            .guest(
                rt("period=1ms load=50% burst=100ms duration=600ms")
                    .named("hog")
                    .priority(250),
            )
            .guest(probe("spin", "suite=spin ms=400", &[0, 1]))
            .run();
        console.probe_is_well("spin").machine_ended();
        console.number("rt", "rt-result", "late") + console.number("rt", "rt-result", "lost")
    });
    assert!(late[0] > 0 && late[1] == 0, "{late:?} periods late or lost");
}

/// The switch, and what EL2 does for a storm of interrupts that another guest sends to itself, is over when the timer expires.
#[test]
fn a_guest_that_is_woken_early_begins_sooner() {
    let longest = |early: Option<&str>| {
        let name = "a_guest_that_is_woken_early_begins_sooner";
        let mut guest = rt("period=100us load=0% duration=400ms");
        if let Some(early) = early {
            guest = guest.wake_early(early);
        }
        let console = Boot::new(&format!("{name}_{}", early.unwrap_or("auto")))
            .policy("steal")
            .cores(4)
            .exact()
            .guest(guest)
            .guest(probe(
                "storm",
                "suite=storm ms=400 pending=32",
                &[0, 0, 1, 2, 3],
            ))
            .run();
        console.probe_is_well("storm").longest_wait("rt")
    };
    let [without, by_switch, with] = [Some("off"), None, Some("40us")].map(longest);
    println!(
        "longest wait {without} instructions, woken as early as a switch takes {by_switch}, woken 40 µs early {with}"
    );
    assert!(with < 1_100 && without > 2 * with, "{without}, {with}");
    assert!(by_switch + 300 < without, "{without}, {by_switch}");
}

/// Policy `delay` with a Linux whose `preempt_count` says when it may hold a lock: the park delay is as long as Linux boots
/// with interrupts off (63 us on average), and not as long as it is in its kernel (195 us).
#[test]
fn a_lock_holder_is_known_by_its_preempt_count() {
    let console = Boot::new("a_lock_holder_is_known_by_its_preempt_count")
        .delay_while("preempt-count")
        .cores(2)
        .memory_mib(1024)
        .exact()
        .guest(rt("period=1ms load=30% duration=3s"))
        .guest(
            linux_rt("hackbench", "-g,1,-l,30", &[0, 1])
                .named("linux")
                .priority(100),
        )
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
    let latency = console.number("rt", "rt-result", "avg_ns");
    console.demand(latency < 100_000, &format!("{latency} ns on average"));
}

/// The timer wakes a CPU at every moment of its way into CPU_SUSPEND.
#[test]
fn suspends_are_interrupted_at_every_moment() {
    let console = Boot::new("suspends_are_interrupted_at_every_moment")
        .exact()
        .guest(probe("probe", "suite=psci only=suspend", &[0]))
        .run();
    console.probe_is_well("probe").machine_ended();
}
