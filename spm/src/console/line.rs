// SPDX-License-Identifier: MIT OR Apache-2.0
//! One source's stream of bytes: what is text, what is an escape sequence, and the line so far.
//!
//! The line is kept in a form that is safe to print between other sources' lines: printable
//! characters and colours (SGR) only, nothing that moves the cursor or makes the terminal answer.
//! The terminal is taken to be one for UTF-8.

/// Bytes of a line that are kept; a longer line is printed in several pieces.
pub(super) const LINE_SIZE: usize = 256;
/// Room that a character of UTF-8 may need; a line is never cut inside one.
const CHARACTER_SIZE: usize = 4;
/// Bytes of an escape sequence that are held back until its kind is known.
const ESCAPE_SIZE: usize = 64;

const BEL: u8 = 0x07;
const BACKSPACE: u8 = 0x08;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const ESC: u8 = 0x1b;

/// What a byte turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element {
    /// Nothing to do yet.
    Nothing,
    /// A byte of text, or a tabulator.
    Text(u8),
    /// End of line.
    LineFeed,
    /// Back to the start of the line, unless a line feed follows.
    CarriageReturn,
    /// Another control character.
    Control(u8),
    /// [`Stream::escape`] holds a whole sequence that sets colours or weight.
    Style,
    /// [`Stream::escape`] holds another sequence, whole or the start of a long one.
    Sequence,
    /// The next byte of a long sequence.
    SequencePart(u8),
}

/// Where in an escape sequence the stream is (ECMA-48; the states of a VT500's parser).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Text,
    /// After ESC.
    Escape,
    /// After ESC and intermediate bytes.
    Intermediate,
    /// After ESC [. `long`: more than [`ESCAPE_SIZE`] bytes, passed on as they come.
    Control {
        long: bool,
    },
    /// In a string such as a window title, which BEL or ESC \ ends.
    String {
        long: bool,
    },
    /// After ESC in a string.
    StringEscape {
        long: bool,
    },
}

/// The stream of one source.
pub(super) struct Stream {
    /// The line so far, printable as it is.
    line: Vec<u8>,
    escape: Vec<u8>,
    state: State,
    /// Continuation bytes of UTF-8 that the last character still wants.
    expected: u8,
    /// Whether the line holds text, not only styles.
    visible: bool,
    /// Whether the line holds styles, to be undone at its end.
    styled: bool,
    /// A carriage return has come, and what follows it has not.
    pub(super) returned: bool,
    /// The source's line began before what is in `line`: the piece before is printed.
    pub(super) continuing: bool,
    /// Whether anything came since the last look for idle lines.
    pub(super) grown: bool,
}

impl Stream {
    pub(super) const fn new() -> Self {
        Self {
            line: Vec::new(),
            escape: Vec::new(),
            state: State::Text,
            expected: 0,
            visible: false,
            styled: false,
            returned: false,
            continuing: false,
            grown: false,
        }
    }

    pub(super) fn line(&self) -> &[u8] {
        &self.line
    }

    /// The bytes of the sequence that the last [`Element::Style`] or [`Element::Sequence`] was.
    pub(super) fn escape(&self) -> &[u8] {
        &self.escape
    }

    pub(super) const fn is_visible(&self) -> bool {
        self.visible
    }

    pub(super) const fn is_styled(&self) -> bool {
        self.styled
    }

    /// Takes the next byte of the source.
    pub(super) fn feed(&mut self, byte: u8) -> Element {
        self.grown = true;
        match self.state {
            State::Text => self.text(byte),
            State::Escape => match byte {
                b'[' => self.hold(byte, State::Control { long: false }),
                b']' | b'P' | b'X' | b'^' | b'_' => self.hold(byte, State::String { long: false }),
                b' '..=b'/' => self.hold(byte, State::Intermediate),
                b'0'..=b'~' => self.complete(byte, false),
                _ => self.text(byte),
            },
            State::Intermediate => match byte {
                b' '..=b'/' => self.hold(byte, State::Intermediate),
                b'0'..=b'~' => self.complete(byte, false),
                _ => self.text(byte),
            },
            State::Control { long } => match byte {
                b' '..=b'?' => self.hold(byte, State::Control { long }),
                b'@'..=b'~' => self.complete(byte, long),
                _ => self.text(byte),
            },
            State::String { long } => match byte {
                BEL => self.complete(byte, long),
                ESC => self.hold(byte, State::StringEscape { long }),
                // A string has no line ends: one that is never closed ends with its line.
                b'\n' | CAN | SUB => self.text(byte),
                _ => self.hold(byte, State::String { long }),
            },
            State::StringEscape { long } => match byte {
                b'\\' => self.complete(byte, long),
                _ => {
                    self.text(ESC);
                    self.feed(byte)
                }
            },
        }
    }

