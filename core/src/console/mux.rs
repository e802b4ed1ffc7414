// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes one stream of tagged lines ([`format`](super::format)) of the bytes of all sources.
//!
//! A source has its turn when its ring has [released](super::OutputRing::push) bytes, in most cases at the end of a
//! line. So lines stay in the rings, and the mux keeps only the output for one byte. The byte is removed from its ring
//! when all of that output is written: output may stop after any byte, because the UART is full or the budget is spent.

use super::format::{
    BEGINS, BREAKS, CANCEL, ENDS, GOES_ON, HYPERVISOR, NAME_SIZE, QUOTE, QUOTED, RESET,
};
use super::sink::{Drained, Sink};
use super::{Console, OPERATOR, SOURCES, UartToken};
use crate::sync::atomic::Ordering;
use heapless::Vec;
use spumone_config::types::{GuestId, MAX_GUESTS};

/// Bytes of a line after which another source has its turn.
pub(super) const LINE_SIZE: usize = 256;
/// The longest output for one byte of a source: the end of another line, a tag, the byte.
const WRITTEN_SIZE: usize = 32;

const _: () = assert!(
    RESET.len() + BREAKS.len() + NAME_SIZE + BEGINS.len() + ENDS.len() <= WRITTEN_SIZE,
    "the output for one byte fits"
);

/// The state of the terminal. Plain data, to be used only by the core with the [`UartToken`].
pub struct Mux {
    /// The names of guests, and last that of the hypervisor, padded to the longest.
    names: [Vec<u8, NAME_SIZE>; MAX_GUESTS + 1],
    /// The output for the first byte in the ring of source `turn`; the next field says how much of it is written.
    pending: Vec<u8, WRITTEN_SIZE>,
    written: usize,
    /// Whether that output is for a byte that is still in its ring. The end of a stream has no byte.
    is_in_ring: bool,
    /// The source whose turn it is; the next field says how many more bytes it may write.
    turn: usize,
    left: usize,
    /// The source whose unfinished line has the cursor behind it; `None`: the cursor is at the start of an empty line.
    line_of: Option<usize>,
    /// Bit n: the line of source n has begun and not ended.
    begun: u32,
    /// Bit n: the last byte of source n was a carriage return.
    returned: u32,
    /// Whether the terminal may be in an escape sequence of a guest, or have colours that a guest has set.
    is_styled: bool,
    /// The last byte of a source that was put into `pending`.
    last: u8,
}

impl Mux {
    /// A terminal with an empty line, and no names yet.
    pub fn new() -> Self {
        let mut names = [const { Vec::new() }; MAX_GUESTS + 1];
        names[MAX_GUESTS] = HYPERVISOR.bytes().collect();
        Self {
            names,
            pending: Vec::new(),
            written: 0,
            is_in_ring: false,
            turn: 0,
            left: 0,
            line_of: None,
            begun: 0,
            returned: 0,
            is_styled: false,
            last: 0,
        }
    }

    /// Sets the name of a guest, of which at most [`NAME_SIZE`] bytes are used. Names of all guests are padded to the
    /// longest.
    pub fn add_guest(&mut self, guest: GuestId, name: &str) {
        if let Some(place) = self.names.get_mut(guest.index()) {
            *place = name.bytes().take(NAME_SIZE).collect();
        }
        let widest = self.names.iter().map(|name| name.len()).max().unwrap_or(0);
        for name in &mut self.names {
            // There is room for the longest.
            let _ = name.resize(widest, b' ');
        }
    }

    /// Moves output from the rings to the sink, in at most `budget` steps; a step is a byte taken
    /// from a ring or given to the sink. Ends early if there is an interrupt, but not before it has done one step, so that no storm of
    /// interrupts stops the output. Can be continued at any time.
    pub fn drain(
        &mut self,
        token: &mut UartToken,
        console: &Console,
        sink: &mut impl Sink,
        budget: usize,
    ) -> Drained {
        // At most 32 times: the largest budget.
        for step in 0..budget {
            if step > 0 && sink.is_interrupted() {
                return Drained::BudgetSpent;
            }
            if let Some(&byte) = self.pending.get(self.written) {
                if !sink.put(byte) {
                    return Drained::SinkFull;
                }
                self.written += 1;
                if self.written == self.pending.len() {
                    self.pending.clear();
                    if self.is_in_ring {
                        console.rings[self.turn].pop(token);
                    }
                }
            } else if !self.take(token, console) {
                return Drained::Empty;
            }
        }
        Drained::BudgetSpent
    }

