// SPDX-License-Identifier: MIT OR Apache-2.0
//! From reset to running instances: the boot core reads the bundle, in which `spm` has decided all
//! that can be decided without the machine, checks it against the cores, and gives each core its
//! vCPUs.
//!
//! Any failure here stops the start with a message that says what is wrong: no guest runs yet.

use crate::console::{self, say};
use crate::cpu::{self, Vttbr};
use crate::entropy::Entropy;
use crate::epitaph::{self, fatal};
use crate::gic::Gic;
use crate::guest::{Guest, Owner, Tables};
use crate::hardware::{self, bundle_start, per_machine, place};
use crate::hash::hash;
use crate::instance::Instance;
use crate::loader;
use crate::machine::{Core, Destinations, Machine};
use crate::parking::ParkedTokens;
use crate::power::Power;
use crate::sysreg::mrs;
use crate::timers;
use crate::vcpu::{Vcpu, VcpuToken};
use core::fmt;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32};
use dtoolkit::fdt::Fdt;
use heapless::Vec;
use spumone_config::isolation;
use spumone_config::packed::{
    self, DESCRIPTION_ROOM, Mapping, MemoryRange, Part, Stage2, System, WakeEarly,
};
use spumone_config::types::{MAX_GUESTS, MAX_PCPUS, MAX_VCPUS};
use spumone_config::{GuestId, PcpuId, PhysAddr, VcpuId};
use spumone_core::health::HealthLog;
use spumone_core::link::{Gpio, Signal};
use spumone_core::load::{Claims, Phases};
use spumone_core::local::Counts;
use spumone_core::mailbox::Post;
use spumone_core::migration::{Early, Level, Policy, Roles, Shared, VcpuFacts};
use spumone_core::protect::{Pace, Rounds};
use spumone_core::psci::{GuestPower, Lifecycle, Restarts};
use spumone_core::schedule::{Band, Ticks};
use spumone_core::sets::{CoreSet, VcpuSet};
use spumone_core::stage2;
use spumone_core::stolen::Stolen;
use spumone_core::verify;
use spumone_core::vgic::{GuestGic, VcpuIndex};
use spumone_core::virtio::{Device, Direction, Kind};
use spumone_core::vuart::Vuart;
use spumone_core::watchdog::Watchdog;

/// The PL011 for error messages until the bundle has named the board's: that of QEMU's `virt`, for
/// which `image.ld` links.
const EARLY_UART: PhysAddr = PhysAddr(0x0900_0000);

per_machine! {
    static mut VCPUS: [MaybeUninit<Vcpu>; MAX_VCPUS] = [const { MaybeUninit::uninit() }; MAX_VCPUS];
    static mut GUESTS: [MaybeUninit<Guest>; MAX_GUESTS] =
        [const { MaybeUninit::uninit() }; MAX_GUESTS];
    static mut MACHINE: MaybeUninit<Machine> = MaybeUninit::uninit();
}

per_machine! {
    /// Mail between the cores.
    static POST: Post = Post::new();
}

/// The vCPUs of one core, by id.
type Tokens = [Option<VcpuToken>; MAX_VCPUS];

/// Starts the hypervisor. Runs on the boot core alone, with the initial page tables.
pub fn start(device_tree: PhysAddr) -> ! {
    epitaph::prepare(0, EARLY_UART.0, &[]);
    hardware::enable_vectors();
    let (mut system, own) = read_bundle();
    let board = &system.board;
    // Without the page, which may lie anywhere before the check.
    epitaph::prepare(0, board.uart.base.0, &board.core_mpidrs);
    if let Err(overlap) = isolation::check(&system, own) {
        epitaph::refuse(format_args!(
            "{overlap}: build the image with `spm build` of this release"
        ));
    }
    let page = board.hypervisor_memory.start;
    epitaph::prepare(page.0, board.uart.base.0, &board.core_mpidrs);
    // Loading guests overwrites the firmware's device tree, so it is read now.
    let entropy = match system.fixed_seed {
        Some(seed) => Entropy::fixed(seed),
        None => Entropy::from_firmware(firmware_tree(device_tree, &system).as_ref()),
    };

    // SAFETY: `spm` has made them for this hypervisor, at these addresses; nothing writes the bundle.
    unsafe { hardware::activate_tables(system.el2_tables) };
    console::prepare(&system);

    let boot_core = boot_core(&system);
    check_core(boot_core, system.vtcr);
    if !stage2::has_xnx(mrs!(ID_AA64MMFR1_EL1)) && system.give_up_xnx() {
        say!(
            boot_core,
            "policy trap needs FEAT_XNX, which these cores do not have: steal instead"
        );
    }
    if let Some(memory) = system.link_memory {
        loader::clear(memory);
    }
    let pages = system.guests.iter().filter_map(|guest| guest.stolen_time);
    for Mapping {
        pa: start, size, ..
    } in pages
    {
        loader::clear(MemoryRange { start, size });
    }
    let machine = build_machine(&system, entropy);
    let tokens = place_vcpus(machine);
    set_up_gic(machine, &system);
    greet(boot_core, machine, system.version);
    start_cores(machine, boot_core, tokens, system.el2_tables)
}

