// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of output: guests and the hypervisor write, a UART takes the bytes. Tests in `spm/` check that the stream can
//! be separated again.

mod operator;
mod wire;

use super::*;
use std::boxed::Box;
use std::string::String;
use std::vec::Vec;

const LINUX: Source = Source::Guest(GuestId(0));
const RT: Source = Source::Guest(GuestId(1));
const HYP: Source = Source::Hypervisor(PcpuId(0));

/// A UART that takes `room` bytes and records them.
struct Screen {
    bytes: Vec<u8>,
    room: usize,
    is_interrupted: bool,
}

impl Sink for Screen {
    fn put(&mut self, byte: u8) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        self.bytes.push(byte);
        true
    }

    fn is_interrupted(&self) -> bool {
        self.is_interrupted
    }
}

struct Setup {
    console: Box<Console>,
    mux: Box<Mux>,
    screen: Screen,
}

impl Setup {
    fn new() -> Self {
        let mut mux = Mux::new();
        mux.add_guest(GuestId(0), "linux");
        mux.add_guest(GuestId(1), "rt");
        mux.add_guest(GuestId(2), "other");
        Self {
            console: Box::new(Console::new()),
            mux: Box::new(mux),
            screen: Screen {
                bytes: Vec::new(),
                room: 0,
                is_interrupted: false,
            },
        }
    }

    fn serve(&mut self, room: usize, budget: usize) -> Served {
        self.screen.room = room;
        let (console, mux, screen) = (&self.console, &mut self.mux, &mut self.screen);
        console.serve(|token| mux.drain(token, console, screen, budget))
    }

    fn serve_all(&mut self) {
        assert_eq!(self.serve(usize::MAX, usize::MAX), Served::Done);
    }

    /// Writes and serves at once.
    fn write(&mut self, source: Source, text: impl AsRef<[u8]>) {
        for &byte in text.as_ref() {
            if self.console.push(source, byte).is_err() {
                self.serve_all();
                self.console.push(source, byte).unwrap();
            }
        }
        self.serve_all();
    }

    fn idle(&mut self) {
        for _ in 0..2 {
            self.console.flush_idle();
            self.serve_all();
        }
    }

    /// The output since the last call, with `^[` for ESC and `^X` for CAN.
    fn shown(&mut self) -> String {
        let text = String::from_utf8(core::mem::take(&mut self.screen.bytes)).unwrap();
        text.replace('\x1b', "^[").replace('\x18', "^X")
    }
}

/// The core does one step of output, then handles an interrupt, and so on.
#[test]
fn interrupts_that_never_end_do_not_stop_the_output() {
    let mut it = Setup::new();
    for byte in *b"a line\n" {
        it.console.push(LINUX, byte).unwrap();
    }
    it.screen.is_interrupted = true;
    for _ in 0..100 {
        let before = it.screen.bytes.len();
        let served = it.serve(usize::MAX, usize::MAX);
        if served == Served::Done {
            break;
        }
        assert!(it.screen.bytes.len() <= before + 1);
    }
    assert!(it.shown().ends_with("a line\r\n"));
}
