// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packed form: what the hypervisor reads at start, as written by `spm build`.
//!
//! The host tool has checked every rule before it wrote the packed form. The hypervisor checks what the tool cannot know: [`MAGIC`],
//! [`FORMAT_VERSION`], that the bytes are at the address for which they were made, that they are those that the tool wrote
//! ([`Seal`]), and what the machine's cores can do. One rule it checks again, since isolation rests on it: that the memory of guests is
//! apart ([`isolation`](crate::isolation)).
//!
//! Layout in memory, from the hypervisor's symbol `bundle_start` on (4 KiB aligned):
//! [`BundleHeader`] as 32 little-endian bytes, then [`System`] in postcard, then its [`Seal`] as 96 bytes, then payloads
//! (kernels, initial ramdisks, device trees), each 4 KiB aligned, then the lists of their [leaves'](Segment::leaf) hashes, then
//! the stage 2 tables of all guests and EL2's own tables, 8 KiB aligned. Payload offsets count from `bundle_start`.

mod bundle;
mod local;
mod sections;

pub use bundle::{BundleHeader, DESCRIPTION_ROOM, FORMAT_VERSION, Hash, MAGIC, Part, Seal, Trust};
pub use local::{Local, LocalAreas, TABLE_SPAN};
pub use sections::{MAX_GUARDS, Sections};

use crate::types::{
    Band, GuestAddr, GuestId, IntId, MAX_GUESTS, MAX_LINKS_PER_GUEST, MAX_PCPUS,
    MAX_VCPUS_PER_GUEST, PcpuId, PhysAddr, Priority, VcpuId,
};
use heapless::{String, Vec};
use serde::{Deserialize, Serialize};

/// Bytes of guest memory that one [leaf](Segment::leaf) of a payload fills at most: a page.
pub const LEAF: u64 = 4096;
/// A page of stage 2, of which mappings consist.
const PAGE: u64 = 4096;
/// Most memory ranges, load segments or device windows of one guest.
pub const MAX_RANGES: usize = 16;
/// Most register writes that stop the devices of one guest.
pub const MAX_QUIESCE: usize = 64;
/// Most interrupts passed through to one guest.
pub const MAX_GUEST_INTERRUPTS: usize = 64;

/// Most devices of a board whose names the hypervisor knows; more can be used.
pub const MAX_KNOWN_DEVICES: usize = 64;
/// Most SPIs in use: those of devices and of the console are 32 to 287.
pub const MAX_USED_SPIS: usize = 256;

/// A whole system: a board, its guests, and how they share its cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// The description's version. A hypervisor with a key refuses lower ones than that of its own image.
    pub version: u32,
    /// The machine.
    pub board: Board,
    /// How cores are shared.
    pub scheduler: Scheduler,
    /// The guests; a [`crate::GuestId`] is an index into this list.
    pub guests: Vec<Guest, MAX_GUESTS>,
    /// The guest that gets the keyboard first.
    pub keyboard: GuestId,
    /// What the cores are for.
    pub roles: Roles,
    /// Which cores go off when they are not needed; `None`: all cores stay on.
    pub power: Option<Power>,
    /// The memory that guests share over links, if there is any. EL2 clears it at start.
    pub link_memory: Option<MemoryRange>,
    /// The machine's SPIs that are used, each once.
    pub spis: Vec<Spi, MAX_USED_SPIS>,
    /// `VTCR_EL2`: the format of the guests' stage 2 tables.
    pub vtcr: u64,
    /// The build of the hypervisor for which EL2's own tables are made.
    pub sections: Sections,
    /// `TTBR0_EL2`: EL2's own tables, an identity map.
    pub el2_tables: PhysAddr,
    /// The pages of the guests' stage 2 tables.
    pub stage2_pages: Part,
    /// The pages of EL2's own tables.
    pub el2_pages: Part,
    /// With a fixed seed, guests get the same `rng-seed` at every start. Without one, the
    /// seed comes from the firmware's device tree and is new at each start.
    pub fixed_seed: Option<u64>,
}

impl System {
    /// Leaves out what only cores with FEAT_XNX can do. Returns whether that changes the policy: `steal` takes the place of
    /// `trap`.
    pub fn give_up_xnx(&mut self) -> bool {
        for guest in &mut self.guests {
            guest.stage2.of_kernel = None;
            guest.stage2.of_programs = None;
        }
        let is_trap = self.scheduler.policy == Policy::Trap;
        if is_trap {
            self.scheduler.policy = Policy::Steal;
            self.roles.kernel_free = 0;
        }
        is_trap
    }
}

