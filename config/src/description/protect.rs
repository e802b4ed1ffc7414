// SPDX-License-Identifier: MIT OR Apache-2.0
//! `protect`: what of a guest's memory must not change while the guest runs.
//!
//! `protect = "hash"` or `"local"`, or a table, in which `by` names the way of protection.

use super::TABLES;
use crate::problem::{Span, Spanned};
use crate::reader::{Mismatch, Table, choice, duration_us, size, string};
use crate::units::{self, PAGE};
use std::ops::RangeInclusive;
use toml::de::DeValue;

/// `protect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protect {
    /// The span of the key's value.
    pub span: Span,
    /// The way of protection.
    pub by: By,
    /// The pages that are protected; without a list, what an ELF file says that its program does not write.
    pub ranges: Option<Spanned<Vec<Spanned<Range>>>>,
    /// How long a round over all that is protected is to take, in microseconds, if the description says so.
    pub round: Option<Spanned<u64>>,
    /// How many bytes of local memory the guest has, if the description says so.
    pub memory: Option<Spanned<u64>>,
}

/// Pages of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte, as the guest sees it: a multiple of the page size.
    pub start: u64,
    /// How many bytes: a multiple of the page size, not 0; the end is below 2^64.
    pub size: u64,
}

/// The way of protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Pages are compared with their hashes while the guest runs.
    Hash,
    /// The guest runs from local memory. Pages are compared with their hashes when they are brought there.
    Local,
}

const WAYS: &[(&str, By)] = &[("hash", By::Hash), ("local", By::Local)];
/// The round of a description that names none.
const DEFAULT_ROUND_US: u32 = 1_000_000;
/// A millisecond to an hour.
const ROUND_US: RangeInclusive<u64> = 1_000..=3_600_000_000;
const EXAMPLE: &str = "\"0x4008_0000+64KiB\"";

/// Reads the key.
pub(super) fn read(table: &mut Table<'_, '_, '_>) -> Option<Protect> {
    if table.is_string("protect") {
        let by = table.optional("protect", |value| choice(value, WAYS))?;
        return Some(Protect {
            span: by.span,
            by: by.value,
            ranges: None,
            round: None,
            memory: None,
        });
    }
    let wanted = "\"hash\", \"local\", or a table such as { by = \"hash\", round = \"1s\" }";
    let mut inner = table.table("protect", "protect", wanted)?;
    let span = inner.span;
    let by = inner.required("by", "\"hash\"", |value| choice(value, WAYS));
    let has_ranges = inner.has("ranges");
    let wanted = format!("a list of ranges such as [{EXAMPLE}]");
    let mut all_are_read = true;
    let ranges = inner.list("ranges", &wanted, |value| {
        range(value).inspect_err(|_| all_are_read = false)
    });
    let round = inner.optional("round", |value| {
        let time = duration_us(value, "1s")?;
        match ROUND_US.contains(&time) {
            true => Ok(time),
            false => Err(Mismatch::new("must be from 1ms to 3600s")),
        }
    });
    let memory = inner.optional("memory", size);
    inner.finish_with(TABLES);
    let by = by?.value;
    // Without a list that cannot be read, or a part of it, other pages would be protected.
    if has_ranges && (ranges.is_none() || !all_are_read) {
        return None;
    }
    Some(Protect {
        span,
        by,
        ranges,
        round,
        memory,
    })
}

impl Protect {
    /// How long a round over all that is protected is to take, in microseconds.
    pub fn round_us(&self) -> u32 {
        self.round.map_or(DEFAULT_ROUND_US, |it| {
            u32::try_from(it.value).unwrap_or(u32::MAX)
        })
    }
}

/// Reads a range: address and size, with a plus sign in between.
fn range(value: &DeValue<'_>) -> Result<Range, Mismatch> {
    let text = string(value)?;
    let wanted = || Mismatch::new(format!("must be an address and a size such as {EXAMPLE}"));
    let (start, size) = text.split_once('+').ok_or_else(wanted)?;
    let start = address(start.trim()).ok_or_else(wanted)?;
    let size = units::parse_size(size.trim()).map_err(|cure| wanted().help(cure))?;
    let end = start
        .checked_add(size)
        .and_then(|end| units::align_up(end, PAGE));
    let Some(end) = end.filter(|_| size > 0) else {
        return Err(wanted());
    };
    if start.is_multiple_of(PAGE) && size.is_multiple_of(PAGE) {
        return Ok(Range { start, size });
    }
    let whole = units::align_down(start, PAGE);
    let pages = units::size(end - whole).replace(' ', "");
    Err(
        Mismatch::new("must consist of whole pages of 4 KiB, since stage 2 maps pages").help(
            format!("write \"{whole:#x}+{pages}\", if nothing else in these pages changes"),
        ),
    )
}

/// A number as TOML writes it, in decimal or hexadecimal.
fn address(text: &str) -> Option<u64> {
    let digits = text.replace('_', "");
    match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => digits.parse().ok(),
    }
}
