// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bare-metal guest that tests the machine it runs on, and reports on its UART.
//!
//! What it finds right, it finds right on QEMU's bare machine as well: a test of a virtual machine
//! is no better than its idea of a real one. The word `suite=` of the command line says what to
//! test; each suite is a file.

#![no_std]
#![no_main]
// A panic is how this program says that it cannot go on. CPUs have numbers, and tables are indexed
// by them.
#![allow(clippy::panic, clippy::needless_range_loop)]

mod machine;
mod report;
mod suites;

use core::panic::PanicInfo;
use machine::uart::say;
use machine::{bootargs, psci};

/// On the first CPU, when it is ready for Rust. `entry` calls it by its name.
// SAFETY: nothing else in this program has this name.
#[unsafe(no_mangle)]
extern "C" fn first_main() -> ! {
    let name = bootargs::text("suite").unwrap_or("none");
    match suites::find(name) {
        Some(suite) => suite(),
        None => say!("FAIL suite: there is none called {name}"),
    }
    report::sums();
    psci::system_off()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("FAIL panic: {info}");
    psci::system_off()
}
