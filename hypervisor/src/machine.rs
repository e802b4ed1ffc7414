// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state that the instances on all cores share: facts that never change after start, atomics, and the tokens of parked
//! vCPUs, which their parking slots guard.

use crate::entropy::Entropy;
use crate::gic::Gic;
use crate::guest::{Guest, Owner};
use crate::hardware::{self, TurnOn};
use crate::parking::ParkedTokens;
use crate::power::Power;
use core::sync::atomic::{AtomicU32, Ordering};
use heapless::Vec;
use spumone_config::packed::{Board, Interrupt, InterruptPriorities, SpiOwner, System, Without};
use spumone_config::types::{MAX_GUESTS, MAX_PCPUS, MAX_VCPUS};
use spumone_config::{GuestAddr, GuestId, IntId, PcpuId, PhysAddr, VcpuId};
use spumone_core::health::HealthLog;
use spumone_core::migration::{Policy, Shared};
use spumone_core::mitigation::{self, Answer, Needs, SharedNeeds, Workaround};
use spumone_core::schedule::{Band, Ticks, kick_sgi};
use spumone_core::sets::{CoreSet, VcpuSet};
use spumone_core::usage::Usage;
use spumone_core::vgic::VcpuIndex;

/// Entries of the destination table: one for each SPI that the GIC architecture allows.
const MAX_PHYSICAL_SPIS: usize = 988;
/// Interrupts of a guest's devices that are routed between two looks for interrupts.
const ROUTED_AT_ONCE: usize = 8;

/// The interrupt destination table: the owner of each SPI. Fixed in the image.
pub struct Destinations([SpiOwner; MAX_PHYSICAL_SPIS]);

impl Destinations {
    /// The table of this system.
    pub fn new(system: &System) -> Self {
        let mut table = [SpiOwner::Unowned; MAX_PHYSICAL_SPIS];
        for spi in &system.spis {
            let index = spi.physical.index().checked_sub(IntId::FIRST_SPI.index());
            if let Some(entry) = index.and_then(|index| table.get_mut(index)) {
                *entry = spi.owner;
            }
        }
        Self(table)
    }

    /// The owner of this SPI.
    #[inline(always)]
    pub fn of(&self, interrupt: IntId) -> SpiOwner {
        let index = interrupt.index().checked_sub(IntId::FIRST_SPI.index());
        index
            .and_then(|index| self.0.get(index).copied())
            .unwrap_or(SpiOwner::Unowned)
    }
}

/// The state of a core that others use.
pub struct Core {
    /// Its `MPIDR_EL1` affinity.
    pub mpidr: u64,
    /// The vCPUs for which this core was kicked, one bit for each id. Set with release ordering after
    /// the doorbell was rung, taken with acquire ordering before the doorbell is read: a core that
    /// sees the kick also sees the doorbell.
    kicked: AtomicU32,
    /// The users of its time.
    pub usage: Usage,
    /// What it needs of its firmware.
    pub needs: SharedNeeds,
}

const _: () = assert!(MAX_VCPUS <= 32, "`Core::kicked` has one bit per vCPU");

impl Core {
    /// A core with this affinity that was not kicked.
    pub const fn new(mpidr: u64) -> Self {
        Self {
            mpidr,
            kicked: AtomicU32::new(0),
            usage: Usage::new(),
            needs: SharedNeeds::new(),
        }
    }

    /// Whether the core was kicked since it took kicks last.
    pub fn is_kicked(&self) -> bool {
        self.kicked.load(Ordering::Relaxed) != 0
    }

    /// Takes those of these vCPUs for which the core was kicked since they were taken last.
    #[inline(always)]
    pub fn take_kicked(&self, of: VcpuSet) -> VcpuSet {
        VcpuSet::from_bits(self.kicked.fetch_and(!of.bits(), Ordering::Acquire)) & of
    }
}

