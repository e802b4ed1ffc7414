// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a range is cut into leaves, and how many tables that takes.

use super::{Level, ROOT_TABLES};
use crate::packed::Mapping;

/// One block or page of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) ipa: u64,
    pub(super) pa: u64,
    pub(super) level: Level,
}

/// Cuts a page-aligned range into the largest leaves that alignment and size permit, in the order
/// of addresses.
pub(super) fn leaves(mapping: &Mapping) -> impl Iterator<Item = Leaf> + use<> {
    let (ipa, pa, size) = (mapping.ipa.0, mapping.pa.0, mapping.size);
    let mut done = 0;
    core::iter::from_fn(move || {
        let left = size - done;
        let (at, to) = (ipa + done, pa + done);
        let level = [Level::One, Level::Two, Level::Three]
            .into_iter()
            .find(|level| {
                (at | to) & (level.entry_size() - 1) == 0 && left >= level.entry_size()
            })?;
        done += level.entry_size();
        Some(Leaf {
            ipa: at,
            pa: to,
            level,
        })
    })
}

/// Number of 4 KiB pages that the tables of a guest with these mappings take, root included.
///
/// Always even, as a root is: the next one follows without a gap. For mappings that
/// [`Stage2::map`](super::Stage2::map) accepts.
pub fn pages_needed<'a>(mappings: impl Iterator<Item = &'a Mapping> + Clone) -> usize {
    let tables = ROOT_TABLES
        + tables_below(Level::One, mappings.clone())
        + tables_below(Level::Two, mappings);
    tables.next_multiple_of(ROOT_TABLES)
}

/// Number of entries of `level` that point to a table.
fn tables_below<'a>(level: Level, mappings: impl Iterator<Item = &'a Mapping> + Clone) -> usize {
    let mut count = 0;
    for (position, mapping) in mappings.clone().enumerate() {
        let first = mapping.ipa.0 >> level.shift();
        let last_byte = mapping.ipa.0.saturating_add(mapping.size).saturating_sub(1);
        let last = last_byte >> level.shift();
        for region in first..=last {
            // Ranges that share a region share its table: it is counted with the first of them.
            let mut earlier = mappings.clone().take(position);
            if splits(mapping, level, region) && !earlier.any(|m| splits(m, level, region)) {
                count += 1;
            }
        }
    }
    count
}

/// Whether the mapping puts leaves smaller than one entry of `level` into the `region`th entry.
fn splits(mapping: &Mapping, level: Level, region: u64) -> bool {
    let size = level.entry_size();
    let start = region * size;
    let end = start.saturating_add(size);
    let mapping_end = mapping.ipa.0.saturating_add(mapping.size);
    let touches = mapping.ipa.0 < end && start < mapping_end;
    let covers = mapping.ipa.0 <= start && end <= mapping_end;
    let one_leaf = covers && (mapping.ipa.0 ^ mapping.pa.0) & (size - 1) == 0;
    touches && !one_leaf
}
