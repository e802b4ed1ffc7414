// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that go off when they are not needed, and come back.

use boot_tests::{Boot, Console, ESCAPE, linux, probe, rt};

/// Marks of the exact clock: a core goes off, and comes back.
const OFF: u64 = 0xfe01;
const ON: u64 = 0xfe02;
/// Those when the firmware is asked to turn it off, and when it has turned it on again.
const TURN_OFF: u64 = 0xfe03;
const TURNED_ON: u64 = 0xfe04;

/// Each change of the cores that are off, in order of time: when, in microseconds, and which cores are off from then on.
fn states(console: &Console) -> Vec<(u64, [bool; 4])> {
    let of = |mark, is_off| {
        let marks = console.marks(mark).into_iter();
        marks.map(move |(core, us)| (us, core, is_off))
    };
    let mut all: Vec<_> = of(OFF, true).chain(of(ON, false)).collect();
    all.sort_unstable();
    let mut off = [false; 4];
    let mut states = Vec::new();
    for (us, core, is_off) in all {
        // A core that is off may pass the mark again.
        if off[core] != is_off {
            off[core] = is_off;
            states.push((us, off));
        }
    }
    states
}

/// Instructions from the time a period is due to the first one of its task: as in `exact.rs`.
const LATENCY: u64 = 3_000;

/// All cores but core 0 are off.
const QUIET: [bool; 4] = [false, true, true, true];

/// On the exact clock, Linux starts and then idles, and a guest has all cores busy for half a second from about 4 s on. Core 0 stays on for FreeRTOS,
/// which is never late. All other cores go off before the load, come back for it at once, and go off after it.
#[test]
fn power_on_the_exact_clock() {
    const LOAD_US: u64 = 4_000_000;
    /// From the first core that comes back to the last one: some time slices.
    const BACK_US: u64 = 20_000;
    let console = Boot::new("power_on_the_exact_clock")
        .policy("steal")
        .cores(4)
        .memory_mib(1024)
        .power("balanced", None)
        .exact()
        .guest(rt("period=1ms load=10% burst=1ms duration=7s"))
        .guest(linux("idle", "seconds=4", &[0, 1, 2, 3]))
        .guest(probe(
            "spin",
            "suite=spin all=1 after=4000 ms=500",
            &[0, 1, 2, 3],
        ))
        .run();
    console.linux_is_well("linux", "idle").probe_is_well("spin");
    let latency = console.longest_wait("rt");
    println!("latency {latency}");
    console.demand(latency <= LATENCY, &format!("latency {latency}"));
    let states = states(&console);
    println!("{states:?}");
    // Those without a vCPU are off for the firmware, too, and were turned on for the load.
    let turned = |mark| console.marks(mark).into_iter().map(|it| it.0);
    for core in 1..4 {
        console.demand(
            turned(TURN_OFF).any(|it| it == core) && turned(TURNED_ON).any(|it| it == core),
            &format!("core {core} was not turned off and on"),
        );
    }
    let from = |us| states.iter().filter(move |it| it.0 >= us);
    let is_quiet = |it: &&(u64, [bool; 4])| it.1 == QUIET;
    let before = states.iter().rfind(|it| it.0 < LOAD_US);
    console.demand(
        before.as_ref().is_some_and(is_quiet),
        "a core is on before the load",
    );
    let first = from(LOAD_US).map(|it| it.0).next().unwrap_or(0);
    let all = from(first).find(|it| it.1 == [false; 4]).map(|it| it.0);
    console.demand(
        all.is_some_and(|us| us <= first + BACK_US),
        "not all cores have come back at once",
    );
    console.demand(
        from(first + BACK_US).any(|it| is_quiet(&it)),
        "a core is on after the load",
    );
}

/// Linux turns its CPUs off and on, and has all of them busy, while cores go off and come back: it finds nothing wrong. Not fewer than two cores are on,
/// and not more than three.
#[test]
fn power_saving_with_bounds() {
    let console = Boot::new("power_saving_with_bounds")
        .policy("steal")
        .cores(4)
        .memory_mib(1024)
        .power("saving", Some("2..3"))
        .exact()
        .guest(rt("period=1ms load=10% burst=1ms duration=6s"))
        .guest(linux("all", "-g,1,-l,20", &[0, 1, 2, 3]))
        .run();
    console
        .linux_is_well("linux", "selfcheck")
        .linux_is_well("linux", "hackbench");
    let latency = console.longest_wait("rt");
    console.demand(latency <= LATENCY, &format!("latency {latency}"));
    let states = states(&console);
    println!("{states:?}");
    // The fourth core goes off at the start.
    let counts = states
        .iter()
        .map(|it| it.1.iter().filter(|off| **off).count());
    let counts: Vec<_> = counts.collect();
    console.demand(
        counts.iter().all(|count| (1..=2).contains(count)),
        "the bounds do not hold",
    );
    console.demand(counts.contains(&2), "no core has gone off");
}

/// The vCPUs of these guests move, turn each other on and off, and reset their guest. Meanwhile cores go off and come back.
#[test]
fn power_of_guests_that_start_and_stop() {
    let mut machine = Boot::new("power_of_guests_that_start_and_stop")
        .policy("steal")
        .power("balanced", None)
        .cores(4)
        .memory_mib(1024)
        .guest(rt("period=1ms load=60% burst=5ms duration=60s"))
        .guest(
            probe("lives", "suite=lives", &[0, 1, 2])
                .priority(90)
                .memory("8MiB"),
        )
        .guest(probe(
            "sleeper",
            "suite=watch ms=4000 seed=2 sleep=1",
            &[1, 2, 3, 1],
        ))
        .guest(probe("psci", "suite=psci", &[3, 2, 1]))
        .guest(probe("timer", "suite=timer", &[2, 3, 1]))
        .start();
    machine.wait_until("30 lives", |console| {
        console.expect_not("lives", "FAIL");
        console.count("lives", "life-ok") >= 30
    });
    for guest in ["sleeper", "psci", "timer"] {
        machine.wait_for("spumone", &format!("guest {guest} is off"));
    }
    machine.type_until("q", "spumone", "guest lives is off");
    // The status says so; on a host that is not busy, all but two cores are off soon.
    machine.type_until(&format!("{ESCAPE}s"), "spumone", ", off");
    machine
        .finish()
        .probe_is_well("sleeper")
        .probe_is_well("psci")
        .probe_is_well("timer")
        .expect_not("rt", "rt-fault:")
        .expect_not("lives", "FAIL");
}
