// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds, from the linked EL2 program, how many instructions EL2 executes at most between two looks for interrupts.

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
pub mod rows;
pub mod stored;
pub mod values;
