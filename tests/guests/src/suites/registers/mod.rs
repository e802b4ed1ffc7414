// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=registers role=NAME`: which system registers one guest can pass on to another.
//!
//! The instructions `MRS`, `MSR`, `SYS` and `SYSL` have 2^16 encodings in each direction. Both roles execute
//! them all, at EL1 and at EL0, except the few that [`encoding`] names, to learn which do not end in an exception.
//!
//! `role=look` then reads all registers that it can read, over and over, and reports each one whose value changes.
//! It writes none. When a `q` is typed, it ends.
//!
//! `role=write` lists the registers of its new life (`at-start NAME VALUE`), fills all that it can write with a
//! pattern, and holds the pattern in them while the other guest has the core, which it knows from jumps of the
//! counter. It does so with two patterns, of which one is the complement of the other, and then resets itself with
//! a pattern in all registers. A life that finds a `q` typed ends after the list. Parameters: `jumps=N`, how often the other guest is to
//! have had the core for each pattern (default 12; 0: it does not wait and does not reset itself).
//!
//! Vector registers are the business of the suite `watch`.

mod buffers;
mod encoding;
mod hold;
mod look;
mod stubs;
mod sweep;
mod write;

use crate::machine::bootargs;
use crate::machine::uart::CONSOLE;

/// Runs the suite.
pub fn run() {
    match bootargs::text("role").unwrap_or("") {
        "look" => look::run(),
        "write" => write::run(),
        role => panic!("no role is called \"{role}\""),
    }
}

/// Whether a `q` was typed.
fn quit() -> bool {
    core::iter::from_fn(|| CONSOLE.receive())
        .take(64)
        .any(|byte| byte == b'q')
}
