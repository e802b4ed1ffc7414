// SPDX-License-Identifier: MIT OR Apache-2.0
//! The EL2 program: what carries out the decisions of `core`.
//!
//! Read in this order: `boot` (from reset to running instances), `instance` (the loop of one core
//! and everything that can happen in it), `guest_entry` and `context` (what the hardware is told at
//! a switch). All assembly and nearly all `unsafe` of the project is in this crate.

#![no_std]
#![no_main]

mod boot;
mod console;
mod context;
mod cpu;
mod entropy;
mod epitaph;
mod events;
mod gic;
mod guest_entry;
mod image_header;
mod instance;
mod loader;
mod machine;
mod memory;
mod parking;
mod steps;
mod sysreg;
mod timers;
mod vcpu;

use spumone_config::PhysAddr;

aarch64_rt::entry!(main, 64);

fn main(device_tree: u64, _: u64, _: u64, _: u64) -> ! {
    cpu::set_vectors();
    boot::start(PhysAddr(device_tree))
}
