// SPDX-License-Identifier: MIT OR Apache-2.0
//! The PL011 to which this program prints (Arm DDI 0183).

use super::cpus::Lock;
use super::mmio::{read8, read32, write8, write32};
use core::fmt;

/// QEMU's first PL011: the console, virtual under the hypervisor.
pub const CONSOLE: Pl011 = Pl011 {
    base: 0x0900_0000,
    interrupt: 33,
};
/// QEMU's second PL011: a device that may be passed through.
pub const SECOND: Pl011 = Pl011 {
    base: 0x0904_0000,
    interrupt: 40,
};

/// A PL011.
#[derive(Clone, Copy)]
pub struct Pl011 {
    /// First register.
    pub base: u64,
    /// Its SPI.
    pub interrupt: u32,
}

/// Register offsets.
pub mod register {
    /// Data.
    pub const DR: u64 = 0x00;
    /// Flags.
    pub const FR: u64 = 0x18;
    /// Divisor, integer part.
    pub const IBRD: u64 = 0x24;
    /// Line control.
    pub const LCR_H: u64 = 0x2C;
    /// Control.
    pub const CR: u64 = 0x30;
    /// FIFO levels.
    pub const IFLS: u64 = 0x34;
    /// Interrupt mask.
    pub const IMSC: u64 = 0x38;
    /// Masked interrupt status.
    pub const MIS: u64 = 0x40;
    /// Interrupt clear.
    pub const ICR: u64 = 0x44;
}

/// Flags in `FR`.
pub mod flag {
    /// Receive FIFO empty.
    pub const RXFE: u32 = 1 << 4;
    /// Transmit FIFO full.
    pub const TXFF: u32 = 1 << 5;
}

/// Interrupts in `IMSC`, `MIS`, `ICR`.
pub mod interrupt {
    /// Received.
    pub const RX: u32 = 1 << 4;
    /// Ready to transmit.
    pub const TX: u32 = 1 << 5;
    /// Receive timeout.
    pub const RT: u32 = 1 << 6;
}

impl Pl011 {
    /// Reads a register.
    pub fn read(self, register: u64) -> u32 {
        read32(self.base + register)
    }

    /// Writes a register.
    pub fn write(self, register: u64, value: u32) {
        write32(self.base + register, value);
    }

    /// Sends a byte when there is room in the FIFO.
    pub fn send(self, byte: u8) {
        while self.read(register::FR) & flag::TXFF != 0 {}
        write8(self.base + register::DR, byte);
    }

    /// Returns a received byte.
    pub fn receive(self) -> Option<u8> {
        let empty = self.read(register::FR) & flag::RXFE != 0;
        (!empty).then(|| read8(self.base + register::DR))
    }
}

struct Writer;

impl fmt::Write for Writer {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            if byte == b'\n' {
                CONSOLE.send(b'\r');
            }
            CONSOLE.send(byte);
        }
        Ok(())
    }
}

/// Keeps the lines of several CPUs from being mixed.
static PRINTING: Lock = Lock::new();

/// Prints a line.
pub fn print_line(text: fmt::Arguments<'_>) {
    PRINTING.with(|| {
        // This writer has no errors.
        let _ = fmt::Write::write_fmt(&mut Writer, format_args!("{text}\n"));
    });
}

/// Prints a line.
macro_rules! say {
    ($($text:tt)*) => {
        crate::machine::uart::print_line(format_args!($($text)*))
    };
}
pub(crate) use say;
