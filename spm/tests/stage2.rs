// SPDX-License-Identifier: MIT OR Apache-2.0
//! The guests' stage 2 tables as they stand in a built image: walked as the hardware does (Arm ARM, DDI 0487, chapter D8),
//! by code that shares nothing with what makes them, and compared with what each guest is given.

// The helpers of tests say what they expect by unwrapping it, as tests do.
#![allow(clippy::unwrap_used, clippy::panic)]

mod support;

use spumone_config::packed::{BundleHeader, LinkKind, System};
use std::collections::BTreeSet;
use support::{HYPERVISOR_ADDRESS, HYPERVISOR_SIZE, SYSTEM};

/// Of a leaf: memory type, access, shareability, access flag.
const NORMAL: u64 = 0b1111 << 2 | 0b11 << 6 | 0b11 << 8 | 1 << 10;
const DEVICE: u64 = 0b0001 << 2 | 0b11 << 6 | 1 << 10;
/// Memory that is not cached.
const SHARED: u64 = 0b0101 << 2 | 0b11 << 6 | 1 << 10;
const WRITE: u64 = 1 << 7;
/// `XN[1:0]`: none may execute, the kernel alone, programs alone.
const NONE: u64 = 0b10 << 53;
const KERNEL: u64 = 0b11 << 53;
const PROGRAMS: u64 = 0b01 << 53;

/// Guest address, machine address, size, attributes.
type Range = (u64, u64, u64, u64);

struct Built {
    image: Vec<u8>,
    system: System,
}

impl Built {
    fn new(description: &str) -> Self {
        let folder = support::folder();
        let image = support::build(folder.path(), description, &[]);
        let bundle = &image[HYPERVISOR_SIZE as usize..];
        let header = BundleHeader::from_bytes(bundle).unwrap();
        assert_eq!(header.address.0, HYPERVISOR_ADDRESS + HYPERVISOR_SIZE);
        let encoded = &bundle[BundleHeader::SIZE..][..header.system_len as usize];
        let system = postcard::from_bytes(encoded).unwrap();
        Self { image, system }
    }

    /// The 64 bits at a machine address, which must lie in the bundle.
    fn read(&self, address: u64) -> u64 {
        let at = address.checked_sub(HYPERVISOR_ADDRESS).unwrap();
        assert!(at >= HYPERVISOR_SIZE, "{address:#x}");
        u64::from_le_bytes(self.image[at as usize..][..8].try_into().unwrap())
    }

    /// All that the tables of this `VTTBR_EL2` map, neighbours joined, and the tables' own pages.
    fn walk(&self, vttbr: u64, pages: &mut BTreeSet<u64>) -> Vec<Range> {
        let root = vttbr & 0xffff_ffff_fffe;
        assert_eq!(root % 0x2000, 0);
        let mut ranges = Vec::new();
        // Two tables of level 1, one behind the other.
        for entry in 0..1024 {
            self.descend(root + 8 * entry, 1, entry << 30, pages, &mut ranges);
        }
        ranges
    }

    fn descend(
        &self,
        at: u64,
        level: u32,
        ipa: u64,
        pages: &mut BTreeSet<u64>,
        ranges: &mut Vec<Range>,
    ) {
        pages.insert(at & !0xfff);
        let size = 1 << (12 + 9 * (3 - level));
        let descriptor = self.read(at);
        let address = descriptor & 0xffff_ffff_f000;
        match (descriptor & 0b11, level) {
            (0, _) => {}
            (0b11, 1 | 2) => {
                for entry in 0..512 {
                    let next = ipa + entry * (size >> 9);
                    self.descend(address + 8 * entry, level + 1, next, pages, ranges);
                }
            }
            (0b01, 1 | 2) | (0b11, 3) => {
                assert_eq!(address % size, 0, "a leaf lies at a multiple of its size");
                let attributes = descriptor & !0b11 & !0xffff_ffff_f000;
                match ranges.last_mut() {
                    Some((from, to, length, same))
                        if *from + *length == ipa
                            && *to + *length == address
                            && *same == attributes =>
                    {
                        *length += size;
                    }
                    _ => ranges.push((ipa, address, size, attributes)),
                }
            }
            _ => panic!("descriptor {descriptor:#x} at level {level}"),
        }
    }