/// The verified system of the bundle, and where hypervisor and bundle are. The start ends with a message if a part of the bundle that is
/// used at start is not what it should be.
fn read_bundle() -> (System, MemoryRange) {
    let start = PhysAddr(bundle_start() as u64);
    // SAFETY: `bundle_start` is where the image ends and `spm` has put the bundle; the initial
    // page tables map it. The bytes never change.
    let bytes = |offset: usize, size: usize| unsafe {
        core::slice::from_raw_parts(bundle_start().add(offset), size)
    };
    let first = bytes(0, DESCRIPTION_ROOM as usize);
    // Nothing of the system is decoded, let alone used, before it is verified.
    let (header, system) = match verify::description(first, start, &hardware::trust(), hash) {
        Ok(described) => described,
        Err(refusal) => epitaph::refuse(format_args!("{refusal}")),
    };
    if let Err(refusal) = verify::build(&system, &hardware::own_sections()) {
        epitaph::refuse(format_args!("{refusal}"));
    }
    let part = |part: &Part| bytes(part.offset as usize, part.size as usize);
    if let Err(refusal) = verify::tables(&header, &system, part, hash) {
        epitaph::refuse(format_args!("{refusal}"));
    }
    (system, hardware::own_memory(header.total_len))
}

/// The device tree that the firmware passed; `None` if there is no valid one at that address.
fn firmware_tree(at: PhysAddr, system: &System) -> Option<Fdt<'static>> {
    const MAGIC: u32 = 0xd00d_feed;
    let memory = system.board.memory;
    let inside = at.0 >= memory.start.0 && at.0 < memory.start.0 + memory.size - 4096;
    if !inside || !at.is_aligned(8) {
        return None;
    }
    let word = |offset: u64| {
        // SAFETY: inside the machine's memory, which the initial page tables map.
        u32::from_be(unsafe { hardware::read_word_of_memory(PhysAddr(at.0 + offset)) })
    };
    let size = u64::from(word(4));
    if word(0) != MAGIC || at.0 + size > memory.start.0 + memory.size {
        return None;
    }
    // SAFETY: as above; the memory is not written until guests are loaded, after the tree's last use.
    let bytes = unsafe { hardware::memory_bytes(at, size as usize) };
    Fdt::new(bytes).ok()
}

/// Which of the board's cores this is.
fn boot_core(system: &System) -> PcpuId {
    match cpu::this_core(system.board.core_mpidrs.iter().copied()) {
        Some(core) => core,
        None => fatal!(
            "the boot core, MPIDR {:#x}, is not among the cores of the system",
            mrs!(MPIDR_EL1)
        ),
    }
}

/// Ends the start with a message if the calling core cannot use the guests' stage 2 tables.
fn check_core(core: PcpuId, vtcr: u64) {
    if let Err(error) = stage2::check(vtcr, mrs!(ID_AA64MMFR0_EL1)) {
        fatal!("core {core} cannot run guests: {error}");
    }
}

/// The device of a link that has none.
const UNUSED: Kind = Kind::Network {
    mac: [0; 6],
    offloads: false,
};

