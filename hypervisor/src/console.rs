// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine's one UART, shared by all guests.
//!
//! Only the core that has the UART token may touch [`Device`], the transmitting half; no core waits
//! for the token (`core/console`). Input is read by the console core alone, through its
//! [`Keyboard`], without the token, so that a flood of output does not delay it.

use crate::cpu;
use crate::hardware::{self, Uart, per_machine};
use crate::machine::Machine;
use crate::timers;
use arm_pl011_uart::{DataBits, Interrupts, LineConfig, Parity, StopBits};
use core::cell::UnsafeCell;
use core::fmt::Write;
use spumone_config::packed::System;
use spumone_config::{GuestId, PcpuId, PhysAddr};
use spumone_core::console::{
    Console, Drained, InputEffect, InputSwitch, Mux, Served, Sink, Source, UartToken,
};
use spumone_core::schedule::Ticks;

per_machine! {
    /// The console's state that all cores share.
    pub static CONSOLE: Console = Console::new();
}

/// Steps of one call of [`serve`] at most: bytes taken from a ring or written. It ends early if there is an interrupt.
const BUDGET: usize = 32;
/// The same for [`serve_a_little`].
const SHORT_BUDGET: usize = 4;
/// Clock that QEMU's PL011 claims; real boards keep the firmware's divisor close to this.
const UART_CLOCK_HZ: u32 = 24_000_000;
const BAUD_RATE: u32 = 115_200;

/// The transmitting half of the UART, for the core that has the token.
struct Device {
    uart: Uart<'static>,
    mux: Mux,
    /// Whether the interrupt for room in the transmit FIFO is enabled.
    waits_for_room: bool,
}

/// The device. Accessible only with the token.
struct DeviceCell(UnsafeCell<Option<Device>>);

// SAFETY: the content is reached through `with`, which needs the one token, and in `prepare`, before
// other cores run.
unsafe impl Sync for DeviceCell {}

per_machine! {
    static DEVICE: DeviceCell = DeviceCell(UnsafeCell::new(None));
}

impl DeviceCell {
    /// Calls `use_it` with the device. `use_it` must not call this function.
    fn with<R>(
        &self,
        token: &mut UartToken,
        use_it: impl FnOnce(&mut Device, &mut UartToken) -> R,
    ) -> Option<R> {
        // SAFETY: there is one token, and the caller has it; no `use_it` of this module calls
        // `with`. So this is the only reference to the device.
        let device = unsafe { (*self.0.get()).as_mut() }?;
        Some(use_it(device, token))
    }
}

/// The transmit FIFO.
struct Transmit<'a> {
    uart: &'a mut Uart<'static>,
}

impl Sink for Transmit<'_> {
    fn put(&mut self, byte: u8) -> bool {
        if self.uart.is_tx_fifo_full() {
            return false;
        }
        self.uart.write_word(byte);
        true
    }

    fn is_interrupted(&self) -> bool {
        cpu::interrupt_pending()
    }
}

/// Sets the UART up. Boot core, once, before other cores run and after the device is mapped.
pub fn prepare(system: &System) {
    // SAFETY: the board's UART, mapped as device memory for ever. The only other writer is the
    // epitaph, after all other cores have stopped.
    let Some(mut uart) = (unsafe { hardware::uart_at(system.board.uart.base) }) else {
        return;
    };
    let line = LineConfig {
        data_bits: DataBits::Bits8,
        parity: Parity::None,
        stop_bits: StopBits::One,
    };
    // The divisor fits by construction, so this cannot fail.
    let _ = uart.enable(line, BAUD_RATE, UART_CLOCK_HZ);
    uart.set_interrupt_masks(Interrupts::RXI | Interrupts::RTI);

    let mut mux = Mux::new();
    for (index, guest) in system.guests.iter().enumerate() {
        mux.add_guest(GuestId(index as u8), &guest.name);
    }
    CONSOLE.set_focus(system.keyboard);
    // SAFETY: no other core runs yet, and no code has the token.
    unsafe {
        *DEVICE.0.get() = Some(Device {
            uart,
            mux,
            waits_for_room: false,
        });
    }
}

/// Bytes of output that a guest may write now.
pub fn room(guest: GuestId) -> usize {
    CONSOLE.room(Source::Guest(guest))
}

/// Writes some of the waiting output, unless another core has the token.
pub fn serve() -> Served {
    CONSOLE.serve(|token| drain(token, BUDGET))
}

/// As [`serve`], but fewer bytes.
pub fn serve_a_little() -> Served {
    CONSOLE.serve(|token| drain(token, SHORT_BUDGET))
}

fn drain(token: &mut UartToken, budget: usize) -> Drained {
    DEVICE
        .with(token, |device, token| {
            let mut sink = Transmit {
                uart: &mut device.uart,
            };
            let drained = device.mux.drain(token, &CONSOLE, &mut sink, budget);
            device.set_waits_for_room(drained == Drained::SinkFull);
            drained
        })
        .unwrap_or(Drained::Empty)
}

