// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds, from the linked EL2 program, how many instructions EL2 executes at most between two looks for interrupts.
//!
//! A guest can train the core's predictions of branches. So the tool also checks that no path from the exit of a guest to the next entry has an
//! indirect branch ([`analysis`]), and that a guest can mislead one return only, which has a barrier ([`returns`]). A path that ends with the death
//! of EL2, or with the machine off, does not count.

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
