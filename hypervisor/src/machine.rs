// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the instances on all cores share: facts that never change after start, and atomics.

use crate::cpu::{self, Vttbr};
use crate::entropy::Entropy;
use crate::gic::Gic;
use crate::hardware;
use crate::parking::TokenPlace;
use core::sync::atomic::{AtomicU32, Ordering};
use heapless::Vec;
use spumone_config::packed::{self, Board, InterruptPriorities, SpiOwner, System, Without};
use spumone_config::types::{MAX_GUESTS, MAX_PCPUS, MAX_VCPUS};
use spumone_config::{GuestAddr, GuestId, IntId, PcpuId, VcpuId};
use spumone_core::migration::{Policy, Shared};
use spumone_core::psci::{GuestPower, Lifecycle};
use spumone_core::schedule::kick_sgi;
use spumone_core::sets::VcpuSet;
use spumone_core::vgic::{self, GuestGic, VcpuIndex};
use spumone_core::vuart::Vuart;

/// SPIs of the machine that can be passed through: the destination table has an entry for each.
const MAX_PHYSICAL_SPIS: usize = 988;

/// The interrupt destination table: which interrupt belongs to whom. Fixed in the image.
pub struct Destinations([SpiOwner; MAX_PHYSICAL_SPIS]);

impl Destinations {
    /// The table of this system.
    pub fn new(system: &System) -> Self {
        let mut table = [SpiOwner::Nobody; MAX_PHYSICAL_SPIS];
        for spi in &system.spis {
            let index = spi.physical.index().checked_sub(IntId::FIRST_SPI.index());
            if let Some(entry) = index.and_then(|index| table.get_mut(index)) {
                *entry = spi.owner;
            }
        }
        Self(table)
    }

    /// Who owns this SPI.
    #[inline(always)]
    pub fn of(&self, interrupt: IntId) -> SpiOwner {
        let index = interrupt.index().checked_sub(IntId::FIRST_SPI.index());
        index
            .and_then(|index| self.0.get(index).copied())
            .unwrap_or(SpiOwner::Nobody)
    }
}

/// The stage 2 tables of a guest.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// All of the guest may run.
    pub all: Vttbr,
    /// Only its kernel may run: they catch the moment at which it returns to a program. Where the core can
    /// (FEAT_XNX), and the policy waits for that moment.
    pub of_kernel: Option<Vttbr>,
    /// Only its programs may run, where the policy keeps kernels off cores.
    pub of_programs: Option<Vttbr>,
}

/// A guest, as far as its cores share it.
pub struct Guest {
    /// What the system description says of it.
    pub config: packed::Guest,
    /// Its stage 2 tables.
    pub stage2: Tables,
    /// Its virtual interrupt controller.
    pub gic: GuestGic,
    /// Which of its vCPUs are on.
    pub power: GuestPower,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// Its console.
    pub vuart: Vuart,
    /// The vCPUs of the system that are its own, by its own numbering.
    pub vcpus: Vec<VcpuId, { spumone_config::types::MAX_VCPUS_PER_GUEST }>,
}

impl Guest {
    /// Whether the guest has memory at this address.
    pub fn has_memory(&self, ipa: GuestAddr) -> bool {
        self.config
            .memory
            .iter()
            .any(|range| ipa.0.wrapping_sub(range.ipa.0) < range.size)
    }

    /// The 32 bits at an address of the loaded vCPU, which is this guest's; `None` if the address is no multiple of 4, its
    /// kernel could not read them, or they lie outside the guest's memory.
    pub fn read_word(&self, address: u64) -> Option<u32> {
        if !address.is_multiple_of(4) {
            return None;
        }
        let at = cpu::translate(address)?;
        let is_own = self
            .config
            .memory
            .iter()
            .any(|range| at.0.wrapping_sub(range.pa.0) < range.size);
        // SAFETY: memory of the guest, mapped, aligned, and a multiple of pages, so the whole word is; vCPUs of the guest
        // may write it meanwhile, which a volatile read of a word allows for.
        is_own.then(|| unsafe { hardware::read_word_of_memory(at) })
    }

    /// The cores its vCPUs may run on: the home of each, and those of its description's `cores`; bit n for core n.
    pub fn cores(&self) -> u32 {
        self.lifecycle.cores()
    }

    /// The ids of vCPUs of the guest. It has consecutive ones.
    #[inline(always)]
    pub fn ids_of(&self, vcpus: vgic::VcpuSet) -> VcpuSet {
        let first = self.vcpus.first().map_or(0, |id| id.0);
        VcpuSet::from_bits(u32::from(vcpus.0) << (first & 31))
    }

    /// The vCPU of the system that is this one of the guest's.
    pub fn vcpu(&self, index: VcpuIndex) -> Option<VcpuId> {
        self.vcpus.get(index.index()).copied()
    }
}

