// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes tagged lines of the bytes of all sources.
//!
//! Each line on the terminal begins with the name of its source: `linux   | login:`. A line is
//! held until it is complete, so that lines of several sources do not mix, except those of the
//! guest with the input focus, whose bytes appear at once. Is such a line unfinished when another
//! has to be printed, it is erased, the other printed, and it is drawn again. A line that had to
//! be printed in several pieces goes on after a `+` instead of the `|`.
//!
//! Output can stop after any byte, because the UART is full or the time is spent. So nothing is
//! printed directly: what has to appear is put into a short *script* of references to text (the
//! line so far, a name), and bytes are drawn from the script one by one. While the script is not
//! empty no input is taken, so what it refers to stays as it is.

use super::label::{Label, NAME_SIZE};
use super::line::{Element, Stream};
use super::script::{DEFAULT_STYLE, ERASE, NEW_LINE, Part, SCRIPT_SIZE};
use super::sink::{Drained, Sink};
use super::{Console, FIRST_OF_HYPERVISOR, OPERATOR, SOURCES, Source, UartToken};
use crate::sync::atomic::Ordering;
use heapless::Deque;
use spumone_config::types::{GuestId, MAX_GUESTS};

/// Bytes taken from one source before the next has its turn.
const BURST: usize = 64;

const SPACES: [u8; NAME_SIZE] = [b' '; NAME_SIZE];

/// The terminal's state. Plain data: touch it with the [`UartToken`] in hand only.
pub struct Mux {
    streams: [Stream; SOURCES],
    labels: [Label; MAX_GUESTS],
    /// Length of the longest name.
    name_width: usize,
    script: Deque<Part, SCRIPT_SIZE>,
    /// Bytes already printed of the script's first part.
    printed: usize,
    /// What to act on once the script is printed, because it had to make way first.
    postponed: Option<(usize, Element)>,
    /// The source whose bytes appear at once.
    focus: usize,
    /// Whether the focused guest's unfinished line is on the terminal, the cursor behind it.
    /// Otherwise the cursor is at the start of an empty line.
    shown: bool,
    /// Whether the focused guest's line on the terminal began with more than its [`Stream`] holds,
    /// so that it cannot be drawn again.
    head_lost: bool,
    /// Sources whose unfinished line is to be printed.
    flush: u32,
    /// Whether the script is the hypervisor's own: a line of it, or the notice of a new focus.
    is_own: bool,
    /// Whether the focused guest's unfinished line is to be drawn when the operator has been answered.
    draws_again: bool,
    /// The source whose turn it is, and how many bytes more.
    turn: usize,
    turn_left: usize,
    /// The last values seen in the [`Console`].
    seen_focus: u16,
    seen_idle: u8,
}

impl Mux {
    /// A terminal with an empty line, and no names yet.
    pub const fn new() -> Self {
        Self {
            streams: [const { Stream::new() }; SOURCES],
            labels: [Label::UNNAMED; MAX_GUESTS],
            name_width: 7,
            script: Deque::new(),
            printed: 0,
            postponed: None,
            focus: 0,
            shown: false,
            head_lost: false,
            flush: 0,
            is_own: false,
            draws_again: false,
            turn: 0,
            turn_left: 0,
            seen_focus: 0,
            seen_idle: 0,
        }
    }

    /// Names a guest (16 bytes count) and gives its tag an ANSI colour (31 to 36 or 91 to 96;
    /// another number becomes the terminal's default colour). Names of all guests are padded to
    /// the longest.
    pub fn add_guest(&mut self, guest: GuestId, name: &str, colour: u8) {
        if let Some(label) = self.labels.get_mut(guest.index()) {
            *label = Label::of_guest(name, colour);
            self.name_width = self.name_width.max(label.name().len());
        }
    }

