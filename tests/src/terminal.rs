// SPDX-License-Identifier: MIT OR Apache-2.0
//! A minimal terminal: turns the console's bytes into the lines that a terminal would show.
//!
//! The hypervisor erases an unfinished line to print another guest's line, and prints it again (carriage
//! return, "erase to the end of the line"). The lines are right only if these sequences are obeyed.

/// Reads bytes, returns lines.
#[derive(Default)]
pub struct Terminal {
    line: Vec<u8>,
    column: usize,
    state: State,
}

#[derive(Default)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC [, with the parameter bytes so far.
    Control(Vec<u8>),
}

const ESC: u8 = 0x1b;
const BACKSPACE: u8 = 8;

impl Terminal {
    /// Takes a byte; returns the line that it has finished.
    pub fn feed(&mut self, byte: u8) -> Option<String> {
        match std::mem::take(&mut self.state) {
            State::Text => match byte {
                ESC => self.state = State::Escape,
                b'\r' => self.column = 0,
                BACKSPACE => self.column = self.column.saturating_sub(1),
                b'\n' => {
                    self.column = 0;
                    let line = std::mem::take(&mut self.line);
                    return Some(String::from_utf8_lossy(&line).into_owned());
                }
                _ => self.put(byte),
            },
            State::Escape if byte == b'[' => self.state = State::Control(Vec::new()),
            State::Escape => {}
            State::Control(mut parameters) => match byte {
                b'K' if parameters.is_empty() || parameters == b"0" => {
                    self.line.truncate(self.column);
                }
                // Other sequences, mostly colours, do not change the text.
                0x40..=0x7e => {}
                _ => {
                    parameters.push(byte);
                    self.state = State::Control(parameters);
                }
            },
        }
        None
    }

    /// The line that is not finished.
    pub fn unfinished(&self) -> String {
        String::from_utf8_lossy(&self.line).into_owned()
    }

    fn put(&mut self, byte: u8) {
        match self.line.get_mut(self.column) {
            Some(place) => *place = byte,
            None => self.line.push(byte),
        }
        self.column += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &str) -> (Vec<String>, String) {
        let mut terminal = Terminal::default();
        let lines = bytes.bytes().filter_map(|byte| terminal.feed(byte));
        (lines.collect(), terminal.unfinished())
    }

    #[test]
    fn colours_are_no_text() {
        let (lines, _) = lines("\x1b[36mrt\x1b[0m      | a\r\nb\r\n");
        assert_eq!(lines, ["rt      | a", "b"]);
    }

    #[test]
    fn an_erased_line_is_gone() {
        let (lines, rest) = lines("linux   | lo\r\x1b[0m\x1b[Krt      | x\r\nlinux   | login: ");
        assert_eq!(lines, ["rt      | x"]);
        assert_eq!(rest, "linux   | login: ");
    }

    #[test]
    fn a_carriage_return_alone_overwrites() {
        assert_eq!(lines("10 %\r20\n").0, ["20 %"]);
        assert_eq!(lines("ab\x08c\n").0, ["ac"]);
    }
}
