// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the guests to the terminal: guests and the hypervisor write, EL2's own code makes one stream of it, and that is
//! drawn.

mod lossless;
mod screens;

use super::screen::{Reader, Screen};
use super::{Console, write_all};
use spumone_config::types::{GuestId, PcpuId};
use spumone_core::console::format::INPUT_GOES_TO;
use spumone_core::console::{self as el2, Drained, Mux, Served, Sink, Source};
use std::io::{self, ErrorKind, Write};

const LINUX: Source = Source::Guest(GuestId(0));
const RT: Source = Source::Guest(GuestId(1));
const HYP: Source = Source::Hypervisor(PcpuId(0));
const NAMES: [&str; 3] = ["linux", "rt", "other"];

/// The UART: it takes `room` bytes.
struct Uart {
    bytes: Vec<u8>,
    room: usize,
}

impl Sink for Uart {
    fn put(&mut self, byte: u8) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        self.bytes.push(byte);
        true
    }
}

struct Setup {
    el2: Box<el2::Console>,
    mux: Box<Mux>,
    uart: Uart,
    host: Console<Vec<u8>>,
}

impl Setup {
    /// Guest 0 has the keyboard.
    fn new(reader: Reader) -> Self {
        let mut mux = Mux::new();
        for (guest, name) in NAMES.iter().enumerate() {
            mux.add_guest(GuestId(guest as u8), name);
        }
        let screen = Screen::new(NAMES.into_iter().zip([36, 33, 92]), reader);
        let mut setup = Self {
            el2: Box::new(el2::Console::new()),
            mux: Box::new(mux),
            uart: Uart {
                bytes: Vec::new(),
                room: 0,
            },
            host: Console::of(screen, Vec::new()),
        };
        setup.focus(0);
        setup.shown();
        setup
    }

    fn serve(&mut self, room: usize, budget: usize) -> Served {
        self.uart.room = room;
        let (el2, mux, uart) = (&self.el2, &mut self.mux, &mut self.uart);
        let served = el2.serve(|token| -> Drained { mux.drain(token, el2, uart, budget) });
        let bytes = std::mem::take(&mut self.uart.bytes);
        self.host.feed(&bytes).unwrap();
        served
    }

    fn serve_all(&mut self) {
        assert_eq!(self.serve(usize::MAX, usize::MAX), Served::Done);
    }

    fn push(&mut self, source: Source, text: impl AsRef<[u8]>) {
        for &byte in text.as_ref() {
            if self.el2.push(source, byte).is_err() {
                self.serve_all();
                self.el2.push(source, byte).unwrap();
            }
        }
    }

    /// Writes and shows at once.
    fn write(&mut self, source: Source, text: impl AsRef<[u8]>) {
        self.push(source, text);
        self.serve_all();
    }

    /// As the hypervisor does it.
    fn focus(&mut self, guest: u8) {
        self.el2.set_focus(GuestId(guest));
        let name = NAMES[usize::from(guest)];
        self.write(
            Source::Operator,
            format!("{INPUT_GOES_TO}{name} (for help)\n"),
        );
    }

    /// EL2's look for lines that do not grow, and the host's.
    fn idle(&mut self) {
        self.el2.flush_idle();
        self.serve_all();
        self.host.screen.flush_idle();
        self.host.feed(&[]).unwrap();
    }

    /// What was shown since the last call, with `^` for ESC, and labels without colour.
    fn shown(&mut self) -> String {
        let text = String::from_utf8(std::mem::take(&mut self.host.out)).unwrap();
        text.replace("\x1b[0;36m", "")
            .replace("\x1b[0;33m", "")
            .replace("\x1b[0;92m", "")
            .replace("\x1b[0;01m", "")
            .replace(" | \x1b[0m", " | ")
            .replace(" + \x1b[0m", " + ")
            .replace('\x1b', "^")
    }
}

/// A terminal that takes one byte at a time, and none before each.
#[derive(Default)]
struct Slow {
    bytes: Vec<u8>,
    is_free: bool,
}

impl Write for Slow {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.is_free = !self.is_free;
        if self.is_free {
            return Err(ErrorKind::WouldBlock.into());
        }
        self.bytes.extend(&bytes[..1]);
        Ok(1)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_terminal_that_takes_no_more_is_waited_for() {
    let mut slow = Slow::default();
    write_all(&mut slow, b"all").unwrap();
    assert_eq!(slow.bytes, b"all");
}
