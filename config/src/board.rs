// SPDX-License-Identifier: MIT OR Apache-2.0
//! The board file: what a machine has, and at which addresses.
//!
//! Guests see their interrupt controller and console UART at the board's addresses, so an unmodified kernel for the board
//! runs.

mod check;
mod read;

use crate::packed::Trigger;
use crate::problem::{Problem, Span};
use crate::units::{KIB, MIB};

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Board {
    /// Its short name.
    pub name: String,
    /// `MPIDR_EL1` affinity value of each core.
    pub mpidrs: Vec<u64>,
    /// `compatible` of the cores' device tree nodes.
    pub core_compatible: String,
    /// Memory.
    pub memory: Memory,
    /// Local memory, from which protected guests run; `None`: the board has none.
    pub local_memory: Option<LocalMemory>,
    /// What it costs to turn a core off and on; `None`: the board file does not say.
    pub power: Option<Power>,
    /// Interrupt controller.
    pub gic: Gic,
    /// INTIDs of the generic timer.
    pub timer: Timer,
    /// The console UART, a PL011, which belongs to the hypervisor.
    pub uart: Uart,
    /// Where guests see the devices of links; `None`: the board has no place for them.
    pub links: Option<Links>,
    /// What can be passed through to guests.
    pub devices: Vec<Device>,
    /// How QEMU emulates the machine, if it can.
    pub qemu: Option<Qemu>,
}

/// `[memory]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// First byte.
    pub base: u64,
    /// Most memory the machine can have, in bytes.
    pub max: u64,
    /// Offset of the hypervisor's image from `base`, for which it is linked.
    pub image_offset: u64,
}

/// `[local-memory]`: memory on the chip, from which the firmware keeps devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalMemory {
    /// First byte.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

/// `[power]`: what it costs to turn a core off and on, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Power {
    /// From the decision until the core is off.
    pub off_us: u32,
    /// From the decision until the core runs a vCPU again.
    pub on_us: u32,
}

impl Power {
    /// The costs of a board whose file names none: those of a slow one.
    pub const DEFAULT: Self = Self {
        off_us: 1_000,
        on_us: 1_000,
    };
}

/// `[gic]`, a GICv3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gic {
    /// Distributor frame.
    pub distributor: u64,
    /// First redistributor frame.
    pub redistributor: u64,
    /// Number of SPIs.
    pub spis: u64,
}

/// `[timer]`: private interrupts of the generic timer (INTIDs 16 to 31).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// EL1 secure physical timer.
    pub secure: u64,
    /// EL1 physical timer.
    pub physical: u64,
    /// EL1 virtual timer.
    pub virt: u64,
    /// EL2 physical timer.
    pub hypervisor: u64,
}

/// `[uart]`, a PL011.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uart {
    /// First register.
    pub base: u64,
    /// Its SPI, as an INTID.
    pub interrupt: u64,
    /// Frequency of its reference clock in Hz.
    pub clock: u64,
}

/// `[links]`: addresses and SPIs that no device of the machine has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// The SPI of a guest's first link, as an INTID; those of its other links follow, then those of the GPIO controllers.
    pub first_interrupt: u64,
}

impl Links {
    /// Offset of the memory of a guest's links; the devices come before.
    pub const MEMORY_OFFSET: u64 = MIB;
    /// Offset of the page with the stolen time of a guest's vCPUs. Registers and GPIO controllers of links come before.
    pub const STOLEN_TIME_OFFSET: u64 = 64 * KIB;
}

/// `[[device]]`: a device that can be passed through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name in descriptions.
    pub name: String,
    /// Span of its table in the board file.
    pub span: Span,
    /// Name of its device tree node, without the unit address.
    pub node: String,
    /// `compatible`, the most specific first.
    pub compatible: Vec<String>,
    /// First register.
    pub base: u64,
    /// Bytes of registers.
    pub size: u64,
    /// Its SPIs, as INTIDs.
    pub interrupts: Vec<u64>,
    /// How it signals interrupts.
    pub trigger: Trigger,
    /// Whether it does DMA.
    pub dma: bool,
    /// Whether its DMA is coherent with the cores' caches.
    pub dma_coherent: bool,
    /// `clock-names`: its inputs from the board's fixed peripheral clock.
    pub clock_names: Vec<String>,
    /// Register writes (offset, value) that stop it.
    pub quiesce: Vec<(u64, u32)>,
}

/// `[qemu]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Qemu {
    /// `-M`.
    pub machine: String,
    /// `-cpu`.
    pub cpu: String,
}

impl Board {
    /// Reads and checks a board file.
    ///
    /// # Errors
    ///
    /// All faults found.
    pub fn parse(text: &str) -> Result<Self, Vec<Problem>> {
        let (board, mut problems) = read::read(text);
        match board {
            Some(board) => {
                check::check(&board, &mut problems);
                if problems.is_empty() {
                    Ok(board)
                } else {
                    Err(problems)
                }
            }
            None => Err(problems),
        }
    }

    /// The device with this name.
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }
}
