// SPDX-License-Identifier: MIT OR Apache-2.0
//! `suite=registers role=NAME`: which system registers one guest can pass on to another.
//!
//! The instructions `MRS`, `MSR`, `SYS` and `SYSL` have 2^16 encodings in each direction. Both roles execute
//! them all, at EL1 and at EL0, except the few that [`encoding`] names, to learn which ones cause no exception.
//!
//! `role=look` then reads all readable registers, again and again, and reports each one whose value changes.
//! It writes none. When a `q` is typed, it ends.
//!
//! `role=write` lists the registers of its new life (`at-start NAME VALUE`), fills all writable ones with a pattern, and
//! keeps the pattern in them while the other guest has the core, which it detects by jumps of the counter. It does so with
//! two patterns, of which one is the complement of the other, and then resets itself with a pattern in all registers. If a
//! `q` was typed, a life ends after the list. Parameter: `jumps=N`, how often the other guest must
//! have had the core with each pattern (default 12; 0: it does not wait and does not reset itself).
//!
//! The suite `watch` checks vector registers.

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
        role => panic!("there is no role \"{role}\""),
    }
}

/// Whether a `q` was typed.
fn quit() -> bool {
    core::iter::from_fn(|| CONSOLE.receive())
        .take(64)
        .any(|byte| byte == b'q')
}
