// SPDX-License-Identifier: MIT OR Apache-2.0
//! Guests whose memory must not change: it is checked while cores idle, and a guest whose memory has changed starts again.

use super::bench::Bench;
use super::guest::psci;
use super::local::Random;
use super::systems::*;
use super::timers::{TIMER, handles_its_timer, now, sleeps_for};
use crate::fake::{self, Register, printed};
use spumone_config::GuestId;
use spumone_config::packed::{OnTamper, Policy, RestartLimit, System, Trigger};
use spumone_core::psci::{Phase, StopReason};

/// How long a round is to take, in microseconds.
const ROUND_US: u32 = 1000;
const RESTART: OnTamper = OnTamper::Restart(RestartLimit {
    most: 2,
    within_us: 3_600_000_000,
});
/// As often as memory changes.
const UNLIMITED: OnTamper = OnTamper::Restart(RestartLimit {
    most: 200,
    within_us: 1,
});
const MESSAGE: &str =
    "guest guest0: the page at 0x40000000, machine address 0x40200000, has changed";

/// A protected guest on core 0, which never sleeps; core 1 has another guest, of this priority.
fn two_guests(on_tamper: OnTamper, other: u8) -> System {
    let guests = [
        GuestParts::new(&[(0, 20)]).protected(ROUND_US, on_tamper),
        GuestParts::new(&[(1, other)]).with_spi(40, 50, Trigger::Edge),
    ];
    let mut system = system(2, Policy::None, &guests);
    system.guests[1].segments[0].list += 0x1000;
    system.guests[1].segments[0].offset += 0x1000;
    system
}

fn rounds(bench: &Bench) -> u32 {
    let guest = bench.machine.guest(GuestId(0));
    guest.rounds.progress(&guest.pace).rounds
}

/// Boots; the guest on core 1 sleeps, and core 1 has checked the other one's memory.
fn checked(system: &System, has_sha256: bool) -> Bench {
    let mut parts = parts(system);
    parts.has_sha256 = has_sha256;
    let mut bench = Bench::boot_parts(parts);
    bench.until_all_run();
    bench.opens_gic(1, 0, &[50]);
    bench.does(1, 0, |cpu| cpu.wfi());
    bench.until("its memory is checked", |bench| rounds(bench) >= 2);
    assert!(!printed().contains("has changed"), "{}", printed());
    bench
}

/// As a device does that nothing confines.
fn attack() {
    fake::with(|machine| machine.memory.at(memory_of(0) + 3, 1)[0] ^= 0x10);
}

fn image(guest: usize) -> Vec<u8> {
    fake::with(|machine| machine.memory.at(memory_of(guest), IMAGE.len()).to_vec())
}

#[test]
fn a_guest_whose_memory_has_changed_starts_again_from_its_image() {
    for has_sha256 in [true, false] {
        let mut bench = checked(&two_guests(RESTART, 10), has_sha256);
        for life in 2..4 {
            attack();
            bench.until("it runs again", |bench| {
                (bench.life(0), bench.phase(0)) == (life, Phase::Running)
            });
            assert_eq!(image(0), IMAGE);
        }
        attack();
        bench.until("it stays stopped", |bench| {
            bench.phase(0) == Phase::Stopped(StopReason::Tampered)
        });
        bench.until("it is said", |_| {
            printed().contains("guest0 was stopped: it has ended more often")
        });
        assert_eq!(printed().matches(MESSAGE).count(), 3, "{}", printed());
        assert_eq!(printed().matches("guest0 restarts").count(), 2);
        assert_eq!((bench.life(1), bench.phase(1)), (1, Phase::Running));
        let ends = bench.machine.health.numbers();
        assert_eq!(ends, 0..3, "each end is in the health log");
    }
}

#[test]
fn a_guest_stays_stopped_if_its_description_says_so() {
    let mut bench = checked(&two_guests(OnTamper::Stop, 10), true);
    attack();
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Tampered)
    });
    bench.until("it is said", |_| printed().contains("guest0 was stopped"));
    assert!(printed().contains(MESSAGE), "{}", printed());
}

/// A device flips a bit of a protected page again and again, at any moment of a round. Each time the page is found, within a round, and the guest
/// starts again from its image; the other guest goes on. `SPUMONE_FLIPS`: how many flips.
#[test]
fn each_flip_is_found_within_a_round() {
    let flips = std::env::var("SPUMONE_FLIPS").map_or(1_000, |it| it.parse().unwrap());
    let system = with_two_pages();
    finds_flips(checked(&system, true), flips);
}

/// The same while the guest on core 1, which has a lower priority, never sleeps.
#[test]
fn each_flip_is_found_within_a_round_although_no_core_idles() {
    let mut bench = Bench::boot(&with_two_pages());
    bench.until_all_run();
    bench.opens_gic(1, 0, &[50]);
    bench.until("its memory is checked", |bench| rounds(bench) >= 2);
    finds_flips(bench, 200);
}

