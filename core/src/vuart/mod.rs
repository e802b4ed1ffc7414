// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual UART: an emulated PL011 (Arm DDI 0183, revision r1p5).
//!
//! The guest's vCPUs access it from several cores at once, so every register is an atomic. Races between vCPUs that do
//! not lock may garble that guest's characters and interrupts, and affect no other guest.
//!
//! Differences from the hardware: the console takes output at once as long as it has room, so the transmit FIFO is
//! either empty or full; the receive FIFO has 4096 bytes for any `LCR_H.FEN`; baud rate and line format are stored and
//! ignored; the modem lines show that a terminal is connected; there are no errors and no DMA; in loopback mode bytes
//! are dropped. A guest that never sets `CR.UARTEN` can still print and read, so boot loaders and bare-metal code that
//! use the UART as firmware left it work.
//!
//! **Transmit interrupt.** The hardware raises it when the FIFO *falls* to its trigger level, not while it is below
//! (DDI 0183, 2.8.2), so it never appears before the first character, and Linux's handler then writes half a FIFO
//! without looking at `FR.TXFF`. Here a written byte is transmitted at once, so each write raises the interrupt if the
//! console has room for half a FIFO; if not, the interrupt is lowered and `TXFF` is set, until the console has drained.

mod fifo;
#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

use crate::line;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::trap::AccessSize;
use fifo::{DEPTH, Fifo};

/// Register offsets (DDI 0183, table 3-1).
mod register {
    pub const DR: u64 = 0x000;
    pub const FR: u64 = 0x018;
    pub const IBRD: u64 = 0x024;
    pub const FBRD: u64 = 0x028;
    pub const LCR_H: u64 = 0x02c;
    pub const CR: u64 = 0x030;
    pub const IFLS: u64 = 0x034;
    pub const IMSC: u64 = 0x038;
    pub const RIS: u64 = 0x03c;
    pub const MIS: u64 = 0x040;
    pub const ICR: u64 = 0x044;
    /// Eight identification registers of one byte each, four bytes apart.
    pub const IDENTIFICATION: u64 = 0xfe0;
}

/// `PeriphID0` to `PeriphID3`, `PCellID0` to `PCellID3`: part 0x011 of designer 0x41, revision
/// r1p5 (which has FIFOs of 32), PrimeCell.
const IDENTIFICATION: [u8; 8] = [0x11, 0x10, 0x34, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

/// `FR`: clear to send, data set ready, carrier: a terminal is connected.
const FR_MODEM: u32 = 1 << 0 | 1 << 1 | 1 << 2;
const FR_BUSY: u32 = 1 << 3;
const FR_RXFE: u32 = 1 << 4;
const FR_TXFF: u32 = 1 << 5;
const FR_RXFF: u32 = 1 << 6;
const FR_TXFE: u32 = 1 << 7;

/// `LCR_H.FEN`: FIFOs enabled.
const LCR_H_FEN: u32 = 1 << 4;
/// `CR.LBE`: loopback.
const CR_LBE: u32 = 1 << 7;
/// `CR.RXE`: reception enabled.
const CR_RXE: u32 = 1 << 9;
/// Reset value of `CR`: `TXE` and `RXE`.
const CR_RESET: u32 = 0x300;
/// Reset value of `IFLS`: both FIFOs trigger at one half.
const IFLS_RESET: u32 = 0x12;

/// Interrupt bits of `IMSC`, `RIS`, `MIS` and `ICR`: bytes received.
const INT_RX: u32 = 1 << 4;
/// Interrupt bit: ready to transmit.
const INT_TX: u32 = 1 << 5;
/// Interrupt bit: receive timeout, for fewer bytes than the trigger level.
const INT_RT: u32 = 1 << 6;
/// All bits of `IMSC` that exist.
const INT_ALL: u32 = 0x7ff;

/// `FR.TXFF` is set while the console has no more than this room, in bytes. Of this reserve, an
/// interrupt handler may write half a FIFO (16 bytes) without looking at `FR`; the rest is for vCPUs that read `FR` at
/// the same moment.
const TX_RESERVE: usize = 32;
/// The room at which a guest that waits may go on; larger than [`TX_RESERVE`] so that it does not wait again at once.
const TX_RESUME: usize = 128;
/// What the caller has to do after an access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub struct Effect {
    /// Push this byte to the console.
    pub transmit: Option<u8>,
    /// The interrupt line may have changed: call [`Vuart::publish_line`].
    pub line_changed: bool,
    /// The guest waits for room: serve the console now (after pushing `transmit`). The core that serves it calls
    /// [`Vuart::output_drained`] for each UART with [`Vuart::is_stalled`].
    pub stalled: bool,
}

