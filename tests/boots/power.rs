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
/// which is never late. All other cores are off before the load, and 10 ms after it. `back_us`: how long it may take from the first core that comes
/// back to the last one.
fn cores_follow_a_load(name: &str, mode: &str, back_us: u64) {
    const LOAD_US: u64 = 4_000_000;
    const LENGTH_US: u64 = 500_000;
    const AFTER_US: u64 = 10_000;
    let console = Boot::new(name)
        .policy("steal")
        .cores(4)
        .memory_mib(1024)
        .power(mode, None)
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
        all.is_some_and(|us| us <= first + back_us),
        "not all cores have come back in time",
    );
    let end = first + LENGTH_US;
    console.demand(
        from(end - AFTER_US).any(|it| it.0 <= end + AFTER_US && is_quiet(&it)),
        "a core is on after the load",
    );
}

/// vCPUs that have waited for 0.5 ms call a core each, so all are on within 2 ms.
#[test]
fn power_balanced_follows_a_load() {
    cores_follow_a_load("power_balanced_follows_a_load", "balanced", 1_500);
}

/// The governor sees in windows of 2 ms that one more core is needed.
#[test]
fn power_saving_follows_a_load() {
    cores_follow_a_load("power_saving_follows_a_load", "saving", 20_000);
}

/// A guest that may sets the modes while all guests idle, and the cores that are on follow; another guest finds no such call.
#[test]
fn power_modes_set_by_a_guest() {
    let console = Boot::new("power_modes_set_by_a_guest")
        .policy("steal")
        .cores(4)
        .power("performance", None)
        .exact()
        .guest(rt("period=1ms load=10% burst=1ms duration=2s"))
        .guest(probe("setter", "suite=power", &[0, 1, 2, 3]).sets_power())
        .guest(probe("other", "suite=power denied=1", &[0, 1]))
        .run();
    console.probe_is_well("setter").probe_is_well("other");
    let latency = console.longest_wait("rt");
    console.demand(latency <= LATENCY, &format!("latency {latency}"));
    let mut states = states(&console);
    println!("{states:?}");
    // No load changes the cores in between.
    states.retain(|it| it.1 == QUIET || it.1 == [false; 4]);
    let all: Vec<_> = states.iter().map(|it| it.1).collect();
    console.demand(
        all.starts_with(&[QUIET, [false; 4], QUIET]),
        "the cores do not follow the mode",
    );
    // `performance` does not wait for a window's end.
    console.demand(
        (95_000..105_000).contains(&(states[1].0 - states[0].0)),
        "the cores follow the mode late",
    );
}

/// Milliseconds from one change of the mode to the next one.
const BETWEEN_MS: u64 = 50;

/// On the exact clock, the real-time guest has this many periods, and Linux is busy and idles in turns. Meanwhile a guest changes the mode every 50 ms at
/// random. No period is lost or late, and Linux finds nothing wrong. `pieces`: how often Linux is busy. Each core that may go off does so, and comes back.
fn modes_change_at_random(name: &str, period_us: u64, periods: u64, pieces: u64) {
    let changes = periods * period_us / (BETWEEN_MS * 1000);
    let console = Boot::new(name)
        .policy("steal")
        .cores(4)
        .memory_mib(1024)
        .limit(3 * 3600)
        .power("performance", None)
        .exact()
        .guest(rt(&format!(
            "period={period_us}us load=30% burst=10ms samples={periods} histogram=off"
        )))
        .guest(linux(
            "duty",
            // 30 of 130 ms; the changes come at other times of each.
            &format!("threads=4,instructions=7500000,period=130000,count={pieces}"),
            &[0, 1, 2, 3],
        ))
        .guest(
            probe(
                "setter",
                &format!("suite=modes changes={changes} ms={BETWEEN_MS}"),
                // CPU 0 is at home on core 3, and may use every core.
                &[3, 0, 1, 2],
            )
            .sets_power(),
        )
        .run();
    console
        .linux_is_well("linux", "duty")
        .probe_is_well("setter");
    let latency = console.longest_wait("rt");
    let measured = console.number("rt", "rt-result", "periods");
    let set = |key| console.number("setter", "modes-result", key);
    let modes = ["performance", "balanced", "saving"].map(set);
    println!("{measured} periods, longest wait {latency}; {changes} changes: {modes:?}");
    console
        .demand(measured == periods, "periods are missing")
        .demand(latency <= LATENCY, &format!("latency {latency}"))
        .demand(set("changes") == changes, "changes are missing")
        .demand(modes.iter().all(|&times| times > 0), "a mode was never set");
    for (mark, what) in [
        (OFF, "goes off"),
        (ON, "comes back"),
        (TURN_OFF, "is turned off"),
        (TURNED_ON, "is turned on"),
    ] {
        let cores: Vec<_> = console.marks(mark).into_iter().map(|it| it.0).collect();
        let times = |core| cores.iter().filter(|&&it| it == core).count();
        println!("a core {what}: {:?}", [0, 1, 2, 3].map(times));
        for core in 1..4 {
            console.demand(times(core) > 0, &format!("core {core} never {what}"));
        }
    }
}

