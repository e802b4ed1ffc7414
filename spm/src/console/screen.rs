// SPDX-License-Identifier: MIT OR Apache-2.0
//! Draws the lines of all sources on one terminal.
//!
//! Each line begins with the name of its source, in its colour: `linux   | login:`. A line is held until it is complete,
//! so that lines of several sources do not mix. Bytes of the guest that has the keyboard appear at once: if its line is
//! unfinished when another line has to be printed, the unfinished line is erased, the other line is printed, and the
//! unfinished one is drawn again. A line that had to be printed in several pieces goes on after a `+` instead of the `|`.
//!
//! What belongs to no source, such as QEMU's own messages, is passed on as it comes, unless the stream is from elsewhere.

use super::line::{Element, Stream};
use crate::escape;
use spumone_bench::demux::{HYPERVISOR_LINES, UNTAGGED};
use spumone_core::console::format::INPUT_GOES_TO;

/// Back to the first column in default style, clear the line.
const ERASE: &str = "\r\x1b[0m\x1b[K";
/// Default colour and weight.
const DEFAULT_STYLE: &str = "\x1b[0m";
/// SGR of the terminal's default colour, for a guest that is not known.
const DEFAULT_COLOUR: u8 = 39;
/// SGR of the hypervisor's name: bold.
const BOLD: u8 = 1;
/// Where the source of what carries no tag, and the hypervisor, are among the sources.
const NO_SOURCE: usize = 0;
const HYPERVISOR: usize = 1;
const FIRST_GUEST: usize = 2;
/// Most sources that are known at a time, several times the guests of a machine. A log may be made of many: then the source that came first is
/// forgotten.
const MAX_SOURCES: usize = 64;

/// What reads what is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// A terminal: with colours, and what is typed appears at once.
    Terminal,
    /// A terminal whose keyboard no guest has: with colours, whole lines.
    Viewer,
    /// A file: whole lines without colours.
    File,
}

struct Source {
    name: String,
    colour: u8,
    stream: Stream,
}

impl Source {
    fn new(name: &str, colour: u8) -> Self {
        Self {
            name: name.to_owned(),
            colour,
            stream: Stream::new(),
        }
    }
}

/// A terminal, or a file.
pub struct Screen {
    sources: Vec<Source>,
    /// Where among them the one of the last byte is: the next byte is most likely of the same.
    last: usize,
    /// Where the one is that is forgotten next.
    oldest: usize,
    /// Length of the longest name.
    width: usize,
    reader: Reader,
    /// The guest that has the keyboard.
    focus: Option<usize>,
    /// The source whose unfinished line is on the terminal, with the cursor behind it. `None`: the cursor is at the start of
    /// an empty line.
    shown: Option<usize>,
    /// Whether that line began with more than its [`Stream`] holds, so that it cannot be drawn again.
    head_lost: bool,
    /// Of a stream from elsewhere: what belongs to no source, as a terminal may get it.
    foreign: Option<escape::Stream>,
    out: Vec<u8>,
}

