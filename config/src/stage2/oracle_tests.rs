// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same mappings, made by an independent implementation: crate `aarch64-paging`.
//!
//! It has neither concatenated root tables nor FEAT_XNX, so its walk starts at level 0, and
//! execution is compared for all or none.

use super::{Access, Attributes, Execute, IPA_BITS, Memory, Pages, Stage2};
use crate::packed::Mapping;
use crate::types::{GuestAddr, PhysAddr};
use aarch64_paging::Mapping as OracleTables;
use aarch64_paging::descriptor::{PhysicalAddress, Stage2Attributes};
use aarch64_paging::idmap::IdTranslation;
use aarch64_paging::paging::{Constraints, MemoryRegion, Stage2 as Stage2Regime};
use proptest::prelude::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// The oracle's tables, from level 0.
struct Oracle(OracleTables<IdTranslation<Stage2Attributes>, Stage2Regime>);

impl Oracle {
    fn new() -> Self {
        Self(OracleTables::new(IdTranslation::new(), 0, Stage2Regime))
    }

    fn map(&mut self, mapping: &Mapping, attributes: Attributes) {
        let memory = match attributes.memory {
            Memory::Normal => {
                Stage2Attributes::MEMATTR_NORMAL_INNER_WB
                    | Stage2Attributes::MEMATTR_NORMAL_OUTER_WB
                    | Stage2Attributes::SH_INNER
            }
            Memory::NonCacheable => {
                Stage2Attributes::MEMATTR_NORMAL_INNER_NC
                    | Stage2Attributes::MEMATTR_NORMAL_OUTER_NC
            }
            Memory::Device => Stage2Attributes::MEMATTR_DEVICE_nGnRE,
        };
        let access = match attributes.access {
            Access::ReadOnly => Stage2Attributes::S2AP_ACCESS_RO,
            Access::ReadWrite => Stage2Attributes::S2AP_ACCESS_RW,
        };
        let execute = match attributes.execute {
            Execute::None => Stage2Attributes::XN,
            _ => Stage2Attributes::empty(),
        };
        let flags =
            Stage2Attributes::VALID | Stage2Attributes::ACCESS_FLAG | memory | access | execute;
        let start = mapping.ipa.0 as usize;
        let range = MemoryRegion::new(start, start + mapping.size as usize);
        self.0
            .map_range(
                &range,
                PhysicalAddress(mapping.pa.0 as usize),
                flags,
                Constraints::empty(),
            )
            .unwrap();
    }

    fn translate(&self, ipa: GuestAddr) -> Option<(PhysAddr, Attributes)> {
        let page = ipa.0 as usize & !0xfff;
        let mut found = None;
        self.0
            .walk_range(
                &MemoryRegion::new(page, page + 0x1000),
                &mut |_, descriptor, level| {
                    if descriptor.is_valid() {
                        let size = 0x1000_u64 << (9 * (3 - level));
                        let base = descriptor.output_address().0 as u64;
                        found = Some((
                            PhysAddr(base | ipa.0 & (size - 1)),
                            read(descriptor.flags()),
                        ));
                    }
                    Ok(())
                },
            )
            .unwrap();
        found
    }
}

/// What the oracle's descriptor means, read from its own names of the bits.
fn read(flags: Stage2Attributes) -> Attributes {
    let memory_bits =
        Stage2Attributes::MEMATTR_NORMAL_INNER_WB | Stage2Attributes::MEMATTR_NORMAL_OUTER_WB;
    let non_cacheable =
        Stage2Attributes::MEMATTR_NORMAL_INNER_NC | Stage2Attributes::MEMATTR_NORMAL_OUTER_NC;
    Attributes {
        memory: if flags & memory_bits == memory_bits {
            Memory::Normal
        } else if flags & memory_bits == non_cacheable {
            Memory::NonCacheable
        } else {
            assert_eq!(flags & memory_bits, Stage2Attributes::MEMATTR_DEVICE_nGnRE);
            Memory::Device
        },
        access: if flags.contains(Stage2Attributes::S2AP_ACCESS_RW) {
            Access::ReadWrite
        } else {
            assert!(flags.contains(Stage2Attributes::S2AP_ACCESS_RO));
            Access::ReadOnly
        },
        execute: if flags.contains(Stage2Attributes::XN) {
            Execute::None
        } else {
            Execute::All
        },
    }
}