    /// Moves output from the rings to the sink, in at most `budget` steps; a step is a byte taken
    /// from a ring or given to the sink. Can be continued at any time.
    pub fn drain(
        &mut self,
        token: &mut UartToken,
        console: &Console,
        sink: &mut impl Sink,
        budget: usize,
    ) -> Drained {
        let drained = self.steps(token, console, sink, budget);
        let is_unfocused = console.focus.load(Ordering::Relaxed) != self.seen_focus;
        let is_speaking = is_unfocused || self.is_own && !self.is_still();
        console.is_speaking.store(is_speaking, Ordering::Relaxed);
        drained
    }

    fn steps(
        &mut self,
        token: &mut UartToken,
        console: &Console,
        sink: &mut impl Sink,
        budget: usize,
    ) -> Drained {
        for _ in 0..budget {
            if sink.is_interrupted() {
                return Drained::SinkFull;
            }
            if let Some(byte) = self.next_byte() {
                if !sink.put(byte) {
                    return Drained::SinkFull;
                }
                self.printed += 1;
            } else if let Some((source, element)) = self.postponed.take() {
                self.act(source, element);
            } else if !self.follow_focus(console)
                && !self.prefer_operator(console)
                && !self.take_byte(token, console)
                && !self.draw_again()
                && !self.attend(token, console)
                && !self.next_turn(token, console)
            {
                return Drained::Empty;
            }
        }
        Drained::BudgetSpent
    }

    /// Whether all that was begun is printed.
    fn is_still(&self) -> bool {
        self.script.is_empty() && self.postponed.is_none()
    }

    /// Answers to the operator interrupt the turn of any other source.
    fn prefer_operator(&mut self, console: &Console) -> bool {
        let has_turn = self.turn == OPERATOR && self.turn_left > 0;
        if has_turn || !console.waiting.has(OPERATOR) {
            return false;
        }
        if self.turn_left > 0 {
            console.waiting.add(self.turn);
        }
        console.waiting.take(OPERATOR);
        self.turn = OPERATOR;
        self.turn_left = BURST;
        true
    }

    /// Takes one byte of the source whose turn it is.
    fn take_byte(&mut self, token: &mut UartToken, console: &Console) -> bool {
        if self.turn_left == 0 {
            return false;
        }
        let Some(byte) = console.rings[self.turn].pop(token) else {
            self.turn_left = 0;
            return false;
        };
        self.turn_left -= 1;
        if self.turn_left == 0 {
            // It may have more, for another turn.
            console.waiting.add(self.turn);
        }
        self.is_own = self.turn >= FIRST_OF_HYPERVISOR;
        let element = self.streams[self.turn].feed(byte);
        self.act(self.turn, element);
        true
    }

    /// Gives the turn to the next source that has output.
    fn next_turn(&mut self, token: &UartToken, console: &Console) -> bool {
        for _ in 0..SOURCES {
            let Some(source) = console.waiting.take_after(self.turn) else {
                return false;
            };
            if !console.rings[source].is_empty(token) {
                self.turn = source;
                self.turn_left = BURST;
                return true;
            }
        }
        false
    }

    /// Attends to lines that are to be printed unfinished; between turns, so that no flood of
    /// output keeps them back.
    fn attend(&mut self, token: &UartToken, console: &Console) -> bool {
        // Acquire: a source that has ended has pushed its last byte.
        let ended = console.ended.load(Ordering::Acquire);
        if ended != 0 {
            for source in 0..SOURCES {
                if ended & 1 << source != 0 && console.rings[source].is_empty(token) {
                    console.ended.fetch_and(!(1 << source), Ordering::Relaxed);
                    self.end(source);
                    return true;
                }
            }
        }
        let idle = console.idle.load(Ordering::Relaxed);
        if idle != self.seen_idle {
            self.seen_idle = idle;
            for (source, stream) in self.streams.iter_mut().enumerate() {
                if !stream.grown && stream.is_visible() && source != self.focus {
                    self.flush |= 1 << source;
                }
                stream.grown = false;
            }
        }
        if self.flush == 0 {
            return false;
        }
        let source = self.flush.trailing_zeros() as usize;
        self.flush &= self.flush - 1;
        if self.streams[source].is_visible() && source != self.focus {
            self.print(source, true);
        }
        true
    }

