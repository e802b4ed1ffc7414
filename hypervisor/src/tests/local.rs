// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests that run from local memory, beside a device that changes main memory.

use super::bench::Bench;
use super::systems::*;
use crate::fake::{self, Register, printed};
use spumone_config::GuestId;
use spumone_config::packed::{OnTamper, Policy, RestartLimit, System, Trigger};
use spumone_core::local::progress;
use spumone_core::psci::{Phase, StopReason};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

const PAGE: u64 = 0x1000;
const PAGES: u64 = 40;
const FRAMES: u64 = 16;
const RESTART: OnTamper = OnTamper::Restart(RestartLimit {
    most: 200,
    within_us: 1,
});

/// A guest on core 0 that runs from local memory; core 1 has another guest.
fn two_guests(on_tamper: OnTamper) -> System {
    beside_another(GuestParts::new(&[(0, 20)]).in_local_memory(PAGES, FRAMES, on_tamper))
}

fn beside_another(guest: GuestParts) -> System {
    let guests = [
        guest.with_spi(40, 50, Trigger::Edge),
        GuestParts::new(&[(1, 10)]),
    ];
    let mut system = system(2, Policy::Steal, &guests);
    system.guests[1].segments[0].list += 0x1000;
    system.guests[1].segments[0].offset += 0x1000;
    system
}

fn boot(has_sha256: bool) -> Bench {
    let mut parts = parts(&two_guests(RESTART));
    parts.has_sha256 = has_sha256;
    let mut bench = Bench::boot_parts(parts);
    bench.until_all_run();
    bench
}

/// The guest loads a byte of its memory, or stores it, and repeats the instruction until it is executed. `None`: it starts again.
fn uses(bench: &mut Bench, page: u64, store: Option<u8>) -> Option<u8> {
    let life = bench.life(0);
    for _ in 0..1000 {
        let got = Rc::new(RefCell::new(None));
        let place = Rc::clone(&got);
        bench.does(0, 0, move |cpu| {
            match cpu.uses(GUEST_MEMORY + page * PAGE + 9, store) {
                Ok(byte) => {
                    *place.borrow_mut() = Some(byte);
                    cpu.interrupted()
                }
                Err(exit) => exit,
            }
        });
        if let Some(byte) = got.take() {
            return Some(byte);
        }
        if bench.phase(0) != Phase::Running || bench.life(0) != life {
            return None;
        }
    }
    panic!("page {page} is never brought\n{}", bench.state());
}

/// As a device does that nothing confines: changes a byte of a page in main memory.
fn attack(page: u64) {
    fake::with(|machine| machine.memory.at(memory_of(0) + page * PAGE + 9, 1)[0] ^= 0x10);
}

fn brought(bench: &Bench) -> (u32, u32) {
    let guest = bench.machine.guest(GuestId(0));
    let progress = progress(&guest.config, &guest.local).unwrap();
    assert_eq!(
        (progress.frames, progress.pages),
        (FRAMES as u32, PAGES as u32)
    );
    (progress.brought, progress.written_back)
}

#[test]
fn pages_are_brought_and_written_back() {
    for has_sha256 in [true, false] {
        let mut bench = boot(has_sha256);
        assert_eq!(uses(&mut bench, 0, None), Some(IMAGE[9]));
        assert_eq!(brought(&bench), (1, 0));
        for page in 1..PAGES {
            assert_eq!(uses(&mut bench, page, Some(page as u8)), Some(page as u8));
        }
        for page in 1..PAGES {
            assert_eq!(uses(&mut bench, page, None), Some(page as u8));
        }
        let (brought, written) = brought(&bench);
        assert!(u64::from(brought) >= 2 * (PAGES - FRAMES), "{brought}");
        assert!(u64::from(written) >= PAGES - 1 - FRAMES, "{written}");
        assert_eq!(bench.life(0), 1);
        assert!(!printed().contains("has changed"), "{}", printed());
    }
}

#[test]
fn a_guest_never_reads_what_was_changed_in_main_memory() {
    let mut bench = boot(true);
    assert_eq!(uses(&mut bench, 30, Some(7)), Some(7));
    // It has this page here.
    attack(30);
    assert_eq!(uses(&mut bench, 30, None), Some(7));
    for page in 1..30 {
        let _ = uses(&mut bench, page, None);
    }
    // It was written back over the attack.
    assert_eq!(uses(&mut bench, 30, None), Some(7));
    attack(35);
    assert_eq!(uses(&mut bench, 35, None), None);
    bench.until("it runs again", |bench| {
        (bench.life(0), bench.phase(0)) == (2, Phase::Running)
    });
    bench.until("it is said", |_| printed().contains("guest0 restarts"));
    let message = "guest guest0: the page at 0x40023000, machine address 0x40223000, has changed";
    assert!(printed().contains(message), "{}", printed());
    // Nothing is left of the first life.
    assert_eq!(uses(&mut bench, 30, None), Some(0));
    assert_eq!(uses(&mut bench, 0, None), Some(IMAGE[9]));
    assert_eq!(bench.life(1), 1);
}

#[test]
fn a_guest_stays_stopped_if_its_description_says_so() {
    let mut bench = Bench::boot(&two_guests(OnTamper::Stop));
    bench.until_all_run();
    attack(3);
    assert_eq!(uses(&mut bench, 3, None), None);
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Tampered)
    });
}