fn any_attributes() -> impl Strategy<Value = Attributes> {
    let access = || prop_oneof![Just(Access::ReadOnly), Just(Access::ReadWrite)];
    let normal = (
        access(),
        prop_oneof![Just(Execute::All), Just(Execute::None)],
    )
        .prop_map(|(access, execute)| Attributes {
            memory: Memory::Normal,
            access,
            execute,
        });
    let device = access().prop_map(|access| Attributes {
        access,
        ..Attributes::DEVICE
    });
    let shared = prop_oneof![Just(Attributes::SHARED), Just(Attributes::SHARED_READ_ONLY)];
    prop_oneof![normal, device, shared]
}

/// Ranges that follow each other with gaps, so they are disjoint; each congruent to a gigabyte,
/// to 2 MiB or only to 4 KiB.
fn any_layout() -> impl Strategy<Value = Vec<(Mapping, Attributes)>> {
    let gap = prop_oneof![
        Just(0),
        Just(4 * KIB),
        Just(2 * MIB),
        Just(GIB - 4 * KIB),
        Just(200 * GIB)
    ];
    let size = prop_oneof![
        (1_u64..20).prop_map(|pages| pages * 4 * KIB),
        (1_u64..1100).prop_map(|pages| pages * 4 * KIB),
        (1_u64..5).prop_map(|blocks| blocks * 2 * MIB),
        (1_u64..3).prop_map(|blocks| blocks * GIB),
        (1_u64..8).prop_map(|pages| GIB + pages * 4 * KIB),
    ];
    let offset = prop_oneof![Just(GIB), Just(2 * MIB), Just(4 * KIB)];
    let range = (gap, size, offset, 0_u64..40, any_attributes());
    prop::collection::vec(range, 1..6).prop_map(|ranges| {
        let mut next = 0;
        let mut layout = Vec::new();
        for (gap, size, unit, factor, attributes) in ranges {
            // A gigabyte cut into pages takes too long for a test.
            let unit = if size >= GIB { unit.max(2 * MIB) } else { unit };
            let ipa = next + gap;
            let pa = ipa + factor * unit;
            if pa + size <= 1 << IPA_BITS {
                layout.push((
                    Mapping {
                        ipa: GuestAddr(ipa),
                        pa: PhysAddr(pa),
                        size,
                    },
                    attributes,
                ));
                next = ipa + size;
            }
        }
        layout
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn translations_equal_those_of_the_oracle(
        layout in any_layout(),
        offsets in prop::collection::vec(0_u64..1 << 40, 20),
    ) {
        let mut pages = Pages::new(PhysAddr(0x4000_0000));
        let mut tables = Stage2::new(&mut pages);
        let mut oracle = Oracle::new();
        for (range, attributes) in &layout {
            tables.map(range, *attributes).unwrap();
            oracle.map(range, *attributes);
        }
        let mut samples = offsets.clone();
        for (range, _) in &layout {
            let (start, end) = (range.ipa.0, range.ipa.0 + range.size);
            samples.extend([start.saturating_sub(1), start, end - 1, end]);
            samples.extend(offsets.iter().map(|offset| start + offset % range.size));
        }
        for ipa in samples.into_iter().filter(|ipa| ipa >> IPA_BITS == 0).map(GuestAddr) {
            prop_assert_eq!(tables.translate(ipa), oracle.translate(ipa), "at {}", ipa);
        }
    }
}
