// SPDX-License-Identifier: MIT OR Apache-2.0
//! The name of a source in its colour, as it stands before each of its lines.

/// Bytes of a name that count.
pub(super) const NAME_SIZE: usize = 16;
/// Bytes of the sequence that sets the colour.
const STYLE_SIZE: usize = 7;

/// A name and its colour.
#[derive(Clone, Copy)]
pub(super) struct Label {
    text: [u8; STYLE_SIZE + NAME_SIZE],
    name_size: usize,
}

impl Label {
    /// The hypervisor's name, bold.
    pub(super) const HYPERVISOR: Self = Self::new("spumone", *b"01");
    /// Of a guest without a name; in the terminal's default colour.
    pub(super) const UNNAMED: Self = Self::new("?", *b"39");

    /// A name in the style of these two digits (SGR).
    const fn new(name: &str, style: [u8; 2]) -> Self {
        let mut text = [0; STYLE_SIZE + NAME_SIZE];
        // 0: without what the line before has set.
        let sequence = [0x1b, b'[', b'0', b';', style[0], style[1], b'm'];
        let mut at = 0;
        while at < STYLE_SIZE {
            text[at] = sequence[at];
            at += 1;
        }
        let name = name.as_bytes();
        let mut name_size = 0;
        while name_size < name.len() && name_size < NAME_SIZE {
            text[STYLE_SIZE + name_size] = name[name_size];
            name_size += 1;
        }
        Self { text, name_size }
    }

    /// A guest's name in an ANSI colour, 31 to 36 or 91 to 96; any other number is taken for the
    /// terminal's default colour.
    pub(super) const fn of_guest(name: &str, colour: u8) -> Self {
        match colour {
            31..=36 | 91..=96 => Self::new(name, [b'0' + colour / 10, b'0' + colour % 10]),
            _ => Self::new(name, *b"39"),
        }
    }

    /// Colour and name.
    pub(super) fn text(&self) -> &[u8] {
        self.text
            .get(..STYLE_SIZE + self.name_size)
            .unwrap_or_default()
    }

    /// The name alone.
    pub(super) fn name(&self) -> &[u8] {
        self.text().get(STYLE_SIZE..).unwrap_or_default()
    }
}
