// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whole boots on QEMU, one a test. `scripts/test boot` builds what they need and runs them.
//!
//! Tests named `matrix_…` are many and long; `scripts/test nightly` runs them too.

mod attacks;
mod bare;
mod console;
mod devices;
mod ends;
mod exact;
mod faults;
mod flips;
mod hostile;
mod links;
mod lives;
mod matrix;
mod migration;
mod operator;
mod overcommit;
mod power;
mod probes;
mod protect;
mod registers;
mod shared;
mod sharing;
mod storm;
mod verify;
mod watchdog;
