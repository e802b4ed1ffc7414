// SPDX-License-Identifier: MIT OR Apache-2.0
//! Protected memory of guests: a device of another guest changes it by DMA, which nothing confines.

use boot_tests::{Boot, Console, ESCAPE, Guest, linux, probe, rt};

/// Where the attacked guest is on the machine, and where the other one is.
const VICTIM: u64 = 0x4800_0000;
const ATTACKER: u64 = 0x5000_0000;
/// The guests see their memory here.
const SEEN_AT: u64 = 0x4000_0000;
/// The first protected page: FreeRTOS and the probe are linked there.
const IMAGE: u64 = 0x4020_0000;

/// A guest on core 1 that attacks pages of the image of the guest at [`VICTIM`].
fn attacker(pages: u64, count: u64, every_us: u64) -> Guest {
    let (target, offset) = (VICTIM + IMAGE - SEEN_AT, ATTACKER - SEEN_AT);
    let bootargs = format!(
        "suite=dma target={target:#x} pages={pages} offset={offset:#x} count={count} every={every_us}"
    );
    probe("attacker", &bootargs, &[1])
        .at(ATTACKER)
        .devices(&["virtio0"])
}

fn boot(name: &str, cores: usize) -> Boot {
    Boot::new(name)
        .cores(cores)
        .exact()
        .hides_dma()
        .qemu(["-device", "virtio-rng-device"])
}

/// The pages that were attacked, and those that were found, as the victim sees them.
fn pages(console: &Console) -> [Vec<u64>; 2] {
    let hex = |line: &str, before: &str| {
        let digits = line.split(before).nth(1)?;
        let digits = digits.strip_prefix("0x")?;
        let end = digits.find(|it: char| !it.is_ascii_hexdigit());
        u64::from_str_radix(&digits[..end.unwrap_or(digits.len())], 16).ok()
    };
    let attacked = console.lines("attacker");
    let attacked = attacked.filter_map(|line| hex(line, " page="));
    let attacked = attacked.map(|page| page - VICTIM + SEEN_AT).collect();
    let found = console.lines("spumone");
    let found = found
        .filter_map(|line| hex(line, ": the page at "))
        .collect();
    [attacked, found]
}

/// FreeRTOS is attacked three times. Each time its memory is restored, and it begins again; at last it ends well.
#[test]
fn protect_freertos_is_healed_after_each_attack() {
    let console = boot("protect_freertos_is_healed_after_each_attack", 3)
        .guest(
            rt("period=1ms load=10% duration=400ms")
                .memory("4MiB")
                .at(VICTIM)
                .protected("50ms"),
        )
        .guest(attacker(21, 3, 150_000))
        .guest(probe("other", "suite=watch ms=800 seed=3", &[2]))
        .run();
    let [attacked, found] = pages(&console);
    console
        .demand(attacked.len() == 3, "three attacks")
        .demand(attacked == found, &format!("{attacked:x?}: {found:x?}"))
        .demand(
            console.count("spumone", "guest rt restarts") == 3,
            "restarts",
        )
        .rt_is_well("rt")
        .probe_is_well("other")
        .machine_ended();
}

/// Beside a Linux on the same cores, which boots and works meanwhile.
#[test]
fn protect_freertos_is_healed_beside_a_linux_that_works() {
    let console = boot("protect_freertos_is_healed_beside_a_linux_that_works", 2)
        .policy("steal")
        .memory_mib(1024)
        .limit(600)
        .guest(
            rt("period=1ms load=10% duration=1500ms")
                .memory("4MiB")
                .at(VICTIM)
                .protected("50ms"),
        )
        .guest(attacker(21, 8, 400_000))
        .guest(linux("hackbench", "-g,1,-l,200", &[0, 1]))
        .run();
    let [attacked, found] = pages(&console);
    console
        .demand(attacked.len() == 8, "eight attacks")
        .demand(attacked == found, &format!("{attacked:x?}: {found:x?}"))
        .rt_is_well("rt")
        .linux_is_well("linux", "hackbench")
        .machine_ended();
}

/// The attacker and another guest keep all cores busy, so that none idles: memory is checked in their time.
#[test]
fn protect_freertos_is_healed_although_no_core_idles() {
    let console = boot("protect_freertos_is_healed_although_no_core_idles", 2)
        .guest(
            rt("period=1ms load=10% duration=400ms")
                .memory("4MiB")
                .at(VICTIM)
                .protected("20ms"),
        )
        .guest(attacker(21, 2, 150_000))
        .guest(probe("busy", "suite=spin all=1 ms=900", &[0, 1]))
        .run();
    let [attacked, found] = pages(&console);
    console
        .demand(attacked.len() == 2, "two attacks")
        .demand(attacked == found, &format!("{attacked:x?}: {found:x?}"))
        .rt_is_well("rt")
        .machine_ended();
}

/// Numbers behind `us=` in the lines of a guest.
fn times(console: &Console, guest: &str, start: &str) -> Vec<u64> {
    let lines = console.lines(guest);
    let lines = lines.filter(|line| line.starts_with(start));
    lines
        .filter_map(|line| line.split("us=").nth(1)?.trim().parse().ok())
        .collect()
}

/// How long a round takes, in milliseconds.
const ROUND_MS: u64 = 5;
/// From an attack until the victim runs again, in microseconds: a round, the aim of 10 ms, and loading 4 MiB.
const MAX_HEALED_US: u64 = ROUND_MS * 1000 + 10_000 + 10_000;