/// Whether its page is in local memory or not, and whatever `on-fault` says.
#[test]
fn a_guest_with_aborts_that_writes_what_it_must_not_starts_again() {
    for is_there in [false, true] {
        let guest = GuestParts::new(&[(0, 20)]).in_local_memory(PAGES, FRAMES, RESTART);
        let mut bench = Bench::boot(&beside_another(guest.with_aborts()));
        bench.until_all_run();
        if is_there {
            assert_eq!(uses(&mut bench, 0, None), Some(IMAGE[9]));
        }
        assert_eq!(uses(&mut bench, 0, Some(1)), None);
        bench.until("it runs again", |bench| {
            (bench.life(0), bench.phase(0)) == (2, Phase::Running)
        });
    }
}

/// Code at start may invalidate all of its image, also what it cannot write.
#[test]
fn maintenance_of_the_cache_writes_nothing() {
    let mut bench = boot(true);
    assert_eq!(uses(&mut bench, 0, None), Some(IMAGE[9]));
    let after = bench.does_and_returns(0, 0, |cpu| {
        const MAINTENANCE: u64 = 1 << 8;
        cpu.registers.pc = GUEST_MEMORY;
        let exit = cpu.store_read_only(GUEST_MEMORY);
        let syndrome = cpu.get(Register::ESR_EL2);
        cpu.set(Register::ESR_EL2, syndrome | MAINTENANCE);
        exit
    });
    assert_eq!(after.pc, GUEST_MEMORY + 4);
    assert_eq!((bench.life(0), bench.phase(0)), (1, Phase::Running));
}

/// The core may use translations of its TLB although a page of the guest's stage 1 is there no more for a walk of EL2.
#[test]
fn a_write_whose_place_is_not_known_is_executed_again() {
    let mut bench = boot(true);
    assert_eq!(uses(&mut bench, 20, None), Some(0));
    let after = bench.does_and_returns(0, 0, |cpu| {
        cpu.registers.pc = GUEST_MEMORY;
        let exit = cpu.store_read_only(GUEST_MEMORY + 20 * PAGE);
        // EL2 translates an address that is nowhere.
        cpu.set(Register::FAR_EL2, 0x5000_0000);
        exit
    });
    assert_eq!(after.pc, GUEST_MEMORY);
    assert_eq!((bench.life(0), bench.phase(0)), (1, Phase::Running));
}

#[test]
fn a_guest_that_writes_what_it_must_not_starts_again() {
    let mut bench = boot(true);
    assert_eq!(uses(&mut bench, 0, Some(1)), None);
    bench.until("it runs again", |bench| {
        (bench.life(0), bench.phase(0)) == (2, Phase::Running)
    });
    bench.until("it is said", |_| printed().contains("ipa=0x40000009"));
}

#[test]
fn a_hash_that_was_changed_before_the_start_is_refused() {
    let system = two_guests(RESTART);
    let mut parts = parts(&system);
    parts.bundle[LOCAL_LIST_OFFSET as usize + 40] ^= 1;
    let mut bench = Bench::boot_parts(parts);
    bench.until("it is refused", |bench| {
        matches!(bench.phase(0), Phase::Stopped(StopReason::Unverified))
    });
}

/// The interrupt comes while a page is brought; the guest handles it, and the page comes after that.
#[test]
fn an_interrupt_does_not_wait_for_a_page() {
    let mut bench = boot(false);
    bench.opens_gic(0, 0, &[50]);
    let before = brought(&bench);
    bench.does(0, 0, |cpu| match cpu.uses(GUEST_MEMORY + 20 * PAGE, None) {
        Ok(_) => panic!("it is there"),
        Err(exit) => {
            fake::with(|machine| machine.gic.set_line(40, true));
            exit
        }
    });
    assert_eq!(brought(&bench), before);
    assert_eq!(bench.acknowledges(0, 0), 50);
    assert_eq!(brought(&bench), before);
    assert_eq!(uses(&mut bench, 20, None), Some(0));
}

/// Numbers that look random.
pub struct Random(pub u64);

impl Random {
    /// One below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// A device changes one page after the other. Each change is found before the guest reads the page, or is lost, since the guest has written
/// the page meanwhile. `SPUMONE_FLIPS`: how many changes.
#[test]
fn each_change_is_found_before_it_is_read() {
    /// After so many accesses, a change was most likely found, or lost.
    const ACCESSES: usize = 60;
    let changes: u64 = std::env::var("SPUMONE_FLIPS").map_or(2_000, |it| it.parse().unwrap());
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let mut bench = boot(true);
    let image = || {
        let mut pages = [0; PAGES as usize];
        pages[0] = IMAGE[9];
        pages
    };
    let (mut memory, mut found) = (image(), 0);
    let mut attacked = BTreeSet::new();
    for _ in 0..changes {
        let page = random.below(PAGES);
        attack(page);
        attacked.insert(page);
        for _ in 0..ACCESSES {
            let page = random.below(PAGES);
            let writes = page != 0 && random.below(8) == 0;
            let store = writes.then(|| random.below(256) as u8);
            if let Some(byte) = uses(&mut bench, page, store) {
                memory[page as usize] = store.unwrap_or(memory[page as usize]);
                assert_eq!(byte, memory[page as usize], "it reads what it has written");
                continue;
            }
            // It executes its first page, before it uses the other one.
            assert!(
                attacked.contains(&0) || attacked.contains(&page),
                "only what was changed is refused"
            );
            found += 1;
            let entered = bench.entry(0, 0).count;
            bench.until("it is entered again", |bench| {
                bench.entry(0, 0).count > entered
            });
            memory = image();
            attacked.clear();
            break;
        }
    }
    assert!(found > changes / 2, "{found} of {changes} were found");
}