fn build_machine(system: &System, entropy: Entropy) -> &'static Machine {
    let mut guests: Vec<&'static Guest, MAX_GUESTS> = Vec::new();
    // SAFETY: taken once, by the only core that runs.
    let storage = unsafe { (place!(GUESTS)).as_mut_unchecked() };
    for (config, place) in system.guests.iter().zip(storage) {
        let gic = GuestGic::new();
        gic.configure(config.gic.spis, config.vcpus.len(), &config.interrupts);
        let guest = Guest {
            gic,
            power: GuestPower::new(config.vcpus.len() as u8),
            lifecycle: Lifecycle::new(config.cores),
            vuart: Vuart::new(),
            signals: [const { Signal::new() }; _],
            gpios: [const { Gpio::new() }; _],
            // Links of memory have no devices: these are never used.
            virtio: core::array::from_fn(|index| {
                let link = config.links.get(index).map(|end| &end.kind);
                let kind = link.and_then(Kind::of);
                Device::new(kind.unwrap_or(UNUSED))
            }),
            outbound: [const { Direction::new() }; _],
            due: AtomicU32::new(0),
            broken_virtio: AtomicU32::new(0),
            has_aborted: AtomicBool::new(false),
            restarts: Restarts::new(),
            watchdog: Watchdog::new(),
            stolen: [const { Stolen::new() }; _],
            phases: Phases::of(config),
            loading: Claims::new(),
            rounds: Rounds::new(),
            local: Counts::new(),
            pace: pace(config),
            vcpus: config.vcpus.iter().map(|vcpu| vcpu.id).collect(),
            stage2: tables(&config.stage2),
            config: config.clone(),
        };
        let _ = guests.push(place.write(guest));
    }
    let protected = guests.iter().enumerate();
    let protected = protected.filter(|(_, guest)| guest.config.has_rounds());
    let look = protected.clone().map(|(_, guest)| guest.pace.look());
    let look = look.min().unwrap_or(Ticks::NEVER);
    let late_look = protected.clone().map(|(_, guest)| guest.pace.late_look());
    let late_look = late_look.min().unwrap_or(Ticks::NEVER);
    let protected_band = protected.clone().map(|(_, guest)| guest.config.band).max();
    let protected = protected.fold(0, |all, (id, _)| all | 1 << id);
    let power = Power::new(system);
    let roles = Roles {
        kernel_free: CoreSet::from_bits(system.roles.kernel_free),
        gang: system
            .roles
            .gang
            .map(|gang| (gang.band, CoreSet::from_bits(gang.cores))),
        highest_movable: Level::of(system.roles.highest_movable),
        lowest_movable: Level::of(system.roles.lowest_movable),
    };
    let facts = vcpu_facts(system, timers::frequency() as u32);
    let machine = Machine {
        from_band: from_band(&facts),
        cores: system
            .board
            .core_mpidrs
            .iter()
            .map(|&mpidr| Core::new(mpidr))
            .collect(),
        vcpus: owners(&guests),
        guests,
        shared: Shared::new(roles, facts),
        parked: ParkedTokens::new(),
        policy: Policy::new(system.scheduler.policy, timers::frequency() as u32),
        without: system.scheduler.without,
        gic: Gic::new(&system.board),
        destinations: Destinations::new(system),
        loading: AtomicU32::new(0),
        protected,
        look,
        late_look,
        protected_band,
        health: HealthLog::new(),
        entropy,
        console_core: system.roles.console_core,
        quantum_us: system.scheduler.quantum_us,
        vtcr: system.vtcr,
        interrupt_priorities: system.scheduler.interrupt_priorities,
        power,
        own_tables: system.el2_tables,
        board: system.board.clone(),
    };
    // SAFETY: written once, by the only core that runs, before any core reads it.
    unsafe { (place!(MACHINE)).as_mut_unchecked().write(machine) }
}

/// How fast the protected memory of a guest is to be checked, if it has some.
fn pace(config: &packed::Guest) -> Pace {
    let protect = config.protect.as_ref();
    let (leaves, round_us) = protect.map_or((0, 0), |it| (it.count(), it.round_us));
    Pace::new(leaves, round_us, timers::frequency() as u32)
}

/// The stage 2 tables of a guest.
fn tables(values: &Stage2) -> Tables {
    // SAFETY: `spm` has made these tables, and checked that they map only memory and devices of this guest. They are in
    // the bundle, which is at the address it was made for (`read_bundle`), and which is never written; tables of level 3 of
    // guests that run from local memory are there, and `core/src/local` writes them.
    let vttbr = |value| unsafe { Vttbr::new(value) };
    Tables {
        all: vttbr(values.all),
        of_kernel: values.of_kernel.map(vttbr),
        of_programs: values.of_programs.map(vttbr),
    }
}