const PAGES: u64 = 2;

/// As [`two_guests`], with two protected pages.
fn with_two_pages() -> System {
    let size = PAGES * 0x1000;
    let mut system = two_guests(UNLIMITED, 10);
    system.guests[0].segments[0].size = size;
    if let Some(protect) = &mut system.guests[0].protect {
        protect.leaves[0].count = PAGES as u32;
        protect.read_only[0].size = size;
    }
    system
}

fn finds_flips(mut bench: Bench, flips: u64) {
    const SIZE: u64 = PAGES * 0x1000;
    let right = fake::with(|machine| machine.memory.at(memory_of(0), SIZE as usize).to_vec());
    let mut random = Random(0x2545_F491_4F6C_DD1D);
    let round = u64::from(ROUND_US) * TICKS_A_US as u64;
    for life in 2..flips + 2 {
        let start = now() + random.below(round);
        bench.until("its time has come", |_| now() >= start);
        let (byte, bit) = (random.below(SIZE), random.below(8));
        fake::with(|machine| {
            machine.uart.printed.clear();
            machine.memory.at(memory_of(0) + byte, 1)[0] ^= 1 << bit;
        });
        let flipped = now();
        bench.until("it is found", |bench| bench.phase(0) != Phase::Running);
        let took = now() - flipped;
        assert!(took <= round, "flip {life} took {took} of {round}");
        bench.until("it runs again", |bench| {
            (u64::from(bench.life(0)), bench.phase(0)) == (life, Phase::Running)
        });
        let memory = fake::with(|machine| machine.memory.at(memory_of(0), SIZE as usize).to_vec());
        assert!(memory == right, "it does not have its image");
        let page = GUEST_MEMORY + byte / 0x1000 * 0x1000;
        let message = format!("guest guest0: the page at {page:#x}, ");
        bench.until("it is said", |_| printed().contains(&message));
        assert_eq!((bench.life(1), bench.phase(1)), (1, Phase::Running));
    }
}

/// Stage 2 refuses the write, so memory is as before.
#[test]
fn a_guest_that_writes_its_protected_memory_starts_again() {
    let mut bench = checked(&two_guests(RESTART, 10), true);
    bench.does(0, 0, |cpu| cpu.store_read_only(GUEST_MEMORY + 4));
    bench.until("it runs again", |bench| {
        (bench.life(0), bench.phase(0)) == (2, Phase::Running)
    });
    bench.until("it is said", |_| {
        printed().contains("ipa=0x40000004") && printed().contains("guest0 restarts")
    });
}