#[test]
fn power_modes_change_at_random() {
    modes_change_at_random("power_modes_change_at_random", 1000, 4_000, 8);
}

/// A million periods.
#[test]
#[ignore = "long"]
fn power_modes_change_for_a_million_periods() {
    let name = "power_modes_change_for_a_million_periods";
    modes_change_at_random(name, 100, 1_000_000, 740);
}

/// The same of 1 ms, in which modes change ten times as often.
#[test]
#[ignore = "long"]
fn power_modes_change_for_a_million_long_periods() {
    let name = "power_modes_change_for_a_million_long_periods";
    modes_change_at_random(name, 1000, 1_000_000, 7_650);
}

/// The operator chooses the modes, and the cores that are on follow.
#[test]
fn power_modes_set_by_keys() {
    let mut machine = Boot::new("power_modes_set_by_keys")
        .policy("steal")
        .cores(4)
        .power("performance", None)
        .guest(rt("period=10ms load=10% burst=1ms duration=60s"))
        .guest(probe("echo", "suite=echo", &[0, 1, 2, 3]))
        .start();
    let status = format!("{ESCAPE}s");
    let off = |console: &Console| {
        let lines = console.lines("spumone").filter(|it| it.contains("core "));
        let last: Vec<_> = lines.map(|it| it.ends_with(", off")).collect();
        last.rchunks_exact(4)
            .next()
            .map_or(4, |it| it.iter().filter(|off| **off).count())
    };
    machine.type_until(&status, "spumone", "power mode: performance");
    machine.type_keys(&format!("{ESCAPE}px"));
    machine.wait_for("spumone", "no such power mode");
    machine.type_keys(&format!("{ESCAPE}ps"));
    machine.wait_for("spumone", "power mode: saving");
    machine.type_until(&status, "spumone", "core 3: idle 100.0 %, off");
    let statuses = |console: &Console| console.count("spumone", "core 3:");
    machine.type_keys(&format!("{ESCAPE}pp"));
    machine.wait_until("performance", |console| {
        console.count("spumone", "power mode: performance") >= 2
    });
    // Cores come on soon, but not before the first status.
    let all_are_on = (0..50).any(|_| {
        let before = statuses(&machine.console());
        machine.type_keys(&status);
        let console = machine.wait_until("the status", |console| statuses(console) > before);
        off(&console) == 0
    });
    let console = machine.console();
    console.demand(all_are_on, "a core is off in `performance`");
    machine.type_keys(&format!("{ESCAPE}pb"));
    machine.wait_for("spumone", "power mode: balanced");
    machine.type_keys(&format!("{ESCAPE}xx"));
    machine.finish().expect("spumone", "the machine goes off");
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

/// A real-time guest keeps the console's core for longer than the console waits: the console's duties and the governor's decisions add little to its latency.
#[test]
fn power_of_a_guest_that_keeps_the_core() {
    let waits = ["performance", "changes"].map(|what| {
        let name = format!("power_of_a_guest_that_keeps_the_core_{what}");
        let boot = Boot::new(&name)
            .policy("steal")
            .cores(4)
            .exact()
            .guest(rt("period=1ms load=60% burst=500ms duration=1s"));
        let boot = match what {
            "changes" => boot
                .power("performance", None)
                .guest(probe("setter", "suite=modes changes=20", &[3, 0, 1, 2]).sets_power()),
            mode => boot.power(mode, None),
        };
        let console = boot
            .guest(probe("spin", "suite=spin ms=800", &[1, 2, 3, 0]))
            .run();
        // They are made all the same.
        let made = [OFF, ON].map(|mark| !console.marks(mark).is_empty());
        let changes = what == "changes";
        console.demand(made == [changes; 2], "the cores do not follow the mode");
        console.longest_wait("rt")
    });
    println!("longest wait {waits:?}");
    assert!(waits[1] <= waits[0] + 500, "{waits:?}");
    // It waits for no duty of the console together with an interrupt of its timer: that would be 1,700 and more.
    assert!(waits.iter().all(|&it| it < 1_300), "{waits:?}");
}
