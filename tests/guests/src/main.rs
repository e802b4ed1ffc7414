// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bare-metal guest that tests the machine it runs on, and reports on its UART.
//!
//! All that it expects is also true on QEMU's bare machine: a test must not demand of a virtual machine what no
//! real one does. The word `suite=` of the command line selects a suite; each suite is a file.
//! test; each suite is a file.

#![no_std]
#![no_main]
// This program ends with a panic when it cannot continue. CPUs have numbers, and tables are indexed
// by them.
#![allow(clippy::panic, clippy::needless_range_loop)]

mod machine;
mod report;
mod suites;

use core::panic::PanicInfo;
use machine::uart::say;
use machine::{bootargs, psci};

/// Called by `entry` by its name, on the first CPU, when Rust code can run.
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
