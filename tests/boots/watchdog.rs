// SPDX-License-Identifier: MIT OR Apache-2.0
//! Watchdogs of guests: a guest that hangs starts again in time, and the others lose nothing (exact clock).

use boot_tests::{Boot, Console, ESCAPE, Guest, environment, linux, probe, rt};

/// How much later than its timeout a guest may have stopped, in microseconds.
const LATE_US: u64 = 1_000;
const SECOND_US: u64 = 1_000_000;

/// The ends of a guest's lives in the health log that was printed last, in microseconds of the system counter: the last ones.
fn ends(console: &Console, guest: &str) -> Vec<(u64, u64)> {
    let what = format!(" of guest {guest} ended: its watchdog expired");
    let lines = console.lines("spumone");
    let ends = lines.filter_map(|line| {
        let (seconds, rest) = line.strip_prefix("at ")?.split_once(" s life ")?;
        let life = rest.strip_suffix(&what)?.parse().ok()?;
        let (whole, part) = seconds.split_once('.')?;
        let (whole, part): (u64, u64) = (whole.parse().ok()?, part.parse().ok()?);
        Some((life, whole * SECOND_US + part))
    });
    let mut ends: Vec<_> = ends.collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// The health log has the last 16 ends: it is printed more often than that.
const LIVES_A_LOG: usize = 8;

/// Boots a guest that hangs beside another one, until it has hung in `lives` lives and the other one has printed its `result`. Checks that
/// each life ended in time.
fn hangs(boot: Boot, hung: Guest, lives: usize, (other, result): (&str, &str)) -> Console {
    let mut machine = boot.guest(hung.named("hung")).start();
    let logs = (LIVES_A_LOG..lives).step_by(LIVES_A_LOG).chain([lives]);
    for ended in logs {
        machine.wait_until(&format!("{ended} lives"), |console| {
            has_ended(console, ended)
        });
        let end = format!("s life {ended} of guest hung ended");
        machine.type_until(&format!("{ESCAPE}s"), "spumone", &end);
        println!("{ended} lives");
    }
    machine.wait_for(other, result);
    // So its line is whole.
    machine.wait_for("spumone", &format!("guest {other} is off"));
    machine.type_keys(&format!("{ESCAPE}xx"));
    let console = machine.finish();
    let ends = ends(&console, "hung");
    let are_known = (1..=lives as u64).all(|life| ends.iter().any(|it| it.0 == life));
    console.demand(are_known, "the health log lacks a life");
    for (petted, &(life, ended)) in petted(&console).into_iter().zip(&ends) {
        let took = ended - petted;
        // The guest reads the counter after its call.
        let is_in_time = (SECOND_US - LATE_US..SECOND_US + LATE_US).contains(&took);
        console.demand(is_in_time, &format!("life {life} took {took} us"));
    }
    console
}

/// Whether so many lives have ended.
fn has_ended(console: &Console, lives: usize) -> bool {
    console.expect_not("hung", "FAIL");
    console.count("spumone", "guest hung restarts: its watchdog has expired") >= lives
}

#[test]
fn a_guest_that_spins_with_interrupts_masked_starts_again_beside_freertos() {
    let boot = Boot::new("a_guest_that_spins_with_interrupts_masked_starts_again_beside_freertos")
        .policy("steal")
        .cores(2)
        .exact()
        .guest(rt("period=1ms load=10% duration=3s"));
    let hung = probe("hung", "suite=watchdog timeout=1 pets=1", &[1, 0])
        .priority(100)
        .watched("10s");
    let console = hangs(boot, hung, 2, ("rt", "rt-result"));
    console.rt_is_well("rt");
}

#[test]
fn a_real_time_guest_that_hangs_starts_again_beside_another_guest() {
    let boot = Boot::new("a_real_time_guest_that_hangs_starts_again_beside_another_guest")
        .policy("steal")
        .cores(2)
        .exact()
        .guest(probe("good", "suite=watch ms=2000 seed=4", &[1, 0]).priority(100));
    let hung = probe("hung", "suite=watchdog timeout=1", &[0])
        .priority(200)
        .watched("10s");
    let console = hangs(boot, hung, 2, ("good", "probe-result"));
    console.probe_has_passed("good");
}

#[test]
fn freertos_that_hangs_starts_again_beside_another_guest() {
    let boot = Boot::new("freertos_that_hangs_starts_again_beside_another_guest")
        .policy("steal")
        .cores(2)
        .exact()
        .guest(probe("good", "suite=watch ms=2500 seed=4", &[1, 0]).priority(100));
    let hung = rt("period=1ms load=10% duration=0 watchdog=1s hang=50ms")
        .priority(200)
        .watched("10s");
    let console = hangs(boot, hung, 2, ("good", "probe-result"));
    console.probe_has_passed("good");
}

#[test]
fn a_guest_that_sleeps_with_interrupts_masked_starts_again_beside_freertos() {
    let boot = Boot::new("a_guest_that_sleeps_with_interrupts_masked_starts_again_beside_freertos")
        .policy("none")
        .exact()
        .guest(rt("period=1ms load=50% duration=3s"));
    let hung = probe("hung", "suite=watchdog timeout=1 hang=wfi", &[0])
        .priority(100)
        .watched("10s");
    let console = hangs(boot, hung, 2, ("rt", "rt-result"));
    console.rt_is_well("rt");
}

#[test]
fn a_watchdog_that_is_turned_off_ends_no_life() {
    Boot::new("a_watchdog_that_is_turned_off_ends_no_life")
        .exact()
        .guest(probe("calm", "suite=watchdog pets=3 hang=off", &[0]).watched("2s"))
        .run()
        .probe_is_well("calm")
        .expect_not("spumone", "restarts")
        .machine_ended();
}

/// Debian's kernel with its own driver.
#[test]
fn a_linux_that_panics_starts_again_beside_freertos() {
    let boot = Boot::new("a_linux_that_panics_starts_again_beside_freertos")
        .policy("steal")
        .cores(3)
        .memory_mib(1024)
        .exact()
        .limit(600)
        .guest(rt("period=1ms load=10% duration=6s"));
    let console = hangs(boot, linux_that_panics("1s"), 2, ("rt", "rt-result"));
    console
        .expect("hung", "linux-hangs timeout=1 identity=arm_smc_wdt")
        .rt_is_well("rt");
}

/// Debian's kernel opens the watchdog, and panics. On two cores, so that its vCPUs need not wait for the real-time guest: that time does not count.
fn linux_that_panics(timeout: &str) -> Guest {
    linux("hang", "seconds=0", &[1, 2])
        .initrd("initrd-share.cpio")
        .watched(timeout)
}

/// A guest counts as stolen what the real-time guest takes: half of the time.
#[test]
fn a_guest_reads_its_stolen_time_and_cannot_write_it() {
    for (policy, cores) in [("none", 1), ("steal", 2)] {
        let name = "a_guest_reads_its_stolen_time_and_cannot_write_it";
        let homes = [0, 1];
        let mut boot = Boot::new(&format!("{name}_{policy}"))
            .policy(policy)
            .cores(cores)
            .exact()
            .guest(rt("period=1ms load=50% burst=10ms duration=1500ms"));
        if cores == 2 {
            // The vCPU of the other guest cannot stay there either.
            boot = boot.guest(probe("spin", "suite=spin ms=1400", &[1]).priority(100));
        }
        let console = boot
            .guest(
                probe("stolen", "suite=stolen ms=1000 write=1", &homes[..1])
                    .may_move_to(&homes[..cores])
                    .priority(100)
                    .reads_stolen_time(),
            )
            .run();
        console
            .expect("stolen", "PASS stolen")
            .expect("stolen", "stolen-write")
            .expect_not("stolen", "FAIL")
            .expect("spumone", "guest stolen stopped: vcpu 0")
            .rt_is_well("rt");
        let [stolen, least] =
            ["us", "gaps"].map(|it| console.number("stolen", "stolen-result", it));
        console.demand(least > 200_000 && stolen > 200_000, "little is stolen");
    }
}

/// `/proc/stat` of Linux has the time that the real-time guest takes: half of the time, and the switches.
#[test]
fn linux_counts_stolen_time() {
    let console = Boot::new("linux_counts_stolen_time")
        .policy("none")
        .memory_mib(1024)
        .exact()
        .limit(600)
        .guest(rt("period=1ms load=50% burst=10ms duration=12s"))
        .guest(linux("steal", "seconds=4", &[0]).reads_stolen_time())
        .run();
    console.linux_is_well("linux", "steal").rt_is_well("rt");
    let [steal, elapsed] =
        ["steal", "elapsed"].map(|it| console.number("linux", "linux-result", it));
    let permille = steal * 1000 / elapsed.max(1);
    console.demand(
        (495..=512).contains(&permille),
        &format!("{permille} of 1000 are stolen"),
    );
}

/// With time counted in instructions, on one thread of the host: 250 instructions/µs. A core that sleeps takes none of the host's time.
const COUNTED: [&str; 2] = ["-icount", "shift=2,sleep=off"];
/// On the exact clock, so many instructions in a microsecond: a guest that hangs executes them for a second in each life.
const SLOWLY: u64 = 50;
/// A life of the probe and of FreeRTOS is shorter.
const LIFE_MS: u64 = 1_100;

#[test]
#[ignore = "long"]
fn a_guest_starts_again_a_thousand_times_in_a_row() {
    let boot = Boot::new("a_guest_starts_again_a_thousand_times_in_a_row")
        .policy("steal")
        .cores(2)
        .qemu(COUNTED)
        .limit(7200)
        .guest(rt(&format!("period=10ms duration={}ms", lives() * LIFE_MS)));
    let hung = probe("hung", "suite=watchdog timeout=1 hang=wfi", &[1, 0])
        .priority(100)
        .watched("1s");
    hangs_often(boot, hung, ("rt", "rt-result")).rt_is_well("rt");
}

#[test]
#[ignore = "long"]
fn freertos_starts_again_a_thousand_times_in_a_row() {
    let bootargs = format!(
        "suite=watch sleep=1 slice=256 seed=4 ms={}",
        lives() * LIFE_MS
    );
    let boot = Boot::new("freertos_starts_again_a_thousand_times_in_a_row")
        .policy("steal")
        .cores(2)
        .exact_at(SLOWLY)
        .limit(7200)
        .guest(probe("good", &bootargs, &[1, 0]).priority(100));
    let hung = rt("period=1ms duration=0 watchdog=1s hang=5ms")
        .priority(200)
        .watched("1s");
    hangs(boot, hung, lives() as usize, ("good", "probe-result")).probe_has_passed("good");
}

#[test]
#[ignore = "long"]
fn linux_starts_again_a_thousand_times_in_a_row() {
    /// Slightly longer than a life, in this machine's time: the other guest runs until the last one.
    const LIFE_MS: u64 = 9_200;
    let lives = lives();
    let boot = Boot::new("linux_starts_again_a_thousand_times_in_a_row")
        .policy("steal")
        .cores(3)
        .memory_mib(1024)
        .exact_at(SLOWLY)
        .limit(20_000)
        .guest(rt(&format!("period=10ms duration={}ms", lives * LIFE_MS)));
    hangs(
        boot,
        linux_that_panics("1s").that_starts_often(),
        lives as usize,
        ("rt", "rt-result"),
    )
    .rt_is_well("rt");
}

/// In how many lives a guest hangs at night.
fn lives() -> u64 {
    environment::number("SPUMONE_LIVES", 1_000)
}

/// Boots a guest that hangs in each of a thousand lives in a row, or as many as `SPUMONE_LIVES` says, until the other one has printed its result, too.
/// The health log has the last ends only, so the lives must be equally long: for guests that boot in the same time in each life.
fn hangs_often(boot: Boot, hung: Guest, result: (&str, &str)) -> Console {
    let lives = lives() as usize;
    let mut machine = boot.guest(hung.named("hung")).start();
    let console = machine.wait_until(&format!("{lives} lives"), |console| {
        has_ended(console, lives)
    });
    let petted = petted(&console);
    drop(console);
    machine.wait_for(result.0, result.1);
    machine.type_until(&format!("{ESCAPE}s"), "spumone", "of guest hung ended");
    machine.type_keys(&format!("{ESCAPE}xx"));
    let console = machine.finish();
    let between: Vec<u64> = petted.windows(2).map(|it| it[1] - it[0]).collect();
    if let (Some(shortest), Some(longest)) = (between.iter().min(), between.iter().max()) {
        println!("from one life to the next: {shortest} to {longest} us");
        console.demand(*shortest >= SECOND_US, "a life has ended early");
        console.demand(longest - shortest <= LATE_US, "a life has ended late");
    }
    console
}

/// When the watchdog was petted last in each life, in microseconds of the system counter.
fn petted(console: &Console) -> Vec<u64> {
    let lines = console.lines("hung");
    let times = lines.filter_map(|line| line.strip_prefix("watchdog-petted us="));
    times.filter_map(|us| us.parse().ok()).collect()
}