/// Prints the output that is in the rings now, for `at_most`. Output that is added meanwhile does
/// not extend this. Only when the machine is about to stop, and no interrupt is let through any more.
pub fn flush(at_most: Ticks) {
    /// More rounds than fit into `at_most`: a bound in case the counter does not advance.
    const MAX_ROUNDS: usize = 1_000_000;
    /// Rounds after the end of `at_most`: bytes already taken from the rings still have to be printed,
    /// and under an emulator the host may have suspended this core for all of the time.
    const LAST_ROUNDS: usize = 100;
    let end = timers::now().saturating_add(at_most);
    // The second pass prints incomplete lines, which have not grown since the first.
    for _ in 0..2 {
        CONSOLE.flush_idle();
        let marks = CONSOLE.marks();
        let mut last_rounds = 0;
        for _ in 0..MAX_ROUNDS {
            let served = CONSOLE.serve(|token| drain(token, BUDGET));
            if CONSOLE.has_printed(&marks) || timers::now() >= end {
                last_rounds += 1;
            }
            if served == Served::Done || last_rounds >= LAST_ROUNDS {
                break;
            }
        }
    }
}

/// The receiving half of the UART, for the console core.
pub struct Keyboard {
    uart: PhysAddr,
    input: InputSwitch,
}

impl Keyboard {
    /// The keyboard of this machine. To be made once, by the console core.
    pub fn new(machine: &Machine) -> Self {
        let mut consoles = 0;
        for (index, guest) in machine.guests.iter().enumerate() {
            consoles |= u8::from(guest.config.console.is_some()) << index;
        }
        let keyboard = Self {
            uart: machine.board.uart.base,
            input: InputSwitch::new(consoles, CONSOLE.focus()),
        };
        // Discards a byte from before the UART was set up: QEMU receives no other one until it is read.
        keyboard.read(register::DR);
        keyboard
    }

    /// Whether a byte waits.
    pub fn has_input(&self) -> bool {
        self.read(register::FR) & register::FR_RXFE == 0
    }

    /// Takes a byte, if one waits; returns its effect, if it has one.
    pub fn take(&mut self) -> Option<InputEffect> {
        if !self.has_input() {
            return None;
        }
        let data = self.read(register::DR);
        // A byte with a line error is dropped.
        let is_whole = data & register::DR_ERRORS == 0;
        is_whole.then(|| self.input.feed(data as u8)).flatten()
    }

    /// Clears the receive interrupt of a UART that has nothing to read: the interrupt of a byte that was lost
    /// when the UART was set up would never end. A byte that arrives now is found by the next [`Self::has_input`].
    pub fn silence(&mut self) {
        // SAFETY: a register of the board's PL011, mapped as device memory. Writing clears interrupts of the
        // receiving half, which no other code uses.
        unsafe {
            let clear = PhysAddr(self.uart.0 + register::ICR);
            hardware::write_u32(clear, register::ICR_RECEIVE);
        }
    }

    fn read(&self, register: u64) -> u32 {
        // SAFETY: a register of the board's PL011, mapped as device memory. Reading has no effect, except that it
        // takes a byte out of the receive FIFO, which no other code does.
        unsafe { hardware::read_u32(PhysAddr(self.uart.0 + register)) }
    }
}

/// Registers of the PL011's receiving half (Arm DDI 0183, 3.3).
mod register {
    /// Data, and the errors of the byte: overrun, break, parity, framing.
    pub const DR: u64 = 0x00;
    pub const DR_ERRORS: u32 = 0b1111 << 8;
    /// Flags; the receive FIFO is empty.
    pub const FR: u64 = 0x18;
    pub const FR_RXFE: u32 = 1 << 4;
    /// Interrupt clear; all interrupts but those for transmission and modem status.
    pub const ICR: u64 = 0x44;
    pub const ICR_RECEIVE: u32 = 0b111_1101_0000;
}

impl Device {
    /// Enables or disables the interrupt for room in the transmit FIFO.
    fn set_waits_for_room(&mut self, waits: bool) {
        if self.waits_for_room != waits {
            self.waits_for_room = waits;
            let mut mask = Interrupts::RXI | Interrupts::RTI;
            if waits {
                mask |= Interrupts::TXI;
            }
            self.uart.set_interrupt_masks(mask);
        }
    }
}

/// Prints a message of the hypervisor, from any core.
pub fn say_line(core: PcpuId, message: core::fmt::Arguments<'_>) {
    let mut log = CONSOLE.log(core);
    let _ = log.write_fmt(message);
    let _ = CONSOLE.push(Source::Hypervisor(core), b'\n');
    // Printed by a core that idles or runs the lowest band (`Instance::idle`, `Instance::prepare_entry`), and, in
    // small steps, by the console core in any case (`Instance::attend`).
    CONSOLE.ask();
}

/// Prints a message of the hypervisor.
macro_rules! say {
    ($core:expr, $($message:tt)*) => {
        $crate::console::say_line($core, format_args!($($message)*))
    };
}
pub(crate) use say;