/// The part of the machine that the hypervisor must know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    /// Short name, for the banner.
    pub name: String<32>,
    /// `MPIDR_EL1` affinity value of each core used; a [`PcpuId`] is an index into this list.
    pub core_mpidrs: Vec<u64, MAX_PCPUS>,
    /// All memory of the machine.
    pub memory: MemoryRange,
    /// The hypervisor's memory: image, bundle and working memory. No guest memory overlaps it.
    pub hypervisor_memory: MemoryRange,
    /// GICv3 distributor frame.
    pub gic_distributor: PhysAddr,
    /// First GICv3 redistributor frame; the frames of the other cores follow.
    pub gic_redistributor: PhysAddr,
    /// The console UART (PL011).
    pub uart: Uart,
    /// The devices that guests may be given, so that the report on an access to a missing device can name
    /// it.
    pub devices: Vec<KnownDevice, MAX_KNOWN_DEVICES>,
}

/// A device of the board, by the name that system descriptions use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownDevice {
    /// Its name.
    pub name: String<16>,
    /// First register.
    pub base: PhysAddr,
    /// Bytes of registers.
    pub size: u64,
}

/// A PL011.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Uart {
    /// First register.
    pub base: PhysAddr,
    /// Its SPI.
    pub interrupt: IntId,
}

/// A range of the machine's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryRange {
    /// First byte.
    pub start: PhysAddr,
    /// Size in bytes.
    pub size: u64,
}

impl MemoryRange {
    /// Of the hypervisor's memory: bytes at its start that are in use, for the epitaph and the pages with stolen time.
    pub const KEPT: u64 = PAGE * (1 + MAX_GUESTS as u64);

    /// Of the hypervisor's memory: the page with the stolen time of this guest's vCPUs. They follow the page of the epitaph.
    pub const fn stolen_page(self, guest: GuestId) -> PhysAddr {
        PhysAddr(self.start.0 + PAGE * (1 + guest.0 as u64))
    }
}

/// What cores are for under the policy. Of sets of cores, bit n is for core n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Roles {
    /// The core that serves the console. Among the cores that stay on, it is the core whose vCPUs have the lowest bands; of several such cores,
    /// the core with the highest number.
    pub console_core: PcpuId,
    /// Cores off which kernels of guests that migrate are kept, because they are the home of a vCPU of a higher band.
    pub kernel_free: u32,
    /// The gang, under policy `cosched`.
    pub gang: Option<Gang>,
    /// The highest band of a vCPU that may migrate.
    pub highest_movable: Option<Band>,
    /// The lowest one.
    pub lowest_movable: Option<Band>,
}

/// Which cores go off when they are not needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Power {
    /// How soon, until the operator or a guest changes that.
    pub mode: PowerMode,
    /// How many cores are on at least.
    pub least: u8,
    /// How many cores are on at most.
    pub most: u8,
    /// The cores that stay on; bit n for core n.
    pub stay: u32,
    /// What it costs to turn a core off, in microseconds.
    pub off_us: u32,
    /// What it costs to turn a core on, in microseconds.
    pub on_us: u32,
}

/// How soon cores go off and come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PowerMode {
    /// As many cores are on as may be.
    Performance,
    /// A core goes off if the others carry the load with a reserve, and comes back before vCPUs queue.
    Balanced,
    /// As few cores are on as carry the load.
    Saving,
}

/// vCPUs that run together or not at all: all of one band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gang {
    /// The band.
    pub band: Band,
    /// The homes of its vCPUs.
    pub cores: u32,
}

/// An SPI of the machine that is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spi {
    /// Which.
    pub physical: IntId,
    /// Whose it is.
    pub owner: SpiOwner,
    /// How urgent it is: as the most urgent vCPU of its guest. The console's is as urgent as the lowest band.
    pub band: Band,
    /// How the device signals it.
    pub trigger: Trigger,
}

/// The owner of an SPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SpiOwner {
    /// It has no owner, and is never enabled.
    Unowned,
    /// The hypervisor's console.
    Console,
    /// A guest, where it has this number.
    Guest(GuestId, IntId),
}

/// How the cores are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    /// The policy against lock-holder preemption.
    pub policy: Policy,
    /// Length of a time slice among vCPUs of one priority, in microseconds (100 or more).
    pub quantum_us: u32,
    /// Whether interrupts for vCPUs of lower priority reach a running vCPU.
    pub interrupt_priorities: InterruptPriorities,
    /// The mechanisms of the policy that are turned off.
    pub without: Without,
}

