// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots whole systems on QEMU and checks what their guests report.
//!
//! A test describes a system with [`Boot`], which writes the description, has `spm` build the
//! image and starts QEMU. The result is the [`Console`]: every line, with the guest that wrote
//! it. Tests judge only what guests report, never host time: the host may be shared
//! and slow.
//!
//! Everything needed must have been built; `scripts/test boot` does so.

// A test reports a failure by a panic.
#![allow(clippy::panic, clippy::expect_used)]
#![forbid(unsafe_code)]

mod boot;
mod console;
pub mod environment;
mod files;
mod flat;
mod guest;
mod image;
#[cfg(test)]
mod import_cycles;
mod machine;
mod shared;

pub use boot::{Boot, bare};
pub use console::{Console, INSTRUCTIONS_PER_US};
pub use guest::{Guest, linux, linux_rt, probe, raw_probe, rt, victim};
pub use image::Image;
pub use machine::Machine;
pub use shared::{SharedFiles, output, text};

/// The key that starts a command to the hypervisor: Ctrl-].
pub const ESCAPE: &str = "\x1d";
