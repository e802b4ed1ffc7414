// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that is a data structure: what stands in for `hardware` where this crate is built for a host.
//!
//! It has the same names, so boot, exits, interrupts and switches run as they do at EL2. A test owns the machine of its
//! thread: it steps one core after the other, and says what a guest does when a core enters it ([`Machine::guest`]).
//!
//! What the model is strict about: it panics where the hypervisor ends an interrupt that it has not taken, writes memory
//! that is no guest's, touches an address where nothing is, or enters a vCPU with translations of another one. It has no
//! caches, no speculation and one order of memory; those are tested by loom, Miri and on QEMU.

mod core;
mod firmware;
mod gic;
mod gic_frames;
mod guest;
mod interrupts;
mod memory;
mod registers;
mod statics;
mod translation;
mod uart;
mod virtual_interface;

pub use self::core::Core;
pub use firmware::{
    Ended, halt, run_for_ever, start_core, system_off, until_it_ends, wait_for_interrupt,
};
pub use gic::{Gic, GicError, initialize_gic};
pub use guest::{GuestHook, enter};
pub use memory::{
    MIN_BUNDLE, Memory, bundle_start, clear_memory, copy_payload, finish_loading, memory_bytes,
    read_u32, read_word_of_memory, text_start, write_if_there, write_memory, write_memory_byte,
    write_u32, write_u64,
};
pub use registers::{
    Register, dsb_ishst, dsb_sy, isb, load_vectors, note_step, read, set_vectors, store_vectors,
    write, write_own,
};
pub(crate) use registers::{pass_step, read_register, write_own_register, write_register};
pub use statics::PerMachine;
pub(crate) use statics::{per_machine, place};
pub use translation::{
    El2Map, forget_both_stages, forget_guest_translations, may_execute, translate_for_kernel_read,
    walk_stage2,
};
pub use uart::{Uart, printed, uart_at};

use std::any::Any;
use std::cell::RefCell;

/// Bytes of one redistributor.
pub const REDISTRIBUTOR_SIZE: u64 = 0x2_0000;

/// The machine of a test.
pub struct Machine {
    /// Its cores.
    pub cores: Vec<Core>,
    /// The core that executes now.
    pub current: usize,
    /// The system counter.
    pub clock: u64,
    /// The interrupt controller, but for what belongs to cores.
    pub gic: Gic,
    /// The console's UART.
    pub uart: uart::State,
    /// Memory.
    pub memory: Memory,
    /// Register writes that silence devices.
    pub quiesced: Vec<(u64, u32)>,
    /// Whether the firmware was asked to turn the machine off.
    pub is_off: bool,
    /// Accesses to registers, devices and memory: a measure of what a path costs.
    pub work: u64,
    /// What runs on each core, once it does.
    pub running: Vec<Option<Box<dyn Any>>>,
    /// What guests do.
    pub guest: Option<GuestHook>,
}

thread_local! {
    static MACHINE: RefCell<Option<Box<Machine>>> = const { RefCell::new(None) };
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct Parts {
    /// Affinities of the cores.
    pub mpidrs: Vec<u64>,
    /// First address and size of memory.
    pub memory: (u64, u64),
    /// Where guests may be loaded, as (start, size).
    pub loadable: Vec<(u64, u64)>,
    /// The bundle behind the image.
    pub bundle: Vec<u8>,
    /// Distributor, redistributors, UART.
    pub devices: [u64; 3],
    /// The UART's interrupt.
    pub uart_interrupt: u16,
}

/// Makes the machine of this thread, as after a reset. What ran on a former one must be gone.
pub fn switch_on(parts: Parts) {
    statics::forget();
    let cores: Vec<Core> = parts.mpidrs.iter().map(|&mpidr| Core::new(mpidr)).collect();
    let running = cores.iter().map(|_| None).collect();
    let machine = Machine {
        cores,
        current: 0,
        clock: 1,
        gic: Gic::new(parts.devices[0], parts.devices[1]),
        uart: uart::State::new(parts.devices[2], parts.uart_interrupt),
        memory: Memory::new(parts.memory, parts.loadable, parts.bundle),
        quiesced: Vec::new(),
        is_off: false,
        work: 0,
        running,
        guest: None,
    };
    MACHINE.set(Some(Box::new(machine)));
}

/// Lends the machine of this thread out. `use_it` must not ask for it a second time.
pub fn with<R>(use_it: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(|machine| match machine {
        Some(machine) => use_it(machine),
        None => panic!("no machine: `fake::switch_on` comes first"),
    })
}

impl Machine {
    /// The core that executes now.
    pub fn core(&mut self) -> &mut Core {
        self.work += 1;
        &mut self.cores[self.current]
    }
}
