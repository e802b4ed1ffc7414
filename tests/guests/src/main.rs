// SPDX-License-Identifier: MIT OR Apache-2.0
//! A bare-metal guest that tests the machine it runs on, and reports on its UART.
//!
//! Each test also passes on QEMU without a hypervisor: a test must not demand what a real machine does not do. The word
//! `suite=` of the command line selects a suite; each suite is a file or a folder.

#![no_std]
#![no_main]
// This program panics when it cannot continue. Tables are indexed by the numbers of CPUs.
#![allow(clippy::panic, clippy::needless_range_loop)]

mod machine;
mod report;
mod suites;
mod victim_link;

use core::panic::PanicInfo;
use machine::uart::say;
use machine::{bootargs, psci};

/// Called by `entry`, by its symbol, on the first CPU.
// SAFETY: nothing else in this program has this name.
#[unsafe(no_mangle)]
extern "C" fn first_main() -> ! {
    let name = bootargs::text("suite").unwrap_or("none");
    match suites::find(name) {
        Some(suite) => suite(),
        None => say!("FAIL suite: there is no suite '{name}'"),
    }
    report::sums();
    psci::system_off()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    say!("FAIL panic: {info}");
    match suites::is_restarted() {
        true => psci::system_reset(),
        false => psci::system_off(),
    }
}
