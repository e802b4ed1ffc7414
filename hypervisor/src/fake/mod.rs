// SPDX-License-Identifier: MIT OR Apache-2.0
//! A machine that is a data structure. It replaces `hardware` where this crate is built for a host.
//!
//! It has the same names as `hardware`, so boot, exits, interrupts and switches run as they do at EL2. Each test has
//! the machine of its thread: it runs one core at a time, and a hook does what guests do ([`Machine::guest`]).
//!
//! It panics where the hypervisor deactivates an interrupt that is not active, loads a guest into memory that belongs
//! to no guest, accesses an address without a device, or runs a vCPU with cached translations of another one or of a
//! former life. It has no caches, no speculation, and is sequentially consistent; loom, Miri and QEMU test what depends
//! on those.

mod core;
mod firmware;
mod gic;
mod gic_frames;
mod guest;
mod interrupts;
mod memory;
mod registers;
pub mod running_guest;
mod sha256;
mod statics;
mod translation;
mod uart;
mod virtual_interface;

pub use self::core::Core;
#[cfg(test)]
pub use self::core::FREQUENCY;
pub use firmware::{
    CorePower, Ended, Firmware, TurnOn, ask_firmware, halt, mitigate, run_for_ever, start_core,
    system_off, turn_off, turn_on, until_it_ends, wait_for_interrupt,
};
pub use gic::{Gic, GicError, initialize_gic};
pub use guest::{GuestHook, enter};
pub use memory::{
    MIN_BUNDLE, Memory, bundle_start, clear_memory, fetch_memory, fetch_payload, finish_loading,
    memory_bytes, own_memory, own_sections, payload_bytes, publish_pages, read_u32,
    read_word_of_memory, text_start, wait_until_visible, words_of_memory, write_if_there,
    write_memory, write_memory_byte, write_u32, write_u64,
};
pub use registers::{
    Register, dsb_ish, dsb_ishst, dsb_sy, isb, load_vectors, note_step, read, set_vectors,
    store_vectors, write, write_own,
};
pub(crate) use registers::{pass_step, read_register, write_own_register, write_register};
pub use sha256::{
    compress, copy_and_hash, copy_and_hash_memory, enable_vectors, has_sha256, hash_memory, trust,
};
pub use statics::PerMachine;
pub(crate) use statics::{per_machine, place};
pub use translation::{
    activate_tables, forget_both_stages, forget_guest_translations, may_execute, may_write,
    translate_for_kernel_read, walk_stage2,
};
pub use uart::{Uart, printed, uart_at};

use spumone_config::packed::{MemoryRange, Trust};
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
    /// Ticks that pass whenever a core acknowledges an interrupt.
    pub acknowledge_ticks: u64,
    /// The interrupt controller, without the parts of each core.
    pub gic: Gic,
    /// The console's UART.
    pub uart: uart::State,
    /// Memory.
    pub memory: Memory,
    /// Whether cores have instructions for SHA-256.
    pub has_sha256: bool,
    /// The key that the hypervisor trusts, and the lowest version that it accepts.
    pub trust: Trust,
    /// Register writes that silence devices.
    pub quiesced: Vec<(u64, u32)>,
    /// Whether the firmware was asked to turn the machine off.
    pub is_off: bool,
    /// Number of accesses to registers, devices and memory: a measure of the cost of a path.
    pub work: u64,
    /// The line of this interrupt rises when so many more pages have been cleared.
    pub rises_after_pages: Option<(u32, u16)>,
    /// The line of this interrupt rises when EL2 has accessed the memory of guests that run so many more times.
    pub rises_after_accesses: Option<(u32, u16)>,
    /// The loop of each core that has started.
    pub running: Vec<Option<Box<dyn Any>>>,
    /// What guests do.
    pub guest: Option<GuestHook>,
}

thread_local! {
    static MACHINE: RefCell<Option<Box<Machine>>> = const { RefCell::new(None) };
}

/// The configuration of a machine.
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
    /// Where hypervisor and bundle are.
    pub own: MemoryRange,
    /// The key that the hypervisor trusts, and the lowest version that it accepts.
    pub trust: Trust,
    /// Whether cores have instructions for SHA-256.
    pub has_sha256: bool,
    /// The firmware of cores, by core, and their `ID_AA64PFR0_EL1.CSV2`; of the others it knows nothing of workarounds.
    pub firmware: Vec<(Firmware, u64)>,
    /// Distributor, redistributors, UART.
    pub devices: [u64; 3],
    /// The UART's interrupt.
    pub uart_interrupt: u16,
}

/// Makes the machine of this thread, as after a reset. The instances of a former one must have been dropped.
pub fn switch_on(parts: Parts) {
    statics::forget();
    let mut cores: Vec<Core> = parts.mpidrs.iter().map(|&mpidr| Core::new(mpidr)).collect();
    for (core, (firmware, csv2)) in cores.iter_mut().zip(parts.firmware) {
        core.firmware = firmware;
        let features = core.get(Register::ID_AA64PFR0_EL1);
        core.set(Register::ID_AA64PFR0_EL1, features | csv2 << 56);
    }
    let running = cores.iter().map(|_| None).collect();
    let machine = Machine {
        cores,
        current: 0,
        clock: 1,
        acknowledge_ticks: 0,
        gic: Gic::new(parts.devices[0], parts.devices[1]),
        uart: uart::State::new(parts.devices[2], parts.uart_interrupt),
        memory: Memory::new(parts.memory, parts.loadable, parts.bundle, parts.own),
        has_sha256: parts.has_sha256,
        trust: parts.trust,
        quiesced: Vec::new(),
        is_off: false,
        work: 0,
        rises_after_pages: None,
        rises_after_accesses: None,
        running,
        guest: None,
    };
    MACHINE.set(Some(Box::new(machine)));
}

/// Calls `use_it` with the machine of this thread. `use_it` must not call this function.
pub fn with<R>(use_it: impl FnOnce(&mut Machine) -> R) -> R {
    MACHINE.with_borrow_mut(|machine| match machine {
        Some(machine) => use_it(machine),
        None => panic!("no machine: `fake::switch_on` comes first"),
    })
}

impl Gic {
    /// One more of what an interrupt waits for has happened: see [`Machine::rises_after_pages`].
    fn count_down(&mut self, rises: &mut Option<(u32, u16)>) {
        match rises {
            Some((0, interrupt)) => {
                self.set_line(*interrupt, true);
                *rises = None;
            }
            Some((left, _)) => *left -= 1,
            None => {}
        }
    }
}

impl Machine {
    /// The core that executes now.
    pub fn core(&mut self) -> &mut Core {
        self.work += 1;
        &mut self.cores[self.current]
    }
}
