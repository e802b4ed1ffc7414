// SPDX-License-Identifier: MIT OR Apache-2.0
//! A device of another guest changes protected memory again and again, soon after the guest that it belongs to lives again. Each change is found,
//! the guest starts again, and other guests on the same cores notice nothing.

use boot_tests::{Boot, Console, ESCAPE, Guest, environment, probe, victim};

/// Where the attacked guest is on the machine, and where the other one is.
const VICTIM: u64 = 0x4800_0000;
const ATTACKER: u64 = 0x5000_0000;
/// The guests see their memory here.
const SEEN_AT: u64 = 0x4000_0000;
/// The victim's pages that do not change (`tests/guests/victim.ld`): its code, and its constants.
const CODE: u64 = 0x4001_0000;
const CONSTANTS: u64 = 0x4001_2000;
const CONSTANTS_END: u64 = 0x4001_E000;
const PAGE: u64 = 0x1000;

/// From the end of a life to the first period of the next one, in microseconds. Copying the victim is part of it.
const MAX_ALIVE_US: u64 = 10_000;
const ROUND_MS: u64 = 2;
/// A change is found a round after the attack at the latest.
const MAX_FOUND_US: u64 = ROUND_MS * 1000;
/// Of so many changes, one may have ended the guest before it was found, since the guest has executed it.
const EXECUTED: usize = 25;

/// The variable that says how many attacks the long boots make, and how many they make without it.
const ATTACKS: &str = "SPUMONE_ATTACKS";
const MANY: u64 = 2_000;

/// A change that was made.
struct Attack {
    life: u64,
    page: u64,
    /// After how many microseconds that life had ended, if it had before the next attack.
    ended: Option<u64>,
}

/// What has become of changes in memory of a guest.
struct Flips {
    name: &'static str,
    console: Console,
    attacks: Vec<Attack>,
    /// The pages that the hypervisor has found, in this order.
    found: Vec<u64>,
    /// From the end of a life to the first period of the next one, in microseconds.
    alive: Vec<u64>,
}

/// Attacks `victim` until it has ended `count` times; another `count` means other places. `attacks`: how, for the suite `flips`.
fn flips(name: &'static str, victim: Guest, attacks: &str, count: u64) -> Flips {
    let (target, offset) = (VICTIM + CODE - SEEN_AT, ATTACKER - SEEN_AT);
    let bootargs = format!(
        "suite=flips target={target:#x} offset={offset:#x} count={count} seed={count} {attacks}"
    );
    let attacker = probe("attacker", &bootargs, &[1])
        .at(ATTACKER)
        .priority(150)
        .devices(&["virtio0"]);
    // One guest on each core. The first ends after the attacker, the second after the first.
    let other = |name, core| {
        let bootargs = format!("suite=watch sleep=1 slice=256 link=1 ms=1000000000 seed={core}");
        probe(name, &bootargs, &[core])
    };
    let console = Boot::new(name)
        .cores(2)
        .exact()
        .hides_dma()
        .qemu(["-device", "virtio-rng-device"])
        .limit(120 + count / 5)
        .guest(victim.at(VICTIM).restarts_without_limit())
        .guest(attacker)
        .guest(other("one", 0))
        .guest(other("two", 1))
        .memory_link("victim", "attacker")
        .memory_link("attacker", "one")
        .memory_link("one", "two")
        .start()
        .finish_by("guest two is off", &format!("{ESCAPE}xx"));
    let lines = || console.lines("attacker");
    let flips = Flips {
        name,
        attacks: lines().filter_map(Attack::read).collect(),
        found: console
            .lines("spumone")
            .filter_map(|line| number(line, "guest victim: the page at "))
            .collect(),
        alive: lines().filter_map(|line| number(line, " alive=")).collect(),
        console,
    };
    flips.check(count);
    flips
}

fn is_constant(page: u64) -> bool {
    (CONSTANTS..CONSTANTS_END).contains(&page)
}

