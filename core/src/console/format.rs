// SPDX-License-Identifier: MIT OR Apache-2.0
//! The bytes that EL2 writes to the UART: tagged lines, which a terminal shows as they are and a program takes apart.
//!
//! A line is the name of its source, padded with spaces, [`BEGINS`], the source's bytes, and [`ENDS`]. Where another
//! source has to print before a line has ended, EL2 writes [`BREAKS`]; the rest of the line follows later, behind the
//! name and [`GOES_ON`]. A source that returns to the start of its line (`\r`) gets its tag again, with [`BEGINS`].
//!
//! No source can imitate the tag of another one. Line feed, carriage return, [`QUOTE`] and [`CANCEL`] are EL2's own
//! bytes: a source's line feed is written as [`ENDS`], its carriage return as a new tag, the other two quoted. So a tag
//! stands behind each line feed, and a reader that starts in the middle is right from the next line feed on. All other
//! control characters are quoted too, except those of the guest that is typed to: its programs may draw on the terminal.

/// The name of the hypervisor's own lines.
pub use spumone_config::types::HYPERVISOR_NAME as HYPERVISOR;
/// Bytes of a name that count.
pub const NAME_SIZE: usize = 16;
/// Between the name and a line, or what is written over a line from its start.
pub const BEGINS: &str = " | ";
/// Between the name and the rest of a line.
pub const GOES_ON: &str = " + ";
/// Behind a line.
pub const ENDS: &str = "\r\n";
/// Behind a part of a line that goes on later.
pub const BREAKS: &str = "\n\r";
/// DLE, which terminals ignore: the next byte is a control character XOR [`QUOTED`]. So ESC is shown as `[`.
pub const QUOTE: u8 = 0x10;
/// What makes a printable character of a control character.
pub const QUOTED: u8 = 0x40;
/// CAN: what follows, up to carriage return or line feed, is for the terminal alone.
pub const CANCEL: u8 = 0x18;
/// Ends any escape sequence, and sets default colours: before [`ENDS`] and [`BREAKS`] when escape sequences were written.
pub const RESET: &str = "\x18\x1b[0m";
/// What the hypervisor's line begins with that says which guest is typed to; the guest's name and a space follow.
pub const TYPED_TO: &str = "input goes to ";
