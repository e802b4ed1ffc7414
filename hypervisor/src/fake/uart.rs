// SPDX-License-Identifier: MIT OR Apache-2.0
//! The console's PL011 (Arm DDI 0183).

use super::{Machine, with};
use arm_pl011_uart::{Interrupts, LineConfig};
use spumone_config::PhysAddr;
use std::collections::VecDeque;
use std::marker::PhantomData;

/// The device.
pub struct State {
    base: u64,
    interrupt: u16,
    mask: Interrupts,
    /// Bytes printed so far.
    pub printed: Vec<u8>,
    /// Bytes typed, and not read yet.
    pub typed: VecDeque<u8>,
    /// Bytes that the transmit FIFO takes now.
    pub room: usize,
}

impl State {
    /// A PL011 whose transmit FIFO never fills.
    pub fn new(base: u64, interrupt: u16) -> Self {
        Self {
            base,
            interrupt,
            mask: Interrupts::empty(),
            printed: Vec::new(),
            typed: VecDeque::new(),
            room: usize::MAX,
        }
    }
}

/// The transmitting half, with the interface of its driver.
pub struct Uart<'a>(PhantomData<&'a ()>);

/// The PL011 at this address; `None` at address 0.
///
/// # Safety
///
/// As on the machine.
pub unsafe fn uart_at(base: PhysAddr) -> Option<Uart<'static>> {
    with(|machine| (machine.uart.base == base.0).then_some(Uart(PhantomData)))
}

impl Uart<'_> {
    /// Turns the UART on.
    pub fn enable(&mut self, _: LineConfig, _: u32, _: u32) -> Result<(), &'static str> {
        Ok(())
    }

    /// Sets the enabled interrupts.
    pub fn set_interrupt_masks(&mut self, mask: Interrupts) {
        with(|machine| {
            machine.uart.mask = mask;
            machine.drive_uart_line();
        });
    }

    /// Whether the transmit FIFO is full.
    pub fn is_tx_fifo_full(&self) -> bool {
        with(|machine| machine.uart.room == 0)
    }

    /// Prints a byte.
    pub fn write_word(&mut self, byte: u8) {
        with(|machine| machine.print(byte));
    }
}

/// The text printed so far.
pub fn printed() -> String {
    with(|machine| String::from_utf8_lossy(&machine.uart.printed).into_owned())
}

/// Registers: data, flags, interrupt clear.
const DR: u64 = 0x00;
const FR: u64 = 0x18;
const ICR: u64 = 0x44;
/// Flags: nothing to read; no room.
const RXFE: u32 = 1 << 4;
const TXFF: u32 = 1 << 5;

impl Machine {
    fn print(&mut self, byte: u8) {
        self.work += 1;
        assert!(self.uart.room > 0, "a byte is lost: the FIFO is full");
        self.uart.room -= 1;
        self.uart.printed.push(byte);
        self.drive_uart_line();
    }

    /// Types these bytes.
    pub fn type_keys(&mut self, keys: &[u8]) {
        self.uart.typed.extend(keys);
        self.drive_uart_line();
    }

    /// The transmit FIFO has room for so many bytes.
    pub fn set_uart_room(&mut self, room: usize) {
        self.uart.room = room;
        self.drive_uart_line();
    }

    fn drive_uart_line(&mut self) {
        let received = Interrupts::RXI | Interrupts::RTI;
        let uart = &self.uart;
        let high = !uart.typed.is_empty() && uart.mask.intersects(received)
            || uart.room > 0 && uart.mask.contains(Interrupts::TXI);
        self.gic.set_line(self.uart.interrupt, high);
    }

    /// Reads a register of the UART; `None` if there is none at this address.
    pub fn read_uart(&mut self, address: u64) -> Option<u32> {
        match address.wrapping_sub(self.uart.base) {
            DR => {
                let byte = self.uart.typed.pop_front().map_or(0, u32::from);
                self.drive_uart_line();
                Some(byte)
            }
            FR => {
                let empty = if self.uart.typed.is_empty() { RXFE } else { 0 };
                let full = if self.uart.room == 0 { TXFF } else { 0 };
                Some(empty | full)
            }
            _ => None,
        }
    }

    /// Writes a register of the UART; false if there is none at this address.
    pub fn write_uart(&mut self, address: u64, value: u32) -> bool {
        match address.wrapping_sub(self.uart.base) {
            // The epitaph writes without room after a limited wait.
            DR if self.uart.room == 0 => true,
            DR => {
                self.print(value as u8);
                true
            }
            ICR => true,
            _ => false,
        }
    }
}
