// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where output goes, and how a visit there ends.

/// Where the terminal's bytes go: the transmit FIFO of the UART.
pub trait Sink {
    /// Takes one byte; false if the FIFO is full and the byte was not taken.
    fn put(&mut self, byte: u8) -> bool;

    /// Whether something more urgent waits than output, which is nobody's deadline.
    fn is_interrupted(&self) -> bool {
        false
    }
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drained {
    /// Nothing is left to write.
    Empty,
    /// The sink took no more, or was interrupted.
    SinkFull,
    /// The budget is spent.
    BudgetSpent,
}
