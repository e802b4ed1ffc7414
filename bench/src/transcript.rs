// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a machine has said, source by source, line by line, as plain text.

use crate::demux::{Demux, HYPERVISOR_LINES, UNTAGGED};
use std::fmt;

/// A line of a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The guest, the hypervisor ([`HYPERVISOR_LINES`]), or none ([`UNTAGGED`]).
    pub source: String,
    /// Its text without escape sequences; what was erased by backspaces is not in it.
    pub text: String,
}

impl Line {
    /// Whether the hypervisor says it.
    pub fn is_hypervisors(&self) -> bool {
        self.source == HYPERVISOR_LINES
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.source.as_str() {
            UNTAGGED => write!(f, "{}", self.text),
            source => write!(f, "{source:7} | {}", self.text),
        }
    }
}

/// Reads what came over the console: all lines in the order in which they ended, and then those that have not. A line
/// that its source has written over is a line too.
pub fn read(bytes: &[u8]) -> Vec<Line> {
    let mut demux = Demux::default();
    let mut lines = Vec::new();
    let mut open: Vec<(String, Text)> = Vec::new();
    for &byte in bytes {
        demux.feed(byte, |source, byte| {
            let at = match open.iter().position(|(other, _)| other == source) {
                Some(at) => at,
                None => {
                    open.push((source.to_owned(), Text::default()));
                    open.len() - 1
                }
            };
            let text = &mut open[at].1;
            // What is written over is a line too, but an empty one is none.
            let ends = byte == b'\n' || byte == b'\r' && !text.bytes.is_empty();
            if ends {
                let text = std::mem::take(text).finish();
                let source = source.to_owned();
                lines.push(Line { source, text });
            } else {
                text.feed(byte);
            }
        });
    }
    let rest = open
        .into_iter()
        .map(|(source, text)| (source, text.finish()));
    let rest = rest.filter(|(_, text)| !text.is_empty());
    lines.extend(rest.map(|(source, text)| Line { source, text }));
    if !demux.unfinished().is_empty() {
        lines.push(Line {
            source: UNTAGGED.into(),
            text: String::from_utf8_lossy(demux.unfinished()).into_owned(),
        });
    }
    lines
}

/// A line as a terminal shows it, without what moves the cursor elsewhere.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC [.
    Control,
}

const ESC: u8 = 0x1b;
const BACKSPACE: u8 = 8;

impl Text {
    fn feed(&mut self, byte: u8) {
        self.state = match self.state {
            State::Text if byte == ESC => State::Escape,
            State::Text => {
                match byte {
                    BACKSPACE => {
                        self.bytes.pop();
                    }
                    b'\r' | 0 => {}
                    _ => self.bytes.push(byte),
                }
                State::Text
            }
            State::Escape if byte == b'[' => State::Control,
            State::Control if !matches!(byte, 0x40..=0x7e) => State::Control,
            State::Escape | State::Control => State::Text,
        };
    }

    fn finish(self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &str) -> Vec<String> {
        let lines = read(bytes.as_bytes());
        lines.iter().map(Line::to_string).collect()
    }

    #[test]
    fn pieces_of_a_line_are_one() {
        assert_eq!(
            lines("rt      | one, \n\rlinux   | x\r\nrt      + two\r\n"),
            ["linux   | x", "rt      | one, two"]
        );
    }

    #[test]
    fn escape_sequences_are_no_text() {
        assert_eq!(
            lines("rt | \x1b[36mred\x10[[0m\x1b7\r\nb\x10[[2Jc\r\n"),
            ["rt      | red", "bc"]
        );
    }

    #[test]
    fn what_is_erased_or_not_ended() {
        assert_eq!(lines("rt | abd\x10H \x10Hc\r\n"), ["rt      | abc"]);
        assert_eq!(
            lines("rt | 10 %\rrt | 20 %\r\nlinux | login: \n\rrt | x\r\nli"),
            [
                "rt      | 10 %",
                "rt      | 20 %",
                "rt      | x",
                "linux   | login: ",
                "li"
            ]
        );
    }

    #[test]
    fn a_bare_machine_has_no_tags() {
        assert_eq!(lines("a\r\n\r\nb | c\nd"), ["a", "", "b       | c", "d"]);
    }
}