    /// Compares the tables of each guest with what the guest is given.
    fn check(&self) {
        let mut of_all = BTreeSet::new();
        for (index, guest) in self.system.guests.iter().enumerate() {
            let sets = [
                (Some(guest.stage2.all), 0),
                (guest.stage2.of_kernel, KERNEL),
                (guest.stage2.of_programs, PROGRAMS),
            ];
            for (vttbr, execute) in sets {
                let Some(vttbr) = vttbr else { continue };
                assert_eq!(vttbr >> 48, index as u64 + 1, "VMID");
                let mut given: Vec<Range> = Vec::new();
                for it in &guest.memory {
                    given.push((it.ipa.0, it.pa.0, it.size, NORMAL | execute));
                }
                for it in &guest.devices {
                    given.push((it.ipa.0, it.pa.0, it.size, DEVICE | NONE));
                }
                for link in &guest.links {
                    let LinkKind::Memory { memory: it, writes } = link.kind else {
                        continue;
                    };
                    let kind = if writes { SHARED } else { SHARED & !WRITE };
                    given.push((it.ipa.0, it.pa.0, it.size, kind | NONE));
                }
                given.sort_unstable();
                let mut pages = BTreeSet::new();
                assert_eq!(self.walk(vttbr, &mut pages), given, "{}", guest.name);
                // Each set has pages of its own, which no guest reaches.
                for page in pages {
                    assert!(of_all.insert(page), "{page:#x}");
                    let own = self.system.board.hypervisor_memory;
                    assert!(page - own.start.0 < own.size);
                }
            }
        }
        // 40 bits from level 1, 4 KiB granule; walks are cached and shared as EL2's own memory is.
        assert_eq!(self.system.vtcr, 0x8002_3558);
    }
}

fn with_policy(policy: &str) -> Built {
    let scheduler = format!("[scheduler]\npolicy = \"{policy}\"\n[[guest]]");
    Built::new(&SYSTEM.replacen("[[guest]]", &scheduler, 1))
}

#[test]
fn guests_reach_what_they_are_given_and_nothing_else() {
    let built = Built::new(SYSTEM);
    let [rt, linux] = built.system.guests.as_slice() else {
        panic!("two guests")
    };
    assert_eq!((rt.devices.len(), linux.devices.len()), (0, 1));
    built.check();
}

#[test]
fn guests_reach_the_memory_of_their_links() {
    let third = "[[guest]]\nname = \"third\"\nkind = \"elf\"\nimage = \"rt.elf\"\nmemory = \"16MiB\"\nvcpus = [1]\npriority = 1\n";
    let link = |one: &str, other: &str, more: &str| {
        format!("[[link]]\nkind = \"memory\"\nbetween = [\"{one}\", \"{other}\"]\n{more}\n")
    };
    let description = [
        SYSTEM.to_owned(),
        third.to_owned(),
        link("rt", "linux", "size = \"4KiB\""),
        link("linux", "third", "size = \"2MiB\"\nread-only = \"third\""),
        link("third", "rt", ""),
    ];
    let built = Built::new(&description.concat());
    let counts: Vec<_> = built
        .system
        .guests
        .iter()
        .map(|it| it.links.len())
        .collect();
    assert_eq!(counts, [2, 2, 2]);
    built.check();
}