/// Mechanisms of policies that are turned off, to measure the effect of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Without {
    /// No grace: a vCPU loses the core at once at the end of its time slice, even in its kernel.
    pub grace: bool,
    /// A vCPU that spins gets the same grace as others.
    pub yield_on_spin: bool,
    /// No park delay: a vCPU preempted by a higher band is parked at once.
    pub patience: bool,
    /// No pull: an interrupt for a vCPU that is cut off stays there until another core is notified.
    pub ipi_pull: bool,
    /// Never out of turn: a vCPU for which an interrupt has come waits until the others of its band have used up their time slices.
    pub out_of_turn: bool,
    /// No short turns: a vCPU that was in its kernel when it lost the core waits for its next turn as long as any other.
    pub short_turns: bool,
}

/// How the priorities of physical interrupts depend on those of the vCPUs that they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InterruptPriorities {
    /// While a vCPU runs, the GIC holds back interrupts for vCPUs of lower bands.
    Split,
    /// Every interrupt is signalled at once, whatever vCPU runs: to measure the effect of the split.
    Flat,
}

/// Policies against lock-holder preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Fixed priorities only: vCPUs stay on their home cores.
    None,
    /// Another core of its guest fetches a preempted vCPU when that is worth the move.
    Steal,
    /// A vCPU is sent away when a vCPU of a higher band takes its core, and returns when that one sleeps.
    OnDemand,
    /// Kernels run only on cores that have no vCPU of a higher band.
    Trap,
    /// A vCPU of a higher band waits, for a limited time, until the running vCPU holds no lock.
    Delay,
    /// A vCPU that has lost its core goes to a core that idles.
    Balance,
    /// All vCPUs of a guest run at the same time, or none.
    Cosched,
    /// vCPUs change cores all the time, for tests.
    Random,
}

/// How long before the timer of a sleeping vCPU expires its core begins to switch to that vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WakeEarly {
    /// Not before the timer expires.
    Off,
    /// As long as a switch takes at least, as the core measures it.
    Auto,
    /// This time.
    Microseconds(u32),
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Its name, which is also its tag on the console.
    pub name: String<16>,
    /// Its vCPUs; the position is the guest's own CPU number (`MPIDR_EL1.Aff0`).
    pub vcpus: Vec<Vcpu, MAX_VCPUS_PER_GUEST>,
    /// Cores that its vCPUs may run on if the policy moves them, with their home cores; bit n for core n.
    pub cores: u32,
    /// Whether its vCPUs migrate ([`moves`](crate::roles::moves)).
    pub moves: bool,
    /// The highest band of its vCPUs.
    pub band: Band,
    /// How long before the timer of a sleeping vCPU expires its core begins to switch to that vCPU.
    pub wake_early: WakeEarly,
    /// Its stage 2 tables.
    pub stage2: Stage2,
    /// Its memory, each range 4 KiB aligned. Cleared and loaded at each start of the guest.
    pub memory: Vec<Mapping, MAX_RANGES>,
    /// Device registers passed through to it, each 4 KiB aligned.
    pub devices: Vec<Mapping, MAX_RANGES>,
    /// Interrupts passed through to it.
    pub interrupts: Vec<Interrupt, MAX_GUEST_INTERRUPTS>,
    /// Register writes that stop its devices (and their DMA) when the guest is stopped.
    pub quiesce: Vec<Quiesce, MAX_QUIESCE>,
    /// What is copied into its memory at each start.
    pub segments: Vec<Segment, MAX_RANGES>,
    /// Entry point of its first vCPU, at EL1 with the MMU off.
    pub entry: GuestAddr,
    /// Value of x0 at start: the device tree's address.
    pub boot_argument: u64,
    /// Places in guest memory that are filled with random bytes at each start (`rng-seed` and
    /// `kaslr-seed` in its device tree).
    pub seeds: Vec<SeedSlot, 4>,
    /// Its virtual console, if it has one.
    pub console: Option<VirtualUart>,
    /// Its virtual interrupt controller.
    pub gic: VirtualGic,
    /// Its ends of links to other guests.
    pub links: Vec<LinkEnd, MAX_LINKS_PER_GUEST>,
    /// What an access where it has nothing does.
    pub on_fault: OnFault,
    /// What becomes of it when it has ended.
    pub on_stop: OnStop,
    /// What of its memory must not change while it runs, if the description protects it.
    pub protect: Option<Protect>,
    /// The longest timeout of its watchdog, in seconds; 0: it has none.
    pub watchdog_s: u16,
    /// Where it reads the stolen time of its vCPUs: a page of the hypervisor's ([`MemoryRange::stolen_page`]) that it may not write.
    pub stolen_time: Option<Mapping>,
    /// Whether it may set the mode of [`Power`].
    pub sets_power: bool,
    /// Where policy `delay` reads whether a vCPU may hold a lock: offset in bytes from the address in `SP_EL0` in the kernel
    /// (Linux: the current task) to 32 bits that are 0 if the vCPU holds none. `None`: it may hold one whenever its kernel runs.
    pub preempt_count: Option<u32>,
}

