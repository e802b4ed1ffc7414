// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundles that are not what `spm build` has written: what the hypervisor refuses, and which guests do not start.

use super::bench::Bench;
use super::guest::psci;
use super::systems::*;
use crate::boot;
use crate::fake::{self, Ended, Parts, printed};
use ed25519_compact::{KeyPair, Seed};
use spumone_config::packed::{
    BundleHeader, OnStop, Part, Policy, RestartLimit, System, Trigger, Trust,
};
use spumone_config::{GuestId, PhysAddr};
use spumone_core::psci::{Phase, StopReason};

/// `Ctrl-]`.
const OPERATOR: u8 = 0x1d;
/// Where a table is in the bundle.
const TABLES: u64 = 0xE_0000;

/// Two guests on a core each. The first one would restart after faults.
fn two_guests() -> System {
    let limit = RestartLimit {
        most: 3,
        within_us: 1_000_000,
    };
    let guests = [
        GuestParts::new(&[(0, 20), (1, 20)]).on_stop(OnStop::Restart(limit)),
        GuestParts::new(&[(1, 10)]),
    ];
    let mut system = system(2, Policy::None, &guests);
    system.guests[1].segments[0].list += 0x1000;
    system.guests[1].segments[0].offset += 0x1000;
    system
}

/// The machine of that system, with the byte at this offset of its bundle changed.
fn damaged(offset: u64) -> Parts {
    let mut parts = parts(&two_guests());
    parts.bundle[offset as usize] ^= 0x10;
    parts
}

#[track_caller]
fn does_not_start(parts: Parts, message: &str) {
    let mut bench = Bench::boot_parts(parts);
    bench.until("the other guest runs, and this one is stopped", |bench| {
        bench.phase(1) == Phase::Running && bench.phase(0) == Phase::Stopped(StopReason::Unverified)
    });
    bench.until("it is said", |_| printed().contains("guest0 was stopped"));
    assert!(printed().contains(message), "{}", printed());
    assert_eq!(bench.entry(0, 0).count, 0);
    // The operator may try again, and it is verified again.
    fake::with(|machine| machine.type_keys(&[OPERATOR, b'1', OPERATOR, b'r']));
    bench.until("it is refused again", |bench| {
        bench.life(0) == 2 && bench.phase(0) == Phase::Stopped(StopReason::Unverified)
    });
    bench.until("it is said again", |_| {
        printed().matches(message).count() == 2
    });
    assert_eq!((bench.entry(0, 0).count, bench.life(1)), (0, 1));
}

#[test]
fn a_guest_whose_image_is_damaged_does_not_start_and_others_run() {
    let message = "guest guest0: image: the page at 0x40000000 differs from its hash";
    does_not_start(damaged(IMAGE_OFFSET + 3), message);
    let mut without = damaged(IMAGE_OFFSET + 3);
    without.has_sha256 = false;
    does_not_start(without, message);
}

#[test]
fn a_guest_whose_list_of_hashes_is_damaged_does_not_start() {
    let message = "guest guest0: image: the list of hashes differs from its hash";
    does_not_start(damaged(LIST_OFFSET + 31), message);
}

/// Damage between two lives, as by a device.
#[test]
fn a_restart_verifies_again() {
    let mut bench = Bench::boot(&two_guests());
    bench.until_all_run();
    fake::with(|machine| machine.damage_bundle(IMAGE_OFFSET));
    bench.does(0, 0, |cpu| cpu.store(0x5000_0000, 1));
    bench.until("it is stopped", |bench| {
        bench.phase(0) == Phase::Stopped(StopReason::Unverified)
    });
    assert_eq!(bench.life(0), 2);
    bench.until("it is said", |_| {
        printed().contains("the page at 0x40000000 differs from its hash")
    });
    assert_eq!(bench.phase(1), Phase::Running);
}

/// Without instructions for SHA-256 guests start, too; each block takes steps.
#[test]
fn cores_without_instructions_verify_too() {
    let mut parts = parts(&two_guests());
    parts.has_sha256 = false;
    let mut bench = Bench::boot_parts(parts);
    bench.until_all_run();
}

