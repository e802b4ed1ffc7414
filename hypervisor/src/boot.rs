// SPDX-License-Identifier: MIT OR Apache-2.0
//! From reset to running instances: the boot core reads the bundle, builds everything, and then
//! gives each core what is its own.
//!
//! Whatever fails here stops the start with a message that says what is wrong: nothing has been
//! promised to any guest yet.

use crate::console::{self, say};
use crate::cpu::{self, Vttbr};
use crate::entropy::Entropy;
use crate::epitaph::{self, fatal};
use crate::gic::{ALARM, Gic, MAINTENANCE, PHYSICAL_TIMER, VIRTUAL_TIMER};
use crate::hardware::{self, El2Map, bundle_start, per_machine, place};
use crate::instance::Instance;
use crate::machine::{Core, Destinations, Guest, Machine, Owner};
use crate::parking::TokenPlace;
use crate::spi_setup::SpiSetup;
use crate::sysreg::mrs;
use crate::timers;
use crate::vcpu::{Vcpu, VcpuToken};
use core::mem::MaybeUninit;
use dtoolkit::fdt::Fdt;
use heapless::Vec;
use spumone_config::packed::{self, BundleHeader, MAX_RANGES, System, Trigger};
use spumone_config::types::{MAX_GUESTS, MAX_PCPUS, MAX_VCPUS};
use spumone_config::{GuestId, IntId, PcpuId, PhysAddr, Priority, VcpuId};
use spumone_core::mailbox::Post;
use spumone_core::migration::{Member, Policy, Roles, Shared, Tables, VcpuFacts, changes_cores};
use spumone_core::psci::{GuestPower, Lifecycle};
use spumone_core::schedule::{ALARM_PRIORITY, Band, Bands, OWN_PRIORITY, kick_sgi};
use spumone_core::sets::CoreSet;
use spumone_core::stage2::{Attributes, Features, Stage2, Table, TablePool, Vmid, pages_needed};
use spumone_core::vgic::{GuestGic, VcpuIndex};
use spumone_core::vuart::Vuart;

/// The PL011 that says so if there is no bundle to name the board's: that of QEMU's `virt`, for
/// which `image.ld` links.
const EARLY_UART: PhysAddr = PhysAddr(0x0900_0000);
/// Pages for the stage 2 tables of all guests: for each at most two of the root, four at the ends
/// of its one range of memory, and two for each of its device windows.
/// Three times: a guest whose vCPUs move may have two more sets, one for its kernel and one for its programs alone.
const STAGE2_PAGES: usize = 3 * MAX_GUESTS * (2 + 4 + 2 * MAX_RANGES);

/// A root is two tables, 8 KiB aligned; so the pool is.
#[repr(C, align(8192))]
struct Stage2Memory([Table; STAGE2_PAGES]);

per_machine! {
    static mut STAGE2: Stage2Memory = Stage2Memory([const { Table::EMPTY }; STAGE2_PAGES]);
    static mut VCPUS: [MaybeUninit<Vcpu>; MAX_VCPUS] = [const { MaybeUninit::uninit() }; MAX_VCPUS];
    static mut GUESTS: [MaybeUninit<Guest>; MAX_GUESTS] =
        [const { MaybeUninit::uninit() }; MAX_GUESTS];
    static mut MACHINE: MaybeUninit<Machine> = MaybeUninit::uninit();
    static mut MAP: MaybeUninit<El2Map> = MaybeUninit::uninit();
}

per_machine! {
    /// Mail between the cores.
    static POST: Post = Post::new();
}

/// The vCPUs of one core, by id.
type Tokens = [Option<VcpuToken>; MAX_VCPUS];

/// Runs on the boot core alone, with the initial page tables.
pub fn start(device_tree: PhysAddr) -> ! {
    epitaph::prepare(0, EARLY_UART.0);
    let system = read_bundle();
    let board = &system.board;
    epitaph::prepare(board.hypervisor_memory.start.0, board.uart.base.0);
    // The firmware's device tree lies in what will be guest memory: it is read now.
    let entropy = match system.fixed_seed {
        Some(seed) => Entropy::fixed(seed),
        None => Entropy::from_firmware(firmware_tree(device_tree, &system).as_ref()),
    };

    let map = match El2Map::new(&system) {
        // SAFETY: written once, by the only core that runs, before anyone reads it.
        Ok(map) => unsafe { (place!(MAP)).as_mut_unchecked().write(map) },
        Err(error) => fatal!("memory map of EL2: {error}"),
    };
    map.activate();
    console::prepare(&system);

    let boot_core = boot_core(&system);
    let features = match Features::from_id_registers(mrs!(ID_AA64MMFR0_EL1), mrs!(ID_AA64MMFR1_EL1))
    {
        Ok(features) => features,
        Err(error) => fatal!("these cores cannot run guests: {error}"),
    };
    let machine = build_machine(system, entropy, features);
    let tokens = place_vcpus(machine);
    set_up_gic(machine);
    greet(boot_core, machine);
    start_cores(machine, boot_core, tokens, features, map)
}

