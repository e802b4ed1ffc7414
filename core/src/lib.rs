// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decisions of the hypervisor: scheduling, interrupt virtualization, power control, migration
//! and console, as state machines without `unsafe`, assembly or I/O.
//!
//! The hypervisor passes events in and carries the effects out; tests, the model checker and the simulator do the same
//! on the host. Nothing here allocates, blocks or loops without a bound.

#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

#[macro_use]
pub mod sync;

pub mod bits;
pub mod console;
pub mod health;
mod line;
pub mod link;
pub mod load;
pub mod local;
pub mod mailbox;
pub mod migration;
pub mod mitigation;
pub mod orders;
pub mod power;
pub mod protect;
pub mod psci;
pub mod schedule;
pub mod sets;
pub mod sha256;
pub mod smccc;
pub mod stage2;
pub mod stolen;
pub mod text;
pub mod trap;
pub mod usage;
pub mod verify;
pub mod vgic;
pub mod virtio;
pub mod vuart;
pub mod watchdog;
#[cfg(test)]
#[cfg(not(loom))]
mod weak_memory_tests;
