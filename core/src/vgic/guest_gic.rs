// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of a guest's GIC that its vCPUs share, and how they notify each other.

use super::distributor::{Distributor, Spi};
use super::doorbell::{Doorbell, RECALL};
use super::part::are_few;
use super::{PhysicalGic, VcpuIndex, VcpuIndexSet, bits};
use crate::sync::atomic::{Ordering, fence};
use spumone_config::packed;
use spumone_config::types::{IntId, MAX_VCPUS_PER_GUEST};

/// The part of a guest's GIC that its vCPUs share.
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

    /// Sets numbers and triggers from the packed description. To be called once, before any vCPU of the guest runs.
    ///
    /// `spis` is a multiple of 32 up to [`MAX_SPIS`](super::MAX_SPIS), `vcpus` 1 to 8, and every interrupt within
    /// `spis`: the description has been checked. What does not fit is ignored.
    pub fn configure(&self, spis: u16, vcpus: usize, interrupts: &[packed::Interrupt]) {
        self.distributor.configure(spis, vcpus, interrupts);
    }

    /// Resets `count` SPIs to the state after power-on, for a guest that is about to be restarted: physical interrupts disabled, inactive
    /// and not pending, outputs of emulated devices low. `first`, counted from INTID 32, and `count` are multiples of 8. Only while no
    /// vCPU of the guest is loaded anywhere.
    pub fn reset_spis(&self, first: u16, count: u16, machine: &mut impl PhysicalGic) {
        self.distributor.reset_spis(first, count, machine);
    }

    /// Resets the rest, when all SPIs are reset. [`CpuInterface::reset`](super::CpuInterface::reset) does the same for each vCPU.
    pub fn reset(&self) {
        self.distributor.reset_rest();
        for doorbell in &self.doorbells {
            doorbell.reset();
        }
    }

    /// The doorbell of a vCPU.
    pub fn doorbell(&self, vcpu: VcpuIndex) -> &Doorbell {
        // An index is always below 8; the remainder shows that to the compiler.
        &self.doorbells[vcpu.index() % MAX_VCPUS_PER_GUEST]
    }

    /// Number of vCPUs.
    pub fn vcpus(&self) -> usize {
        self.distributor.vcpus()
    }

    /// Whether the guest has routed its SPI `guest` to `vcpu`. The physical route must follow when that vCPU moves to another core.
    pub fn is_routed_to(&self, guest: IntId, vcpu: VcpuIndex) -> bool {
        let spi = self.distributor.spi(guest);
        spi.is_some_and(|spi| self.distributor.route(spi) == Some(vcpu))
    }

    /// The physical interrupt that backs the guest's SPI `guest` was acknowledged (and its priority
    /// dropped) on a core where no vCPU of this guest is loaded; else see
    /// [`CpuInterface::spi_arrived`](super::CpuInterface::spi_arrived). Returns the vCPUs whose doorbells were rung.
    pub fn spi_arrived(&self, guest: IntId) -> VcpuIndexSet {
        match self.distributor.spi(guest) {
            Some(spi) => {
                self.distributor.fire(spi);
                self.ring(spi)
            }
            None => VcpuIndexSet::EMPTY,
        }
    }

    /// The output of an emulated device (the virtual UART) has changed. Returns the vCPUs whose doorbells were rung; the vCPU loaded on
    /// the calling core may be among them and then needs [`CpuInterface::kicked`](super::CpuInterface::kicked).
    pub fn set_level(&self, guest: IntId, high: bool) -> VcpuIndexSet {
        let Some(spi) = self.distributor.spi(guest) else {
            return VcpuIndexSet::EMPTY;
        };
        if !self.distributor.set_level(spi, high) {
            return VcpuIndexSet::EMPTY;
        }
        if high {
            return self.ring(spi);
        }
        // It may still be pending in a list register.
        match self.distributor.holder(spi) {
            Some(holder) => self.recall(holder),
            None => VcpuIndexSet::EMPTY,
        }
    }

    /// Rings the vCPU that `spi` is routed to: the SPI became pending, or deliverable. If it has another holder,
    /// recalls it from there: the guest may have deactivated it without a maintenance interrupt.
    pub(super) fn ring(&self, spi: Spi) -> VcpuIndexSet {
        // The change is written before route and holder are read. A vCPU that changes the route reads *pending*
        // afterwards, and so does a holder that releases the SPI.
        fence(Ordering::SeqCst);
        let mut kick = VcpuIndexSet::EMPTY;
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

    /// As [`Self::ring`] for SPIs of one word. Where there are many, also vCPUs may be rung that none of them is routed to, since their
    /// routes are not looked at one by one.
    pub(super) fn ring_each(&self, word: usize, spis: u32) -> VcpuIndexSet {
        if are_few(spis) {
            // At most 4 times: as many as are few.
            let each = bits(spis).map(|bit| self.ring(Spi::at(word, bit)));
            return each.fold(VcpuIndexSet::EMPTY, VcpuIndexSet::with);
        }
        fence(Ordering::SeqCst);
        self.ring_many(word, self.distributor.holders(word, spis))
    }

    /// Rings the vCPUs that any SPI of this word is routed to, and recalls SPIs from these holders. Each vCPU is rung once. The caller
    /// has executed a fence since the SPIs became pending.
    pub(super) fn ring_many(&self, word: usize, holders: VcpuIndexSet) -> VcpuIndexSet {
        let targets = self.distributor.targets(word);
        let all = targets.with(holders);
        // At most 8 times: vCPUs of the guest.
        for vcpu in all.iter() {
            let recall = u32::from(holders.contains(vcpu)) * RECALL;
            let pending = u32::from(targets.contains(vcpu)) << word;
            self.doorbell(vcpu).ring_spis(recall | pending);
        }
        all
    }

    /// Rings `holder` so that it folds the SPIs whose holder it is.
    pub(super) fn recall(&self, holder: VcpuIndex) -> VcpuIndexSet {
        self.doorbell(holder).ring_spis(RECALL);
        VcpuIndexSet::of(holder)
    }

    /// The holder releases an SPI. If it has become pending meanwhile, the vCPU that it is routed to is rung.
    pub(super) fn release(&self, spi: Spi) -> VcpuIndexSet {
        self.distributor.clear_holder(spi);
        // *No holder* is written before *pending* is read. A vCPU that makes it pending reads the holder, also after a
        // fence. So one of the two delivers it.
        fence(Ordering::SeqCst);
        if self.distributor.is_pending(spi) {
            self.ring(spi)
        } else {
            VcpuIndexSet::EMPTY
        }
    }
}
