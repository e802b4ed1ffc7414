// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boots whole systems on QEMU and looks at what their guests report.
//!
//! A test describes a system with [`Boot`], which writes the description, has `spm` build the
//! image and starts QEMU. What comes back is the [`Console`]: every line by the guest that wrote
//! it. Only what guests report is judged, never how long something took: the machine under the
//! test is shared and slow.
//!
//! Everything needed must have been built; `scripts/test boot` does so.

// Panicking is how a test says that it failed.
#![allow(clippy::panic, clippy::expect_used)]
#![forbid(unsafe_code)]

mod boot;
mod console;
mod files;
mod flat;
mod guest;
#[cfg(test)]
mod import_cycles;
mod machine;
mod terminal;

pub use boot::{Boot, INSTRUCTIONS_PER_US, bare};
pub use console::Console;
pub use guest::{Guest, linux, linux_rt, probe, raw_probe, rt};
pub use machine::Machine;

/// The key that starts a command to the hypervisor: Ctrl-].
pub const ESCAPE: &str = "\x1d";
