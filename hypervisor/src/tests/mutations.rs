// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundles that were changed at random. On each, EL2 refuses the whole bundle or does not start the guest in question, and names the part.
//!
//! `SPUMONE_FUZZ_STEPS=10000 cargo test -p spumone-hypervisor --lib -- mutations` boots as many machines; `SPUMONE_FUZZ_SEED` chooses others.

use super::bench::Bench;
use super::fuzz::Random;
use super::systems::*;
use super::verify::{key, refusal, two_guests_with_tables};
use crate::fake::{Parts, printed};
use spumone_config::packed::{BundleHeader, Hash, Seal, Trust};
use spumone_core::psci::{Phase, StopReason};
use std::ops::Range;

/// Machines of a run in which no variable names a number.
const STEPS: u64 = 100;

/// What becomes of a machine.
#[derive(Clone, Copy)]
enum Ends {
    /// It goes off, and says one of these.
    Off(&'static [&'static str]),
    /// The first guest does not start, which is said so; the other one runs.
    Without(&'static str),
}

/// A machine with a signed bundle, and a hypervisor with that key.
fn signed() -> Parts {
    let mut parts = signed_parts(&two_guests_with_tables(), |sealed| {
        *key(1).sk.sign(sealed, None)
    });
    parts.trust = Trust {
        key: *key(1).pk,
        lowest_version: 0,
    };
    parts
}

/// The parts of the bundle.
fn parts_of(machine: &Parts) -> Vec<(Range<usize>, Ends)> {
    let header = BundleHeader::from_bytes(&machine.bundle).unwrap();
    let sealed = header.sealed_len().unwrap();
    let signature = sealed + Hash::SIZE;
    let system = two_guests_with_tables();
    let segment = system.guests[0].segments[0];
    let of = |part: &spumone_config::packed::Part| {
        part.offset as usize..(part.offset + part.size) as usize
    };
    let description = Ends::Off(&["the description differs from its hash"]);
    vec![
        (0..12, Ends::Off(&["no bundle of this release"])),
        (
            12..16,
            Ends::Off(&["of the bundle", "the description differs"]),
        ),
        (16..sealed, description),
        (sealed..signature, description),
        (
            signature..sealed + Seal::SIZE,
            Ends::Off(&["is not signed", "not signed with the key"]),
        ),
        (of(&system.stage2_pages), Ends::Off(&["the stage 2 tables"])),
        (
            of(&system.el2_pages),
            Ends::Off(&["the hypervisor's own tables"]),
        ),
        (
            segment.list as usize..segment.list as usize + Hash::SIZE,
            Ends::Without("guest guest0: image: the list of hashes differs from its hash"),
        ),
        (
            segment.offset as usize..(segment.offset + segment.size) as usize,
            Ends::Without("guest guest0: image: the page at 0x40000000 differs from its hash"),
        ),
    ]
}

#[test]
fn a_machine_whose_bundle_was_changed_does_not_run_what_was_changed() {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let first: u64 = number("SPUMONE_FUZZ_SEED").unwrap_or(0);
    let steps = number("SPUMONE_FUZZ_STEPS").unwrap_or(STEPS);
    Bench::boot_parts(signed()).until_all_run();
    for step in first..first + steps {
        let mut random = Random::new(step);
        let mut machine = signed();
        let parts = parts_of(&machine);
        let (range, ends) = &parts[random.below(parts.len() as u64) as usize];
        let at = range.start + random.below(range.len() as u64) as usize;
        machine.bundle[at] ^= 1 + random.below(255) as u8;
        machine.has_sha256 = random.once_in(2);
        match ends {
            Ends::Off(messages) => {
                let text = refusal(machine);
                let is_named = messages.iter().any(|it| text.contains(it));
                assert!(is_named, "step {step}, byte {at}: {text}");
            }
            Ends::Without(message) => {
                let mut bench = Bench::boot_parts(machine);
                bench.until("the other guest runs, and this one is stopped", |bench| {
                    bench.phase(1) == Phase::Running
                        && bench.phase(0) == Phase::Stopped(StopReason::Unverified)
                });
                bench.until("it is said", |_| printed().contains("guest0 was stopped"));
                assert!(printed().contains(message), "step {step}: {}", printed());
                assert_eq!(bench.entry(0, 0).count, 0);
            }
        }
    }
}
