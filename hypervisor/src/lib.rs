// SPDX-License-Identifier: MIT OR Apache-2.0
//! The EL2 program: what carries out the decisions of `core`.
//!
//! Read in this order: `boot` (from reset to running instances), `instance` (the loop of one core
//! and everything that can happen in it), `context` and `cpu` (what the hardware is told at a switch), `hardware`
//! (how it is told). All assembly and nearly all `unsafe` of the project is in this crate, all assembly in `hardware`.
//!
//! On a host `fake` stands in for `hardware`: a machine with registers, GIC, clock and memory, on which the tests of this
//! crate run guests exit by exit (`tests`), and on which a fuzzer plays guests (`tests/fuzz`).

#![cfg_attr(target_os = "none", no_std)]
// On a host only the tests take turns.
#![cfg_attr(not(any(test, target_os = "none")), allow(dead_code))]

pub mod boot;
mod console;
mod context;
mod cpu;
mod entropy;
mod epitaph;
mod events;
mod gic;
mod guest;
mod guest_registers;
mod instance;
mod loader;
mod machine;
mod parking;
mod steps;
mod sysreg;
mod timers;
mod turns;
mod vcpu;

#[cfg(target_os = "none")]
pub mod hardware;

#[cfg(not(target_os = "none"))]
// What it finds wrong ends the test.
#[allow(clippy::panic)]
#[cfg_attr(not(test), allow(unused_imports))]
mod fake;
#[cfg(not(target_os = "none"))]
use fake as hardware;

#[cfg(test)]
mod tests;