/// One virtual PL011.
pub struct Vuart {
    ibrd: AtomicU32,
    fbrd: AtomicU32,
    lcr_h: AtomicU32,
    cr: AtomicU32,
    ifls: AtomicU32,
    imsc: AtomicU32,
    /// [`INT_TX`] of `RIS`. The receive interrupts are not stored but follow from the FIFO.
    raised: AtomicU32,
    received: Fifo,
    /// Set by an access of the guest when there is too little room, cleared by the core that drains the console.
    stalled: AtomicBool,
}

impl Vuart {
    /// Size of the register frame in bytes.
    pub const FRAME_SIZE: u64 = 0x1000;

    constructor! {
        /// A UART after reset.
        pub fn new() -> Self {
            Self {
                ibrd: AtomicU32::new(0),
                fbrd: AtomicU32::new(0),
                lcr_h: AtomicU32::new(0),
                cr: AtomicU32::new(CR_RESET),
                ifls: AtomicU32::new(IFLS_RESET),
                imsc: AtomicU32::new(0),
                raised: AtomicU32::new(0),
                received: Fifo::new(),
                stalled: AtomicBool::new(false),
            }
        }
    }

    /// The guest reads `size` bytes at `offset` of the frame. `room`: bytes that the console
    /// takes from this guest now ([`crate::console::Console::room`]). Registers that do not exist
    /// read as zero.
    pub fn read(&self, offset: u64, size: AccessSize, room: usize) -> (u64, Effect) {
        let mut effect = Effect::default();
        let value = match offset & !3 {
            register::DR => match self.received.pop() {
                Some(byte) => {
                    effect.line_changed =
                        self.imsc.load(Ordering::Relaxed) & (INT_RX | INT_RT) != 0;
                    u32::from(byte)
                }
                None => 0,
            },
            register::FR => {
                let full = room <= TX_RESERVE;
                if full {
                    self.stalled.store(true, Ordering::Relaxed);
                    effect.stalled = true;
                }
                self.flags(full)
            }
            register::IBRD => self.ibrd.load(Ordering::Relaxed),
            register::FBRD => self.fbrd.load(Ordering::Relaxed),
            register::LCR_H => self.lcr_h.load(Ordering::Relaxed),
            register::CR => self.cr.load(Ordering::Relaxed),
            register::IFLS => self.ifls.load(Ordering::Relaxed),
            register::IMSC => self.imsc.load(Ordering::Relaxed),
            register::RIS => self.raw_interrupts(),
            register::MIS => self.raw_interrupts() & self.imsc.load(Ordering::Relaxed),
            identification @ register::IDENTIFICATION.. => {
                let index = (identification - register::IDENTIFICATION) / 4;
                IDENTIFICATION
                    .get(index as usize)
                    .map_or(0, |&byte| u32::from(byte))
            }
            _ => 0,
        };
        let lane = 8 * (offset & 3);
        (size.truncate(u64::from(value) >> lane), effect)
    }

    /// The guest writes `size` bytes at `offset` of the frame. Registers that do not exist, and
    /// parts of registers without their lowest byte, are not written.
    pub fn write(&self, offset: u64, size: AccessSize, value: u64, room: usize) -> Effect {
        let value = size.truncate(value) as u32;
        match offset {
            register::DR => return self.transmit(value.to_le_bytes()[0], room),
            register::IBRD => self.ibrd.store(value & 0xffff, Ordering::Relaxed),
            register::FBRD => self.fbrd.store(value & 0x3f, Ordering::Relaxed),
            register::CR => self.cr.store(value & 0xffff, Ordering::Relaxed),
            register::LCR_H => return Self::set(&self.lcr_h, value & 0xff),
            register::IFLS => return Self::set(&self.ifls, value & 0x3f),
            register::IMSC => return Self::set(&self.imsc, value & INT_ALL),
            register::ICR => {
                // Only the transmit interrupt is stored. Receive interrupts last until the bytes are read, which makes
                // no difference to a handler that clears first and then reads.
                let before = self.raised.fetch_and(!value, Ordering::Relaxed);
                return Effect {
                    line_changed: before & value != 0,
                    ..Effect::default()
                };
            }
            _ => {}
        }
        Effect::default()
    }

