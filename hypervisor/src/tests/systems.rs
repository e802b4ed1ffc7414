// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small systems for tests.

use crate::fake::Parts;
use spumone_config::packed::{
    Board, BundleHeader, Guest, Interrupt, InterruptPriorities, Mapping, MemoryRange, Policy,
    Quiesce, Scheduler, SeedSlot, Segment, System, Trigger, Uart, Vcpu, VirtualGic, VirtualUart,
    Without,
};
use spumone_config::{GuestAddr, IntId, PcpuId, PhysAddr, Priority};

pub const MEMORY: u64 = 0x4000_0000;
pub const MEMORY_SIZE: u64 = 0x200_0000;
pub const HYPERVISOR_SIZE: u64 = 0x20_0000;
pub const DISTRIBUTOR: u64 = 0x0800_0000;
pub const REDISTRIBUTORS: u64 = 0x080A_0000;
pub const UART: u64 = 0x0900_0000;
pub const UART_INTERRUPT: u16 = 33;
/// A register that silences a device of the first guest.
pub const QUIESCE: u64 = 0x0A00_0070;

/// Where guests find things, which is where the machine has them.
pub const GUEST_MEMORY: u64 = 0x4000_0000;
pub const GUEST_MEMORY_SIZE: u64 = 0x1_0000;
pub const GUEST_UART_INTERRUPT: u16 = 33;
/// What the loader puts at the start of a guest's memory.
pub const IMAGE: &[u8] = b"image of a guest";
const IMAGE_OFFSET: u64 = 0x10_0000;

/// A guest for a test.
#[derive(Clone, Debug)]
pub struct GuestParts {
    /// Home core and priority of each vCPU.
    pub vcpus: Vec<(u8, u8)>,
    /// The cores that its vCPUs may run on; 0: their homes.
    pub cores: u32,
    /// Its SPIs: the machine's, its own, how they are signalled.
    pub interrupts: Vec<(u16, u16, Trigger)>,
}

impl GuestParts {
    /// A guest with these vCPUs (home, priority).
    pub fn new(vcpus: &[(u8, u8)]) -> Self {
        Self {
            vcpus: vcpus.to_vec(),
            cores: 0,
            interrupts: Vec::new(),
        }
    }

    /// The same, on these cores.
    pub fn on(mut self, cores: u32) -> Self {
        self.cores = cores;
        self
    }

    /// The same, with an SPI.
    pub fn with_spi(mut self, physical: u16, own: u16, trigger: Trigger) -> Self {
        self.interrupts.push((physical, own, trigger));
        self
    }

    fn packed(&self, index: usize) -> Guest {
        let homes = self
            .vcpus
            .iter()
            .fold(0, |bits, &(home, _)| bits | 1 << home);
        Guest {
            name: format!("guest{index}").as_str().try_into().unwrap(),
            vcpus: self
                .vcpus
                .iter()
                .map(|&(home, priority)| Vcpu {
                    home: PcpuId(home),
                    priority: Priority(priority),
                })
                .collect(),
            cores: homes | self.cores,
            memory: [Mapping {
                ipa: GuestAddr(GUEST_MEMORY),
                pa: PhysAddr(memory_of(index)),
                size: GUEST_MEMORY_SIZE,
            }]
            .into_iter()
            .collect(),
            devices: heapless::Vec::new(),
            interrupts: self
                .interrupts
                .iter()
                .map(|&(physical, guest, trigger)| Interrupt {
                    physical: IntId(physical),
                    guest: IntId(guest),
                    trigger,
                })
                .collect(),
            quiesce: [Quiesce {
                register: PhysAddr(QUIESCE + 0x1000 * index as u64),
                value: 0,
            }]
            .into_iter()
            .collect(),
            segments: [Segment {
                offset: IMAGE_OFFSET,
                size: IMAGE.len() as u64,
                destination: GuestAddr(GUEST_MEMORY),
            }]
            .into_iter()
            .collect(),
            entry: GuestAddr(GUEST_MEMORY),
            boot_argument: 0x77,
            seeds: [SeedSlot {
                destination: GuestAddr(GUEST_MEMORY + 8),
                size: 4,
            }]
            .into_iter()
            .collect(),
            console: Some(VirtualUart {
                base: GuestAddr(UART),
                interrupt: IntId(GUEST_UART_INTERRUPT),
            }),
            gic: VirtualGic {
                distributor: GuestAddr(DISTRIBUTOR),
                redistributor: GuestAddr(REDISTRIBUTORS),
                spis: 64,
            },
            preempt_count: None,
        }
    }
}

/// Where the machine has the memory of a guest.
pub fn memory_of(guest: usize) -> u64 {
    MEMORY + HYPERVISOR_SIZE + 0x10_0000 * guest as u64
}

/// A system with so many cores, in two clusters.
pub fn system(cores: u8, policy: Policy, guests: &[GuestParts]) -> System {
    System {
        board: Board {
            name: "fake".try_into().unwrap(),
            core_mpidrs: (0..u64::from(cores))
                .map(|core| ((core / 4) << 8) | (core % 4))
                .collect(),
            memory: MemoryRange {
                start: PhysAddr(MEMORY),
                size: MEMORY_SIZE,
            },
            hypervisor_memory: MemoryRange {
                start: PhysAddr(MEMORY),
                size: HYPERVISOR_SIZE,
            },
            gic_distributor: PhysAddr(DISTRIBUTOR),
            gic_redistributor: PhysAddr(REDISTRIBUTORS),
            uart: Uart {
                base: PhysAddr(UART),
                interrupt: IntId(UART_INTERRUPT),
            },
            devices: heapless::Vec::new(),
        },
        scheduler: Scheduler {
            policy,
            quantum_us: 1_000,
            interrupt_priorities: InterruptPriorities::Split,
            without: Without::default(),
        },
        guests: guests
            .iter()
            .enumerate()
            .map(|(index, guest)| guest.packed(index))
            .collect(),
        fixed_seed: Some(1),
    }
}

/// The machine for a system, with the system in its bundle.
pub fn parts(system: &System) -> Parts {
    let mut buffer = vec![0; 0x8000];
    let encoded = postcard::to_slice(system, &mut buffer).unwrap();
    let header = BundleHeader {
        system_len: encoded.len() as u32,
        total_len: IMAGE_OFFSET + IMAGE.len() as u64,
    };
    let mut bundle = header.to_bytes().to_vec();
    bundle.extend_from_slice(encoded);
    bundle.resize(IMAGE_OFFSET as usize, 0);
    bundle.extend_from_slice(IMAGE);
    let memory = system.guests.iter().flat_map(|guest| &guest.memory);
    Parts {
        mpidrs: system.board.core_mpidrs.to_vec(),
        memory: (MEMORY, MEMORY_SIZE),
        loadable: memory.map(|range| (range.pa.0, range.size)).collect(),
        bundle,
        devices: [DISTRIBUTOR, REDISTRIBUTORS, UART],
        uart_interrupt: UART_INTERRUPT,
    }
}