    /// A byte outside sequences, or one that breaks off a sequence, which is forgotten.
    fn text(&mut self, byte: u8) -> Element {
        self.state = State::Text;
        match byte {
            ESC => {
                self.escape.clear();
                self.hold(ESC, State::Escape)
            }
            b'\n' => Element::LineFeed,
            b'\r' => Element::CarriageReturn,
            0 | CAN | SUB => Element::Nothing,
            b'\t' => Element::Text(byte),
            0x01..b' ' | 0x7f => Element::Control(byte),
            _ => Element::Text(byte),
        }
    }

    /// Adds a byte to the sequence. When it does not fit, the sequence is passed on as it comes.
    fn hold(&mut self, byte: u8, next: State) -> Element {
        let (long, next_if_long) = match next {
            State::Control { long } => (long, State::Control { long: true }),
            State::String { long } => (long, State::String { long: true }),
            State::StringEscape { long } => (long, State::StringEscape { long: true }),
            State::Text | State::Escape | State::Intermediate => (false, State::Text),
        };
        self.state = next;
        if long {
            return Element::SequencePart(byte);
        }
        self.escape.push(byte);
        if self.escape.len() == ESCAPE_SIZE {
            self.state = next_if_long;
            return Element::Sequence;
        }
        Element::Nothing
    }

    /// Ends the sequence with `byte`.
    fn complete(&mut self, byte: u8, long: bool) -> Element {
        self.state = State::Text;
        if long {
            return Element::SequencePart(byte);
        }
        self.escape.push(byte);
        if is_style(&self.escape) {
            Element::Style
        } else {
            Element::Sequence
        }
    }

    /// Does to the line what an element does that has a place in it; false if there is no room. The others do nothing.
    pub(super) fn write(&mut self, element: Element) -> bool {
        match element {
            Element::Text(byte) => self.append(byte),
            Element::Style => self.append_style(),
            Element::Control(byte) => {
                self.control(byte);
                true
            }
            Element::Nothing
            | Element::CarriageReturn
            | Element::LineFeed
            | Element::Sequence
            | Element::SequencePart(_) => true,
        }
    }

    /// Adds a byte of text to the line; false if there is no room. Bytes that are not UTF-8, or
    /// are control characters in UTF-8, become `?`.
    fn append(&mut self, byte: u8) -> bool {
        let continues = byte & 0xc0 == 0x80 && self.expected > 0;
        if !continues && self.line.len() > LINE_SIZE - CHARACTER_SIZE {
            return false;
        }
        self.visible = true;
        let mut kept = byte;
        if continues {
            self.expected -= 1;
            // U+0080 to U+009F, the control characters of ISO 6429.
            if byte < 0xa0 && self.line.last() == Some(&0xc2) {
                self.line.pop();
                kept = b'?';
            }
        } else {
            self.expected = match byte {
                0xc2..=0xdf => 1,
                0xe0..=0xef => 2,
                0xf0..=0xf4 => 3,
                _ => 0,
            };
            if byte >= 0x80 && self.expected == 0 {
                kept = b'?';
            }
        }
        self.line.push(kept);
        true
    }

    /// Adds the style in [`Stream::escape`] to the line; false if there is no room.
    fn append_style(&mut self) -> bool {
        if self.line.len() + self.escape.len() > LINE_SIZE {
            return false;
        }
        self.expected = 0;
        self.styled = true;
        self.line.extend_from_slice(&self.escape);
        true
    }

    /// Takes a control character into account: a backspace removes the last character of the
    /// line (editing sends backspace, space, backspace), if it is not a style.
    fn control(&mut self, byte: u8) {
        if byte != BACKSPACE || self.ends_with_style() {
            return;
        }
        self.expected = 0;
        for _ in 0..CHARACTER_SIZE {
            match self.line.pop() {
                Some(0x80..0xc0) => {}
                _ => break,
            }
        }
    }

    fn ends_with_style(&self) -> bool {
        let start = self.line.iter().rposition(|&byte| byte == ESC);
        start.is_some_and(|start| is_style(&self.line[start..]))
    }

    /// Starts the next line or piece of a line.
    pub(super) fn clear_line(&mut self) {
        self.line.clear();
        self.visible = false;
        self.styled = false;
    }
}

/// Whether a whole sequence is SGR: ESC [ digits and separators m.
fn is_style(sequence: &[u8]) -> bool {
    match sequence {
        [ESC, b'[', parameters @ .., b'm'] => parameters
            .iter()
            .all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':')),
        _ => false,
    }
}