/// The number behind `before`, decimal or after 0x.
fn number(line: &str, before: &str) -> Option<u64> {
    let (_, text) = line.split_once(before)?;
    let (text, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = text.find(|it: char| !it.is_digit(radix));
    u64::from_str_radix(&text[..end.unwrap_or(text.len())], radix).ok()
}

fn mean_and_most(numbers: impl Iterator<Item = u64> + Clone) -> String {
    let (count, most) = (numbers.clone().count(), numbers.clone().max());
    let mean = numbers.sum::<u64>() / (count as u64).max(1);
    format!("{mean} us on average, at most {} us", most.unwrap_or(0))
}

impl Attack {
    fn read(line: &str) -> Option<Self> {
        Some(Self {
            life: number(line, " life=")?,
            page: number(line, " page=")? - VICTIM + SEEN_AT,
            ended: number(line, " ended="),
        })
    }
}

impl Flips {
    /// The time from an attack to the end of the life, in microseconds, for each attack that ended one.
    fn ended(&self) -> impl Iterator<Item = u64> + Clone {
        self.attacks.iter().filter_map(|attack| attack.ended)
    }

    /// A number of what the attacker has counted.
    fn result(&self, key: &str) -> u64 {
        self.console.number("attacker", "flips-result", key)
    }

    /// Says what came out, and demands what holds in any case: the attacker has ended `count` lives, the guest lives again soon each time, and
    /// the other guests are well.
    fn check(&self, count: u64) {
        let Self { name, console, .. } = self;
        let restarts = console.count("spumone", "guest victim restarts");
        println!(
            "{name}: {} attacks, {} found, {restarts} restarts",
            self.attacks.len(),
            self.found.len()
        );
        println!("from an attack to its end: {}", mean_and_most(self.ended()));
        let alive = self.alive.iter().copied();
        println!(
            "from its end to the next life's first period: {}",
            mean_and_most(alive.clone())
        );
        let ended = self.ended().count() as u64;
        console
            .demand(ended == count, &format!("{ended} attacks had an effect"))
            .demand(restarts as u64 + 1 == self.result("lives"), "restarts")
            .demand(alive.len() as u64 == count, "lives")
            .demand(alive.max() <= Some(MAX_ALIVE_US), "a life has begun late")
            .probe_is_well("attacker")
            .probe_is_well("one")
            .probe_is_well("two");
    }
}

/// Cores find what was changed, within a round: those that idle, or if none does, those that run the other guests.
fn by_hash(name: &'static str, count: u64) {
    let victim = victim().protected(&format!("{ROUND_MS}ms"));
    let pages = (CONSTANTS_END - CODE) / PAGE;
    let flips = flips(name, victim, &format!("pages={pages}"), count);
    let found = &flips.found;
    // Each life was attacked once. Those that ended otherwise are in between.
    let mut attacks = flips.attacks.iter();
    let stray = found
        .iter()
        .find(|&page| !attacks.any(|attack| attack.page == *page));
    let executed = flips.attacks.len() - found.len();
    // Only code can have been executed.
    let of_constants = flips.attacks.iter().filter(|it| is_constant(it.page));
    let of_constants = of_constants.count();
    let found_constants = found.iter().filter(|&&page| is_constant(page)).count();
    flips
        .console
        .demand(
            stray.is_none(),
            &format!("{stray:x?} was found and not attacked"),
        )
        .demand(
            of_constants == found_constants,
            &format!("{found_constants} of {of_constants} changes of constants were found"),
        )
        .demand(
            executed <= 1 + count as usize / EXECUTED,
            &format!("{executed} changes were not found"),
        )
        .demand(
            flips.ended().max() <= Some(MAX_FOUND_US),
            "a change was found late",
        );
}

/// The guest uses 19 pages, 3 more than local memory holds. It brings its constants again and again: each change there is found, before the guest has
/// read it. Two pages that it writes are attacked, too: what is changed there is found, or written over. So is a page of code, which may stay in local
/// memory.
fn in_local_memory(name: &'static str, count: u64) {
    const OWN_PAGES: u64 = 2;
    let victim = victim().in_local_memory("76KiB");
    let pages = (CONSTANTS_END - CODE) / PAGE + OWN_PAGES;
    let flips = flips(name, victim, &format!("pages={pages} used=1"), count);
    let kept = flips.attacks.iter().filter(|attack| attack.ended.is_none());
    let kept = kept.filter(|attack| is_constant(attack.page)).count();
    let mut attacks = flips.attacks.iter().peekable();
    let strays = (1..).zip(&flips.found).filter(|&(life, &page)| {
        let mut pages = Vec::new();
        while let Some(attack) = attacks.next_if(|attack| attack.life <= life) {
            pages.push(attack.page);
        }
        !pages.contains(&page)
    });
    let strays: Vec<_> = strays.collect();
    let (found, changes) = (flips.found.len() as u64, flips.result("changes"));
    flips
        .console
        .demand(found + 1 == flips.result("lives"), "ends for other reasons")
        .demand(
            strays.is_empty(),
            &format!("lives, and pages that were found and not attacked: {strays:x?}"),
        )
        .demand(
            changes == 0,
            &format!("the guest has read {changes} changed pages"),
        )
        .demand(
            kept == 0,
            &format!("{kept} changes of constants were not found"),
        );
}

#[test]
fn flips_by_hash() {
    by_hash("flips_by_hash", 100);
}

#[test]
fn flips_in_local_memory() {
    in_local_memory("flips_in_local_memory", 100);
}

/// More of them: as many as `SPUMONE_ATTACKS` says.
#[test]
#[ignore = "long"]
fn matrix_flips_by_hash() {
    let count = environment::number(ATTACKS, MANY);
    by_hash("matrix_flips_by_hash", count);
}

/// The same.
#[test]
#[ignore = "long"]
fn matrix_flips_in_local_memory() {
    let count = environment::number(ATTACKS, MANY);
    in_local_memory("matrix_flips_in_local_memory", count);
}
