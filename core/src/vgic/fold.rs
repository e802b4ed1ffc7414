// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fold: takes the state of interrupts back from the list registers, as the guest has changed it.

use super::cpu_interface::CpuInterface;
use super::distributor::Spi;
use super::fill::Listed;
use super::search::HighestPriority;
use super::slot::{Backing, Slot};
use super::{
    GuestGic, ListRegister, MAX_LIST_REGISTERS, PhysicalGic, State, VMCR_EOI_MODE, VcpuIndexSet,
    bits,
};
use crate::sync::atomic::Ordering;

/// ICH_HCR_EL2.EOIcount: deactivations of interrupts that were in no list register (IHI 0069,
/// section 12.4.7).
const HCR_EOI_COUNT_SHIFT: u32 = 27;
const HCR_EOI_COUNT_MASK: u64 = 0x1f;

/// List registers of SGIs and PPIs that are folded between two looks for interrupts.
const LISTS_WITHOUT_LOOK: u32 = 4;

impl CpuInterface {
    /// Takes the state of all interrupts back from the list registers. Afterwards all state is in software; what the guest has ended in no
    /// list register is still among the active interrupts until [`Self::finish_ended`]. Loaded only; does nothing if list registers are empty. Returns the vCPUs whose doorbells were rung.
    #[inline(always)]
    pub(super) fn fold(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> VcpuIndexSet {
        self.fold_while(gic, machine, |_| true).0
    }

    /// As [`fold`](Self::fold), but looks for interrupts after each SPI and after some SGIs and PPIs. Returns also whether it has taken all back. If not, the core was
    /// interrupted, and the next fold takes back the rest.
    #[inline(never)]
    pub(super) fn fold_unless_interrupted(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let mut kick = VcpuIndexSet::EMPTY;
        if self.copied != 0 {
            let (rung, is_done) = self.take_copies_back(gic, machine);
            kick = rung;
            if !is_done {
                return (kick, false);
            }
        }
        let (rung, is_done) = self.fold_while(gic, machine, |machine| !machine.is_interrupted());
        (kick.with(rung), is_done && !machine.is_interrupted())
    }

    /// Folds, and asks after each SPI, and after each fourth list register, whether it goes on. Returns whether it has taken all back.
    #[inline(always)]
    fn fold_while<G: PhysicalGic>(
        &mut self,
        gic: &GuestGic,
        machine: &mut G,
        goes_on: impl Fn(&G) -> bool,
    ) -> (VcpuIndexSet, bool) {
        let (mut kick, mut left) = (VcpuIndexSet::EMPTY, self.used);
        if self.active_overflow {
            self.count_deactivations(machine);
            // They are counted once.
            self.active_overflow = false;
        }
        self.listed = 0;
        // At most 16 times: list registers.
        for index in bits(self.used) {
            let lr = machine.read_lr(index as usize);
            kick = kick.with(self.fold_slot(gic, index as usize, lr, machine));
            left &= left - 1;
            let is_short =
                lr.intid().is_private() && index % LISTS_WITHOUT_LOOK != LISTS_WITHOUT_LOOK - 1;
            if !is_short && !goes_on(machine) {
                break;
            }
        }
        self.stale |= self.used & !left;
        self.used = left;
        (kick.without(self.index), left == 0)
    }

    /// The maintenance interrupt was taken: it is not signalled again before the list registers are brought up to date
    /// ([`synchronize`](Self::synchronize)), which takes longer than another vCPU may have to wait. Nor is any virtual interrupt. Loaded
    /// only.
    pub fn hold_maintenance(machine: &mut impl PhysicalGic) {
        let count = machine.read_hcr() & HCR_EOI_COUNT_MASK << HCR_EOI_COUNT_SHIFT;
        machine.write_hcr(count);
    }

    /// Counts the interrupts that the guest has ended while they were in no list register, for [`Self::finish_ended`].
    #[inline(never)]
    pub(super) fn count_deactivations(&mut self, machine: &mut impl PhysicalGic) {
        // With EOImode = 1 ICC_DIR_EL1 traps instead.
        if machine.vmcr() & VMCR_EOI_MODE == 0 {
            let count = machine.read_hcr() >> HCR_EOI_COUNT_SHIFT & HCR_EOI_COUNT_MASK;
            self.ended = count as u8;
            self.ended_beside = self.used;
        }
    }

    /// Deactivates the interrupts that the guest has ended while they were in no list register. With EOImode = 0 it
    /// ends interrupts in the order of their priority, so these are the ones of the highest priority of those that were in none.
    /// Folded only. Returns the vCPUs whose doorbells were rung, and whether it is done, or the core was interrupted in between.
    #[inline(never)]
    pub(super) fn finish_ended(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let mut kick = VcpuIndexSet::EMPTY;
        let listed = self.listed_before();
        // At most 31 times: the largest `EOIcount`.
        for _ in 0..self.ended {
            let mut highest = HighestPriority::new(1);
            if !self.find_active(gic, &mut highest, &listed, machine) {
                return (kick, false);
            }
            self.ended -= 1;
            let Some(key) = highest.keys().next() else {
                break;
            };
            let intid = HighestPriority::intid(key);
            if intid.is_private() {
                self.clear_active(1 << intid.0);
            } else if let Some(spi) = gic.distributor.spi(intid) {
                kick = kick.with(self.clear_spi_active(gic, spi, machine));
            }
        }
        self.ended = 0;
        (kick, true)
    }

    /// As [`Self::finish_ended`], before other work: looks for interrupts afterwards, too.
    #[inline(always)]
    pub(super) fn finish_ended_first(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        if self.ended == 0 {
            return (VcpuIndexSet::EMPTY, true);
        }
        let (kick, is_done) = self.finish_ended(gic, machine);
        (kick, is_done && !machine.is_interrupted())
    }

    /// The interrupts that were in list registers at the fold that has counted `ended`; their records are kept until the next fill.
    fn listed_before(&self) -> Listed {
        let mut listed = Listed::NOTHING;
        // At most 16 times: list registers.
        for index in bits(self.ended_beside) {
            listed.insert(self.slots[index as usize % MAX_LIST_REGISTERS].intid);
        }
        listed
    }

    /// Takes one list register back, with the value `lr`.
    #[inline(never)]
    pub(super) fn fold_slot(
        &mut self,
        gic: &GuestGic,
        index: usize,
        lr: ListRegister,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        let slot = self.slots[index % MAX_LIST_REGISTERS];
        if slot.intid.is_private() {
            self.fold_private(slot, lr, machine);
            return VcpuIndexSet::EMPTY;
        }
        match gic.distributor.spi(slot.intid) {
            Some(spi) => self.fold_spi(gic, spi, slot, lr, machine),
            None => VcpuIndexSet::EMPTY,
        }
    }

    fn fold_private(&mut self, slot: Slot, lr: ListRegister, machine: &mut impl PhysicalGic) {
        let state = lr.state();
        let mask = 1 << (slot.intid.0 & 31);
        if state.is_pending() && slot.latched {
            self.latch |= mask;
        }
        if state.is_active() {
            self.active |= mask;
            let rank = &mut self.active_rank[slot.intid.index() & 31];
            *rank = slot.active_rank(*rank, lr);
            if slot.backing != Backing::None {
                self.active_physical |= mask;
            }
            return;
        }
        match slot.backing {
            Backing::Hardware if state == State::Pending => self.fired |= mask,
            Backing::Deferred => machine.set_active(slot.intid, false),
            // The guest's EOI has deactivated the physical interrupt.
            Backing::Hardware | Backing::None => {}
        }
    }

    fn fold_spi(
        &mut self,
        gic: &GuestGic,
        spi: Spi,
        slot: Slot,
        lr: ListRegister,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        let state = lr.state();
        let (word, mask) = (gic.distributor.word_of(spi), spi.mask());
        // Whether another vCPU has cleared the pending state. It sets the request first and clears the latches second,
        // so it either clears what is put back here, or its request is seen here.
        let cleared = || word.drop_pending.load(Ordering::Acquire) & mask != 0;
        if state.is_pending() && slot.latched && !cleared() {
            // If the request comes only now, the latch stays set: clearing it could clear a newer edge.
            word.pending.fetch_or(mask, Ordering::AcqRel);
        }
        if state == State::Pending && slot.backing == Backing::Hardware {
            gic.distributor.fire(spi);
        }
        if state.is_active() {
            // Before it is unlisted; see `Word::may_be_held`.
            word.active.fetch_or(mask, Ordering::AcqRel);
        }
        // All pending state is in the latches now.
        word.unlist(mask);
        if state.is_active() {
            let rank = slot.active_rank(gic.distributor.active_rank(spi), lr);
            gic.distributor.set_active_rank(spi, rank);
            self.hold(spi);
            if slot.backing != Backing::None {
                self.held_physical[spi.word()] |= mask;
            }
        } else {
            if word.active.load(Ordering::Acquire) & mask != 0 {
                word.active.fetch_and(!mask, Ordering::AcqRel);
            }
            let deactivate = match slot.backing {
                Backing::Deferred => true,
                Backing::Hardware if state == State::Pending => {
                    cleared() && word.fired.fetch_and(!mask, Ordering::AcqRel) & mask != 0
                }
                Backing::Hardware | Backing::None => false,
            };
            if let Some(physical) = gic.distributor.physical(spi)
                && deactivate
            {
                machine.set_active(physical, false);
            }
        }
        if cleared() {
            word.drop_pending.fetch_and(!mask, Ordering::AcqRel);
        }
        if state.is_active() {
            VcpuIndexSet::EMPTY
        } else {
            gic.release(spi)
        }
    }
}