    /// Gives the focus to whom the [`Console`] says, with a notice.
    fn follow_focus(&mut self, console: &Console) -> bool {
        let wanted = console.focus.load(Ordering::Relaxed);
        if wanted == self.seen_focus {
            return false;
        }
        self.seen_focus = wanted;
        self.is_own = true;
        self.make_way();
        self.focus = Source::Guest(GuestId(wanted.to_le_bytes()[0])).index();
        self.say(Part::Text(" -- input: "));
        self.say(Part::Name(self.focus));
        self.say(Part::Text(" (Ctrl-] then ? for help) --\r\n"));
        self.show_again();
        true
    }

    /// The source has stopped: ends its line.
    fn end(&mut self, source: usize) {
        if source == self.focus && self.shown {
            self.say(Part::Text(DEFAULT_STYLE));
            self.say(Part::Text(NEW_LINE));
            self.shown = false;
            self.head_lost = false;
            self.streams[source].clear_line();
        } else if self.streams[source].is_visible() {
            // The script empties the line once it is printed.
            self.print(source, false);
        } else {
            self.streams[source].clear_line();
        }
        self.streams[source].restart();
    }

    fn act(&mut self, source: usize, element: Element) {
        if source == self.focus {
            self.act_at_once(source, element);
        } else {
            self.act_on_held(source, element);
        }
    }

