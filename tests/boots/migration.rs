// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs that change cores: nothing is lost. On the exact clock, for each policy, also whether they change cores.

use boot_tests::{Boot, INSTRUCTIONS_PER_US, linux, linux_rt, probe, rt};

/// A real-time guest that has core 0 for long bursts: vCPUs whose home it is must move again and again.
const BURSTS: &str = "period=1ms load=60% burst=20ms duration=8s";

fn boot(name: &str) -> Boot {
    Boot::new(name).policy("steal").memory_mib(1024)
}

/// Interrupts, timers and firmware calls of a guest whose vCPUs move.
#[test]
fn migration_below_rt() {
    for suite in ["gic", "timer", "psci"] {
        let console = boot(&format!("migration_below_rt_{suite}"))
            .cores(3)
            .guest(rt(BURSTS))
            .guest(probe(suite, &format!("suite={suite}"), &[0, 1, 2]))
            .run();
        console
            .rt_is_well("rt")
            .probe_is_well(suite)
            .machine_ended();
    }
}

/// A guest that checks its own state, with more vCPUs than cores.
#[test]
fn migration_of_watchers() {
    let console = boot("migration_of_watchers")
        .cores(3)
        .guest(rt(BURSTS))
        .guest(probe("busy", "suite=watch ms=4000 seed=1", &[0, 1, 2, 0]))
        .guest(probe(
            "sleeper",
            "suite=watch ms=4000 seed=2 sleep=1",
            &[0, 1, 2, 1],
        ))
        .run();
    console
        .rt_is_well("rt")
        .probe_is_well("busy")
        .probe_is_well("sleeper")
        .machine_ended();
}

/// A guest is reset again and again while its vCPUs move.
#[test]
fn migration_through_many_lives() {
    let mut machine = boot("migration_through_many_lives")
        .cores(3)
        .guest(rt("period=1ms load=60% burst=5ms duration=60s"))
        .guest(
            probe("lives", "suite=lives", &[0, 1, 2])
                .priority(90)
                .memory("8MiB"),
        )
        .start();
    machine.wait_until("30 lives", |console| {
        console.expect_not("lives", "FAIL");
        console.count("lives", "life-ok") >= 30
    });
    machine.type_until("q", "spumone", "guest lives is off");
    machine.finish().expect_not("lives", "FAIL");
}

/// Instructions of guests on a core that is no vCPU's home. One vCPU may move there: the real-time guest on its own core takes
/// 60 % of it in bursts.
fn executed_away_from_home(policy: &'static str) -> u64 {
    let console = Boot::new(&format!("migration_from_home_under_{policy}"))
        .policy(policy)
        .cores(2)
        .exact()
        .guest(rt("period=1ms load=60% burst=20ms duration=400ms"))
        .guest(probe("spin", "suite=spin ms=300", &[0]).may_move_to(&[1]))
        .run();
    console
        .rt_is_well("rt")
        .probe_is_well("spin")
        .machine_ended();
    console.guest_instructions(1)
}

/// The policy moves vCPUs: a vCPU that may leave its core executes at least a tenth of its time elsewhere.
fn vcpus_move(policy: &'static str) {
    const TENTH: u64 = 30_000 * INSTRUCTIONS_PER_US;
    let away = executed_away_from_home(policy);
    println!("policy {policy}: {away} instructions away from home");
    assert!(away > TENTH, "policy {policy}: {away} instructions");
}

/// The policy moves no vCPU.
fn vcpus_stay(policy: &'static str) {
    let away = executed_away_from_home(policy);
    assert_eq!(away, 0, "policy {policy}");
}

#[test]
fn migration_none_without_a_policy() {
    vcpus_stay("none");
}

#[test]
fn migration_by_stealing() {
    vcpus_move("steal");
}

/// The other policies: the kernel reports no problem, and interrupts, timers and memory work.
fn policy_is_sound(policy: &'static str) {
    let console = Boot::new(&format!("migration_under_{policy}"))
        .policy(policy)
        .memory_mib(1024)
        .cores(3)
        .guest(rt(BURSTS))
        .guest(probe("busy", "suite=watch ms=4000 seed=1", &[0, 1, 2, 0]))
        .guest(linux("all", "-g,1,-l,10", &[0, 1, 2, 0]))
        .run();
    console
        .rt_is_well("rt")
        .probe_is_well("busy")
        .linux_is_well("linux", "selfcheck")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
}

#[test]
fn migration_on_demand() {
    vcpus_move("ondemand");
    policy_is_sound("ondemand");
}

#[test]
fn migration_by_trap() {
    vcpus_move("trap");
    policy_is_sound("trap");
}

#[test]
fn migration_at_random() {
    vcpus_move("random");
    policy_is_sound("random");
}

#[test]
fn migration_with_balance() {
    vcpus_move("balance");
    policy_is_sound("balance");
}

/// The policies that move no vCPU.
#[test]
fn migration_none_but_delay_or_gangs() {
    for policy in ["delay", "cosched"] {
        vcpus_stay(policy);
        policy_is_sound(policy);
    }
}

/// A Linux whose `preempt_count` says when it may hold a lock.
#[test]
fn migration_none_but_delay_by_preempt_count() {
    let console = Boot::new("migration_none_but_delay_by_preempt_count")
        .delay_while("preempt-count")
        .memory_mib(1024)
        .cores(2)
        .guest(rt("period=1ms load=60% burst=20ms duration=5s"))
        .guest(
            linux_rt("all", "-g,1,-l,10", &[0, 1])
                .named("linux")
                .priority(100),
        )
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "selfcheck")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
}

/// The kernel reports no problem, and all of it runs, with twice as many CPUs as cores.
#[test]
fn migration_of_linux_with_more_cpus_than_cores() {
    let console = boot("migration_of_linux_with_more_cpus_than_cores")
        .cores(3)
        .guest(rt(BURSTS))
        .guest(linux("all", "-g,1,-l,20", &[0, 1, 2, 0, 1, 2]))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "selfcheck")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
}