/// Core 1 has begun to hash a page of the guest on core 0 when its own guest wakes, and runs on. Core 0 loads that page.
#[test]
fn a_core_that_helps_gives_a_page_back_before_it_runs_its_own_guest() {
    let guests = [
        GuestParts::new(&[(0, 20)]),
        GuestParts::new(&[(1, 10)]).with_spi(40, 50, Trigger::Edge),
    ];
    let mut system = system(2, Policy::None, &guests);
    // More than the steps of one iteration.
    system.guests[0].segments[0].size = 0x1000;
    system.guests[1].segments[0].list += 0x1000;
    let mut parts = parts(&system);
    parts.has_sha256 = false;
    let mut bench = Bench::boot_parts(parts);
    bench.until_all_run();
    bench.opens_gic(1, 0, &[50]);
    bench.does(1, 0, |cpu| cpu.wfi());
    bench.will(0, 0, |cpu| cpu.hvc([psci::SYSTEM_RESET, 0, 0, 0]));
    let guest = bench.machine.guest(GuestId(0));
    while !guest.loading.has_begun(guest.lifecycle.now().1) {
        bench.iterate(0);
    }
    for _ in 0..100 {
        if bench.instances[1].helps() {
            break;
        }
        bench.iterate(1);
    }
    assert!(bench.instances[1].helps());
    let count = bench.entry(1, 0).count;
    fake::with(|machine| machine.gic.set_line(40, true));
    for _ in 0..20 {
        bench.iterate(1);
    }
    assert!(bench.entry(1, 0).count > count, "its guest runs");
    assert!(!bench.instances[1].helps());
    // Core 0 alone.
    for _ in 0..1000 {
        bench.iterate(0);
    }
    assert_eq!((bench.phase(0), bench.life(0)), (Phase::Running, 2));
}

/// What the hypervisor prints when it refuses to start.
pub fn refusal(parts: Parts) -> String {
    fake::switch_on(parts);
    let ended = fake::until_it_ends(0, || boot::start(PhysAddr(0)));
    assert_eq!(ended.err(), Some(Ended::Halted), "{}", printed());
    assert!(fake::with(|machine| machine.is_off), "the machine goes off");
    let text = printed();
    assert_eq!(text.trim().lines().count(), 1, "{text}");
    text
}

#[track_caller]
fn is_refused(parts: Parts, message: &str) {
    let text = refusal(parts);
    assert!(text.contains(message), "{text}");
}

#[test]
fn a_damaged_description_is_refused() {
    for at in [24, BundleHeader::SIZE as u64, 100] {
        is_refused(damaged(at), "the description differs from its hash");
    }
    is_refused(damaged(0), "no bundle of this release");
    // A length beyond the room for descriptions.
    is_refused(damaged(15), "the header of the bundle has a wrong length");
}

/// The same guests; the bundle has something where it should have tables.
pub fn two_guests_with_tables() -> System {
    let mut system = two_guests();
    let part = |offset| Part {
        offset: TABLES + offset,
        size: 0x1000,
        ..Part::default()
    };
    (system.stage2_pages, system.el2_pages) = (part(0), part(0x1000));
    system
}

#[test]
fn damaged_tables_are_refused_by_their_names() {
    let system = two_guests_with_tables();
    for (at, message) in [
        (0, "the stage 2 tables differ from their hash"),
        (0x1FFF, "the hypervisor's own tables differ from their hash"),
    ] {
        let mut parts = parts(&system);
        parts.bundle[TABLES as usize + at] ^= 1;
        is_refused(parts, message);
    }
}

/// Both are of one release and at the same address, and each is signed.
#[test]
fn a_bundle_for_another_build_of_the_hypervisor_is_refused() {
    let message = "the bundle is made for another build of the hypervisor";
    let of = |change: fn(&mut System)| {
        let mut system = two_guests_with_tables();
        change(&mut system);
        parts(&system)
    };
    is_refused(of(|system| system.sections.constants += 0x1000), message);
    is_refused(of(|system| system.sections.data += 0x1000), message);
    is_refused(of(|system| system.sections.guards[0] += 0x1000), message);
    is_refused(of(|system| system.sections.guards.clear()), message);
}

pub fn key(seed: u8) -> KeyPair {
    KeyPair::from_seed(Seed::new([seed; 32]))
}

/// A machine with a hypervisor that trusts key 1 and accepts this version or higher ones. Its description is signed with the key given.
fn signed(seed: u8, version: u32, lowest_version: u32) -> Parts {
    let mut system = two_guests();
    system.version = version;
    let mut parts = signed_parts(&system, |sealed| *key(seed).sk.sign(sealed, None));
    parts.trust = Trust {
        key: *key(1).pk,
        lowest_version,
    };
    parts
}

#[test]
fn only_a_description_that_is_signed_with_its_key_is_accepted() {
    Bench::boot_parts(signed(1, 7, 7)).until_all_run();
    is_refused(
        signed(2, 7, 7),
        "is not signed with the key of this hypervisor",
    );
    let mut unsigned = parts(&two_guests());
    unsigned.trust.key = *key(1).pk;
    is_refused(unsigned, "the description is not signed");
}

#[test]
fn the_banner_says_whether_the_image_is_signed() {
    Bench::boot_parts(signed(1, 7, 7)).until_all_run();
    assert!(
        printed().contains("2 guests, image signed, version 7"),
        "{}",
        printed()
    );
    Bench::boot(&two_guests()).until_all_run();
    assert!(
        printed().contains("2 guests, image not signed"),
        "{}",
        printed()
    );
}

#[test]
fn a_description_of_an_older_version_is_refused() {
    let message = "the description has version 6, and this hypervisor accepts 7 or higher";
    is_refused(signed(1, 6, 7), message);
    Bench::boot_parts(signed(1, 8, 7)).until_all_run();
}
