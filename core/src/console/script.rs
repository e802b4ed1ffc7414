// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is about to appear on the terminal.

/// Parts of the longest script: a line printed while the focused guest is in mid-line.
pub(super) const SCRIPT_SIZE: usize = 16;

/// Back to the first column in default style, clear the line.
pub(super) const ERASE: &str = "\r\x1b[0m\x1b[K";
/// Default colour and weight.
pub(super) const DEFAULT_STYLE: &str = "\x1b[0m";
/// The end of a line.
pub(super) const NEW_LINE: &str = "\r\n";

/// One part of a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// This text.
    Text(&'static str),
    /// This byte.
    Byte(u8),
    /// The source's name, in its colour.
    Label(usize),
    /// The source's name alone.
    Name(usize),
    /// This many spaces.
    Pad(usize),
    /// The source's line so far.
    Line(usize),
    /// The source's last escape sequence.
    Escape(usize),
    /// Prints nothing; empties the source's line.
    Clear(usize),
}
