// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parts of a line of text, read byte by byte: EL2 writes a line in many short steps, and composes no part of it in memory.

use core::fmt::{self, Write as _};

/// Bits of a hexadecimal digit.
const DIGIT_BITS: usize = 4;
/// The largest number of hexadecimal digits.
const MAX_HEX_DIGITS: usize = 16;

/// A part of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A text.
    Text(&'a str),
    /// `0x` and a hexadecimal number, of at least so many digits.
    Hex {
        /// The number.
        value: u64,
        /// The least number of digits, up to 16.
        digits: usize,
    },
    /// A decimal number.
    Decimal(u8),
}

impl Part<'_> {
    /// The byte at this index; `None` behind the last one.
    pub fn byte(&self, at: usize) -> Option<u8> {
        match *self {
            Self::Text(text) => text.as_bytes().get(at).copied(),
            Self::Hex { value, digits } => match at.checked_sub(2) {
                None => b"0x".get(at).copied(),
                Some(at) => {
                    let used = (u64::BITS - value.leading_zeros()) as usize;
                    let digits = used.div_ceil(DIGIT_BITS).max(digits).min(MAX_HEX_DIGITS);
                    let place = digits.checked_sub(at + 1)?;
                    let digit = value >> (place * DIGIT_BITS) & 0xF;
                    b"0123456789abcdef".get(digit as usize).copied()
                }
            },
            Self::Decimal(value) => {
                let digits = [value / 100, value / 10 % 10, value % 10];
                let leading = usize::from(value < 10) + usize::from(value < 100);
                digits.get(leading + at).map(|digit| b'0' + digit)
            }
        }
    }
}

impl fmt::Display for Part<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            // Of one byte each.
            number => (0..)
                .map_while(|at| number.byte(at))
                .try_for_each(|byte| f.write_char(char::from(byte))),
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::format;
    use std::string::{String, ToString as _};

    /// What the bytes of a part say.
    fn read(part: Part<'_>) -> String {
        (0..)
            .map_while(|at| part.byte(at))
            .map(char::from)
            .collect()
    }

    proptest! {
        /// Numbers read as the standard library writes them.
        #[test]
        fn numbers_are_right(value in any::<u64>(), shift in 0_u32..64, small in any::<u8>()) {
            let value = value >> shift;
            let hex = |digits| Part::Hex { value, digits };
            prop_assert_eq!(read(hex(1)), format!("{value:#x}"));
            prop_assert_eq!(read(hex(8)), format!("{value:#010x}"));
            prop_assert_eq!(read(hex(16)), format!("{value:#018x}"));
            prop_assert_eq!(hex(1).to_string(), format!("{value:#x}"));
            prop_assert_eq!(read(Part::Decimal(small)), small.to_string());
        }
    }

    #[test]
    fn edges() {
        assert_eq!(
            read(Part::Hex {
                value: 0,
                digits: 0
            }),
            "0x"
        );
        assert_eq!(
            read(Part::Hex {
                value: 0,
                digits: 1
            }),
            "0x0"
        );
        assert_eq!(
            read(Part::Hex {
                value: u64::MAX,
                digits: 99
            }),
            "0xffffffffffffffff"
        );
        assert_eq!(read(Part::Text("")), "");
        assert_eq!(read(Part::Text("a b")), "a b");
        assert_eq!(Part::Text("ä").to_string(), "ä");
    }
}