/// While it is loaded, its memory differs from its hashes.
#[test]
fn a_guest_that_restarts_is_not_taken_for_one_whose_memory_has_changed() {
    let mut bench = checked(&two_guests(OnTamper::Stop, 10), true);
    for life in 2..60 {
        // At another moment of a round each time.
        bench.iterations(life * 7 % 31);
        bench.does(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
        bench.until("it runs again", |bench| {
            (bench.life(0) as usize, bench.phase(0)) == (life, Phase::Running)
        });
    }
    assert!(!printed().contains("has changed"), "{}", printed());
    let before = rounds(&bench);
    bench.until("it is checked on", |bench| rounds(bench) > before + 1);
}

/// A core with a vCPU of a higher band does not check: an interrupt for that vCPU would wait.
#[test]
fn a_core_does_not_check_guests_below_its_own_vcpus() {
    let mut system = two_guests(RESTART, 30);
    // More than the steps of one iteration.
    system.guests[0].segments[0].size = 0x1000;
    let mut parts = parts(&system);
    parts.has_sha256 = false;
    let mut bench = Bench::boot_parts(parts);
    bench.until_all_run();
    bench.opens_gic(1, 0, &[50]);
    bench.does(1, 0, |cpu| cpu.wfi());
    for _ in 0..2000 {
        bench.iterations(1);
        assert!(!bench.instances[1].helps());
    }
    // The guest's own core does, when the guest sleeps.
    bench.does(0, 0, |cpu| cpu.wfi());
    bench.until("its own core checks", |bench| rounds(bench) > 1);
}

/// No core idles. Core 1 checks late leaves while it runs its own guest, which has a lower priority than the protected guest. It does so, too,
/// if that guest gets interrupts without end.
#[test]
fn memory_is_checked_although_no_core_idles() {
    for (has_sha256, is_interrupted) in [(true, false), (false, false), (false, true)] {
        let mut parts = parts(&two_guests(RESTART, 10));
        parts.has_sha256 = has_sha256;
        let mut bench = Bench::boot_parts(parts);
        bench.until_all_run();
        bench.opens_gic(1, 0, &[50]);
        let rises = |bench: &mut Bench| {
            if is_interrupted {
                fake::with(|machine| machine.gic.set_line(40, true));
                let _ = bench.look(1, 0, |cpu| cpu.acknowledge());
            }
        };
        bench.until("its memory is checked", |bench| {
            rises(bench);
            rounds(bench) >= 2
        });
        attack();
        bench.until("it runs again", |bench| {
            rises(bench);
            (bench.life(0), bench.phase(0)) == (2, Phase::Running)
        });
        assert_eq!(image(0), IMAGE);
    }
}

/// The guest of the higher priority does not wait for that.
#[test]
fn late_memory_is_not_checked_in_the_time_of_a_guest_above() {
    let mut bench = Bench::boot(&two_guests(RESTART, 10));
    bench.until_all_run();
    // Core 0 has the protected guest only; core 1 has no vCPU that runs.
    bench.opens_gic(1, 0, &[50]);
    bench.does(1, 0, |cpu| cpu.hvc([psci::CPU_OFF, 0, 0, 0]));
    for _ in 0..2000 {
        bench.iterate(0);
        assert!(!bench.instances[0].helps());
    }
    assert_eq!(rounds(&bench), 0);
}

/// Core 1 has begun to hash a leaf when its own guest wakes, and runs on. Core 0 checks that leaf when it idles.
#[test]
fn a_core_gives_a_leaf_back_before_it_runs_its_own_guest() {
    let mut system = two_guests(RESTART, 10);
    // More than the steps of one iteration.
    system.guests[0].segments[0].size = 0x1000;
    let mut bench = checked(&system, false);
    for _ in 0..10_000 {
        if bench.instances[1].helps() {
            break;
        }
        bench.iterate(1);
    }
    assert!(bench.instances[1].helps());
    let before = rounds(&bench);
    fake::with(|machine| machine.gic.set_line(40, true));
    bench.iterate(1);
    bench.iterate(1);
    assert!(!bench.instances[1].helps());
    bench.does(0, 0, |cpu| cpu.wfi());
    for _ in 0..1000 {
        bench.iterate(0);
    }
    assert!(rounds(&bench) > before, "core 0 alone");
}

/// Ticks of the fake machine's counter in a microsecond.
const TICKS_A_US: f64 = 62.5;

/// A protected guest alone on one core, with a page that takes several iterations, and rounds of this length.
fn alone(round_us: u32) -> Bench {
    let guests = [GuestParts::new(&[(0, 20)]).protected(round_us, RESTART)];
    let mut system = system(1, Policy::None, &guests);
    system.guests[0].segments[0].size = 0x1000;
    let mut parts = parts(&system);
    parts.has_sha256 = false;
    let mut bench = Bench::boot_parts(parts);
    bench.until_all_run();
    bench.opens_gic(0, 0, &[TIMER]);
    bench
}

/// The guest does not wait for a step then.
#[test]
fn a_core_that_wakes_a_vcpu_soon_checks_nothing() {
    let mut bench = alone(ROUND_US / 20);
    let quiet = (10.0 * TICKS_A_US) as u64;
    let mut was_checking = 0;
    for round in 0..200 {
        let at = sleeps_for(&mut bench, 2_000 + round * 37 % 6_000);
        let entries = bench.entry(0, 0).count;
        while bench.entry(0, 0).count == entries {
            let sleeps = || fake::with(|machine| machine.core().sleeps);
            let (is_quiet, before) = ((at - quiet..at - 200).contains(&now()), sleeps());
            bench.iterate(0);
            if is_quiet && bench.entry(0, 0).count == entries {
                was_checking += u32::from(bench.instances[0].helps());
                assert!(sleeps() > before, "{} ticks before its timer", at - now());
            }
        }
        handles_its_timer(&mut bench);
    }
    assert!(was_checking > 10, "{was_checking}");
    assert!(rounds(&bench) > 10, "{}", rounds(&bench));
}

/// The guest itself has the lowest priority.
#[test]
fn a_guest_is_not_interrupted_for_late_memory_if_its_core_idles_often() {
    let mut bench = alone(20_000);
    bench.until("a round has ended", |bench| rounds(bench) > 0);
    let mut soon = 0;
    for _ in 0..100 {
        sleeps_for(&mut bench, 50_000);
        handles_its_timer(&mut bench);
        let alarm = bench.look(0, 0, |cpu| cpu.get(Register::CNTHP_CVAL_EL2));
        let left = alarm.saturating_sub(now()) as f64 / TICKS_A_US;
        soon += u32::from(left < 2_000.0);
    }
    // For the operator, every 40 ms.
    assert!(soon < 15, "{soon}");
    assert!(rounds(&bench) > 1);
}
