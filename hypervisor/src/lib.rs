// SPDX-License-Identifier: MIT OR Apache-2.0
//! The EL2 program: what carries out the decisions of `core`.
//!
//! Read in this order: `boot` (from reset to running instances), `instance` (the loop of one core
//! and everything that can happen in it), `context` and `cpu` (what the hardware is told at a switch), `hardware`
//! (how it is told). All assembly and nearly all `unsafe` of the project is in this crate, all assembly in `hardware`.

#![cfg_attr(target_os = "none", no_std)]

pub mod boot;
mod console;
mod context;
mod cpu;
mod entropy;
mod epitaph;
mod events;
mod gic;
mod guest_registers;
mod instance;
mod loader;
mod machine;
mod parking;
mod spi_setup;
mod steps;
mod sysreg;
mod timers;
mod turns;
mod vcpu;

pub mod hardware;
