// SPDX-License-Identifier: MIT OR Apache-2.0
//! Linux in many configurations beside real-time guests in many configurations; long, so most run at night only.

use boot_tests::{Boot, linux, linux_rt, rt};

/// The home cores of `vcpus` vCPUs, in turns on `cores` cores.
fn homes(vcpus: usize, cores: usize) -> Vec<usize> {
    (0..vcpus).map(|vcpu| vcpu % cores).collect()
}

fn selfcheck(cores: usize, vcpus: usize, load: u32) {
    let name = format!("matrix_selfcheck_{cores}_{vcpus}_{load}");
    let console = Boot::new(&name)
        .cores(cores)
        .memory_mib(1024)
        .limit(900)
        .guest(rt(&format!(
            "period=1ms load={load}% burst=100ms duration=10s"
        )))
        .guest(linux(
            "selfcheck",
            &format!("expects={vcpus}"),
            &homes(vcpus, cores),
        ))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "selfcheck")
        .machine_ended();
}

macro_rules! selfchecks {
    ($($name:ident: $cores:literal, $vcpus:literal, $load:literal;)*) => {
        $(
            #[test]
            #[ignore = "long"]
            fn $name() {
                selfcheck($cores, $vcpus, $load);
            }
        )*
    };
}

selfchecks! {
    matrix_selfcheck_1_1_load_0: 1, 1, 0;
    matrix_selfcheck_1_1_load_60: 1, 1, 60;
    matrix_selfcheck_2_2_load_30: 2, 2, 30;
    matrix_selfcheck_2_4_load_30: 2, 4, 30;
    matrix_selfcheck_2_8_load_0: 2, 8, 0;
    matrix_selfcheck_4_4_load_0: 4, 4, 0;
    matrix_selfcheck_4_4_load_30: 4, 4, 30;
    matrix_selfcheck_4_4_load_60: 4, 4, 60;
    matrix_selfcheck_4_4_load_90: 4, 4, 90;
    matrix_selfcheck_4_8_load_0: 4, 8, 0;
    matrix_selfcheck_4_8_load_30: 4, 8, 30;
    matrix_selfcheck_8_8_load_0: 8, 8, 0;
}

/// Debian's PREEMPT_RT kernel is the real-time guest.
#[test]
fn two_linux_guests() {
    let console = Boot::new("two_linux_guests")
        .cores(2)
        .memory_mib(1024)
        .limit(600)
        .guest(linux_rt("cyclictest", "-S,-m,-p,80,-i,2000,-l,200", &[0]))
        .guest(linux("selfcheck", "expects=2", &[0, 1]))
        .run();
    console
        .linux_is_well("linux-rt", "cyclictest")
        .linux_is_well("linux", "selfcheck")
        .machine_ended();
}

/// Two real-time guests and one Linux, on shared cores.
#[test]
#[ignore = "long"]
fn matrix_three_guests() {
    let console = Boot::new("matrix_three_guests")
        .cores(4)
        .memory_mib(1024)
        .limit(900)
        .guest(rt("period=1ms load=30% duration=15s"))
        .guest(
            rt("period=5ms load=30% duration=15s")
                .named("rt-two")
                .homes(&[1])
                .priority(150),
        )
        .guest(linux("all", "-g,1,-l,20", &[0, 1, 2, 3]))
        .run();
    console
        .rt_is_well("rt")
        .rt_is_well("rt-two")
        .linux_is_well("linux", "selfcheck")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
}

/// Many periods, with Linux busy all the time.
#[test]
#[ignore = "long"]
fn matrix_many_periods() {
    let console = Boot::new("matrix_many_periods")
        .cores(2)
        .memory_mib(1024)
        .limit(900)
        .guest(rt("period=500us load=30% duration=120s"))
        .guest(linux("hackbench", "-g,1,-l,200,runs=5", &[0, 1]))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
}

/// Linux restarts itself many times, with eight CPUs on two cores.
#[test]
#[ignore = "long"]
fn matrix_linux_boots_often() {
    let mut machine = Boot::new("matrix_linux_boots_often")
        .cores(2)
        .memory_mib(1024)
        .limit(1800)
        .guest(rt("period=1ms load=30% duration=0"))
        .guest(linux("reboot-loop", "", &homes(4, 2)))
        .start();
    let console = machine.wait_until("ten lives", |console| {
        console.count("linux", "linux-life") >= 10
    });
    console.expect_not("rt", "rt-fault:");
}

/// A minute of Linux whose vCPUs are moved at every opportunity: its results are right at the end, and its
/// kernel reports no problem.
#[test]
#[ignore = "long"]
fn matrix_random_moves_for_a_minute() {
    let console = Boot::new("matrix_random_moves_for_a_minute")
        .policy("random")
        .cores(3)
        .memory_mib(1024)
        .limit(900)
        .guest(rt("period=2ms load=40% burst=20ms duration=70s"))
        .guest(linux("soak", "seconds=60,kib=256", &[1, 2, 0, 1]))
        .run();
    console
        .rt_is_well("rt")
        .linux_is_well("linux", "soak")
        .machine_ended();
}
