// SPDX-License-Identifier: MIT OR Apache-2.0
//! Limits, refusals, register values, the count of pages, and their bytes.

use super::attributes::Descriptor;
use super::mapping::leaves;
use super::*;
use crate::packed::Mapping;
use crate::types::{GuestAddr, GuestId, PhysAddr};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const BASE: PhysAddr = PhysAddr(0x8_0000_0000);

fn mapping(ipa: u64, pa: u64, size: u64) -> Mapping {
    Mapping {
        ipa: GuestAddr(ipa),
        pa: PhysAddr(pa),
        size,
    }
}

fn with_tables<R>(test: impl FnOnce(&mut Stage2<'_>) -> R) -> R {
    test(&mut Stage2::new(&mut Pages::new(BASE)))
}

#[test]
fn descriptors_have_the_bits_of_the_manual() {
    let pa = PhysAddr(0x1234_5000);
    assert_eq!(Descriptor::table(pa).0, 0x1234_5003);
    // MemAttr 0b1111, S2AP 0b11, SH 0b11, AF, page.
    assert_eq!(
        Descriptor::leaf(pa, Attributes::RAM, Level::Three).0,
        0x1234_57ff
    );
    // MemAttr 0b0001, S2AP 0b11, AF, XN = 0b10, block.
    assert_eq!(
        Descriptor::leaf(PhysAddr(0x4000_0000), Attributes::DEVICE, Level::One).0,
        0x0040_0000_4000_04c5
    );
    let read_only = |execute| Attributes {
        access: Access::ReadOnly,
        execute,
        ..Attributes::RAM
    };
    for (execute, bits) in [
        (Execute::All, 0x0000_0000_1234_577f),
        (Execute::El0Only, 0x0020_0000_1234_577f),
        (Execute::None, 0x0040_0000_1234_577f),
        (Execute::El1Only, 0x0060_0000_1234_577f),
    ] {
        let descriptor = Descriptor::leaf(pa, read_only(execute), Level::Three);
        assert_eq!(descriptor.0, bits);
        assert_eq!(descriptor.attributes(), read_only(execute));
    }
}

#[test]
fn vtcr_is_as_the_manual_says() {
    // RES1, 40-bit PS, inner shareable, write-back walks, level 1, T0SZ 24.
    assert_eq!(VTCR, 0x8002_3558);
}

#[test]
fn vttbr_holds_vmid_and_root() {
    assert_eq!(Vmid::of(GuestId(0)), Vmid(1));
    assert_eq!(
        vttbr(Vmid::of(GuestId(2)), PhysAddr(0x4100_2000)),
        0x0003_0000_4100_2000
    );
}

#[test]
fn leaves_are_as_large_as_alignment_permits() {
    let cut: Vec<_> = leaves(&mapping(
        GIB - 2 * MIB - 4 * KIB,
        5 * GIB - 2 * MIB - 4 * KIB,
        GIB + 2 * MIB + 8 * KIB,
    ))
    .map(|leaf| leaf.level)
    .collect();
    assert_eq!(cut, [Level::Three, Level::Two, Level::One, Level::Three]);
    let misaligned = mapping(GIB, 4 * KIB, 2 * MIB);
    assert_eq!(leaves(&misaligned).count(), 512);
}

#[test]
fn new_tables_map_nothing() {
    with_tables(|tables| {
        for ipa in [
            0,
            GIB,
            512 * GIB,
            (1 << IPA_BITS) - 1,
            1 << IPA_BITS,
            u64::MAX,
        ] {
            assert_eq!(tables.translate(GuestAddr(ipa)), None);
        }
        assert_eq!(tables.root(), BASE);
        assert_eq!(tables.vttbr(Vmid(1)), 1 << 48 | BASE.0);
    });
}

#[test]
fn both_root_tables_and_all_leaf_sizes_translate() {
    with_tables(|tables| {
        let top = (1 << IPA_BITS) - GIB;
        tables
            .map(&mapping(top, 3 * GIB, GIB), Attributes::RAM)
            .unwrap();
        tables
            .map(&mapping(0, GIB, 2 * MIB), Attributes::RAM)
            .unwrap();
        tables
            .map(&mapping(4 * MIB, 0x900_0000, 4 * KIB), Attributes::DEVICE)
            .unwrap();
        let at = |ipa| tables.translate(GuestAddr(ipa));
        assert_eq!(at(top + 5), Some((PhysAddr(3 * GIB + 5), Attributes::RAM)));
        assert_eq!(
            at(2 * MIB - 1),
            Some((PhysAddr(GIB + 2 * MIB - 1), Attributes::RAM))
        );
        assert_eq!(at(2 * MIB), None);
        assert_eq!(
            at(4 * MIB + 8),
            Some((PhysAddr(0x900_0008), Attributes::DEVICE))
        );
        assert_eq!(at(4 * MIB + 4 * KIB), None);
        assert_eq!(tables.pages.len(), 4);
    });
}

#[test]
fn what_cannot_be_mapped_is_refused_with_its_reason() {
    with_tables(|tables| {
        let mut refused = |m: Mapping, attributes| tables.map(&m, attributes).unwrap_err();
        assert_eq!(
            refused(mapping(0, 0, 0), Attributes::RAM),
            MapError::Empty(GuestAddr(0))
        );
        for (ipa, pa, size) in [(1, 0, 4096), (0, 2048, 4096), (0, 0, 4095)] {
            let expected = MapError::Unaligned {
                ipa: GuestAddr(ipa),
                pa: PhysAddr(pa),
                size,
            };
            assert_eq!(refused(mapping(ipa, pa, size), Attributes::RAM), expected);
        }
        let end = 1 << IPA_BITS;
        for (ipa, size) in [
            (end - 4096, 8192),
            (end, 4096),
            (!0xfff, 4096),
            (4096, !0xfff),
        ] {
            assert_eq!(
                refused(mapping(ipa, 0, size), Attributes::RAM),
                MapError::BeyondGuestAddresses(GuestAddr(ipa))
            );
        }
        for pa in [end - 4096, end, !0xfff] {
            assert_eq!(
                refused(mapping(0, pa, 8192), Attributes::RAM),
                MapError::BeyondPhysicalAddresses(PhysAddr(pa))
            );
        }
        let executable = Attributes {
            execute: Execute::All,
            ..Attributes::DEVICE
        };
        assert_eq!(
            refused(mapping(0, 0, 4096), executable),
            MapError::ExecutableDevice(GuestAddr(0))
        );
        assert_eq!(tables.pages.len(), 2);
        tables
            .map(&mapping(0, 0, 2 * MIB), Attributes::RAM)
            .unwrap();
    });
}

#[test]
fn overlaps_are_refused_at_every_level_and_nothing_is_mapped() {
    let overlaps = [
        // A page, a block and a larger block in what is mapped as each of them.
        (mapping(0, 0, GIB), mapping(4096, 0, 4096), 4096),
        (mapping(0, 0, GIB), mapping(2 * MIB, 0, 2 * MIB), 2 * MIB),
        (mapping(0, 0, GIB), mapping(0, GIB, GIB), 0),
        (mapping(0, 0, 2 * MIB), mapping(8192, 0, 4096), 8192),
        (mapping(GIB, 0, 4096), mapping(0, 0, 2 * GIB), GIB),
        (
            mapping(GIB + 2 * MIB, 0, 2 * MIB),
            mapping(GIB, 0, GIB),
            GIB,
        ),
        (mapping(2 * MIB, 0, 4096), mapping(0, 0, 4 * MIB), 2 * MIB),
        (mapping(8192, 0, 4096), mapping(0, 0, 16384), 8192),
    ];
    for (first, second, at) in overlaps {
        with_tables(|tables| {
            tables.map(&first, Attributes::RAM).unwrap();
            let used = tables.pages.len();
            let refused = tables.map(&second, Attributes::DEVICE);
            assert_eq!(refused, Err(MapError::Overlap(GuestAddr(at))));
            assert_eq!(tables.pages.len(), used);
            let outside = if first.ipa.0 == 0 { first.size } else { 0 };
            assert_eq!(tables.translate(GuestAddr(outside)), None);
        });
    }
}

#[test]
fn nothing_is_mapped_where_tables_elsewhere_map() {
    const BLOCK: u64 = 0x20_0000;
    with_tables(|tables| {
        let (ipa, elsewhere) = (GuestAddr(0x4000_0000), PhysAddr(0x1000_0000));
        // A part of a block takes a whole table.
        tables
            .map_by_tables(ipa, BLOCK + 0x1000, elsewhere)
            .unwrap();
        for at in [0, BLOCK, 2 * BLOCK - 0x1000] {
            let page = mapping(ipa.0 + at, 0x8000_0000, 0x1000);
            let refused = tables.map(&page, Attributes::RAM);
            assert_eq!(refused, Err(MapError::Overlap(page.ipa)), "{at:#x}");
        }
        let behind = mapping(ipa.0 + 2 * BLOCK, 0x8000_0000, 0x1000);
        tables.map(&behind, Attributes::RAM).unwrap();
        let again = tables.map_by_tables(behind.ipa, BLOCK, elsewhere);
        assert_eq!(again, Err(MapError::Overlap(behind.ipa)));
        let unaligned = tables.map_by_tables(GuestAddr(0x5000_1000), BLOCK, elsewhere);
        assert!(matches!(unaligned, Err(MapError::Unaligned { .. })));
    });
}

#[test]
fn guests_have_pages_of_their_own_and_aligned_roots() {
    let mut pages = Pages::new(PhysAddr(BASE.0 + PAGE_SIZE));
    assert!(pages.is_empty());
    assert_eq!(pages.base(), PhysAddr(BASE.0 + ROOT_SIZE));
    let mut roots = Vec::new();
    for guest in 0..3 {
        let mut tables = Stage2::new(&mut pages);
        assert!(tables.root().is_aligned(ROOT_SIZE));
        // An odd number of pages, so that the next root must be aligned.
        tables
            .map(&mapping(0, guest * GIB, 2 * MIB), Attributes::RAM)
            .unwrap();
        roots.push(tables.root());
    }
    assert_eq!(pages.len(), 3 + 1 + 3 + 1 + 3);
    for (guest, root) in roots.into_iter().enumerate() {
        let tables = Stage2 {
            pages: &mut pages,
            root,
        };
        let at = tables.translate(GuestAddr(5)).map(|(pa, _)| pa.0);
        assert_eq!(at, Some(guest as u64 * GIB + 5));
    }
}

#[test]
fn bytes_are_descriptors_from_the_lowest() {
    let mut pages = Pages::new(BASE);
    let mut tables = Stage2::new(&mut pages);
    tables
        .map(&mapping(2 * GIB, GIB, GIB), Attributes::RAM)
        .unwrap();
    let bytes = pages.to_bytes();
    assert_eq!(bytes.len(), 0x2000);
    assert_eq!(bytes[16..24], [0xfd, 0x07, 0, 0x40, 0, 0, 0, 0]);
    assert!(
        bytes[..16]
            .iter()
            .chain(&bytes[24..])
            .all(|byte| *byte == 0)
    );
}

#[test]
fn pages_needed_counts_a_shared_table_once() {
    assert_eq!(pages_needed([].iter()), 2);
    assert_eq!(pages_needed([mapping(0, 0, 4 * GIB)].iter()), 2);
    let devices = [
        mapping(0x900_0000, 0x900_0000, 4096),
        mapping(0x904_0000, 0x904_0000, 4096),
    ];
    assert_eq!(pages_needed(devices.iter()), 4);
    let with_memory = [
        devices[0],
        mapping(GIB, GIB, 1024 * MIB),
        mapping(2 * GIB, GIB, MIB),
    ];
    assert_eq!(pages_needed(with_memory.iter()), 6);
}

/// Ranges small and large, on few distinct places, so that they meet in tables and overlap.
fn any_mapping() -> impl Strategy<Value = Mapping> {
    let place = || {
        (0_u64..4, 0_u64..3, 0_u64..3, prop::bool::weighted(0.2)).prop_map(|(g, m, k, second)| {
            u64::from(second) * 512 * GIB + g * GIB + m * 2 * MIB + k * 4 * KIB
        })
    };
    let size = (0_u64..3, 0_u64..3, 0_u64..3)
        .prop_map(|(g, m, k)| g * GIB + m * 2 * MIB + k * 4 * KIB)
        .prop_filter("not empty", |&size| size != 0);
    (place(), place(), size, prop::bool::ANY).prop_map(|(ipa, pa, size, identity)| {
        // A gigabyte in pages takes long to map; large ranges are congruent.
        let pa = if identity || size >= GIB { ipa } else { pa };
        mapping(ipa, pa, size)
    })
}

proptest! {
    #[test]
    fn leaves_cover_the_range_without_gap(range in any_mapping()) {
        let mut done = 0;
        for leaf in leaves(&range) {
            prop_assert_eq!((leaf.ipa, leaf.pa), (range.ipa.0 + done, range.pa.0 + done));
            prop_assert_eq!((leaf.ipa | leaf.pa) % leaf.level.entry_size(), 0);
            done += leaf.level.entry_size();
        }
        prop_assert_eq!(done, range.size);
    }

    /// Overlap is refused exactly where ranges meet; the pages taken are those predicted.
    #[test]
    fn accepted_mappings_are_disjoint_and_take_the_pages_predicted(
        ranges in prop::collection::vec(any_mapping(), 1..6),
    ) {
        let (accepted, used) = with_tables(|tables| {
            let mut accepted: Vec<Mapping> = Vec::new();
            for range in &ranges {
                let meets = accepted.iter().any(|other| {
                    range.ipa.0 < other.ipa.0 + other.size
                        && other.ipa.0 < range.ipa.0 + range.size
                });
                match tables.map(range, Attributes::RAM) {
                    Ok(()) => {
                        assert!(!meets);
                        accepted.push(*range);
                    }
                    Err(error) => assert!(meets && matches!(error, MapError::Overlap(_))),
                }
            }
            (accepted, tables.pages.len())
        });
        prop_assert_eq!(pages_needed(accepted.iter()), used.next_multiple_of(2));
    }
}
