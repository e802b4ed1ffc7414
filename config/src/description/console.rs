// SPDX-License-Identifier: MIT OR Apache-2.0
//! `console` of a guest: whether it has a virtual PL011, and the colour of its tag.

use super::TABLES;
use crate::reader::{Table, choice};

/// `console`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Console {
    /// Whether the guest gets a virtual PL011.
    pub uart: bool,
    /// ANSI colour code of its tag, if the description names one.
    pub colour: Option<u8>,
}

/// Colours of console tags by name, with their ANSI codes (ECMA-48, SGR).
const COLOURS: &[(&str, u8)] = &[
    ("red", 31),
    ("green", 32),
    ("yellow", 33),
    ("blue", 34),
    ("magenta", 35),
    ("cyan", 36),
    ("bright-red", 91),
    ("bright-green", 92),
    ("bright-yellow", 93),
    ("bright-blue", 94),
    ("bright-magenta", 95),
    ("bright-cyan", 96),
];

/// Reads `console`.
pub(super) fn read(table: &mut Table<'_, '_, '_>) -> Console {
    let mut console = Console {
        uart: true,
        colour: None,
    };
    if let Some(mut inner) = table.table(
        "console",
        "console",
        "a table such as { colour = \"cyan\" }",
    ) {
        if let Some(uart) = inner.optional("uart", |value| {
            choice(value, &[("pl011", true), ("none", false)])
        }) {
            console.uart = uart.value;
        }
        console.colour = inner
            .optional("colour", |value| choice(value, COLOURS))
            .map(|colour| colour.value);
        inner.finish_with(TABLES);
    }
    console
}
