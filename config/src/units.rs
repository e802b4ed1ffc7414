// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sizes and durations in the form of descriptions: `"16MiB"`, `"2ms"`.

/// Bytes of a KiB.
pub const KIB: u64 = 1 << 10;
/// Bytes of a MiB.
pub const MIB: u64 = 1 << 20;
/// Bytes of a GiB.
pub const GIB: u64 = 1 << 30;

/// Size of a stage 2 page: guests get whole pages.
pub const PAGE: u64 = 4 * KIB;
/// Size of a level 2 block. Memory is aligned to it, so that few table entries map it.
pub const BLOCK: u64 = 2 * MIB;

/// A second, in microseconds.
pub const SECOND_US: u64 = 1_000_000;

/// `value` rounded up to a multiple of `alignment` (a power of two); `None` past 2^64.
pub const fn align_up(value: u64, alignment: u64) -> Option<u64> {
    match value.checked_add(alignment - 1) {
        Some(sum) => Some(sum & !(alignment - 1)),
        None => None,
    }
}

/// `value` rounded down to a multiple of `alignment` (a power of two).
pub const fn align_down(value: u64, alignment: u64) -> u64 {
    value & !(alignment - 1)
}

/// Parses a size such as `16MiB`, `512 KiB` or `4096` (bytes).
///
/// # Errors
///
/// What to write instead.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit) = split(text);
    let factor = match unit {
        "" | "B" => 1,
        "KiB" => KIB,
        "MiB" => MIB,
        "GiB" => GIB,
        _ => {
            let cure = match unit.to_ascii_lowercase().as_str() {
                "k" | "kb" | "kib" => "KiB",
                "m" | "mb" | "mib" => "MiB",
                "g" | "gb" | "gib" => "GiB",
                _ => return Err("write a number and KiB, MiB or GiB, such as \"16MiB\"".into()),
            };
            return Err(format!("write \"{digits}{cure}\""));
        }
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "write a whole number and a unit, such as \"16MiB\"")?;
    number
        .checked_mul(factor)
        .ok_or_else(|| "write a size below 16 EiB".into())
}

/// Parses a duration such as `500us`, `2ms` or `1s` into microseconds.
///
/// # Errors
///
/// What to write instead.
pub fn parse_duration_us(text: &str) -> Result<u64, String> {
    let (digits, unit) = split(text);
    let factor = match unit {
        "us" | "µs" => 1,
        "ms" => 1_000,
        "s" => SECOND_US,
        _ => return Err("write a number and us, ms or s, such as \"2ms\"".into()),
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "write a whole number and a unit, such as \"2ms\"")?;
    number
        .checked_mul(factor)
        .ok_or_else(|| "write a shorter time".into())
}

/// Splits `16 MiB` into number and unit.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// A size as text, in the largest unit that divides it.
pub fn size(bytes: u64) -> String {
    match bytes {
        0 => "0 bytes".into(),
        _ if bytes.is_multiple_of(GIB) => format!("{} GiB", bytes / GIB),
        _ if bytes.is_multiple_of(MIB) => format!("{} MiB", bytes / MIB),
        _ if bytes.is_multiple_of(KIB) => format!("{} KiB", bytes / KIB),
        _ => format!("{bytes} bytes"),
    }
}

/// A range of addresses as text, with its last address.
pub fn range(start: u64, size: u64) -> String {
    format!(
        "{start:#x}-{:#x}",
        start.saturating_add(size.saturating_sub(1))
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_with_binary_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("64KiB"), Ok(64 * KIB));
        assert_eq!(parse_size(" 16 MiB "), Ok(16 * MIB));
        assert_eq!(parse_size("2GiB"), Ok(2 * GIB));
    }

    #[test]
    fn a_decimal_unit_is_refused_with_the_binary_one_as_cure() {
        assert_eq!(parse_size("16MB"), Err("write \"16MiB\"".into()));
        assert_eq!(parse_size("2g"), Err("write \"2GiB\"".into()));
        assert!(parse_size("1.5GiB").is_err());
        assert!(parse_size("MiB").is_err());
        assert!(parse_size("-1").is_err());
        assert!(parse_size("99999999999GiB").is_err());
    }

    #[test]
    fn durations_are_read_as_microseconds() {
        assert_eq!(parse_duration_us("500us"), Ok(500));
        assert_eq!(parse_duration_us("2 ms"), Ok(2_000));
        assert_eq!(parse_duration_us("1s"), Ok(1_000_000));
        assert!(parse_duration_us("2").is_err());
        assert!(parse_duration_us("2min").is_err());
    }

    proptest! {
        #[test]
        fn a_printed_size_reads_back(bytes in 1u64..=u64::MAX / 2) {
            let printed = size(bytes).replace(" bytes", "");
            prop_assert_eq!(parse_size(&printed), Ok(bytes));
        }

        #[test]
        fn aligning_moves_by_less_than_the_alignment(value in 0u64..1 << 60, power in 0u32..40) {
            let alignment = 1 << power;
            let up = align_up(value, alignment).unwrap();
            let down = align_down(value, alignment);
            prop_assert!(up >= value && up - value < alignment && up.is_multiple_of(alignment));
            prop_assert!(down <= value && value - down < alignment && down.is_multiple_of(alignment));
        }
    }
}
