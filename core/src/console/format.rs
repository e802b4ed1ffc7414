// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes that EL2 writes to the UART: tagged lines, which a terminal shows as they are and a program can separate.
//!
//! A line consists of the name of its source, padded with spaces, [`BEGINS`], the source's bytes, and [`ENDS`]. Where
//! another source has to print before a line has ended, EL2 writes [`BREAKS`]; the rest of the line follows later,
//! after the name and [`GOES_ON`]. A source that returns to the start of its line (`\r`) gets its tag again, with
//! [`BEGINS`].
//!
//! No source can imitate the tag of another one. Line feed, carriage return, [`QUOTE`] and [`CANCEL`] are EL2's own
//! bytes: a source's line feed is written as [`ENDS`], its carriage return as a new tag, the other two are quoted. So
//! each line feed is followed by a tag, and a reader that starts in the middle is correct from the next line feed on.
//! All other control characters are quoted too, except those of the guest with the focus: its programs may draw on the
//! terminal.

/// How the hypervisor's line about an image begins that it refuses. It is the first line of the machine, and has no tag.
pub const REFUSAL: &str = "spumone does not start: ";

/// The name of the hypervisor's own lines.
pub use spumone_config::types::HYPERVISOR_NAME as HYPERVISOR;
/// The largest number of bytes of a name that are used.
pub const NAME_SIZE: usize = 16;
/// Between the name and a line, or what overwrites a line from its start.
pub const BEGINS: &str = " | ";
/// Between the name and the rest of a line.
pub const GOES_ON: &str = " + ";
/// After a line.
pub const ENDS: &str = "\r\n";
/// After a part of a line that is continued later.
pub const BREAKS: &str = "\n\r";
/// DLE, which terminals ignore: the next byte is a control character XOR [`QUOTED`]. So ESC is shown as `[`.
pub const QUOTE: u8 = 0x10;
/// The value by which a quoted control character differs from the character that is written.
pub const QUOTED: u8 = 0x40;
/// CAN: the bytes from here to a carriage return or line feed are only for the terminal, and not part of a line.
pub const CANCEL: u8 = 0x18;
/// Ends any escape sequence, and sets default colours: before [`ENDS`] and [`BREAKS`] when escape sequences were written.
pub const RESET: &str = "\x18\x1b[0m";
/// The beginning of the hypervisor's line that says which guest has the focus; the guest's name and a space follow.
pub const INPUT_GOES_TO: &str = "input goes to ";
