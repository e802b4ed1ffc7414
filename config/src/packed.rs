// SPDX-License-Identifier: MIT OR Apache-2.0
//! The packed form: what the hypervisor reads at start, as written by `spm build`.
//!
//! It is trusted: the host tool has checked every rule before it wrote it, and it lies in the
//! same image as the hypervisor's code. The hypervisor checks only [`MAGIC`],
//! [`FORMAT_VERSION`] and that the bytes decode.
//!
//! Layout in memory, from the symbol `bundle_start` of the hypervisor on (4 KiB aligned):
//! [`BundleHeader`] as 32 little-endian bytes, then [`System`] in postcard, then payloads
//! (kernels, initial ramdisks, device trees), each 4 KiB aligned. Payload offsets count from
//! `bundle_start`.

use crate::types::{
    GuestAddr, IntId, MAX_GUESTS, MAX_PCPUS, MAX_VCPUS_PER_GUEST, PcpuId, PhysAddr, Priority,
};
use heapless::{String, Vec};
use serde::{Deserialize, Serialize};

/// First eight bytes of a bundle.
pub const MAGIC: [u8; 8] = *b"SPUMONE\0";
/// Raised whenever the packed form changes: an image is built and read by one release.
pub const FORMAT_VERSION: u32 = 6;
/// Most memory ranges, load segments or device windows of one guest.
pub const MAX_RANGES: usize = 16;
/// Most register writes that silence the devices of one guest.
pub const MAX_QUIESCE: usize = 64;
/// Most interrupts passed through to one guest.
pub const MAX_GUEST_INTERRUPTS: usize = 64;

/// Most devices of a board that are known by name; more can be used all the same.
pub const MAX_KNOWN_DEVICES: usize = 64;

/// What stands at `bundle_start`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleHeader {
    /// Bytes of the postcard-encoded [`System`] that follows the header.
    pub system_len: u32,
    /// Bytes of the whole bundle, header and payloads included.
    pub total_len: u64,
}

impl BundleHeader {
    /// Size of the encoded header in bytes.
    pub const SIZE: usize = 32;

    /// The header as it stands in the image.
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.system_len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.total_len.to_le_bytes());
        bytes
    }

    /// Reads a header; `None` where magic or version differ, or bytes are missing.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
        };
        if bytes.get(0..8)? != MAGIC || word(8)? != FORMAT_VERSION {
            return None;
        }
        Some(Self {
            system_len: word(12)?,
            total_len: u64::from(word(16)?) | u64::from(word(20)?) << 32,
        })
    }
}

/// A whole system: one board, its guests, how they share its cores.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct System {
    /// The machine.
    pub board: Board,
    /// How cores are shared.
    pub scheduler: Scheduler,
    /// The guests; a [`crate::GuestId`] is an index into this list.
    pub guests: Vec<Guest, MAX_GUESTS>,
    /// With a fixed seed every start hands the same `rng-seed` to the guests; without one, the
    /// seed comes from the firmware's device tree and is fresh at each start.
    pub fixed_seed: Option<u64>,
}

/// The machine as the hypervisor must know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Board {
    /// Short name, for the banner.
    pub name: String<32>,
    /// `MPIDR_EL1` affinity value of each core used; a [`PcpuId`] is an index into this list.
    pub core_mpidrs: Vec<u64, MAX_PCPUS>,
    /// All memory of the machine.
    pub memory: MemoryRange,
    /// What belongs to the hypervisor: image, bundle and working memory. No guest memory overlaps.
    pub hypervisor_memory: MemoryRange,
    /// GICv3 distributor frame.
    pub gic_distributor: PhysAddr,
    /// First GICv3 redistributor frame; frames of the cores follow each other.
    pub gic_redistributor: PhysAddr,
    /// The console UART (PL011).
    pub uart: Uart,
    /// The devices that guests may be given, so that a report on a guest that misses one can say
    /// which.
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

/// How the cores are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduler {
    /// What is done against lock-holder preemption.
    pub policy: Policy,
    /// Time a vCPU runs before an equal gets its turn, in microseconds (100 or more).
    pub quantum_us: u32,
    /// Whether a running vCPU is disturbed by interrupts for less urgent ones.
    pub interrupt_priorities: InterruptPriorities,
    /// What the policy does without.
    pub without: Without,
}

/// Mechanisms of policies that are turned off, to measure what each is worth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Without {
    /// A vCPU that is to let go does so at once, in its kernel too.
    pub grace: bool,
    /// One that spins gets as much grace as any other.
    pub yield_on_spin: bool,
    /// One that makes room for a more urgent one is given up at once.
    pub patience: bool,
    /// An interrupt for one whose core hears nothing waits there, until another core is told.
    pub ipi_pull: bool,
}