fn read_bundle() -> System {
    /// More than any packed system: enough to decode from.
    const MOST: usize = 1 << 20;
    // SAFETY: `bundle_start` is where the image ends and `spm` has put the bundle; the initial
    // page tables map it. The bytes never change.
    let bytes = unsafe { core::slice::from_raw_parts(bundle_start(), MOST) };
    let Some(header) = BundleHeader::from_bytes(bytes) else {
        fatal!("no bundle behind the hypervisor: build the image with `spm build`");
    };
    let end = BundleHeader::SIZE + header.system_len as usize;
    match bytes
        .get(BundleHeader::SIZE..end)
        .map(postcard::from_bytes::<System>)
    {
        Some(Ok(system)) => system,
        _ => fatal!("the bundle cannot be read: build image and hypervisor from one release"),
    }
}

/// The device tree that the firmware passed, if it is one.
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
    // SAFETY: as above; nothing writes there until guests are loaded, after its last use.
    let bytes = unsafe { hardware::memory_bytes(at, size as usize) };
    Fdt::new(bytes).ok()
}

/// Which of the board's cores this is.
fn boot_core(system: &System) -> PcpuId {
    /// The affinity fields of `MPIDR_EL1`.
    const AFFINITY: u64 = 0xFF_00FF_FFFF;
    let own = mrs!(MPIDR_EL1) & AFFINITY;
    match system
        .board
        .core_mpidrs
        .iter()
        .position(|mpidr| mpidr & AFFINITY == own)
    {
        Some(core) => PcpuId(core as u8),
        None => fatal!("the boot core, MPIDR {own:#x}, is not among the cores of the system"),
    }
}

fn build_machine(system: System, entropy: Entropy, features: Features) -> &'static Machine {
    let mut priorities: Vec<Priority, MAX_VCPUS> = Vec::new();
    for vcpu in system.guests.iter().flat_map(|guest| &guest.vcpus) {
        let _ = priorities.push(vcpu.priority);
    }
    let Ok(bands) = Bands::from_priorities(&priorities) else {
        fatal!("more distinct priorities than bands");
    };
    let vcpu_bands: Vec<Band, MAX_VCPUS> = priorities
        .iter()
        .filter_map(|&priority| bands.of(priority))
        .collect();

    // SAFETY: taken once, by the only core that runs. The tables lie in the hypervisor's memory,
    // identity mapped.
    let pages = unsafe { &mut (place!(STAGE2)).as_mut_unchecked().0 };
    let base = PhysAddr(pages.as_ptr() as u64);
    let Ok(mut pool) = TablePool::new(pages, base) else {
        fatal!("stage 2 tables are not aligned");
    };

    let policy = policy(&system, features);
    let rules = policy.rules();
    let mut guests: Vec<&'static Guest, MAX_GUESTS> = Vec::new();
    // SAFETY: taken once, by the only core that runs.
    let mut storage = unsafe { (place!(GUESTS)).as_mut_unchecked() }.iter_mut();
    let mut next_vcpu = 0;
    let destinations = Destinations::new(&system);
    for (index, config) in system.guests.iter().enumerate() {
        let id = GuestId(index as u8);
        let vttbr = build_stage2(id, config, &mut pool, features, Attributes::RAM);
        let gic = GuestGic::new();
        gic.configure(config.gic.spis, config.vcpus.len(), &config.interrupts);
        let mut vcpus = Vec::new();
        for _ in &config.vcpus {
            let _ = vcpus.push(VcpuId(next_vcpu));
            next_vcpu += 1;
        }
        let moves = changes_cores(&rules, CoreSet::from_bits(config.cores));
        let tables = Tables::needed(&rules, moves, config.vcpus.len(), features.xnx);
        let vttbr_kernel = tables
            .of_kernel
            .then(|| build_stage2(id, config, &mut pool, features, Attributes::RAM_OF_KERNEL));
        let vttbr_programs = tables
            .of_programs
            .then(|| build_stage2(id, config, &mut pool, features, Attributes::RAM_OF_PROGRAMS));
        let guest = Guest {
            config: config.clone(),
            vttbr,
            vttbr_kernel,
            vttbr_programs,
            gic,
            power: GuestPower::new(config.vcpus.len() as u8),
            lifecycle: Lifecycle::new(config.cores),
            vuart: Vuart::new(),
            vcpus,
        };
        let Some(place) = storage.next() else {
            fatal!("more guests than the hypervisor has room for");
        };
        let _ = guests.push(place.write(guest));
    }
    let vcpus = owners(&guests);
    let facts = vcpu_facts(&system, &vcpu_bands);
    let members: Vec<Member, MAX_VCPUS> = vcpus
        .iter()
        .flatten()
        .zip(facts.iter().flatten())
        .map(|(owner, vcpu)| Member {
            guest: owner.id,
            moves: changes_cores(&rules, vcpu.cores),
            band: vcpu.band,
            home: vcpu.home,
        })
        .collect();
    let roles = Roles::new(&rules, &members);
    let machine = Machine {
        cores: system
            .board
            .core_mpidrs
            .iter()
            .map(|&mpidr| Core::new(mpidr))
            .collect(),
        guests,
        vcpus,
        shared: Shared::new(roles, facts),
        parking: [const { TokenPlace::new() }; MAX_VCPUS],
        policy,
        without: system.scheduler.without,
        gic: Gic::new(&system.board),
        destinations,
        entropy,
        console_core: console_core(&system),
        quantum_us: system.scheduler.quantum_us,
        interrupt_priorities: system.scheduler.interrupt_priorities,
        board: system.board,
    };
    // SAFETY: written once, by the only core that runs, before anyone reads it.
    unsafe { (place!(MACHINE)).as_mut_unchecked().write(machine) }
}