/// The machine and its guests.
// The order of fields keeps those used in each switch within the immediate offset of a load.
#[repr(C)]
pub struct Machine {
    /// The interrupt controller.
    pub gic: Gic,
    /// Whether the priority mask holds back interrupts for vCPUs of lower bands.
    pub interrupt_priorities: InterruptPriorities,
    /// The shared state of scheduling and migration.
    pub shared: Shared,
    /// The tokens of parked vCPUs; a `VcpuId` is an index.
    pub parked: ParkedTokens,
    /// The guests of vCPUs; a `VcpuId` is an index.
    pub vcpus: [Option<Owner>; MAX_VCPUS],
    /// The cores; a `PcpuId` is an index.
    pub cores: Vec<Core, MAX_PCPUS>,
    /// The guests; a `GuestId` is an index.
    pub guests: Vec<&'static Guest, MAX_GUESTS>,
    /// The vCPUs of each band and of the bands above it; [`Band::index`] is an index.
    pub from_band: [VcpuSet; Band::COUNT],
    /// The policy against lock-holder preemption.
    pub policy: Policy,
    /// The parts of the policy that are turned off.
    pub without: Without,
    /// The owner of each SPI.
    pub destinations: Destinations,
    /// The guests that are being loaded, bit n for guest n: where cores that idle help. Relaxed: only a hint, which comes before the
    /// SGI by which those cores are called.
    pub loading: AtomicU32,
    /// The guests whose protected memory is compared with hashes again and again; bit n for guest n.
    pub protected: u32,
    /// How often a core that idles looks whether some of it is due to be checked; never if there is none.
    pub look: Ticks,
    /// The same for a core that does not idle, and for memory that is late.
    pub late_look: Ticks,
    /// The highest band of these guests.
    pub protected_band: Option<Band>,
    /// How guests have ended lately.
    pub health: HealthLog,
    /// The source of random numbers.
    pub entropy: Entropy,
    /// The core that serves the console UART.
    pub console_core: PcpuId,
    /// The quantum, in microseconds.
    pub quantum_us: u32,
    /// `VTCR_EL2`: the format of the guests' stage 2 tables.
    pub vtcr: u64,
    /// Which cores are on.
    pub power: Power,
    /// The root of EL2's own translation tables.
    pub own_tables: PhysAddr,
    /// The board.
    pub board: Board,
}

