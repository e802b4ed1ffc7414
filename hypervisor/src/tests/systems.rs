// SPDX-License-Identifier: MIT OR Apache-2.0
//! Small systems for tests.

use crate::fake::{self, Parts};
use spumone_config::bands::Bands;
use spumone_config::packed::{
    Board, Content, Guest, Hash, Interrupt, InterruptPriorities, LeafRun, LinkEnd, LinkGpio,
    LinkKind, Local, Mapping, MemoryRange, OnFault, OnStop, OnTamper, PageRange, Part, Policy,
    Protect, Quiesce, Scheduler, Seal, SeedSlot, Segment, Spi, SpiOwner, Stage2, System, Trigger,
    Trust, Uart, Vcpu, VirtualGic, VirtualUart, WakeEarly, Without,
};
use spumone_config::roles::{self, Member, Tables};
use spumone_config::seal::seal;
use spumone_config::stage2::{self, Access, Attributes, Pages, VTCR, Vmid};
use spumone_config::{Band, GuestAddr, GuestId, IntId, PcpuId, PhysAddr, Priority, VcpuId};
use std::alloc::{Layout, alloc_zeroed};

pub const MEMORY: u64 = 0x4000_0000;
pub const MEMORY_SIZE: u64 = 0x200_0000;
pub const HYPERVISOR_SIZE: u64 = 0x20_0000;
pub const DISTRIBUTOR: u64 = 0x0800_0000;
pub const REDISTRIBUTORS: u64 = 0x080A_0000;
pub const UART: u64 = 0x0900_0000;
pub const UART_INTERRUPT: u16 = 33;
/// A register that silences a device of the first guest.
pub const QUIESCE: u64 = 0x0A00_0070;

/// Addresses of guests; devices have the same addresses as on the machine.
pub const GUEST_MEMORY: u64 = 0x4000_0000;
pub const GUEST_MEMORY_SIZE: u64 = 0x1_0000;
pub const GUEST_UART_INTERRUPT: u16 = 33;
/// The image that is loaded at the start of a guest's memory.
pub const IMAGE: &[u8] = b"image of a guest";
pub const IMAGE_OFFSET: u64 = 0x10_0000;
/// The list of its hashes.
pub const LIST_OFFSET: u64 = 0xF_0000;

/// Where guests read stolen time.
pub const STOLEN_TIME: u64 = 0x0D00_0000;
pub const HYPERVISOR_MEMORY: MemoryRange = MemoryRange {
    start: PhysAddr(MEMORY),
    size: HYPERVISOR_SIZE,
};
/// From the start of that memory to what is loaded.
const HYPERVISOR_OFFSET: u64 = 0x1_0000;

/// Where guests see the registers and the memory of their first link.
pub const LINK_REGISTERS: u64 = 0x0C00_0000;
pub const LINK_WINDOW: u64 = 0x0C10_0000;
pub const LINK_INTERRUPT: u16 = 80;
/// The GPIO controller of the second guest's end.
pub const LINK_GPIO: u64 = 0x0C00_8000;
pub const LINK_GPIO_INTERRUPT: u16 = 88;
/// The memory of the link, and its size.
pub const LINK_MEMORY: u64 = MEMORY + 0x180_0000;
const LINK_SIZE: u64 = 0x2000;

/// Local memory, behind the machine's memory, and its size.
pub const LOCAL_MEMORY: u64 = MEMORY + MEMORY_SIZE;
const LOCAL_MEMORY_SIZE: u64 = 0x10_0000;
/// Where the bundle has the hashes of the pages of a guest that runs from there.
pub const LOCAL_LIST_OFFSET: u64 = 0xE_0000;

/// A guest for a test.
#[derive(Clone, Debug)]
pub struct GuestParts {
    /// Home core and priority of each vCPU.
    pub vcpus: Vec<(u8, u8)>,
    /// The cores that its vCPUs may run on; 0: their home cores.
    pub cores: u32,
    /// Its SPIs: physical INTID, INTID of the guest, trigger.
    pub interrupts: Vec<(u16, u16, Trigger)>,
    /// How early its vCPUs are woken.
    pub wake_early: WakeEarly,
    /// What an access where it has nothing does.
    pub on_fault: OnFault,
    /// What becomes of it when it has ended.
    pub on_stop: OnStop,
    /// What of its memory must not change.
    pub protect: Option<Protect>,
    /// The longest timeout of its watchdog, in seconds.
    pub watchdog_s: u16,
    /// Whether it may set the mode of `[power]`.
    pub sets_power: bool,
    /// Whether it reads the stolen time of its vCPUs.
    pub reads_stolen_time: bool,
    /// Bytes of its memory.
    pub memory_size: u64,
}