/// How the priorities of physical interrupts follow those of the vCPUs they are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InterruptPriorities {
    /// While a vCPU runs, interrupts for less urgent ones wait in the GIC.
    Split,
    /// Every interrupt comes at once, whoever runs: to measure what the split is worth.
    Flat,
}

/// Policies against lock-holder preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Plain fixed priority: vCPUs stay on their home cores.
    None,
    /// A preempted vCPU is taken by another core of its guest when that is worth it.
    Steal,
    /// A vCPU departs when a more urgent one takes its core, and returns when that one sleeps.
    OnDemand,
    /// Kernels run only on cores that have no more urgent vCPU.
    Trap,
    /// A more urgent vCPU waits, for a while at most, until the one that runs holds no lock.
    Delay,
    /// A vCPU that has lost its core goes to one that idles.
    Balance,
    /// All vCPUs of a guest run, or none.
    Cosched,
    /// vCPUs change cores all the time: for tests.
    Random,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::None,
        Self::Steal,
        Self::OnDemand,
        Self::Trap,
        Self::Delay,
        Self::Balance,
        Self::Cosched,
        Self::Random,
    ];

    /// Whether vCPUs ever change cores.
    pub const fn moves_vcpus(self) -> bool {
        match self {
            Self::None | Self::Delay | Self::Cosched => false,
            Self::Steal | Self::OnDemand | Self::Trap | Self::Balance | Self::Random => true,
        }
    }

    /// Whether a vCPU that made room for a more urgent one is kept for a while by its core before it is parked.
    pub const fn is_patient(self) -> bool {
        matches!(self, Self::Steal | Self::Trap | Self::Balance)
    }
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// The name under which the console tags it.
    pub name: String<16>,
    /// Its vCPUs; the position is the guest's own CPU number (`MPIDR_EL1.Aff0`).
    pub vcpus: Vec<Vcpu, MAX_VCPUS_PER_GUEST>,
    /// Cores that its vCPUs may run on where the policy moves them, their homes included; bit n for core n.
    pub cores: u32,
    /// Its memory, each range 4 KiB aligned. Cleared, then loaded, at each start of the guest.
    pub memory: Vec<Mapping, MAX_RANGES>,
    /// Device registers passed through to it, each 4 KiB aligned.
    pub devices: Vec<Mapping, MAX_RANGES>,
    /// Interrupts passed through to it.
    pub interrupts: Vec<Interrupt, MAX_GUEST_INTERRUPTS>,
    /// Register writes that silence its devices (stop their DMA) when the guest is stopped.
    pub quiesce: Vec<Quiesce, MAX_QUIESCE>,
    /// What is copied into its memory at each start.
    pub segments: Vec<Segment, MAX_RANGES>,
    /// Where its first vCPU starts, MMU off, at EL1.
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
    /// Where policy `delay` is to read whether a vCPU may hold a lock: bytes from what `SP_EL0` points to in the kernel
    /// (Linux: the current task) to 32 bits that are 0 if it holds none. `None`: it may wherever the kernel runs.
    pub preempt_count: Option<u32>,
}

/// One vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vcpu {
    /// The core it runs on unless a policy moves it.
    pub home: PcpuId,
    /// Its priority.
    pub priority: Priority,
}

/// A range of a guest's address space and what backs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mapping {
    /// Where the guest sees it.
    pub ipa: GuestAddr,
    /// Where it is on the machine.
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
    /// By a high level, for as long as it is high.
    Level,
}

/// A 32-bit register write that silences a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesce {
    /// The register.
    pub register: PhysAddr,
    /// What is written.
    pub value: u32,
}

/// A payload and where it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Segment {
    /// Offset of the payload from `bundle_start`, in bytes, 4 KiB aligned.
    pub offset: u64,
    /// Bytes to copy.
    pub size: u64,
    /// Where in guest memory; any alignment.
    pub destination: GuestAddr,
}

/// A place for random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedSlot {
    /// First byte, inside a loaded segment.
    pub destination: GuestAddr,
    /// Number of bytes, at most 64.
    pub size: u32,
}

/// A PL011 that the hypervisor plays for a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualUart {
    /// First register, 4 KiB aligned.
    pub base: GuestAddr,
    /// The guest's SPI.
    pub interrupt: IntId,
    /// ANSI colour of the console tag, 31 to 36 or 91 to 96.
    pub colour: u8,
}

/// Where a guest finds its GICv3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualGic {
    /// Distributor frame (64 KiB).
    pub distributor: GuestAddr,
    /// First redistributor; 128 KiB a vCPU follow each other.
    pub redistributor: GuestAddr,
    /// Number of SPIs, a multiple of 32, at most 256.
    pub spis: u16,
}
