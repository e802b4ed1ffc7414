// SPDX-License-Identifier: MIT OR Apache-2.0
//! Takes the console's stream apart: which bytes are whose.
//!
//! The format is [`spumone_core::console::format`]'s. What carries no tag belongs to no source: what QEMU says, or a
//! guest on the bare machine, or the hypervisor when it dies.

use crate::fault;
use spumone_core::console::format::{
    BEGINS, CANCEL, GOES_ON, HYPERVISOR, NAME_SIZE, QUOTE, QUOTED,
};

/// The source of what carries no tag.
pub const UNTAGGED: &str = "";
/// The hypervisor's own lines.
pub const HYPERVISOR_LINES: &str = HYPERVISOR;

/// Bytes of one of its lines that are looked at; its reports are much shorter.
const MAX_LINE: usize = 4096;

/// Reads the stream byte by byte.
///
/// It gives the bytes of each source as the source has written them, except that a carriage return before a line feed
/// and NUL are left out.
#[derive(Debug)]
pub struct Demux {
    state: State,
    /// Whose bytes these are.
    source: String,
    /// What may be a tag.
    tag: Vec<u8>,
    /// The line that the hypervisor is writing.
    line: Vec<u8>,
}

#[derive(Debug)]
enum State {
    /// A tag has to come. If it does not, this byte was the source's after all.
    Tag(Option<u8>),
    Text,
    /// After [`QUOTE`].
    Quoted,
    /// After [`CANCEL`].
    Cancelled,
    /// After a carriage return.
    Returned,
}

/// What the start of a line is.
enum Start {
    /// Perhaps a tag.
    Open,
    Tag {
        name: String,
        begins: bool,
    },
    NoTag,
}

impl Default for Demux {
    /// A reader from the start of a line on, such as the first.
    fn default() -> Self {
        Self {
            state: State::Tag(None),
            source: UNTAGGED.into(),
            tag: Vec::new(),
            line: Vec::new(),
        }
    }
}

impl Demux {
    /// A reader that joins in the middle. What comes before the first line feed belongs to no source.
    pub fn joining() -> Self {
        Self {
            state: State::Text,
            ..Self::default()
        }
    }

    /// Takes a byte; gives `take` each byte that it makes out, with the name of its source.
    pub fn feed(&mut self, byte: u8, mut take: impl FnMut(&str, u8)) {
        let mut line = std::mem::take(&mut self.line);
        let mut explanation = Vec::new();
        self.advance(byte, &mut |source, byte| {
            take(source, byte);
            if source == HYPERVISOR_LINES {
                match byte {
                    b'\r' => line.clear(),
                    b'\n' => explanation.extend(explain(&line)),
                    _ if line.len() < MAX_LINE => line.push(byte),
                    _ => {}
                }
            }
        });
        self.line = line;
        for text in explanation {
            let text = format!("\r{text}\n");
            text.bytes().for_each(|it| take(HYPERVISOR_LINES, it));
        }
    }

    fn advance(&mut self, byte: u8, take: &mut dyn FnMut(&str, u8)) {
        match self.state {
            State::Tag(before) => self.at_start(before, byte, take),
            State::Quoted => {
                self.state = State::Text;
                take(&self.source, byte ^ QUOTED);
            }
            State::Returned if byte == b'\n' => {
                self.state = State::Tag(None);
                take(&self.source, b'\n');
            }
            State::Returned => {
                self.state = State::Tag(Some(b'\r'));
                self.advance(byte, take);
            }
            State::Text | State::Cancelled => match byte {
                b'\r' => self.state = State::Returned,
                b'\n' => {
                    self.state = State::Tag(None);
                    // Of a source it is the break of its line.
                    if self.source == UNTAGGED {
                        take(UNTAGGED, b'\n');
                    }
                }
                _ if matches!(self.state, State::Cancelled) => {}
                CANCEL => self.state = State::Cancelled,
                QUOTE => self.state = State::Quoted,
                _ => take(&self.source, byte),
            },
        }
    }

    /// Behind a line feed or a carriage return.
    fn at_start(&mut self, before: Option<u8>, byte: u8, take: &mut dyn FnMut(&str, u8)) {
        if byte == b'\r' && before.is_none() && self.tag.is_empty() {
            // Behind the break of a line, or a line feed of no source's.
            return;
        }
        self.tag.push(byte);
        match start(&self.tag) {
            Start::Open => {}
            Start::Tag { name, begins } => {
                self.tag.clear();
                self.state = State::Text;
                self.source = name;
                if begins {
                    take(&self.source, b'\r');
                }
            }
            Start::NoTag => {
                let text = std::mem::take(&mut self.tag);
                self.state = State::Text;
                if before.is_none() {
                    self.source = UNTAGGED.into();
                }
                before.into_iter().for_each(|it| take(&self.source, it));
                text.into_iter().for_each(|it| self.advance(it, take));
            }
        }
    }

    /// What may yet become a tag, but has not.
    pub fn unfinished(&self) -> &[u8] {
        &self.tag
    }
}

/// What is to be said below a line of the hypervisor.
fn explain(line: &[u8]) -> Vec<String> {
    let line = std::str::from_utf8(line).unwrap_or_default();
    fault::explain(line).unwrap_or_default()
}