impl Guest {
    /// Whether memory of it is compared with hashes again and again.
    pub fn has_rounds(&self) -> bool {
        self.protect.as_ref().is_some_and(|it| it.local.is_none())
    }
}

/// What an access of a guest to an address where it has nothing, or to a virtual device by an access that cannot be emulated, does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnFault {
    /// It stops the guest.
    #[default]
    Stop,
    /// The guest takes a synchronous external abort, as on hardware.
    Abort,
}

/// What becomes of a guest that has ended. Without more, a guest that resets itself starts again, and any other one stays stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnStop {
    /// No more than that.
    #[default]
    Stop,
    /// After a fault it starts again, too, up to this limit of restarts after resets and faults.
    Restart(RestartLimit),
    /// If it stays stopped, the machine goes off.
    MachineOff,
}

/// What of a guest's memory must not change while it runs, and what is done about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protect {
    /// The leaves that are compared with their hashes again and again. A part of a page may be protected: a leaf is what the image has there.
    pub leaves: Vec<LeafRun, MAX_RANGES>,
    /// The pages that the guest cannot write: stage 2 maps them read-only. By rising address.
    pub read_only: Vec<PageRange, MAX_RANGES>,
    /// How long a round over all leaves is to take, in microseconds: 1,000 or more.
    pub round_us: u32,
    /// The local memory from which the guest runs, if it does. Then there are no leaves to compare: pages are compared when they are brought
    /// there.
    pub local: Option<Local>,
    /// What becomes of the guest if one of them has changed, or if it writes to such a page.
    pub on_tamper: OnTamper,
}

impl Protect {
    /// How many leaves are compared in a round.
    pub fn count(&self) -> u32 {
        // At most 16 times: runs of leaves.
        let counts = self.leaves.iter().map(|run| run.count);
        counts.fold(0, u32::saturating_add)
    }

    /// Whether some of these bytes of the guest are in pages that it cannot write.
    #[inline(always)]
    pub fn is_read_only(&self, at: GuestAddr, bytes: u64) -> bool {
        let mut pages = self.read_only.iter();
        // At most 16 times: ranges of pages.
        pages.any(|it| at.0 < it.start.0 + it.size && it.start.0 < at.0.saturating_add(bytes))
    }
}

/// Consecutive [leaves](Segment::leaf) of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafRun {
    /// Which segment: an index into [`Guest::segments`].
    pub segment: u8,
    /// The number of the first leaf.
    pub first: u32,
    /// How many there are: 1 or more.
    pub count: u32,
}

/// Pages of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageRange {
    /// The first byte, 4 KiB aligned.
    pub start: GuestAddr,
    /// Bytes, a multiple of 4 KiB.
    pub size: u64,
}

/// What becomes of a guest whose protected memory has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTamper {
    /// It stays stopped.
    Stop,
    /// It is loaded from its verified image and starts again, up to this limit, which counts its other restarts, too.
    Restart(RestartLimit),
}

/// How often a guest may start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartLimit {
    /// How often at most: 1 or more.
    pub most: u8,
    /// In how many microseconds.
    pub within_us: u32,
}

/// Values of `VTTBR_EL2` for the stage 2 tables of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage2 {
    /// The tables in which all of the guest may run.
    pub all: u64,
    /// Those in which only its kernel may run, where the policy needs them: they catch the moment at which it returns to a
    /// program. For cores with FEAT_XNX.
    pub of_kernel: Option<u64>,
    /// Those in which only its programs may run, where the policy needs them: they catch the moment at which one enters the
    /// kernel. For cores with FEAT_XNX.
    pub of_programs: Option<u64>,
}

impl Stage2 {
    /// Whether there are tables that only cores with FEAT_XNX can use.
    pub const fn needs_xnx(&self) -> bool {
        self.of_kernel.is_some() || self.of_programs.is_some()
    }
}

/// One vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcpu {
    /// Its id, counted over all guests.
    pub id: VcpuId,
    /// Its home core.
    pub home: PcpuId,
    /// Its priority as the description has it. The hypervisor goes by the band.
    pub priority: Priority,
    /// The rank of its priority.
    pub band: Band,
}