impl GuestParts {
    /// A guest with these vCPUs (home, priority).
    pub fn new(vcpus: &[(u8, u8)]) -> Self {
        Self {
            vcpus: vcpus.to_vec(),
            cores: 0,
            interrupts: Vec::new(),
            wake_early: WakeEarly::Off,
            on_fault: OnFault::Stop,
            on_stop: OnStop::Stop,
            protect: None,
            watchdog_s: 0,
            sets_power: false,
            reads_stolen_time: false,
            memory_size: GUEST_MEMORY_SIZE,
        }
    }

    /// The same, with its image protected.
    pub fn protected(mut self, round_us: u32, on_tamper: OnTamper) -> Self {
        self.protect = Some(Protect {
            leaves: [LeafRun {
                segment: 0,
                first: 0,
                count: 1,
            }]
            .into_iter()
            .collect(),
            read_only: [PageRange {
                start: GuestAddr(GUEST_MEMORY),
                size: 0x1000,
            }]
            .into_iter()
            .collect(),
            round_us,
            on_tamper,
            local: None,
        });
        self
    }

    /// The same, with so many pages of memory, and it runs from local memory with so many frames. It cannot write its first page.
    pub fn in_local_memory(mut self, pages: u64, frames: u64, on_tamper: OnTamper) -> Self {
        self.memory_size = pages * 0x1000;
        self = self.protected(0, on_tamper);
        if let Some(protect) = &mut self.protect {
            protect.leaves.clear();
            protect.local = Some(Local {
                memory: MemoryRange {
                    start: PhysAddr(LOCAL_MEMORY),
                    size: Local::least(self.memory_size) + (frames - Local::LEAST_FRAMES) * 0x1000,
                },
                list: LOCAL_LIST_OFFSET,
                list_hash: Hash::default(),
            });
        }
        self
    }

    /// The same, woken that early.
    pub fn woken_early(mut self, early: WakeEarly) -> Self {
        self.wake_early = early;
        self
    }

    /// The same, with external aborts for accesses where it has nothing.
    pub fn with_aborts(mut self) -> Self {
        self.on_fault = OnFault::Abort;
        self
    }

    /// The same, and this becomes of it when it has ended.
    pub fn on_stop(mut self, on_stop: OnStop) -> Self {
        self.on_stop = on_stop;
        self
    }

    /// The same, and it reads the stolen time of its vCPUs.
    pub fn with_stolen_time(mut self) -> Self {
        self.reads_stolen_time = true;
        self
    }

