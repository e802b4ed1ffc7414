//! The machine's one UART, shared by all guests.
//!
//! Whoever holds the UART token may touch [`Device`]; no core waits for it (`core/console`).
//! Receiving, too, is done with the token in hand: the UART's interrupt is level-sensitive, so a
//! core that did not get the token is interrupted again.

use crate::cpu;
use arm_pl011_uart::{
    DataBits, Interrupts, LineConfig, PL011Registers, Parity, StopBits, Uart, UniqueMmioPointer,
};
use core::cell::UnsafeCell;
use core::fmt::Write;
use core::ptr::NonNull;
use heapless::Vec;
use spumone_config::packed::System;
use spumone_config::{GuestId, PcpuId};
use spumone_core::console::{
    Console, Drained, InputEffect, InputSwitch, Mux, Served, Sink, Source, UartToken,
};

/// What all cores share of the console.
pub static CONSOLE: Console = Console::new();

/// Steps of one visit: with the look for interrupts before each, this bounds the time a
/// core spends for the console.
const BUDGET: usize = 32;
/// Bytes taken from the receive FIFO in one visit; the UART's interrupt stays up for the rest.
pub const MAX_RECEIVED: usize = 4;
/// Clock that QEMU's PL011 claims; real boards keep the firmware's divisor close to this.
const UART_CLOCK_HZ: u32 = 24_000_000;
const BAUD_RATE: u32 = 115_200;

/// What belongs to the holder of the token.
struct Device {
    uart: Uart<'static>,
    mux: Mux,
    input: InputSwitch,
    /// Whether the UART is asked to say when its transmit FIFO has room.
    waits_for_room: bool,
}

/// The device, opened only with the token in hand.
struct DeviceCell(UnsafeCell<Option<Device>>);

// SAFETY: the content is reached through `open` alone, which demands the one token (or, in
// `prepare`, the time before other cores run).
unsafe impl Sync for DeviceCell {}

static DEVICE: DeviceCell = DeviceCell(UnsafeCell::new(None));

impl DeviceCell {
    /// Lends the device out to the holder of the token. `use_it` must not lend it a second time.
    fn with<R>(
        &self,
        token: &mut UartToken,
        use_it: impl FnOnce(&mut Device, &mut UartToken) -> R,
    ) -> Option<R> {
        // SAFETY: there is one token, its holder is here, and no `use_it` of this module calls
        // `with`; so this is the only reference to the device.
        let device = unsafe { (*self.0.get()).as_mut() }?;
        Some(use_it(device, token))
    }
}

/// The transmit FIFO.
struct Transmit<'a>(&'a mut Uart<'static>);

impl Sink for Transmit<'_> {
    fn put(&mut self, byte: u8) -> bool {
        if self.0.is_tx_fifo_full() {
            return false;
        }
        self.0.write_word(byte);
        true
    }

    fn is_interrupted(&self) -> bool {
        cpu::interrupt_pending()
    }
}

/// Sets the UART up. Boot core, once, before other cores run and after the device is mapped.
pub fn prepare(system: &System) {
    let Some(registers) = NonNull::new(system.board.uart.base.0 as *mut PL011Registers) else {
        return;
    };
    // SAFETY: the board's UART, mapped as device memory for ever. The only other writer is the
    // epitaph, when everything else has ended.
    let mut uart = Uart::new(unsafe { UniqueMmioPointer::new(registers) });
    let line = LineConfig {
        data_bits: DataBits::Bits8,
        parity: Parity::None,
        stop_bits: StopBits::One,
    };
    // The divisor fits by construction, so this cannot fail.
    let _ = uart.enable(line, BAUD_RATE, UART_CLOCK_HZ);
    uart.set_interrupt_masks(Interrupts::RXI | Interrupts::RTI);

    let mut mux = Mux::new();
    let mut consoles = 0;
    for (index, guest) in system.guests.iter().enumerate() {
        if let Some(console) = &guest.console {
            mux.add_guest(GuestId(index as u8), &guest.name, console.colour);
            consoles |= 1 << index;
        }
    }
    let focus = first_focus(system);
    CONSOLE.set_focus(focus);
    // SAFETY: no other core runs yet and nobody holds the token.
    unsafe {
        *DEVICE.0.get() = Some(Device {
            uart,
            mux,
            input: InputSwitch::new(consoles, focus),
            waits_for_room: false,
        });
    }
}

/// Who gets the keyboard first: the guest of lowest priority that has a console, for that is the
/// one people talk to.
fn first_focus(system: &System) -> GuestId {
    let lowest = system
        .guests
        .iter()
        .enumerate()
        .filter(|(_, guest)| guest.console.is_some())
        .min_by_key(|(_, guest)| guest.vcpus.first().map(|vcpu| vcpu.priority));
    GuestId(lowest.map_or(0, |(index, _)| index as u8))
}

/// Bytes of output that a guest may write now.
pub fn room(guest: GuestId) -> usize {
    CONSOLE.room(Source::Guest(guest))
}

/// Writes some of what waits, if no other core is at it.
pub fn serve() -> Served {
    CONSOLE.serve(drain)
}

fn drain(token: &mut UartToken) -> Drained {
    DEVICE
        .with(token, |device, token| {
            let mut sink = Transmit(&mut device.uart);
            let drained = device.mux.drain(token, &CONSOLE, &mut sink, BUDGET);
            let full = drained == Drained::SinkFull && device.uart.is_tx_fifo_full();
            device.expect_room(full);
            drained
        })
        .unwrap_or(Drained::Empty)
}

/// Writes all that waits, however long it takes. Only when the machine is about to stop.
pub fn flush() {
    /// More visits than full rings need; the UART may be stuck.
    const VISITS: usize = 1_000_000;
    // A line that has not grown between two marks is printed without its end.
    for _ in 0..2 {
        CONSOLE.flush_idle();
        for _ in 0..VISITS {
            if CONSOLE.serve(drain) == Served::Done {
                break;
            }
        }
    }
}

/// Serves the UART's interrupt: what was typed leads to `effects`.
pub fn receive(effects: &mut Vec<InputEffect, MAX_RECEIVED>) {
    let _ = CONSOLE.serve(|token| {
        let taken = DEVICE.with(token, |device, _| device.take_input(effects));
        match taken {
            Some(()) => drain(token),
            None => Drained::Empty,
        }
    });
}

impl Device {
    fn take_input(&mut self, effects: &mut Vec<InputEffect, MAX_RECEIVED>) {
        while !effects.is_full() {
            // A byte with a line error is lost.
            let Ok(Some(byte)) = self.uart.read_word() else {
                break;
            };
            if let Some(effect) = self.input.feed(byte) {
                let _ = effects.push(effect);
            }
        }
        self.uart.clear_interrupts(
            Interrupts::RTI | Interrupts::OEI | Interrupts::FEI | Interrupts::PEI,
        );
    }

    /// Asks the UART to say when it has room, or not to.
    fn expect_room(&mut self, expect: bool) {
        if self.waits_for_room != expect {
            self.waits_for_room = expect;
            let mut mask = Interrupts::RXI | Interrupts::RTI;
            if expect {
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
    // Written when nobody urgent has the core (`Instance::idle`, `Instance::run_vcpu`).
    CONSOLE.ask();
}

/// Prints a message of the hypervisor.
macro_rules! say {
    ($core:expr, $($message:tt)*) => {
        $crate::console::say_line($core, format_args!($($message)*))
    };
}
pub(crate) use say;