/// A range of a guest's address space, and the machine memory behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Guest address.
    pub ipa: GuestAddr,
    /// Machine address.
    pub pa: PhysAddr,
    /// Size in bytes.
    pub size: u64,
}

/// An interrupt passed through to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupt {
    /// The machine's SPI.
    pub physical: IntId,
    /// The guest's SPI.
    pub guest: IntId,
    /// How the device signals it.
    pub trigger: Trigger,
}

/// How an interrupt is signalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// By a rising edge.
    Edge,
    /// By a high level, as long as it is high.
    Level,
}

/// A 32-bit register write that stops a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesce {
    /// The register.
    pub register: PhysAddr,
    /// The value.
    pub value: u32,
}

/// A payload and its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Offset of the payload from `bundle_start`, in bytes, 4 KiB aligned.
    pub offset: u64,
    /// Bytes to copy.
    pub size: u64,
    /// Guest address; any alignment.
    pub destination: GuestAddr,
    /// What it is.
    pub content: Content,
    /// Offset of the list of its leaves' hashes from `bundle_start`, in bytes.
    pub list: u64,
    /// The hash of that list.
    pub list_hash: Hash,
}

/// A leaf of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leaf {
    /// Its first byte, counted from the segment's.
    pub start: u64,
    /// Its bytes, at most [`LEAF`].
    pub size: u64,
}

impl Segment {
    /// How many leaves it has: as many as the pages of guest memory that it touches. Each is hashed on its own, so that several cores can
    /// load a segment.
    pub const fn leaves(&self) -> u64 {
        match self.size {
            0 => 0,
            size => (self.destination.0 % LEAF)
                .saturating_add(size)
                .div_ceil(LEAF),
        }
    }

    /// Leaf `number`, which goes into one page of guest memory. Behind the last one it is empty.
    pub const fn leaf(&self, number: u64) -> Leaf {
        let skew = self.destination.0 % LEAF;
        let start = LEAF.saturating_mul(number).saturating_sub(skew);
        let end = LEAF.saturating_mul(number + 1) - skew;
        let end = if end < self.size { end } else { self.size };
        Leaf {
            start,
            size: end.saturating_sub(start),
        }
    }
}

/// What a segment is, for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Content {
    /// The guest's image, or a segment of it.
    Image,
    /// Its initial ramdisk.
    Initrd,
    /// Its device tree.
    DeviceTree,
}

impl Content {
    /// Its name in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Initrd => "initrd",
            Self::DeviceTree => "device tree",
        }
    }
}

/// A place for random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedSlot {
    /// First byte, inside a loaded segment.
    pub destination: GuestAddr,
    /// Number of bytes, at most 64.
    pub size: u32,
}

/// A PL011 that the hypervisor emulates for a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualUart {
    /// First register, 4 KiB aligned.
    pub base: GuestAddr,
    /// The guest's SPI.
    pub interrupt: IntId,
}

/// One end of a link between two guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// The guest at the other end.
    pub peer: GuestId,
    /// Which of the peer's links this is: an index into its [`Guest::links`].
    pub peer_link: u8,
    /// Whether the description names this guest second in `between`.
    pub is_second: bool,
    /// The page of registers that EL2 emulates.
    pub registers: GuestAddr,
    /// The guest's SPI, level-sensitive.
    pub interrupt: IntId,
    /// A GPIO controller as a second form of the signal, for a Linux.
    pub gpio: Option<LinkGpio>,
    /// What the link is.
    pub kind: LinkKind,
}

/// A PL061 that the hypervisor emulates for a guest's end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkGpio {
    /// First register, 4 KiB aligned.
    pub base: GuestAddr,
    /// The guest's SPI, level-sensitive.
    pub interrupt: IntId,
}

/// What a link is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LinkKind {
    /// Memory that both guests have, and a signal each way.
    Memory {
        /// The memory as this guest has it.
        memory: Mapping,
        /// Whether this guest may write to it.
        writes: bool,
    },
    /// A virtio network card for each guest.
    Network {
        /// The address of this guest's card.
        mac: [u8; 6],
        /// Whether the cards offer frames of up to 64 KiB, with checksums that are still to be computed.
        offloads: bool,
    },
    /// A virtio socket device for each guest.
    Socket {
        /// The context identifier of this guest, from 3 on.
        own: u32,
        /// That of the peer.
        peer: u32,
    },
}

/// The GICv3 that a guest sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualGic {
    /// Distributor frame (64 KiB).
    pub distributor: GuestAddr,
    /// First redistributor; each vCPU has 128 KiB, one after the other.
    pub redistributor: GuestAddr,
    /// Number of SPIs, a multiple of 32, at most 256.
    pub spis: u16,
}
