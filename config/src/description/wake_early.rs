// SPDX-License-Identifier: MIT OR Apache-2.0
//! `wake-early`: how long before the timer of a sleeping vCPU expires its core begins to switch to that vCPU.

use crate::packed::WakeEarly;
use crate::reader::{Mismatch, duration_us};
use toml::de::DeValue;

/// What a description may say.
const WANTED: &str = "\"auto\", \"off\" or a time such as \"8us\"";

/// Reads a word or a time. A time that is too long is refused by [`crate::check`].
pub(super) fn read(value: &DeValue<'_>) -> Result<WakeEarly, Mismatch> {
    match value.as_str() {
        Some("auto") => Ok(WakeEarly::Auto),
        Some("off") => Ok(WakeEarly::Off),
        Some(text) if text.starts_with(|it: char| it.is_ascii_digit()) => duration_us(value, "8us")
            .map(|time| WakeEarly::Microseconds(u32::try_from(time).unwrap_or(u32::MAX))),
        Some(text) => Err(Mismatch::new(format!("must be {WANTED}, not \"{text}\""))),
        None => Err(Mismatch::of_type(WANTED, value)),
    }
}
