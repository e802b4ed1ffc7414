// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds, from the linked EL2 program, how many instructions EL2 executes at most between two looks for interrupts.
//!
//! It also checks what protects the core's predictions from guests, which can train them: no path from the exit of a guest to the next entry has an
//! indirect branch ([`analysis`]), and only one return follows a guest whose call was before the guest ran ([`returns`]). Paths that lead only to
//! the death of EL2, or to the machine being turned off, do not count.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod annotations;
pub mod code;
pub mod explain;
pub mod foreign;
pub mod graph;
pub mod instruction;
pub mod longest;
pub mod loops;
pub mod measured;
pub mod problem;
pub mod program;
pub mod returns;
pub mod rows;
pub mod stored;
pub mod values;