#[test]
fn tables_for_one_exception_level_are_there_where_the_policy_needs_them() {
    for (policy, of_kernel, of_programs) in [
        ("none", false, false),
        ("steal", true, false),
        ("trap", true, true),
        ("delay", true, false),
    ] {
        let built = with_policy(policy);
        let [rt, linux] = built.system.guests.as_slice() else {
            panic!("two guests")
        };
        assert!(!rt.stage2.needs_xnx(), "{policy}");
        assert_eq!(linux.stage2.of_kernel.is_some(), of_kernel, "{policy}");
        assert_eq!(linux.stage2.of_programs.is_some(), of_programs, "{policy}");
        built.check();
    }
}

/// Memory that begins and ends between blocks, and whose guest and machine addresses never meet in a block.
#[test]
fn odd_places_and_sizes_are_mapped_in_pages() {
    let odd = SYSTEM.replace(
        "memory = \"16MiB\"\n",
        "memory = \"16404KiB\"\nipa = 0x40003000\npa = 0x48001000\n",
    );
    let built = Built::new(&odd);
    let memory = built.system.guests[0].memory[0];
    assert_eq!((memory.ipa.0, memory.pa.0), (0x4000_3000, 0x4800_1000));
    built.check();
}

#[test]
fn what_the_cores_cannot_do_is_left_out() {
    let mut system = with_policy("trap").system;
    assert_ne!(system.roles.kernel_free, 0);
    assert!(system.give_up_xnx());
    let steal = with_policy("steal").system;
    assert_eq!(system.scheduler, steal.scheduler);
    assert_eq!(system.roles, steal.roles);
    assert!(system.guests.iter().all(|guest| !guest.stage2.needs_xnx()));
    assert!(!system.give_up_xnx());
}

/// EL2's own map is the identity: only code is executable, only data is writable, and below stacks nothing is mapped.
#[test]
fn el2_maps_what_it_uses() {
    const RES1_AND_ACCESS_FLAG: u64 = 1 << 6 | 1 << 10;
    const MEMORY: u64 = RES1_AND_ACCESS_FLAG | 1 << 2 | 0b11 << 8;
    const READ_ONLY: u64 = 1 << 7;
    const EXECUTE_NEVER: u64 = 1 << 54;
    const DEVICE: u64 = RES1_AND_ACCESS_FLAG | EXECUTE_NEVER;
    const DATA: u64 = MEMORY | EXECUTE_NEVER;
    const CONSTANTS: u64 = DATA | READ_ONLY;
    let built = Built::new(SYSTEM);
    let own = built.system.board.hypervisor_memory;
    let own_end = own.start.0 + own.size;
    let end = 0x4000_0000 + (256 << 20);
    let code = HYPERVISOR_ADDRESS;
    let bundle = HYPERVISOR_ADDRESS + HYPERVISOR_SIZE;
    let mut expected: Vec<Range> = [
        (0x0800_0000, 0x0801_0000, DEVICE),
        (0x080a_0000, 0x080e_0000, DEVICE),
        (0x0900_0000, 0x0900_1000, DEVICE),
        // What silences the devices of guests.
        (0x0a00_3000, 0x0a00_4000, DEVICE),
        (0x4000_0000, code, DATA),
        (code, code + 0x1000, MEMORY | READ_ONLY),
        (code + 0x1000, code + 0x2000, CONSTANTS),
        (code + 0x2000, code + 0x3000, DATA),
        // Below each stack a guard page.
        (code + 0x1_4000, bundle, DATA),
        (bundle, own_end, CONSTANTS),
        (own_end, end, DATA),
    ]
    .into_iter()
    .map(|(start, end, attributes)| (start, start, end - start, attributes))
    .collect();
    for core in 0..8 {
        let guard = code + 0x3000 + core * 0x2000;
        expected.push((guard + 0x1000, guard + 0x1000, 0x1000, DATA));
    }
    expected.sort_unstable();
    let mut pages = BTreeSet::new();
    assert_eq!(built.walk(built.system.el2_tables.0, &mut pages), expected);
    assert!(pages.iter().all(|page| (bundle..own_end).contains(page)));
}
