// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sink of the console's output, and how a drain ends.

/// The sink of the console's output: the transmit FIFO of the UART.
pub trait Sink {
    /// Takes one byte; false if the FIFO is full and the byte was not taken.
    fn put(&mut self, byte: u8) -> bool;

    /// Whether an interrupt is pending, for which output is interrupted.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing is left to write.
    Empty,
    /// The sink took no more.
    SinkFull,
    /// The budget is spent, or there is an interrupt.
    BudgetSpent,
}
