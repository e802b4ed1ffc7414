// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bundles of which bytes were changed, verified by the code that EL2 executes: none passes, and the refusal names the part.
//!
//! `SPUMONE_FUZZ_STEPS=1000000 cargo test --release -p spm --test mutations` goes on for longer; `SPUMONE_FUZZ_SEED` chooses other steps.

// Tests may unwrap.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use fastrand::Rng;
use spm::fuzz::{DESCRIPTION, signed_bundle};
use spumone_config::PhysAddr;
use spumone_config::packed::{BundleHeader, Hash, Seal, System, Trust};
use spumone_core::load::{Chunk, Engine, Hashing, Phases, Work};
use spumone_core::sha256::{BLOCK, State, compress, hash};
use spumone_core::verify;
use std::ops::Range;
use support::user_files::borrowed;
use support::{Elf, fuzz_steps};

/// Steps of a run in which no variable names a number.
const STEPS: u64 = 500;
const BOARD: &str = include_str!("../../boards/qemu-virt.toml");
const SYSTEM: &str = r#"
version = 7

[board]
name = "b"
cores = 2
memory = "64MiB"

[[guest]]
name = "rt"
kind = "elf"
image = "rt.elf"
memory = "4MiB"
vcpus = [0]
priority = 200

[[guest]]
name = "flat"
kind = "raw"
image = "flat.bin"
memory = "2MiB"
load = 0x40000040
vcpus = [1]
priority = 60
"#;

fn bundle() -> (Vec<u8>, Trust) {
    let elf = Elf {
        segments: vec![
            (0x4008_0000, vec![1; 0x1400], 0x2000),
            (0x400a_0010, vec![2; 0x33], 0x40),
        ],
        ..Elf::at(0x4008_0000)
    };
    let files = [
        (DESCRIPTION, SYSTEM.into()),
        ("boards/b.toml", BOARD.replace("qemu-virt", "b").into()),
        ("rt.elf", elf.write()),
        ("flat.bin", vec![0x14; 0x1000]),
    ];
    signed_bundle(&borrowed(&files), [1; 32]).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// Hashes payloads of a bundle, by the code for cores without instructions for it.
struct Payloads<'a>(&'a [u8]);

impl Engine for Payloads<'_> {
    fn has_instructions(&self) -> bool {
        false
    }

    fn copy_and_hash(&mut self, _: &mut State, _: u64, _: Option<PhysAddr>, _: u64) {
        panic!("there are no instructions");
    }

    fn hash(&mut self, _: &mut State, _: &[u8; BLOCK]) {
        panic!("there are no instructions");
    }

    fn fetch(&mut self, block: &mut [u8; BLOCK], from: u64, _: Option<PhysAddr>, bytes: u64) {
        let bytes = bytes as usize;
        block[..bytes].copy_from_slice(&self.0[from as usize..][..bytes]);
    }

    fn hash_at(&self, offset: u64) -> Hash {
        Hash(*self.0[offset as usize..].first_chunk().unwrap())
    }
}

/// What a hypervisor says that finds this bundle at this address.
fn verdict(bundle: &[u8], at: PhysAddr, trust: &Trust) -> Result<System, String> {
    let sha256 = |bytes: &[u8]| hash(bytes, compress);
    let (header, system) =
        verify::description(bundle, at, trust, sha256).map_err(|it| it.to_string())?;
    let part =
        |part: &spumone_config::packed::Part| &bundle[part.offset as usize..][..part.size as usize];
    verify::tables(&header, &system, part, sha256).map_err(|it| it.to_string())?;
    for guest in &system.guests {
        let work = Work::new(guest, Phases::of(guest));
        for number in 0..work.phases().total() {
            let Some(Chunk::Hash(subject)) = work.chunk(number) else {
                continue;
            };
            let mut hashing = Hashing::new(number, subject);
            let steps = std::iter::repeat_with(|| hashing.step(&mut Payloads(bundle)));
            if steps.flatten().next() == Some(false) {
                let wrong = work.wrong(number).unwrap();
                return Err(format!("{}: {wrong:?}", guest.name));
            }
        }
    }
    Ok(system)
}

/// The parts of a bundle, each with what a refusal says of it.
fn parts(bundle: &[u8], system: &System) -> Vec<(Range<usize>, String)> {
    let header = BundleHeader::from_bytes(bundle).unwrap();
    let sealed = header.sealed_len().unwrap();
    let signature = sealed + Hash::SIZE;
    let mut parts = vec![
        (0..12, "no bundle of this release".to_owned()),
        (12..16, "of the bundle|the description differs".to_owned()),
        (
            16..sealed,
            "the description differs from its hash".to_owned(),
        ),
        (
            sealed..signature,
            "the description differs from its hash".to_owned(),
        ),
        (
            signature..sealed + Seal::SIZE,
            "not signed with the key of this".to_owned(),
        ),
    ];
    for (part, name) in [
        (system.stage2_pages, "the stage 2 tables differ"),
        (system.el2_pages, "the hypervisor's own tables differ"),
    ] {
        let start = part.offset as usize;
        parts.push((start..start + part.size as usize, name.to_owned()));
    }
    for guest in &system.guests {
        for segment in &guest.segments {
            let of = |page: String| {
                format!(
                    "{}: Wrong {{ content: {:?}, page: {page} }}",
                    guest.name, segment.content
                )
            };
            let list = segment.list as usize;
            let size = segment.leaves() as usize * Hash::SIZE;
            parts.push((list..list + size, of("None".to_owned())));
            for number in 0..segment.leaves() {
                let leaf = segment.leaf(number);
                let start = (segment.offset + leaf.start) as usize;
                let page = spumone_config::GuestAddr(segment.destination.0 + leaf.start);
                parts.push((
                    start..start + leaf.size as usize,
                    of(format!("Some({page:?})")),
                ));
            }
        }
    }
    parts
}

#[test]
fn no_bundle_of_which_a_part_was_changed_passes() {
    let (good, trust) = bundle();
    assert!(trust.has_key());
    assert_eq!(trust.lowest_version, 7);
    let at = BundleHeader::from_bytes(&good).unwrap().address;
    let system = verdict(&good, at, &trust).unwrap_or_else(|refusal| panic!("{refusal}"));
    let parts = parts(&good, &system);
    for step in fuzz_steps(STEPS) {
        let mut random = Rng::with_seed(step);
        let (range, name) = &parts[random.usize(..parts.len())];
        let mut changed = good.clone();
        for _ in 0..random.usize(1..4) {
            let byte = &mut changed[random.usize(range.clone())];
            // More than one change may be none.
            *byte = byte.wrapping_add(random.u8(1..));
        }
        if changed == good {
            continue;
        }
        let refusal = match verdict(&changed, at, &trust) {
            Ok(_) => panic!("step {step}: a change of {name} passes"),
            Err(refusal) => refusal,
        };
        assert!(
            name.split('|').any(|name| refusal.contains(name)),
            "step {step}: a change of {name} is refused with {refusal}"
        );
    }
}
