// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the vCPUs of one guest share, and how they tell each other.

use super::distributor::{Distributor, Spi};
use super::doorbell::{Doorbell, RECALL};
use super::{PhysicalGic, VcpuIndex, VcpuSet};
use crate::sync::atomic::{Ordering, fence};
use spumone_config::packed;
use spumone_config::types::{IntId, MAX_VCPUS_PER_GUEST};

/// What the vCPUs of one guest share.
pub struct GuestGic {
    pub(super) distributor: Distributor,
    doorbells: [Doorbell; MAX_VCPUS_PER_GUEST],
}

impl GuestGic {
    constructor! {
        /// A GIC without SPIs and vCPUs; see [`GuestGic::configure`].
        pub fn new() -> Self {
            Self { distributor: Distributor::new(), doorbells: atomics!(Doorbell::new()) }
        }
    }

    /// Takes the shape from the packed description. Once, before any vCPU of the guest runs.
    ///
    /// `spis` is a multiple of 32 up to [`MAX_SPIS`](super::MAX_SPIS), `vcpus` 1 to 8, and every interrupt within
    /// `spis`: the description has been checked, what does not fit is left out.
    pub fn configure(&self, spis: u16, vcpus: usize, interrupts: &[packed::Interrupt]) {
        self.distributor.configure(spis, vcpus, interrupts);
    }

    /// Back to the state after power-on, for a guest that is about to be started anew: physical
    /// interrupts disabled and inactive, outputs of played devices low. Only while no vCPU of the guest is loaded anywhere;
    /// [`CpuInterface::reset`](super::CpuInterface::reset) does the same for each vCPU.
    pub fn reset(&self, machine: &mut impl PhysicalGic) {
        self.distributor.reset(machine);
        for doorbell in &self.doorbells {
            doorbell.reset();
        }
    }

    /// The doorbell of a vCPU.
    pub fn doorbell(&self, vcpu: VcpuIndex) -> &Doorbell {
        // An index is always below 8; the mask says so to the compiler.
        &self.doorbells[vcpu.index() % MAX_VCPUS_PER_GUEST]
    }

    /// Number of vCPUs.
    pub fn vcpus(&self) -> usize {
        self.distributor.vcpus()
    }

    /// The machine's SPIs that the guest has routed to `vcpu`: those whose physical route must
    /// follow when that vCPU moves to another core.
    pub fn physical_spis_of(&self, vcpu: VcpuIndex) -> impl Iterator<Item = IntId> {
        self.distributor.physical_spis_of(vcpu)
    }

    /// The physical interrupt behind the guest's SPI `guest` was acknowledged (and its priority
    /// dropped) on a core where no vCPU of this guest is loaded; else see
    /// [`CpuInterface::spi_arrived`](super::CpuInterface::spi_arrived). Returns whom to kick.
    pub fn spi_arrived(&self, guest: IntId) -> VcpuSet {
        match self.distributor.spi(guest) {
            Some(spi) => {
                self.distributor.fire(spi);
                self.ring(spi)
            }
            None => VcpuSet::EMPTY,
        }
    }

    /// The output of a device that the hypervisor plays (the virtual UART) went up or down.
    /// Returns whom to kick; the vCPU loaded on the calling core may be among them and then needs
    /// [`CpuInterface::kicked`](super::CpuInterface::kicked).
    pub fn set_level(&self, guest: IntId, high: bool) -> VcpuSet {
        let Some(spi) = self.distributor.spi(guest) else {
            return VcpuSet::EMPTY;
        };
        if !self.distributor.set_level(spi, high) {
            return VcpuSet::EMPTY;
        }
        if high {
            return self.ring(spi);
        }
        // A list register may still hold it pending.
        match self.distributor.holder(spi) {
            Some(holder) => self.recall(holder),
            None => VcpuSet::EMPTY,
        }
    }

    /// Tells the vCPU that `spi` is routed to that it became pending, or deliverable. If another
    /// one holds it, that one is to see whether its guest is done: nothing need have told it.
    pub(super) fn ring(&self, spi: Spi) -> VcpuSet {
        // The change before the look at route and holder. Who changes the route looks for pending
        // SPIs afterwards, and so does who lets go.
        fence(Ordering::SeqCst);
        let mut kick = VcpuSet::EMPTY;
        let target = self.distributor.route(spi);
        if let Some(target) = target {
            self.doorbell(target).ring_spis(1 << spi.word());
            kick.insert(target);
        }
        match self.distributor.holder(spi) {
            Some(holder) if Some(holder) != target => kick.with(self.recall(holder)),
            _ => kick,
        }
    }

    /// Tells `holder` to look what has become of the SPIs it holds.
    pub(super) fn recall(&self, holder: VcpuIndex) -> VcpuSet {
        self.doorbell(holder).ring_spis(RECALL);
        VcpuSet::of(holder)
    }

    /// The holder lets go of an SPI. What became pending meanwhile goes to whom it is routed.
    pub(super) fn release(&self, spi: Spi) -> VcpuSet {
        self.distributor.clear_holder(spi);
        // "No holder" before the look at pending. Who makes it pending looks at the holder, after
        // a fence too; so one of both goes on with it.
        fence(Ordering::SeqCst);
        if self.distributor.is_pending(spi) {
            self.ring(spi)
        } else {
            VcpuSet::EMPTY
        }
    }
}

impl Default for GuestGic {
    fn default() -> Self {
        Self::new()
    }
}