    /// What a source without focus does to its line.
    fn act_on_held(&mut self, source: usize, element: Element) {
        let stream = &mut self.streams[source];
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
            self.postponed = Some((source, element));
            return;
        }
        let fits = match element {
            Element::CarriageReturn => {
                stream.returned = true;
                true
            }
            Element::LineFeed => {
                stream.returned = false;
                if stream.line().is_empty() && stream.continuing {
                    // The line was printed to its end already.
                    stream.continuing = false;
                } else {
                    self.print(source, false);
                }
                true
            }
            // What moves the cursor has no place in a line between others.
            Element::Text(_)
            | Element::Style
            | Element::Control(_)
            | Element::Nothing
            | Element::Sequence
            | Element::SequencePart(_) => stream.write(element),
        };
        if !fits {
            self.print(source, true);
            self.postponed = Some((source, element));
        }
    }

    /// What the source with the focus does to the terminal.
    fn act_at_once(&mut self, source: usize, element: Element) {
        match element {
            Element::Nothing => {}
            Element::CarriageReturn => self.streams[source].returned = true,
            Element::LineFeed => self.line_feed(source),
            Element::SequencePart(byte) => self.say(Part::Byte(byte)),
            Element::Text(_) | Element::Control(_) | Element::Style | Element::Sequence => {
                if self.streams[source].returned {
                    self.carriage_return(source);
                }
                if !self.shown {
                    // The line so far has to be there first.
                    self.show(source);
                    self.postponed = Some((source, element));
                    return;
                }
                let stream = &mut self.streams[source];
                if !stream.write(element) {
                    stream.clear_line();
                    self.head_lost = true;
                    self.postponed = Some((source, element));
                    return;
                }
                self.say(match element {
                    Element::Text(byte) | Element::Control(byte) => Part::Byte(byte),
                    _ => Part::Escape(source),
                });
            }
        }
    }

    fn line_feed(&mut self, source: usize) {
        let stream = &mut self.streams[source];
        stream.returned = false;
        if !self.shown && stream.line().is_empty() && stream.continuing {
            stream.continuing = false;
            return;
        }
        if !self.shown {
            self.show(source);
        }
        if self.streams[source].is_styled() {
            self.say(Part::Text(DEFAULT_STYLE));
        }
        self.say(Part::Text(NEW_LINE));
        self.say(Part::Clear(source));
        self.shown = false;
        self.head_lost = false;
        self.streams[source].continuing = false;
    }

    /// The focused guest starts its line over; its tag would be overwritten, so it is drawn again.
    fn carriage_return(&mut self, source: usize) {
        let stream = &mut self.streams[source];
        stream.returned = false;
        stream.continuing = false;
        stream.clear_line();
        self.head_lost = false;
        if self.shown {
            self.say(Part::Text("\r"));
            self.tag(source);
        }
    }

    /// Prints a source's line and empties it; the source is not the focused one, or its line is
    /// not shown. `continues`: the source has not ended the line.
    fn print(&mut self, source: usize, continues: bool) {
        self.make_way();
        self.tag(source);
        self.say(Part::Line(source));
        if self.streams[source].is_styled() {
            self.say(Part::Text(DEFAULT_STYLE));
        }
        self.say(Part::Text(NEW_LINE));
        self.say(Part::Clear(source));
        self.streams[source].continuing = continues;
        if source == OPERATOR {
            // Once, behind all lines of an answer.
            self.draws_again = true;
        } else if source != self.focus {
            self.show_again();
        }
    }

    /// Frees the terminal's line from the focused guest's unfinished one.
    fn make_way(&mut self) {
        if !self.shown {
            return;
        }
        self.shown = false;
        if self.head_lost {
            self.head_lost = false;
            self.say(Part::Text(DEFAULT_STYLE));
            self.say(Part::Text(NEW_LINE));
            let stream = &mut self.streams[self.focus];
            stream.clear_line();
            stream.continuing = true;
        } else {
            self.say(Part::Text(ERASE));
        }
    }

    /// Draws the focused guest's unfinished line, if it has one.
    fn show_again(&mut self) {
        if !self.streams[self.focus].line().is_empty() {
            self.show(self.focus);
        }
    }

    /// Draws that line again after an answer.
    fn draw_again(&mut self) -> bool {
        if !core::mem::take(&mut self.draws_again) || self.shown {
            return false;
        }
        self.show_again();
        true
    }

    fn show(&mut self, source: usize) {
        self.tag(source);
        self.say(Part::Line(source));
        self.shown = true;
    }

    fn tag(&mut self, source: usize) {
        self.say(Part::Label(source));
        let name = self.label(source).name().len();
        self.say(Part::Pad(self.name_width.saturating_sub(name)));
        self.say(Part::Text(if self.streams[source].continuing {
            " + \x1b[0m"
        } else {
            " | \x1b[0m"
        }));
    }

    fn say(&mut self, part: Part) {
        // There is always room: a script is begun only when the last is printed.
        let _ = self.script.push_back(part);
    }

    /// The next byte of the script.
    fn next_byte(&mut self) -> Option<u8> {
        for _ in 0..=SCRIPT_SIZE {
            let part = self.script.front()?;
            let bytes = match part {
                Part::Text(text) => text.as_bytes(),
                Part::Byte(byte) => core::slice::from_ref(byte),
                Part::Label(source) => self.label(*source).text(),
                Part::Name(source) => self.label(*source).name(),
                Part::Pad(spaces) => SPACES.get(..*spaces).unwrap_or_default(),
                Part::Line(source) => self.streams[*source].line(),
                Part::Escape(source) => self.streams[*source].escape(),
                Part::Clear(_) => &[],
            };
            if let Some(&byte) = bytes.get(self.printed) {
                return Some(byte);
            }
            if let Part::Clear(source) = *part {
                self.streams[source].clear_line();
            }
            self.script.pop_front();
            self.printed = 0;
        }
        None
    }

    fn label(&self, source: usize) -> &Label {
        self.labels.get(source).unwrap_or(&Label::HYPERVISOR)
    }
}

impl Default for Mux {
    fn default() -> Self {
        Self::new()
    }
}