    /// The same, with a watchdog.
    pub fn watched(mut self, longest_s: u16) -> Self {
        self.watchdog_s = longest_s;
        self
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

    fn packed(&self, index: usize, first: usize, policy: Policy, bands: &Bands) -> Guest {
        let homes = self
            .vcpus
            .iter()
            .fold(0, |bits, &(home, _)| bits | 1 << home);
        let cores = homes | self.cores;
        let vcpus = (first..).zip(&self.vcpus);
        let vcpus = vcpus.map(|(id, &(home, priority))| Vcpu {
            id: VcpuId(id as u8),
            home: PcpuId(home),
            priority: Priority(priority),
            band: bands.of(Priority(priority)).unwrap(),
        });
        Guest {
            name: format!("guest{index}").as_str().try_into().unwrap(),
            band: vcpus.clone().map(|vcpu| vcpu.band).max().unwrap(),
            vcpus: vcpus.collect(),
            cores,
            moves: roles::moves(policy, cores, self.vcpus.len()),
            wake_early: self.wake_early,
            on_fault: self.on_fault,
            on_stop: self.on_stop,
            protect: self.protect.clone(),
            watchdog_s: self.watchdog_s,
            sets_power: self.sets_power,
            stolen_time: self.reads_stolen_time.then(|| Mapping {
                ipa: GuestAddr(STOLEN_TIME),
                pa: HYPERVISOR_MEMORY.stolen_page(GuestId(index as u8)),
                size: 0x1000,
            }),
            // Filled in by `parts`, which knows the addresses of the tables.
            stage2: Stage2 {
                all: 0,
                of_kernel: None,
                of_programs: None,
            },
            memory: [Mapping {
                ipa: GuestAddr(GUEST_MEMORY),
                pa: PhysAddr(memory_of(index)),
                size: self.memory_size,
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
                content: Content::Image,
                list: LIST_OFFSET,
                list_hash: Hash::default(),
            }]
            .into_iter()
            .collect(),
            entry: GuestAddr(GUEST_MEMORY),
            boot_argument: 0x77,
            // In the image: none if that must not change.
            seeds: [SeedSlot {
                destination: GuestAddr(GUEST_MEMORY + 8),
                size: 4,
            }]
            .into_iter()
            .filter(|_| self.protect.is_none())
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
            links: heapless::Vec::new(),
            preempt_count: None,
        }
    }
}

/// The physical address of a guest's memory.
pub fn memory_of(guest: usize) -> u64 {
    MEMORY + HYPERVISOR_SIZE + 0x10_0000 * guest as u64
}

/// A system with so many cores, in two clusters.
pub fn system(cores: u8, policy: Policy, guests: &[GuestParts]) -> System {
    let priorities = guests.iter().flat_map(|guest| &guest.vcpus);
    let bands = Bands::from_priorities(priorities.map(|&(_, it)| Priority(it))).unwrap();
    let mut first = 0;
    let guests: Vec<Guest> = (0..)
        .zip(guests)
        .map(|(index, guest)| {
            let packed = guest.packed(index, first, policy, &bands);
            first += guest.vcpus.len();
            packed
        })
        .collect();
    let members: Vec<Member> = (0..)
        .map(GuestId)
        .zip(&guests)
        .flat_map(|(id, guest)| {
            let moves = guest.moves;
            guest.vcpus.iter().map(move |vcpu| Member {
                guest: id,
                moves,
                band: vcpu.band,
                home: vcpu.home,
            })
        })
        .collect();
    System {
        version: 0,
        stage2_pages: Part::default(),
        el2_pages: Part::default(),
        keyboard: (0..)
            .map(GuestId)
            .zip(&guests)
            .min_by_key(|(_, guest)| guest.vcpus[0].priority)
            .map_or(GuestId(0), |(id, _)| id),
        roles: roles::of_cores(policy, (1 << cores) - 1, &members),
        link_memory: None,
        spis: spis(&guests),
        vtcr: VTCR,
        sections: fake::own_sections(),
        // A host does not use them.
        el2_tables: PhysAddr(0),
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
        guests: guests.into_iter().collect(),
        power: None,
        fixed_seed: Some(1),
    }
}

/// Adds a memory link between two guests that have no links yet.
pub fn add_link(system: &mut System, one: u8, other: u8) {
    system.link_memory = Some(MemoryRange {
        start: PhysAddr(LINK_MEMORY),
        size: LINK_SIZE,
    });
    let gpio = LinkGpio {
        base: GuestAddr(LINK_GPIO),
        interrupt: IntId(LINK_GPIO_INTERRUPT),
    };
    let kind = LinkKind::Memory {
        memory: Mapping {
            ipa: GuestAddr(LINK_WINDOW),
            pa: PhysAddr(LINK_MEMORY),
            size: LINK_SIZE,
        },
        writes: true,
    };
    add_end(system, one, other, None, kind);
    add_end(system, other, one, Some(gpio), kind);
}

/// Adds a network link between two guests that have no links yet.
pub fn add_network_link(system: &mut System, one: u8, other: u8) {
    for (guest, peer) in [(one, other), (other, one)] {
        let kind = LinkKind::Network {
            mac: [2, 0, 0, 0, 0, guest],
            offloads: false,
        };
        add_end(system, guest, peer, None, kind);
    }
}

/// Adds a link of sockets between two guests that have none.
pub fn add_socket_link(system: &mut System, one: u8, other: u8) {
    let context = |guest: u8| u32::from(guest) + 3;
    for (guest, peer) in [(one, other), (other, one)] {
        let (own, peers) = (context(guest), context(peer));
        let kind = LinkKind::Socket { own, peer: peers };
        add_end(system, guest, peer, None, kind);
    }
}

/// The second end has the GPIO controller, if there is one.
fn add_end(system: &mut System, guest: u8, peer: u8, gpio: Option<LinkGpio>, kind: LinkKind) {
    let end = LinkEnd {
        peer: GuestId(peer),
        peer_link: 0,
        is_second: gpio.is_some(),
        registers: GuestAddr(LINK_REGISTERS),
        interrupt: IntId(LINK_INTERRUPT),
        gpio,
        kind,
    };
    system.guests[usize::from(guest)].links.push(end).unwrap();
}

fn spis(guests: &[Guest]) -> heapless::Vec<Spi, { spumone_config::packed::MAX_USED_SPIS }> {
    let of_guests = (0..).map(GuestId).zip(guests).flat_map(|(id, guest)| {
        guest.interrupts.iter().map(move |it| Spi {
            physical: it.physical,
            owner: SpiOwner::Guest(id, it.guest),
            band: guest.band,
            trigger: it.trigger,
        })
    });
    let console = Spi {
        physical: IntId(UART_INTERRUPT),
        owner: SpiOwner::Console,
        band: Band::LOWEST,
        trigger: Trigger::Level,
    };
    of_guests.chain([console]).collect()
}

/// Bytes for the stage 2 tables of a system.
const TABLES_SIZE: usize = 1 << 19;

/// Makes the stage 2 tables, and stores their addresses in the system. They are in this process's memory, never freed.
fn make_tables(system: &mut System) {
    let layout = Layout::from_size_align(TABLES_SIZE, stage2::ROOT_SIZE as usize).unwrap();
    // SAFETY: the size is not zero.
    let place = unsafe { alloc_zeroed(layout) };
    let mut pages = Pages::new(PhysAddr(place as u64));
    let policy = system.scheduler.policy;
    for (id, guest) in (0..).map(GuestId).zip(&mut system.guests) {
        let others = Tables::needed(policy, guest.moves, guest.vcpus.len());
        let mut make = |ram| {
            let mut tables = stage2::Stage2::new(&mut pages);
            let read_only = guest.protect.iter().flat_map(|it| &it.read_only);
            let read_only: u64 = read_only.map(|pages| pages.size).sum();
            let local = guest.protect.as_ref().and_then(|it| it.local);
            if let (Some(local), Some(memory)) = (local, guest.memory.first()) {
                let place = local.memory.start;
                tables
                    .map_by_tables(memory.ipa, memory.size, place)
                    .unwrap();
            }
            for mapping in guest.memory.iter().filter(|_| local.is_none()) {
                // What is protected is at the start of memory.
                let mut rest = *mapping;
                rest.ipa.0 += read_only;
                rest.pa.0 += read_only;
                rest.size -= read_only;
                tables.map(&rest, ram).unwrap();
                if read_only > 0 {
                    let protected = Mapping {
                        size: read_only,
                        ..*mapping
                    };
                    let access = Access::ReadOnly;
                    tables
                        .map(&protected, Attributes { access, ..ram })
                        .unwrap();
                }
            }
            for device in &guest.devices {
                tables.map(device, Attributes::DEVICE).unwrap();
            }
            for link in &guest.links {
                let LinkKind::Memory { memory, .. } = &link.kind else {
                    continue;
                };
                tables.map(memory, Attributes::SHARED).unwrap();
            }
            if let Some(page) = &guest.stolen_time {
                tables.map(page, Attributes::STOLEN_TIME).unwrap();
            }
            tables.vttbr(Vmid::of(id))
        };
        let all = make(Attributes::RAM);
        let of_kernel = others.of_kernel.then(|| make(Attributes::RAM_OF_KERNEL));
        let of_programs = others
            .of_programs
            .then(|| make(Attributes::RAM_OF_PROGRAMS));
        guest.stage2 = Stage2 {
            all,
            of_kernel,
            of_programs,
        };
    }
    let bytes = pages.to_bytes();
    assert!(bytes.len() <= TABLES_SIZE);
    // SAFETY: as many bytes were allocated, and nothing refers to them yet.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
}

/// The machine for a system, with the system in an unsigned bundle.
pub fn parts(system: &System) -> Parts {
    signed_parts(system, |_| [0; Seal::SIGNATURE])
}

/// The same, signed.
pub fn signed_parts(system: &System, sign: impl FnOnce(&[u8]) -> [u8; Seal::SIGNATURE]) -> Parts {
    let mut system = system.clone();
    make_tables(&mut system);
    let bundle_len = IMAGE_OFFSET as usize + 0x2000;
    // The header has the address of the bundle, which must not change any more.
    let mut bundle = Vec::with_capacity(bundle_len.max(fake::MIN_BUNDLE));
    bundle.resize(bundle_len, 0);
    for segment in system.guests.iter().flat_map(|guest| &guest.segments) {
        bundle[segment.offset as usize..][..IMAGE.len()].copy_from_slice(IMAGE);
    }
    let address = PhysAddr(bundle.as_ptr() as u64);
    seal(&mut system, address, &mut bundle, sign).unwrap();
    let memory = system.guests.iter().flat_map(|guest| &guest.memory);
    let pages_with_stolen_time = system.guests.iter().filter_map(|guest| guest.stolen_time);
    Parts {
        mpidrs: system.board.core_mpidrs.to_vec(),
        memory: (MEMORY, MEMORY_SIZE + LOCAL_MEMORY_SIZE),
        loadable: memory
            .map(|range| (range.pa.0, range.size))
            .chain(system.link_memory.map(|it| (it.start.0, it.size)))
            .chain(pages_with_stolen_time.map(|it| (it.pa.0, it.size)))
            .chain([(LOCAL_MEMORY, LOCAL_MEMORY_SIZE)])
            .collect(),
        bundle,
        own: MemoryRange {
            start: PhysAddr(MEMORY + HYPERVISOR_OFFSET),
            size: HYPERVISOR_SIZE - HYPERVISOR_OFFSET,
        },
        trust: Trust::default(),
        has_sha256: true,
        firmware: Vec::new(),
        devices: [DISTRIBUTOR, REDISTRIBUTORS, UART],
        uart_interrupt: UART_INTERRUPT,
    }
}
