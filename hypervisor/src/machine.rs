// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the instances on all cores share: facts that never change after start, and atomics.

use crate::entropy::Entropy;
use crate::gic::Gic;
use crate::guest::{Guest, Owner};
use crate::parking::TokenPlace;
use core::sync::atomic::{AtomicU32, Ordering};
use heapless::Vec;
use spumone_config::packed::{Board, InterruptPriorities, SpiOwner, System, Without};
use spumone_config::types::{MAX_GUESTS, MAX_PCPUS, MAX_VCPUS};
use spumone_config::{GuestAddr, GuestId, IntId, PcpuId, VcpuId};
use spumone_core::migration::{Policy, Shared};
use spumone_core::schedule::kick_sgi;
use spumone_core::sets::VcpuSet;
use spumone_core::vgic::VcpuIndex;

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
