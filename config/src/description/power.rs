// SPDX-License-Identifier: MIT OR Apache-2.0
//! `[power]`: which cores go off when they are not needed.

use super::TABLES;
use crate::packed::PowerMode;
use crate::problem::Spanned;
use crate::reader::{Mismatch, Table, choice, string};
use crate::types::MAX_PCPUS;
use toml::de::DeValue;

/// `[power]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Power {
    /// How soon cores go off at first.
    pub mode: Spanned<PowerMode>,
    /// How many cores are on.
    pub cores_on: Option<Spanned<CoresOn>>,
}

/// How many cores are on: from 1 to [`MAX_PCPUS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoresOn {
    /// At least.
    pub least: u8,
    /// At most: not fewer.
    pub most: u8,
}

/// The modes by name.
pub const POWER_MODES: &[(&str, PowerMode)] = &[
    ("performance", PowerMode::Performance),
    ("balanced", PowerMode::Balanced),
    ("saving", PowerMode::Saving),
];

/// Reads the table.
pub(super) fn read(mut table: Table<'_, '_, '_>) -> Option<Power> {
    let mode = table.required("mode", "\"balanced\"", |value| choice(value, POWER_MODES));
    let cores_on = table.optional("cores-on", cores_on);
    table.finish_with(TABLES);
    Some(Power {
        mode: mode?,
        cores_on,
    })
}

/// Reads the least and the greatest number: `"2..4"`, or one number for both: `"2"`.
fn cores_on(value: &DeValue<'_>) -> Result<CoresOn, Mismatch> {
    let text = string(value)?;
    let (least, most) = text.split_once("..").unwrap_or((&text, &text));
    let number = |text: &str| text.trim().parse().ok().filter(|it| *it >= 1);
    match number(least).zip(number(most)) {
        Some((least, most)) if least <= most && usize::from(most) <= MAX_PCPUS => {
            Ok(CoresOn { least, most })
        }
        Some((least, most)) if least > most => Err(Mismatch::new(format!(
            "must name the smaller number first: \"{most}..{least}\""
        ))),
        _ => Err(Mismatch::new(format!(
            "must be two numbers from 1 to {MAX_PCPUS}, as \"2..4\", or one"
        ))),
    }
}