/// Whether `bytes` are a tag: a name, spaces, and [`BEGINS`] or [`GOES_ON`].
fn start(bytes: &[u8]) -> Start {
    let is_of_name = |&it: &u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    let length = bytes
        .iter()
        .position(|it| !is_of_name(it))
        .unwrap_or(bytes.len());
    let (name, rest) = bytes.split_at(length);
    if name.is_empty() || bytes.len() > NAME_SIZE + BEGINS.len() {
        return Start::NoTag;
    }
    let spaces = rest.iter().position(|&it| it != b' ').unwrap_or(rest.len());
    let mark = rest.get(spaces.saturating_sub(1)..).unwrap_or_default();
    for (tag, begins) in [(BEGINS.as_bytes(), true), (GOES_ON.as_bytes(), false)] {
        if mark == tag {
            let name = String::from_utf8_lossy(name).into_owned();
            return Start::Tag { name, begins };
        }
    }
    let is_open = [BEGINS, GOES_ON]
        .iter()
        .any(|it| it.as_bytes().starts_with(mark));
    match is_open {
        true => Start::Open,
        false => Start::NoTag,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The runs of bytes of each source.
    fn read(mut demux: Demux, bytes: &[u8]) -> Vec<(String, String)> {
        let mut runs: Vec<(String, Vec<u8>)> = Vec::new();
        for &byte in bytes {
            demux.feed(byte, |source, byte| match runs.last_mut() {
                Some((last, run)) if last == source => run.push(byte),
                _ => runs.push((source.into(), vec![byte])),
            });
        }
        let text = |run: Vec<u8>| String::from_utf8_lossy(&run).into_owned();
        runs.into_iter().map(|(it, run)| (it, text(run))).collect()
    }

    fn runs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        let own = |&(source, run): &(&str, &str)| (source.to_owned(), run.to_owned());
        list.iter().map(own).collect()
    }

    #[test]
    fn a_line_without_end_takes_little_memory() {
        let mut demux = Demux::default();
        let mut passed = 0;
        let text = b"spumone | ".iter().chain(&[b'x'; 2 * MAX_LINE]);
        text.for_each(|&byte| demux.feed(byte, |_, byte| passed += usize::from(byte == b'x')));
        assert_eq!((passed, demux.line.len()), (2 * MAX_LINE, MAX_LINE));
    }

    #[test]
    fn lines_belong_to_the_sources_in_their_tags() {
        let text = b"linux   | a | b\r\nrt      | a + b\r\nspumone | \r\nlinux   | c";
        assert_eq!(
            read(Demux::default(), text),
            runs(&[
                ("linux", "\ra | b\n"),
                ("rt", "\ra + b\n"),
                ("spumone", "\r\n"),
                ("linux", "\rc")
            ])
        );
    }

    #[test]
    fn a_broken_line_is_not_ended() {
        let text = b"rt      | one, \x1b[1m\x18\x1b[0m\n\rlinux   | x\r\nrt      + two\r\n";
        assert_eq!(
            read(Demux::default(), text),
            runs(&[
                ("rt", "\rone, \x1b[1m"),
                ("linux", "\rx\n"),
                ("rt", "two\n")
            ])
        );
    }

    #[test]
    fn a_line_starts_over_behind_its_tag() {
        assert_eq!(
            read(Demux::default(), b"rt | 10 %\rrt | 20 %\r\n"),
            runs(&[("rt", "\r10 %\r20 %\n")])
        );
    }

    #[test]
    fn what_is_quoted_is_the_sources_own() {
        assert_eq!(
            read(Demux::default(), b"rt | \x10[[2J\xc2\x10\xdb\x10P\x10X\r\n"),
            runs(&[("rt", "\r\x1b[2J\u{9b}\x10\x18\n")])
        );
    }

    #[test]
    fn what_carries_no_tag_has_no_source() {
        let text = b"qemu: a | b\nrt | tick\r\n\r\n=== died\r\n(qemu) \rx\r\n10 % | a\nlinux |x\n";
        assert_eq!(
            read(Demux::default(), text),
            runs(&[
                ("", "qemu: a | b\n"),
                ("rt", "\rtick\n"),
                ("", "\n=== died\n(qemu) \rx\n10 % | a\nlinux |x\n"),
            ])
        );
    }

    #[test]
    fn a_report_about_a_fault_is_explained() {
        let report = "guest rt stopped: vcpu 0 pc=0x0 esr=0x3a000000 far=0x0";
        let text = format!("spumone | {report}\r\nrt      | {report}\r\nspumone | x\r\n");
        let reason = "illegal execution state";
        let explained = format!("\r{report}\n\r  vcpu 0 caused an exception: {reason}\n");
        assert_eq!(
            read(Demux::default(), text.as_bytes()),
            runs(&[
                ("spumone", &explained),
                ("rt", &format!("\r{report}\n")),
                ("spumone", "\rx\n"),
            ])
        );
    }

    /// A reader may join anywhere: from the next line feed on it is right, and before that it blames no source.
    #[test]
    fn a_reader_may_join_in_the_middle() {
        let text = b"rt | one, spumone | lie\x10J\n\rlinux | x\r\nrt + two\rrt | three\r\n";
        let all = read(Demux::default(), text);
        for from in 1..text.len() {
            let mut read = read(Demux::joining(), &text[from..]);
            if read.first().is_some_and(|(source, _)| source == UNTAGGED) {
                read.remove(0);
            }
            let whole: Vec<_> = read.iter().skip(1).cloned().collect();
            assert!(all.ends_with(&whole), "from {from}: {read:?}");
            if let Some((source, run)) = read.first() {
                assert!(
                    all.iter()
                        .any(|(other, it)| source == other
                            && it.ends_with(run.trim_start_matches('\r'))),
                    "from {from}: {read:?}"
                );
            }
        }
    }
}