impl Screen {
    /// An empty line; `guests` have these names, and these colours (SGR 31 to 36 and 91 to 96).
    pub fn new<'a>(guests: impl IntoIterator<Item = (&'a str, u8)>, reader: Reader) -> Self {
        let mut sources = vec![
            Source::new(UNTAGGED, DEFAULT_COLOUR),
            Source::new(HYPERVISOR_LINES, BOLD),
        ];
        sources.extend(
            guests
                .into_iter()
                .map(|(name, colour)| Source::new(name, colour)),
        );
        Self {
            width: sources.iter().map(|it| it.name.len()).max().unwrap_or(0),
            last: NO_SOURCE,
            oldest: FIRST_GUEST,
            sources,
            reader,
            focus: None,
            shown: None,
            head_lost: false,
            foreign: None,
            out: Vec::new(),
        }
    }

    /// What belongs to no source is not from a QEMU that this process has started: it may come from anybody.
    pub fn foreign(self) -> Self {
        Self {
            foreign: Some(escape::Stream::default()),
            ..self
        }
    }

    /// Takes a byte of a source.
    pub fn feed(&mut self, source: &str, byte: u8) {
        if self
            .sources
            .get(self.last)
            .is_none_or(|it| it.name != source)
        {
            let known = self.sources.iter().position(|it| it.name == source);
            self.last = known.unwrap_or_else(|| self.add(source));
        }
        let source = self.last;
        if source == NO_SOURCE {
            self.pass_on(byte);
            return;
        }
        let element = self.stream(source).feed(byte);
        if self.focus == Some(source) {
            self.act_at_once(source, element);
        } else {
            self.act_on_held(source, element);
        }
    }

    /// Makes a new source known; returns where it is.
    fn add(&mut self, name: &str) -> usize {
        let new = Source::new(name, DEFAULT_COLOUR);
        if self.sources.len() < MAX_SOURCES {
            self.sources.push(new);
            return self.sources.len() - 1;
        }
        if self.focus == Some(self.oldest) {
            self.oldest = Self::after(self.oldest);
        }
        let place = self.oldest;
        self.oldest = Self::after(place);
        if self.stream(place).is_visible() {
            self.print(place, false);
        }
        self.sources[place] = new;
        place
    }

    /// The place after `place` of a source that can be forgotten.
    const fn after(place: usize) -> usize {
        match place + 1 < MAX_SOURCES {
            true => place + 1,
            false => FIRST_GUEST,
        }
    }

    /// What is to be written now. To be called when no more bytes are there to be fed: the line of the guest that has
    /// the keyboard is drawn again then.
    pub fn take(&mut self) -> Vec<u8> {
        self.show_again();
        std::mem::take(&mut self.out)
    }

    /// Draws the unfinished line of the guest that has the keyboard, if it has one.
    fn show_again(&mut self) {
        if self.shown.is_none()
            && let Some(focus) = self.focus
            && !self.stream(focus).line().is_empty()
        {
            self.show(focus);
        }
    }

    /// To be called some times a second: a line without an end that has not grown since the last call is printed as it is.
    pub fn flush_idle(&mut self) {
        for source in HYPERVISOR..self.sources.len() {
            let stream = self.stream(source);
            let is_idle = !std::mem::take(&mut stream.grown) && stream.is_visible();
            if is_idle && self.focus != Some(source) {
                self.print(source, true);
            }
        }
    }

    /// Nothing comes any more: prints all lines that have no end.
    pub fn end(&mut self) {
        for source in HYPERVISOR..self.sources.len() {
            if self.shown != Some(source) && self.stream(source).is_visible() {
                self.print(source, false);
            }
        }
        if let Some(foreign) = &mut self.foreign {
            foreign.end(&mut self.out);
        }
        if self.shown.take().is_some() {
            self.style(DEFAULT_STYLE);
            self.say("\r\n");
        }
        self.focus = None;
    }

    fn stream(&mut self, source: usize) -> &mut Stream {
        &mut self.sources[source].stream
    }

    /// A byte of no source.
    fn pass_on(&mut self, byte: u8) {
        if self.shown != Some(NO_SOURCE) {
            self.make_way();
        }
        match (byte, &mut self.foreign) {
            (b'\n', foreign) => {
                if let Some(foreign) = foreign {
                    foreign.end(&mut self.out);
                }
                self.say("\r\n");
            }
            (_, Some(foreign)) => foreign.feed(byte, &mut self.out),
            (_, None) => self.out.push(byte),
        }
        self.shown = (byte != b'\n').then_some(NO_SOURCE);
    }

    /// What a source without the keyboard does to its line.
    fn act_on_held(&mut self, source: usize, element: Element) {
        let stream = self.stream(source);
        let writes = matches!(
            element,
            Element::Text(_) | Element::Control(_) | Element::Style
        );
        if stream.returned && writes {
            // A line that is written over is printed first, so that nothing is lost.
            stream.returned = false;
            if stream.line().is_empty() {
                stream.continuing = false;
            } else {
                self.print(source, false);
            }
        }
        match element {
            Element::CarriageReturn => self.stream(source).returned = true,
            Element::LineFeed => {
                let stream = self.stream(source);
                stream.returned = false;
                if stream.line().is_empty() && stream.continuing {
                    // The line was printed to its end already.
                    stream.continuing = false;
                } else {
                    self.print(source, false);
                }
            }
            // What moves the cursor has no place in a line between others.
            _ => {
                if !self.stream(source).write(element) {
                    self.print(source, true);
                    // An empty line has room for it.
                    self.stream(source).write(element);
                }
            }
        }
    }

    /// What the guest that has the keyboard does to the terminal.
    fn act_at_once(&mut self, source: usize, element: Element) {
        match element {
            Element::Nothing => {}
            Element::CarriageReturn => self.stream(source).returned = true,
            Element::LineFeed => self.line_feed(source),
            Element::SequencePart(byte) => self.out.push(byte),
            Element::Text(_) | Element::Control(_) | Element::Style | Element::Sequence => {
                if self.shown != Some(source) {
                    let stream = self.stream(source);
                    if stream.returned && stream.line().is_empty() {
                        // A line begins.
                        stream.returned = false;
                        stream.continuing = false;
                    }
                    // The line so far has to be there first.
                    self.make_way();
                    self.show(source);
                }
                if self.stream(source).returned {
                    self.carriage_return(source);
                }
                if !self.stream(source).write(element) {
                    self.stream(source).clear_line();
                    self.head_lost = true;
                    self.stream(source).write(element);
                }
                match element {
                    Element::Text(byte) | Element::Control(byte) => self.out.push(byte),
                    _ => self.out.extend(self.sources[source].stream.escape()),
                }
            }
        }
    }

    fn line_feed(&mut self, source: usize) {
        let is_shown = self.shown == Some(source);
        let stream = self.stream(source);
        stream.returned = false;
        if !is_shown && stream.line().is_empty() && stream.continuing {
            stream.continuing = false;
            return;
        }
        if !is_shown {
            self.make_way();
            self.show(source);
        }
        self.end_line(source, false);
        self.shown = None;
        self.head_lost = false;
    }

    /// The guest that has the keyboard starts its line over; its tag would be overwritten, so it is drawn again.
    fn carriage_return(&mut self, source: usize) {
        let stream = self.stream(source);
        stream.returned = false;
        stream.continuing = false;
        stream.clear_line();
        self.head_lost = false;
        self.say("\r");
        self.tag(source);
    }

    /// Prints a source's line, which is not on the terminal, and empties it. `continues`: the source has not ended the line.
    fn print(&mut self, source: usize, continues: bool) {
        self.make_way();
        self.tag(source);
        self.line(source);
        let focus = self.announced(source);
        self.end_line(source, continues);
        if focus.is_some() {
            self.focus = focus;
            // At once: what comes next may overwrite it.
            self.show_again();
        }
    }

    /// The guest that has the keyboard from now on, if the unfinished line of this source says so.
    fn announced(&self, source: usize) -> Option<usize> {
        if source != HYPERVISOR || self.reader != Reader::Terminal {
            return None;
        }
        let line = String::from_utf8_lossy(self.sources[HYPERVISOR].stream.line());
        let name = line.strip_prefix(INPUT_GOES_TO)?.split(' ').next()?;
        self.sources.iter().position(|it| it.name == name)
    }

    /// Frees the terminal's line from the unfinished one.
    fn make_way(&mut self) {
        match self.shown.take() {
            None => {}
            Some(source) if source != NO_SOURCE && !self.head_lost => self.say(ERASE),
            Some(source) => {
                self.head_lost = false;
                self.style(DEFAULT_STYLE);
                self.say("\r\n");
                let stream = self.stream(source);
                stream.clear_line();
                stream.continuing = true;
            }
        }
    }

    fn show(&mut self, source: usize) {
        self.tag(source);
        self.line(source);
        self.shown = Some(source);
    }

    fn tag(&mut self, source: usize) {
        let Source {
            name,
            colour,
            stream,
        } = &self.sources[source];
        let mark = if stream.continuing { '+' } else { '|' };
        let width = self.width;
        let tag = match self.reader {
            Reader::File => format!("{name:width$} {mark} "),
            // 0: without what the line before has set.
            _ => format!("\x1b[0;{colour:02}m{name:width$} {mark} {DEFAULT_STYLE}"),
        };
        self.say(&tag);
    }

    fn line(&mut self, source: usize) {
        let line = self.sources[source].stream.line();
        match self.reader {
            Reader::File => self.out.extend(without_styles(line)),
            _ => self.out.extend(line),
        }
    }

    fn end_line(&mut self, source: usize, continues: bool) {
        if self.stream(source).is_styled() {
            self.style(DEFAULT_STYLE);
        }
        self.say("\r\n");
        self.stream(source).clear_line();
        self.stream(source).continuing = continues;
    }

    fn style(&mut self, style: &str) {
        if self.reader != Reader::File {
            self.say(style);
        }
    }

    fn say(&mut self, text: &str) {
        // Files have the host's line ends.
        let text = match self.reader {
            Reader::File => text.trim_start_matches('\r'),
            _ => text,
        };
        self.out.extend(text.bytes());
    }
}

/// A line, whose only control characters are those of styles, without these.
fn without_styles(line: &[u8]) -> impl Iterator<Item = u8> {
    let mut is_style = false;
    line.iter().copied().filter(move |&byte| {
        let was_style = is_style;
        is_style = byte == 0x1b || is_style && byte != b'm';
        !is_style && !was_style
    })
}
