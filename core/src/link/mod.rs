// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links between two guests.
//!
//! A *memory link* is memory that both guests have, and a signal each way. EL2 takes no part in what the guests write to the
//! memory. It emulates one page of registers at each end, with which a guest signals its peer and learns whether the peer
//! runs, and for a Linux a GPIO controller, the other form of the signal.

mod gpio;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
mod registers;
mod signal;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use gpio::{Effect as GpioEffect, Gpio};
pub use registers::{Command, ID, REGISTERS_SIZE, Registers};
pub use signal::Signal;