    /// Puts the output for the next byte into `pending`; false if no source has a byte.
    fn take(&mut self, token: &mut UartToken, console: &Console) -> bool {
        if self.left == 0 && !self.next_turn(console) {
            return false;
        }
        let source = self.turn;
        self.written = 0;
        self.is_in_ring = false;
        // Acquire: a source that has ended has pushed its last byte.
        let has_ended = console.ended.load(Ordering::Acquire) & 1 << source != 0;
        let Some(byte) = console.rings[source].peek(token) else {
            self.left = 0;
            if has_ended {
                console.ended.fetch_and(!(1 << source), Ordering::Relaxed);
                self.returned &= !(1 << source);
                if self.begun & 1 << source != 0 {
                    self.write(source, b'\n', false);
                }
            }
            return true;
        };
        self.left = match byte {
            b'\n' => 0,
            _ => self.left - 1,
        };
        if self.left == 0 {
            // It may have more bytes, for another turn.
            console.waiting.add(source);
        }
        self.write(source, byte, console.is_focused(source));
        self.is_in_ring = !self.pending.is_empty();
        if !self.is_in_ring {
            console.rings[source].pop(token);
        }
        true
    }

    /// Gives the turn to the next source that has output; to the answers to the operator before all others.
    fn next_turn(&mut self, console: &Console) -> bool {
        // At most 17 times: all sources.
        for _ in 0..SOURCES {
            let next = if console.rings[OPERATOR].is_ready() {
                Some(OPERATOR)
            } else {
                console.waiting.take_after(self.turn)
            };
            let Some(source) = next else {
                return false;
            };
            let has_ended = console.ended.load(Ordering::Relaxed) & 1 << source != 0;
            if has_ended || console.rings[source].is_ready() {
                self.turn = source;
                self.left = LINE_SIZE;
                return true;
            }
        }
        false
    }

    /// Puts the output for `byte` of `source` into `pending`. Control characters of the guest with the focus are not
    /// quoted.
    fn write(&mut self, source: usize, byte: u8, is_focused: bool) {
        let bit = 1 << source;
        match byte {
            0 => return,
            b'\r' => {
                self.returned |= bit;
                return;
            }
            _ => {}
        }
        let begins = self.begun & bit == 0 || self.returned & bit != 0 && byte != b'\n';
        if self.line_of != Some(source) {
            if self.line_of.is_some() {
                self.leave_line(BREAKS);
            }
            self.tag(source, begins);
        } else if begins {
            self.put(b"\r");
            self.tag(source, begins);
        }
        self.returned &= !bit;
        if byte == b'\n' {
            self.leave_line(ENDS);
            self.begun &= !bit;
            return;
        }
        self.line_of = Some(source);
        self.begun |= bit;
        if matches!(byte, QUOTE | CANCEL) || !is_focused && is_control(byte, self.last) {
            self.put(&[QUOTE, byte ^ QUOTED]);
        } else {
            self.is_styled |= is_control(byte, self.last);
            self.put(&[byte]);
        }
    }

    fn leave_line(&mut self, how: &str) {
        if core::mem::take(&mut self.is_styled) {
            self.put(RESET.as_bytes());
        }
        self.put(how.as_bytes());
        self.line_of = None;
    }

    fn tag(&mut self, source: usize, begins: bool) {
        let _ = self
            .pending
            .extend_from_slice(&self.names[source.min(MAX_GUESTS)]);
        self.put(if begins { BEGINS } else { GOES_ON }.as_bytes());
    }

    fn put(&mut self, bytes: &[u8]) {
        // There is room: see the assertion at `WRITTEN_SIZE`.
        let _ = self.pending.extend_from_slice(bytes);
        self.last = bytes.last().copied().unwrap_or(0);
    }
}

/// Whether a UTF-8 terminal acts on `byte` after `last`: a control character of ASCII other than the tabulator, or
/// the second byte of one of ISO 6429 (U+0080 to U+009F).
const fn is_control(byte: u8, last: u8) -> bool {
    byte < b' ' && byte != b'\t' || byte == 0x7f || last == 0xc2 && matches!(byte, 0x80..0xa0)
}