/// The guest of each vCPU.
fn owners(guests: &[&'static Guest]) -> [Option<Owner>; MAX_VCPUS] {
    let mut owners = [None; MAX_VCPUS];
    for (guest_id, &guest) in guests.iter().enumerate() {
        for (index, id) in guest.vcpus.iter().enumerate() {
            let Some(place) = owners.get_mut(id.index()) else {
                fatal!("more vCPUs than the hypervisor has room for");
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

/// What never changes of each vCPU.
fn vcpu_facts(system: &System, bands: &[Band]) -> [Option<VcpuFacts>; MAX_VCPUS] {
    let mut facts = [None; MAX_VCPUS];
    let vcpus = system
        .guests
        .iter()
        .flat_map(|guest| guest.vcpus.iter().map(move |vcpu| (guest, vcpu)));
    for ((place, (guest, vcpu)), &band) in facts.iter_mut().zip(vcpus).zip(bands) {
        *place = Some(VcpuFacts {
            band,
            home: vcpu.home,
            cores: CoreSet::from_bits(guest.cores),
        });
    }
    facts
}

/// The policy of the system, or what comes closest to it on these cores.
fn policy(system: &System, features: Features) -> Policy {
    let mut wanted = system.scheduler.policy;
    if wanted == packed::Policy::Trap && !features.xnx {
        wanted = packed::Policy::Steal;
        say!(
            PcpuId(0),
            "policy trap needs FEAT_XNX, which these cores do not have: steal instead"
        );
    }
    Policy::new(wanted, timers::frequency() as u32)
}

/// The core whose guests are least urgent serves the console; the last of several.
fn console_core(system: &System) -> PcpuId {
    let urgency = |core: u8| {
        system
            .guests
            .iter()
            .flat_map(|guest| &guest.vcpus)
            .filter(|vcpu| vcpu.home.0 == core)
            .map(|vcpu| vcpu.priority)
            .max()
    };
    let cores = 0..system.board.core_mpidrs.len() as u8;
    PcpuId(cores.rev().min_by_key(|&core| urgency(core)).unwrap_or(0))
}

fn build_stage2(
    id: GuestId,
    config: &packed::Guest,
    pool: &mut TablePool<'static>,
    features: Features,
    ram: Attributes,
) -> Vttbr {
    let name = &config.name;
    let all = config.memory.iter().chain(&config.devices);
    let pages = pages_needed(all);
    let stage2 = pool
        .split(pages)
        .and_then(|pool| Stage2::new(pool, features));
    let mut stage2 = match stage2 {
        Ok(stage2) => stage2,
        Err(error) => fatal!("stage 2 of {name} needs {pages} pages: {error:?}"),
    };
    let memory = config.memory.iter().map(|mapping| (mapping, ram));
    let devices = config
        .devices
        .iter()
        .map(|mapping| (mapping, Attributes::DEVICE));
    for (mapping, attributes) in memory.chain(devices) {
        if let Err(error) = stage2.map(mapping, attributes) {
            fatal!("stage 2 of {name} at {}: {error:?}", mapping.ipa);
        }
    }
    // SAFETY: of the tables just made, which lie in a static and map what `spm` has checked to be this guest's.
    unsafe { Vttbr::new(stage2.vttbr(Vmid::of(id))) }
}

/// Makes the vCPUs and lays each token where its home is.
fn place_vcpus(machine: &'static Machine) -> [Tokens; MAX_PCPUS] {
    let mut places = [const { [const { None }; MAX_VCPUS] }; MAX_PCPUS];
    // SAFETY: taken once, by the only core that runs.
    let mut storage = unsafe { (place!(VCPUS)).as_mut_unchecked() }.iter_mut();
    for (id, facts) in machine.shared.vcpus() {
        if let (Some(slot), Some(owner)) = (storage.next(), machine.vcpu(id)) {
            owner.guest.gic.doorbell(owner.index).settle(facts.home);
            let token = VcpuToken::new(slot.write(Vcpu::new(id, owner, facts.band)));
            places[facts.home.index()][id.index()] = Some(token);
        }
    }
    places
}

fn set_up_gic(machine: &Machine) {
    let mut private: Vec<(IntId, u8), 16> = Vec::new();
    for rank in 0..Band::COUNT as u8 {
        if let Some(band) = Band::new(rank) {
            let _ = private.push((kick_sgi(band), band.interrupt_priority().0));
        }
    }
    for (interrupt, priority) in [
        (ALARM, ALARM_PRIORITY),
        (MAINTENANCE, OWN_PRIORITY),
        (VIRTUAL_TIMER, OWN_PRIORITY),
        (PHYSICAL_TIMER, OWN_PRIORITY),
    ] {
        let _ = private.push((interrupt, priority.0));
    }

    let of_guests = machine.guests.iter().flat_map(|guest| {
        // A device is as urgent as the most urgent vCPU of its guest.
        let band = guest
            .vcpus
            .iter()
            .filter_map(|&id| machine.shared.band(id))
            .max();
        let priority = band.map_or(0xFF, |band| band.interrupt_priority().0);
        guest
            .config
            .interrupts
            .iter()
            .map(move |interrupt| SpiSetup {
                interrupt: interrupt.physical,
                priority,
                trigger: interrupt.trigger,
            })
    });
    let console = machine.board.uart.interrupt;
    let of_console = core::iter::once(SpiSetup {
        interrupt: console,
        priority: Band::LOWEST.interrupt_priority().0,
        trigger: Trigger::Level,
    });
    if let Err(error) =
        machine
            .gic
            .set_up(machine.cores.len(), &private, of_guests.chain(of_console))
    {
        fatal!("the GIC is not what the board file says: {error}");
    }
    for guest in &machine.guests {
        machine.route_to_first_vcpu(guest);
    }
    if let Some(core) = machine.cores.get(machine.console_core.index()) {
        machine.gic.route_spi(console, core.mpidr);
        machine.gic.set_spi_enabled(console, true);
    }
}

fn greet(core: PcpuId, machine: &Machine) {
    say!(
        core,
        "Spumone {} on {}: {} cores, {} guests",
        env!("CARGO_PKG_VERSION"),
        machine.board.name,
        machine.cores.len(),
        machine.guests.len()
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

fn start_cores(
    machine: &'static Machine,
    boot_core: PcpuId,
    mut places: [Tokens; MAX_PCPUS],
    features: Features,
    map: &'static El2Map,
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
            map.activate();
            run_instance(machine, id, tokens, features)
        });
        if let Err(error) = started {
            fatal!("core {id} does not start: {error}");
        }
    }
    let tokens = take(boot_core);
    run_instance(machine, boot_core, tokens, features)
}

fn run_instance(machine: &'static Machine, core: PcpuId, tokens: Tokens, features: Features) -> ! {
    cpu::set_up(features);
    let list_registers = machine.gic.set_up_core();
    let Some(port) = POST.port(core) else {
        fatal!("core {core} has its mailbox twice");
    };
    let instance = Instance::new(core, machine, port, tokens, list_registers);
    hardware::run_for_ever(instance)
}