impl Machine {
    /// A guest by its id, which comes from this machine's own tables.
    #[inline(always)]
    pub fn guest(&self, id: GuestId) -> &'static Guest {
        self.guests[id.index()]
    }

    /// What this guest is told about a workaround; `None`: one of the cores on which it may run has not asked its firmware yet.
    pub fn offer(&self, workaround: Workaround, guest: &Guest) -> Option<Answer> {
        let mut needs = Vec::<Needs, MAX_PCPUS>::new();
        // At most 8 times: cores.
        for core in CoreSet::from_bits(guest.config.cores).iter() {
            let _ = needs.push(self.cores.get(core.index())?.needs.get()?);
        }
        Some(mitigation::offer(workaround, needs.into_iter()))
    }

    /// The bands of all guests.
    pub fn bands(&self) -> [Band; MAX_GUESTS] {
        core::array::from_fn(|guest| {
            let guest = self.guests.get(guest);
            guest.map_or(Band::LOWEST, |guest| guest.config.band)
        })
    }

    /// The guest of a vCPU; `None` if there is no vCPU with this id.
    #[inline(always)]
    pub fn vcpu(&self, id: VcpuId) -> Option<&Owner> {
        self.vcpus.get(id.index())?.as_ref()
    }

    /// The board's device at this address, for reports. Guests see devices at their physical addresses.
    pub fn device_name(&'static self, address: GuestAddr) -> Option<&'static str> {
        // At most 64 times: known devices.
        self.board
            .devices
            .iter()
            .find(|device| address.0.wrapping_sub(device.base.0) < device.size)
            .map(|device| device.name.as_str())
    }

    /// Routes these interrupts of a guest's devices to the host core of its first vCPU: the initial state of a
    /// life, until the guest writes `GICD_IROUTER`.
    pub fn route_to_first_vcpu(&self, guest: &Guest, interrupts: &[Interrupt]) {
        let home = guest.gic.doorbell(VcpuIndex(0)).location();
        if let Some(core) = self.cores.get(home.index()) {
            // At most 64 times: interrupts of devices.
            for interrupt in interrupts {
                self.gic.route_spi(interrupt.physical, core.mpidr);
            }
        }
    }

    /// Routes interrupts of a guest's devices to core `to`, if the vCPU with this index is there: of [`ROUTED_AT_ONCE`] interrupts of the
    /// guest from number `from` on, those that the guest has routed to that vCPU. Returns the number of the next one, if there are more.
    ///
    /// If another core claims the vCPU at that moment, the route that was written last is written again, to that core.
    #[inline(never)]
    pub fn route_to(&self, to: PcpuId, guest: &Guest, index: VcpuIndex, from: u8) -> Option<u8> {
        let core = self.cores.get(to.index())?;
        let interrupts = guest.config.interrupts.get(usize::from(from)..)?;
        // At most 8 times: `ROUTED_AT_ONCE`.
        for interrupt in interrupts.iter().take(ROUTED_AT_ONCE) {
            if guest.gic.doorbell(index).location() != to {
                return None;
            }
            if guest.gic.is_routed_to(interrupt.guest, index) {
                self.gic.route_spi(interrupt.physical, core.mpidr);
                let at = guest.gic.doorbell(index).location();
                if at != to {
                    let core = self.cores.get(at.index())?;
                    self.gic.route_spi(interrupt.physical, core.mpidr);
                }
            }
        }
        (interrupts.len() > ROUTED_AT_ONCE).then_some(from + ROUTED_AT_ONCE as u8)
    }

    /// The vCPUs for which this SGI kicks a core, and those of higher bands. A core that takes it does not see to vCPUs of lower bands: their SGIs are
    /// pending in the GIC until the priority mask lets them through.
    #[inline(always)]
    pub fn kicked_by(&self, sgi: IntId) -> VcpuSet {
        self.from_band[sgi.index() % Band::COUNT]
    }

    /// Kicks core `to` for `vcpu`.
    #[inline(always)]
    pub fn kick(&self, to: PcpuId, vcpu: VcpuId) {
        let (Some(core), Some(band)) = (self.cores.get(to.index()), self.shared.band(vcpu)) else {
            return;
        };
        let bit = 1 << vcpu.index();
        // If the bit is set already, the core that set it sends the SGI.
        if core.kicked.fetch_or(bit, Ordering::Release) & bit == 0 {
            self.gic.send_sgi(kick_sgi(band).0 as u8, core.mpidr);
            self.start_if_off(to, band);
        }
    }

    /// Sends core `to` an SGI that interrupts what is below this band: the core has mail, or the wish has changed.
    pub fn call_core(&self, to: PcpuId, band: Band) {
        self.hint(to, band);
        self.start_if_off(to, band);
    }

    /// As [`Self::call_core`], but a core that has turned itself off is not turned on for this.
    pub fn hint(&self, to: PcpuId, band: Band) {
        let sgi = kick_sgi(band);
        if let Some(core) = self.cores.get(to.index()) {
            self.gic.send_sgi(sgi.0 as u8, core.mpidr);
        }
    }

    /// If core `to`, which was sent an SGI, has turned itself off: turns it on. If it is still on its way off, the console's core does that later.
    #[inline(always)]
    fn start_if_off(&self, to: PcpuId, band: Band) {
        if self.power.supply.is_any_off() {
            self.start(to, band);
        }
    }

    #[cold]
    #[inline(never)]
    fn start(&self, to: PcpuId, band: Band) {
        if !self.power.supply.is_off(to) {
            return;
        }
        let core = self.cores.get(to.index());
        match core.map(|it| hardware::turn_on(to.index(), it.mpidr)) {
            None | Some(TurnOn::Begins) => {}
            Some(TurnOn::IsOn) => {
                self.power.supply.order_start(to);
                self.hint(self.console_core, band);
            }
            Some(TurnOn::Fails) => self.power.supply.note_refusal(to),
        }
    }
}
