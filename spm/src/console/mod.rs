// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console of a machine, as its user sees it.
//!
//! EL2 only tags lines ([`spumone_core::console::format`]). Here the stream is taken apart again, and drawn: with colours,
//! and with a prompt that stays below the lines of other guests.

mod line;
mod pipe;
mod screen;
#[cfg(test)]
mod tests;

pub use pipe::Pipe;
pub use screen::{Reader, Screen};

use crate::output::write_all;
use crate::system::System;
use spumone_bench::demux::{Demux, UNTAGGED};
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// How often lines without an end are looked for.
pub const IDLE: Duration = Duration::from_millis(50);
/// ANSI colours of tags, in the order in which guests get them.
const PALETTE: [u8; 8] = [36, 32, 33, 35, 34, 31, 96, 92];

/// A stream of tagged lines, drawn for one reader.
pub struct Console<W> {
    demux: Demux,
    screen: Screen,
    out: W,
    looked: Instant,
}

impl<W: Write> Console<W> {
    /// The console of a machine with this system, from its start on.
    pub fn new(system: &System, reader: Reader, out: W) -> Self {
        let guests = system.description.guests.iter().enumerate();
        let guests = guests.map(|(index, guest)| {
            let colour = guest.console.colour;
            let colour = colour.unwrap_or(PALETTE[index % PALETTE.len()]);
            (guest.name.value.as_str(), colour)
        });
        Self::of(Screen::new(guests, reader), out)
    }

    /// A console that is drawn on this screen.
    pub fn of(screen: Screen, out: W) -> Self {
        Self::reading(Demux::default(), screen, out)
    }

    /// As [`Self::of`], of a stream that is joined in the middle.
    pub fn joining(screen: Screen, out: W) -> Self {
        Self::reading(Demux::joining(), screen, out)
    }

    fn reading(demux: Demux, screen: Screen, out: W) -> Self {
        Self {
            demux,
            screen,
            out,
            looked: Instant::now(),
        }
    }

    /// Takes what has come since the last call, perhaps nothing. To be called at least every [`IDLE`].
    pub fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        for &byte in bytes {
            self.demux
                .feed(byte, |source, byte| self.screen.feed(source, byte));
        }
        if self.looked.elapsed() >= IDLE {
            self.looked = Instant::now();
            self.screen.flush_idle();
        }
        let drawn = self.screen.take();
        write_all(&mut self.out, &drawn)
    }

    /// Nothing comes any more.
    pub fn end(&mut self) -> io::Result<()> {
        for &byte in self.demux.unfinished() {
            self.screen.feed(UNTAGGED, byte);
        }
        self.screen.end();
        let drawn = self.screen.take();
        write_all(&mut self.out, &drawn)
    }
}