/// What one core tells the others about itself.
pub struct Core {
    /// Its `MPIDR_EL1` affinity.
    pub mpidr: u64,
    /// vCPUs that were kicked here, by id. Set with release after the doorbell was rung, taken
    /// with acquire before the doorbell is looked at, so a kick never arrives before its reason.
    kicked: AtomicU32,
}

const _: () = assert!(MAX_VCPUS <= 32, "`Core::kicked` has one bit per vCPU");

impl Core {
    /// A core that was not kicked.
    pub const fn new(mpidr: u64) -> Self {
        Self {
            mpidr,
            kicked: AtomicU32::new(0),
        }
    }

    /// Takes the vCPUs that were kicked since the last time.
    #[inline(always)]
    pub fn take_kicked(&self) -> VcpuSet {
        VcpuSet::from_bits(self.kicked.swap(0, Ordering::Acquire))
    }
}

/// The guest of a vCPU.
#[derive(Clone, Copy)]
pub struct Owner {
    /// The guest.
    pub guest: &'static Guest,
    /// Its id.
    pub id: GuestId,
    /// Which of the guest's vCPUs it is.
    pub index: VcpuIndex,
}

/// The machine and all that runs on it.
// In this order, since what is looked at in each switch then is in reach of a load's immediate offset.
#[repr(C)]
pub struct Machine {
    /// The interrupt controller.
    pub gic: Gic,
    /// Whether interrupts for less urgent vCPUs are held back.
    pub interrupt_priorities: InterruptPriorities,
    /// What all cores see of each other and of vCPUs.
    pub shared: Shared,
    /// Where the tokens of parked vCPUs lie; a `VcpuId` is an index.
    pub parking: [TokenPlace; MAX_VCPUS],
    /// The guests of vCPUs; a `VcpuId` is an index.
    pub vcpus: [Option<Owner>; MAX_VCPUS],
    /// The cores; a `PcpuId` is an index.
    pub cores: Vec<Core, MAX_PCPUS>,
    /// The guests; a `GuestId` is an index.
    pub guests: Vec<&'static Guest, MAX_GUESTS>,
    /// What is done against lock-holder preemption.
    pub policy: Policy,
    /// What the policy does without.
    pub without: Without,
    /// Who owns which interrupt.
    pub destinations: Destinations,
    /// Where random numbers come from.
    pub entropy: Entropy,
    /// The core that serves the console UART.
    pub console_core: PcpuId,
    /// How long equals take turns, in microseconds.
    pub quantum_us: u32,
    /// `VTCR_EL2`: the format of the guests' stage 2 tables.
    pub vtcr: u64,
    /// The board.
    pub board: Board,
}

impl Machine {
    /// A guest by its id, which comes from this machine's own tables.
    #[inline(always)]
    pub fn guest(&self, id: GuestId) -> &'static Guest {
        self.guests[id.index()]
    }

    /// The guest of a vCPU; `None` if there is no vCPU with this id.
    #[inline(always)]
    pub fn vcpu(&self, id: VcpuId) -> Option<&Owner> {
        self.vcpus.get(id.index())?.as_ref()
    }

    /// The board's device at this address, for reports. Devices are where they are on the machine.
    pub fn device_name(&self, address: GuestAddr) -> Option<&str> {
        self.board
            .devices
            .iter()
            .find(|device| address.0.wrapping_sub(device.base.0) < device.size)
            .map(|device| device.name.as_str())
    }

    /// Sends the devices of a guest to where its first vCPU is: what a guest finds when it starts,
    /// until it writes `GICD_IROUTER`.
    pub fn route_to_first_vcpu(&self, guest: &Guest) {
        let home = guest.gic.doorbell(VcpuIndex(0)).location();
        if let Some(core) = self.cores.get(home.index()) {
            for interrupt in &guest.config.interrupts {
                self.gic.route_spi(interrupt.physical, core.mpidr);
            }
        }
    }

    /// Kicks core `to`, another one, for `vcpu`.
    #[inline(always)]
    pub fn kick(&self, to: PcpuId, vcpu: VcpuId) {
        let (Some(core), Some(band)) = (self.cores.get(to.index()), self.shared.band(vcpu)) else {
            return;
        };
        let bit = 1 << vcpu.index();
        // If the bit is set already, the SGI of the core that set it is on its way.
        if core.kicked.fetch_or(bit, Ordering::Release) & bit == 0 {
            self.gic.send_sgi(kick_sgi(band).0 as u8, core.mpidr);
        }
    }

    /// Tells core `to` that there is mail about `guest`: with the urgency of its
    /// most urgent vCPU.
    pub fn announce_mail(&self, to: PcpuId, guest: GuestId) {
        let sgi = kick_sgi(self.guest(guest).config.band);
        if let Some(core) = self.cores.get(to.index()) {
            self.gic.send_sgi(sgi.0 as u8, core.mpidr);
        }
    }
}