    /// A byte for the guest arrives; call [`Vuart::publish_line`] after true. False: the FIFO is full or the guest has
    /// switched reception off, and the byte is lost (never wait for room: the key that begins a command takes the same
    /// path). To be called on one core at a time.
    pub fn receive(&self, byte: u8) -> bool {
        self.cr.load(Ordering::Relaxed) & CR_RXE != 0 && self.received.push(byte)
    }

    /// Level of the interrupt line: whether an unmasked interrupt is raised.
    pub fn line(&self) -> bool {
        self.raw_interrupts() & self.imsc.load(Ordering::Relaxed) != 0
    }

    /// Passes the level of the interrupt line to `set` (the guest's interrupt controller) so that the last level passed
    /// is the present one, even if other cores change it meanwhile. `set` may be called up to four times.
    pub fn publish_line(&self, set: impl FnMut(bool)) {
        line::publish(|| self.line(), set);
    }

    /// Whether the guest waits for [`Vuart::output_drained`].
    pub fn is_stalled(&self) -> bool {
        self.stalled.load(Ordering::Relaxed)
    }

    /// The console has drained and takes `room` bytes of this guest now. True: call
    /// [`Vuart::publish_line`].
    pub fn output_drained(&self, room: usize) -> bool {
        if room < TX_RESUME || !self.is_stalled() {
            return false;
        }
        self.stalled.store(false, Ordering::Relaxed);
        self.raise_transmit()
    }

    /// Resets the UART. No vCPU of the guest may run meanwhile.
    pub fn reset(&self) {
        for (register, value) in [
            (&self.ibrd, 0),
            (&self.fbrd, 0),
            (&self.lcr_h, 0),
            (&self.cr, CR_RESET),
            (&self.ifls, IFLS_RESET),
            (&self.imsc, 0),
            (&self.raised, 0),
        ] {
            register.store(value, Ordering::Relaxed);
        }
        self.received.clear();
        self.stalled.store(false, Ordering::Relaxed);
    }

    fn transmit(&self, byte: u8, room: usize) -> Effect {
        let loopback = self.cr.load(Ordering::Relaxed) & CR_LBE != 0;
        // Without room the byte is lost, as in the hardware when the FIFO is full.
        let transmit = (room > 0 && !loopback).then_some(byte);
        if room.saturating_sub(1) > TX_RESERVE {
            return Effect {
                transmit,
                line_changed: self.raise_transmit(),
                stalled: false,
            };
        }
        self.stalled.store(true, Ordering::Relaxed);
        let before = self.raised.fetch_and(!INT_TX, Ordering::Relaxed);
        Effect {
            transmit,
            line_changed: before & INT_TX != 0,
            stalled: true,
        }
    }

    /// Raises the transmit interrupt; returns whether it was not raised before. The load saves the exclusive access in
    /// the common case, a write while it is raised.
    fn raise_transmit(&self) -> bool {
        self.raised.load(Ordering::Relaxed) & INT_TX == 0
            && self.raised.fetch_or(INT_TX, Ordering::Relaxed) & INT_TX == 0
    }

    /// Sets a register on which the interrupt line depends.
    fn set(register: &AtomicU32, value: u32) -> Effect {
        Effect {
            line_changed: register.swap(value, Ordering::Relaxed) != value,
            ..Effect::default()
        }
    }

    fn flags(&self, full: bool) -> u32 {
        let received = self.received.len();
        let depth = if self.fifos_enabled() { DEPTH } else { 1 };
        let mut flags = FR_MODEM;
        flags |= if full { FR_TXFF | FR_BUSY } else { FR_TXFE };
        if received == 0 {
            flags |= FR_RXFE;
        }
        if received >= depth {
            flags |= FR_RXFF;
        }
        flags
    }

    /// `RIS`. The receive timeout takes no time: fewer bytes than the trigger level raise it at once.
    fn raw_interrupts(&self) -> u32 {
        let receive = match self.received.len() {
            0 => 0,
            bytes if bytes >= self.receive_trigger() => INT_RX,
            _ => INT_RT,
        };
        self.raised.load(Ordering::Relaxed) | receive
    }

    fn fifos_enabled(&self) -> bool {
        self.lcr_h.load(Ordering::Relaxed) & LCR_H_FEN != 0
    }

    /// The number of bytes from which on [`INT_RX`] is raised: `IFLS.RXIFLSEL`, parts of a FIFO of 32.
    fn receive_trigger(&self) -> usize {
        if !self.fifos_enabled() {
            return 1;
        }
        match self.ifls.load(Ordering::Relaxed) >> 3 & 0b111 {
            0b000 => 4,
            0b001 => 8,
            0b010 => 16,
            0b011 => 24,
            _ => 28,
        }
    }
}