/// The guest of each vCPU.
fn owners(guests: &[&'static Guest]) -> [Option<Owner>; MAX_VCPUS] {
    let mut owners = [None; MAX_VCPUS];
    for (guest_id, &guest) in guests.iter().enumerate() {
        for (index, id) in guest.vcpus.iter().enumerate() {
            let Some(place) = owners.get_mut(id.index()) else {
                fatal!("the system has more vCPUs than the hypervisor supports");
            };
            *place = Some(Owner {
                guest,
                id: GuestId(guest_id as u8),
                index: VcpuIndex(index as u8),
            });
        }
    }
    owners
}

/// The facts about each vCPU that never change.
fn vcpu_facts(system: &System, frequency_hz: u32) -> [Option<VcpuFacts>; MAX_VCPUS] {
    let mut facts = [None; MAX_VCPUS];
    for (id, guest) in (0..).map(GuestId).zip(&system.guests) {
        let cores = CoreSet::from_bits(guest.cores);
        for vcpu in &guest.vcpus {
            if let Some(place) = facts.get_mut(vcpu.id.index()) {
                *place = Some(VcpuFacts {
                    guest: id,
                    band: vcpu.band,
                    home: vcpu.home,
                    cores,
                    moves: guest.moves,
                    early: match guest.wake_early {
                        WakeEarly::Off => Early::AtTimer,
                        WakeEarly::Auto => Early::BySwitch,
                        WakeEarly::Microseconds(time) => {
                            Early::By(Ticks::from_micros(time, frequency_hz))
                        }
                    },
                });
            }
        }
    }
    facts
}

/// The vCPUs of each band and of the bands above it.
fn from_band(facts: &[Option<VcpuFacts>; MAX_VCPUS]) -> [VcpuSet; Band::COUNT] {
    core::array::from_fn(|lowest| {
        let mut vcpus = VcpuSet::EMPTY;
        // At most 32 times: vCPUs.
        for (id, facts) in (0..).map(VcpuId).zip(facts) {
            let is_in = facts.is_some_and(|facts| facts.band.index() >= lowest);
            vcpus.insert_if(id, is_in);
        }
        vcpus
    })
}

/// Makes the vCPUs, and gives each token to the vCPU's home core.
fn place_vcpus(machine: &'static Machine) -> [Tokens; MAX_PCPUS] {
    let mut places = [const { [const { None }; MAX_VCPUS] }; MAX_PCPUS];
    // SAFETY: taken once, by the only core that runs.
    let mut storage = unsafe { (place!(VCPUS)).as_mut_unchecked() }.iter_mut();
    for (id, facts) in machine.shared.vcpus() {
        if let (Some(slot), Some(owner)) = (storage.next(), machine.vcpu(id)) {
            owner.guest.gic.doorbell(owner.index).settle(facts.home);
            let token = VcpuToken::new(slot.write(Vcpu::new(id, owner)));
            places[facts.home.index()][id.index()] = Some(token);
        }
    }
    places
}

fn set_up_gic(machine: &Machine, system: &System) {
    let cores = machine.cores.len();
    if let Err(error) = machine.gic.set_up(cores, &system.spis) {
        fatal!("the GIC is not what the board file says: {error}");
    }
    let console = machine.board.uart.interrupt;
    for guest in &machine.guests {
        machine.route_to_first_vcpu(guest, &guest.config.interrupts);
    }
    if let Some(core) = machine.cores.get(machine.console_core.index()) {
        machine.gic.route_spi(console, core.mpidr);
        machine.gic.set_spi_enabled(console, true);
    }
}

fn greet(core: PcpuId, machine: &Machine, version: u32) {
    // Without a key the version says nothing.
    let version = hardware::trust().has_key().then_some(version);
    say!(
        core,
        "Spumone {} on {}: {} cores, {} guests, image {}signed{}{}",
        env!("CARGO_PKG_VERSION"),
        machine.board.name,
        machine.cores.len(),
        machine.guests.len(),
        if version.is_some() { "" } else { "not " },
        if version.is_some() { ", version " } else { "" },
        Shown(version)
    );
    say!(
        core,
        "keys: Ctrl-] then ? for help, Ctrl-] then 1, 2, … talks to that guest"
    );
    if !machine.entropy.is_strong {
        say!(
            core,
            "warning: the firmware gives no random seed; guests get a guessable one"
        );
    }
}

/// A number, or nothing.
struct Shown(Option<u32>);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |number| number.fmt(f))
    }
}

fn start_cores(
    machine: &'static Machine,
    boot_core: PcpuId,
    mut places: [Tokens; MAX_PCPUS],
    tables: PhysAddr,
) -> ! {
    let mut take =
        |core: PcpuId| core::mem::replace(&mut places[core.index()], [const { None }; MAX_VCPUS]);
    for (index, core) in machine.cores.iter().enumerate() {
        let id = PcpuId(index as u8);
        if id == boot_core {
            continue;
        }
        let tokens = take(id);
        let started = hardware::start_core(index, core.mpidr, move || {
            hardware::set_vectors();
            // SAFETY: as on the boot core.
            unsafe { hardware::activate_tables(tables) };
            check_core(id, machine.vtcr);
            run_instance(machine, id, tokens)
        });
        if let Err(error) = started {
            fatal!("core {id} does not start: {error}");
        }
    }
    let tokens = take(boot_core);
    run_instance(machine, boot_core, tokens)
}

fn run_instance(machine: &'static Machine, core: PcpuId, tokens: Tokens) -> ! {
    let mut guests = machine.guests.iter();
    let needs_xnx = guests.any(|guest| guest.config.stage2.needs_xnx());
    if needs_xnx && !stage2::has_xnx(mrs!(ID_AA64MMFR1_EL1)) {
        fatal!("core {core} lacks FEAT_XNX, which the boot core has: list cores of one kind");
    }
    cpu::set_up(machine.vtcr);
    let list_registers = machine.gic.set_up_core(core);
    let Some(port) = POST.port(core) else {
        fatal!("core {core} has its mailbox twice");
    };
    let instance = Instance::new(core, machine, port, tokens, list_registers);
    hardware::run_for_ever(instance)
}