/// A guest is attacked at random places of its code and constants. Each time it starts again, and soon. `flips.rs` attacks more often.
#[test]
fn protect_heals_a_guest_wherever_it_is_attacked() {
    const COUNT: u64 = 8;
    const EVERY_US: u64 = 40_000;
    const MS: u64 = COUNT * EVERY_US / 1000;
    let name = "protect_heals_a_guest_wherever_it_is_attacked";
    let victim = probe("victim", &format!("suite=victim ms={}", 2 * MS), &[0])
        .memory("4MiB")
        .at(VICTIM)
        .on_stop("restart")
        .protected(&format!("{ROUND_MS}ms"));
    // The victim sleeps on, so the machine is stopped at a time.
    let console = boot(name, 3)
        .exact_until_us((MS + 200) * 1000)
        .guest(victim)
        .guest(attacker(60, COUNT, EVERY_US))
        .guest(probe("other", &format!("suite=watch ms={MS} seed=3"), &[2]))
        .run();
    let [attacked, found] = pages(&console);
    let restarts = console.count("spumone", "guest victim restarts");
    let text = format!(
        "{} attacks, {} found, {restarts} restarts",
        attacked.len(),
        found.len()
    );
    console
        .demand(
            attacked.len() as u64 == COUNT && restarts as u64 == COUNT,
            &text,
        )
        // If the victim has executed what was written, it may have been stopped before.
        .demand(found.len() as u64 >= COUNT - 1, &text)
        .demand(found.iter().all(|page| attacked.contains(page)), &text)
        .probe_is_well("other");
    let alive = times(&console, "victim", "victim us=");
    let healed = times(&console, "attacker", "attack ")
        .into_iter()
        .map(|attack| {
            let next = alive.iter().find(|&&at| at > attack);
            next.map_or(u64::MAX, |at| at - attack)
        });
    let healed: Vec<_> = healed.collect();
    let longest = healed.iter().max().copied().unwrap_or(0);
    let mean = healed.iter().sum::<u64>() / COUNT;
    println!("{text}; from an attack until the victim runs again: {mean} us, at most {longest} us");
    console.demand(
        longest <= MAX_HEALED_US,
        &format!("{longest} us until it runs again"),
    );
}

/// Stage 2 refuses the write of a guest to its own code. It is loaded again, up to its limit.
#[test]
fn protect_a_guest_cannot_write_its_code() {
    let at = IMAGE + 0x1004;
    let bootargs = format!("suite=victim write={at:#x}");
    let console = Boot::new("protect_a_guest_cannot_write_its_code")
        .cores(2)
        .guest(
            probe("victim", &bootargs, &[0])
                .memory("4MiB")
                .protected_with_limit("1s", 3),
        )
        .guest(probe("other", "suite=watch ms=300 seed=3", &[1]))
        .run();
    console
        .expect_not("victim", "FAIL")
        .demand(
            console.count("spumone", "guest victim stopped: vcpu 0") == 4,
            "four lives",
        )
        .demand(
            console.count("spumone", "guest victim restarts") == 3,
            "three restarts",
        )
        .expect("spumone", &format!("ipa={at:#x}"))
        .expect(
            "spumone",
            "guest victim was stopped: it has ended more often",
        )
        .probe_is_well("other")
        .machine_ended();
}

#[test]
fn protect_the_operator_sees_how_long_a_round_takes() {
    let mut machine = Boot::new("protect_the_operator_sees_how_long_a_round_takes")
        .cores(2)
        .guest(rt("period=10ms load=10% duration=100000s").protected("20ms"))
        .start();
    machine.wait_for("rt", "period 10 ms");
    let status = " protected pages checked in ";
    machine.type_until(&format!("{ESCAPE}s"), "spumone", "ms, round 3");
    machine.type_keys(&format!("{ESCAPE}xx"));
    machine.finish().expect("spumone", status);
}

/// FreeRTOS with these arguments runs from so much local memory, which has room for fewer pages than it uses, and notices nothing but time.
fn runs_from_local_memory(name: &str, bootargs: &str, memory: &str) {
    let console = boot(name, 2)
        .guest(rt(bootargs).memory("4MiB").in_local_memory(memory))
        .guest(probe("other", "suite=watch ms=900 seed=3", &[1]))
        .run();
    console
        .rt_is_well("rt")
        .probe_is_well("other")
        .machine_ended();
}

#[test]
fn protect_freertos_runs_from_local_memory() {
    let name = "protect_freertos_runs_from_local_memory";
    runs_from_local_memory(name, "period=1ms load=10% duration=1s", "256KiB");
}

#[test]
fn protect_freertos_runs_from_little_local_memory() {
    let name = "protect_freertos_runs_from_little_local_memory";
    runs_from_local_memory(name, "period=10ms load=10% duration=1s", "128KiB");
}

/// The same, beside a guest with a device that changes pages of FreeRTOS in main memory. EL2 finds each change before FreeRTOS reads the page.
#[test]
fn protect_freertos_in_local_memory_never_reads_what_was_changed() {
    let name = "protect_freertos_in_local_memory_never_reads_what_was_changed";
    let console = boot(name, 3)
        .guest(
            rt("period=10ms load=10% duration=400ms")
                .memory("4MiB")
                .at(VICTIM)
                .in_local_memory("128KiB"),
        )
        .guest(attacker(21, 12, 50_000))
        .guest(probe("other", "suite=watch ms=900 seed=3", &[2]))
        .run();
    let [attacked, found] = pages(&console);
    let text = format!("attacked {attacked:x?}, found {found:x?}");
    console
        .demand(attacked.len() == 12, &text)
        .demand(!found.is_empty(), &text)
        .demand(found.iter().all(|page| attacked.contains(page)), &text)
        .demand(
            console.count("spumone", "guest rt restarts") == found.len(),
            "a restart for each page that was found",
        )
        .rt_is_well("rt")
        .probe_is_well("other")
        .machine_ended();
}
