// SPDX-License-Identifier: MIT OR Apache-2.0
//! The EL2 program: it carries out the decisions of `spumone-core`.
//!
//! Read in this order: `boot` (from reset to running instances), `instance` (the loop of one core, and its handling of
//! exits, interrupts and mail), `context` and `cpu` (the registers that a switch saves and loads, and those that
//! confine guests), `hardware` (assembly and device access). Nearly all `unsafe` code of the project is in this crate,
//! and all its assembly is in `hardware`.
//!
//! On a host `fake` replaces `hardware`: a machine with registers, GIC, clock and memory, on which the tests of this
//! crate run guests exit by exit (`tests`), and on which a fuzzer generates what guests do (`tests/fuzz`).

#![cfg_attr(target_os = "none", no_std)]
// On a host only the tests run the loop of `instance`.
#![cfg_attr(not(any(test, target_os = "none")), allow(dead_code))]

pub mod boot;
mod console;
mod context;
mod core_loop;
mod cpu;
mod entropy;
mod epitaph;
mod events;
mod gic;
mod guest;
mod guest_registers;
mod hash;
mod instance;
mod links;
mod loader;
mod machine;
mod mitigation;
mod parking;
mod power;
mod steps;
mod sysreg;
mod timers;
mod vcpu;

#[cfg(target_os = "none")]
pub mod hardware;

#[cfg(not(target_os = "none"))]
// An error that it finds ends the test.
#[allow(clippy::panic)]
#[cfg_attr(not(test), allow(unused_imports))]
mod fake;
#[cfg(not(target_os = "none"))]
use fake as hardware;

#[cfg(test)]
mod tests;
