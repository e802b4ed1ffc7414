// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=echo`: sends back what is typed, line by line. It receives by interrupt and sleeps in between. The
//! line `quit` ends it.

use crate::machine::gic;
use crate::machine::interrupts::{self, with_handler};
use crate::machine::uart::{CONSOLE, interrupt, register, say};
use crate::report::record;
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

const SIZE: usize = 256;
/// What the handler has received; `COUNT` is written after a byte.
static RECEIVED: [AtomicU8; SIZE] = [const { AtomicU8::new(0) }; SIZE];
static COUNT: AtomicUsize = AtomicUsize::new(0);

fn receive(_line: interrupts::Line) {
    let taken = gic::acknowledge();
    while let Some(byte) = CONSOLE.receive() {
        let count = COUNT.load(Ordering::Relaxed);
        RECEIVED[count % SIZE].store(byte, Ordering::Relaxed);
        COUNT.store(count + 1, Ordering::Release);
    }
    CONSOLE.write(register::ICR, interrupt::RX | interrupt::RT);
    if taken != gic::SPURIOUS {
        gic::end(taken);
    }
}

/// Runs the suite.
pub fn run() {
    gic::start_distributor();
    gic::start_cpu();
    gic::start_spi(CONSOLE.interrupt);
    gic::set_edge(CONSOLE.interrupt, false);
    CONSOLE.write(register::IMSC, interrupt::RX | interrupt::RT);
    say!("echo begins");
    let mut line = heapless::Vec::<u8, SIZE>::new();
    let mut taken = 0;
    with_handler(receive, || {
        loop {
            interrupts::sleep_until(|| COUNT.load(Ordering::Acquire) > taken);
            let byte = RECEIVED[taken % SIZE].load(Ordering::Relaxed);
            taken += 1;
            if byte != b'\r' && byte != b'\n' {
                // A line that is too long is truncated.
                let _ = line.push(byte);
                continue;
            }
            let text = core::str::from_utf8(&line).unwrap_or("?");
            say!("echo: {text}");
            if text == "quit" {
                break;
            }
            line.clear();
        }
    });
    CONSOLE.write(register::IMSC, 0);
    record("echo", Ok(()));
}
