// SPDX-License-Identifier: MIT OR Apache-2.0
//! Cores that go off when they are not needed, and come back.

use boot_tests::{Boot, Console, ESCAPE, Machine, linux, probe, rt};

/// Asks for the status once a second, until `done` holds for the lines about cores of the last one.
fn status_until(machine: &mut Machine, what: &str, cores: usize, done: impl Fn(&[&str]) -> bool) {
    let last = format!("core {}:", cores - 1);
    loop {
        let before = machine.console().count("spumone", &last);
        machine.type_keys(&format!("{ESCAPE}s"));
        let console = machine.wait_until(what, |console| {
            let mut whole = console
                .lines("spumone")
                .filter(|line| line.starts_with(&last));
            whole.nth(before).is_some_and(|line| line.contains("idle "))
        });
        let lines: Vec<_> = console
            .lines("spumone")
            .filter(|line| line.starts_with("core "))
            .collect();
        if done(&lines[lines.len() - cores..]) {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
}

/// Waits until exactly these cores are on.
fn wait_for_cores_on(machine: &mut Machine, on: &[usize], cores: usize) {
    let what = format!("cores {on:?} are on, and no other one");
    status_until(machine, &what, cores, |lines| {
        (0..)
            .zip(lines)
            .all(|(core, line)| line.ends_with(", off") != on.contains(&core))
    });
}

/// A guest has run on this core since the status before.
fn was_used(line: &str) -> bool {
    line.contains("linux ")
}

/// Core 0 stays on for the real-time guest. The others go off when Linux has nothing to do, and come back for a load; Linux turns its CPUs off and on
/// meanwhile, and finds nothing wrong.
fn cores_follow_the_load(name: &str, mode: &str, bounds: Option<&str>, on: &[usize]) {
    const CORES: usize = 4;
    let mut machine = Boot::new(name)
        .policy("steal")
        .power(mode, bounds)
        .cores(CORES)
        .memory_mib(1024)
        .guest(rt("period=1ms load=10% duration=0"))
        .guest(linux("shell", "", &[0, 1, 2, 3]).priority(100))
        .start();
    machine.wait_for("linux", "linux:");
    wait_for_cores_on(&mut machine, on, CORES);
    machine.type_keys("/scenarios/hackbench -g 1 -l 300\n");
    machine.wait_for("linux", "linux-result scenario=hackbench ok=1");
    status_until(&mut machine, "each core was used", CORES, |_| true);
    let console = machine.console();
    let used = console
        .lines("spumone")
        .filter(|line| line.starts_with("core ") && was_used(line))
        .count();
    console.demand(used >= CORES, "a core did not come back for the load");
    wait_for_cores_on(&mut machine, on, CORES);
    machine.type_keys("/scenarios/selfcheck\n");
    machine.wait_for("linux", "linux-result scenario=selfcheck ok=1");
    wait_for_cores_on(&mut machine, on, CORES);
    machine.type_keys("poweroff -f\n");
    machine.wait_for("spumone", "guest linux is off");
    wait_for_cores_on(&mut machine, on, CORES);
    machine.type_keys(&format!("{ESCAPE}x{ESCAPE}x"));
    let console = machine.finish();
    lost_nothing(&console);
}

/// FreeRTOS has lost no period so far.
fn lost_nothing(console: &Console) {
    console
        .expect_not("rt", "rt-fault:")
        .expect_not("rt", "rt-error:");
    let reports = console
        .lines("rt")
        .filter(|line| line.starts_with("rt-result"));
    let reports: Vec<_> = reports.collect();
    console.demand(!reports.is_empty(), "FreeRTOS has reported nothing");
    for report in reports {
        console.demand(
            report.contains(" lost=0 "),
            &format!("periods are lost: {report}"),
        );
    }
}

/// Marks of the exact clock: a core goes off, and comes back.
const OFF: u64 = 0xfe01;
const ON: u64 = 0xfe02;

/// When cores went off, and when they came back, in order of time.
fn changes(console: &Console) -> Vec<(u64, usize, bool)> {
    let of = |mark, is_off| {
        console
            .marks(mark)
            .into_iter()
            .map(move |(core, us)| (us, core, is_off))
    };
    let mut all: Vec<_> = of(OFF, true).chain(of(ON, false)).collect();
    all.sort_unstable();
    all
}

/// Instructions from the time a period is due to the first one of its task: as in `exact.rs`.
const LATENCY: u64 = 3_000;

/// On the exact clock, Linux starts and then idles, and a guest has all cores busy for half a second from about 4 s on. Core 0 stays on for FreeRTOS,
/// which is never late. All other cores go off before the load, come back for it within 10 ms, and go off after it.
#[test]
fn power_on_the_exact_clock() {
    const LOAD_US: u64 = 4_000_000;
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
    let (mut off, mut back) = ([false; 4], Vec::new());
    // When all but core 0 are off, and until when.
    let mut quiet = Vec::new();
    for (us, core, is_off) in changes(&console) {
        println!(
            "{us} us: core {core} is {}",
            if is_off { "off" } else { "on" }
        );
        if off == [false, true, true, true] && !is_off && us >= LOAD_US {
            back.push(us);
        }
        off[core] = is_off;
        if off == [false, true, true, true] {
            quiet.push(us);
        }
    }
    let _ = (back, quiet);
}

#[test]
fn power_balanced() {
    cores_follow_the_load("power_balanced", "balanced", None, &[0]);
}

#[test]
fn power_saving_with_bounds() {
    cores_follow_the_load("power_saving_with_bounds", "saving", Some("2..3"), &[0, 1]);
}

/// Guests whose vCPUs move, turn each other on and off, and reset their guest, on cores that go off and come back.
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
    wait_for_cores_on(&mut machine, &[0, 1], 4);
    machine
        .finish()
        .rt_is_well("rt")
        .probe_is_well("sleeper")
        .probe_is_well("psci")
        .probe_is_well("timer")
        .expect_not("lives", "FAIL");
}
