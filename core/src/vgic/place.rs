// SPDX-License-Identifier: MIT OR Apache-2.0
//! Puts one interrupt into one list register, and keeps the record of it.

use super::cpu_interface::{CpuInterface, SGIS};
use super::distributor::Spi;
use super::rank::Rank;
use super::slot::{Backing, Slot};
use super::{GuestGic, ListRegister, MAX_LIST_REGISTERS, PhysicalGic, State, VcpuIndexSet};
use crate::sync::atomic::Ordering;
use spumone_config::types::IntId;

impl CpuInterface {
    /// Priority and group of a private interrupt now.
    pub(super) const fn rank(&self, bit: u32) -> Rank {
        Rank::new(
            self.priority[(bit & 31) as usize],
            self.group >> bit & 1 != 0,
        )
    }

    /// Puts an active interrupt back into a list register.
    ///
    /// If it is pending again, it becomes pending and active there if `merge`, and if its rank is still what it was when
    /// it was acknowledged: a list register has one rank. Else its end raises a maintenance interrupt.
    pub(super) fn place_active(
        &mut self,
        gic: &GuestGic,
        index: usize,
        intid: IntId,
        merge: bool,
        machine: &mut impl PhysicalGic,
    ) {
        match gic.distributor.spi(intid) {
            Some(spi) => self.place_active_spi(gic, index, spi, merge, machine),
            None => self.place_active_private(gic, index, intid, merge, machine),
        }
    }

    fn place_active_private(
        &mut self,
        gic: &GuestGic,
        index: usize,
        intid: IntId,
        merge: bool,
        machine: &mut impl PhysicalGic,
    ) {
        let mask = 1 << (intid.0 & 31);
        let again = self.latch & self.open(gic.distributor.control()) & mask != 0;
        let physical = self.active_physical & mask != 0;
        let rank = self.active_rank[intid.index() & 31];
        let latched = again && merge && rank == self.rank(u32::from(intid.0));
        self.active &= !mask;
        self.active_physical &= !mask;
        let state = if latched {
            self.latch &= !mask;
            State::PendingActive
        } else {
            State::Active
        };
        let slot = Slot {
            intid,
            latched,
            backing: Backing::of_active(physical, again),
            lr: ListRegister::EMPTY,
        };
        let lr = rank.list(intid, state);
        let lr = if again && !latched {
            lr.with_eoi_interrupt()
        } else {
            lr
        };
        self.list_private(index, lr, slot, machine);
    }

    /// Puts a pending SGI or PPI into a list register.
    pub(super) fn place_private(
        &mut self,
        index: usize,
        intid: IntId,
        machine: &mut impl PhysicalGic,
    ) {
        let mask = 1 << (intid.0 & 31);
        let slot = Slot {
            intid,
            latched: self.latch & mask != 0,
            backing: Backing::of_pending(self.fired & mask != 0),
            lr: ListRegister::EMPTY,
        };
        self.latch &= !mask;
        self.fired &= !mask;
        let lr = self.rank(u32::from(intid.0)).list(intid, State::Pending);
        self.list_private(index, lr, slot, machine);
    }

    /// Writes the list register of an SGI or PPI, and its record.
    #[inline(always)]
    pub(super) fn list_private(
        &mut self,
        index: usize,
        lr: ListRegister,
        slot: Slot,
        machine: &mut impl PhysicalGic,
    ) {
        let mask = 1 << (slot.intid.0 & 31);
        let lr = if slot.backing == Backing::Hardware {
            lr.backed_by(slot.intid)
        } else if SGIS & mask == 0 {
            // PPIs are level-sensitive: the output is looked at again when the guest deactivates the interrupt.
            lr.with_eoi_interrupt()
        } else {
            lr
        };
        self.listed |= mask;
        self.list_register[slot.intid.index() & 31] = index as u8;
        self.list(index, lr, slot, machine);
    }

    fn place_active_spi(
        &mut self,
        gic: &GuestGic,
        index: usize,
        spi: Spi,
        merge: bool,
        machine: &mut impl PhysicalGic,
    ) {
        let distributor = &gic.distributor;
        let (word, mask) = (distributor.word_of(spi), spi.mask());
        let physical = self.held_physical[spi.word()] & mask != 0;
        self.end_holding(spi);
        self.held_physical[spi.word()] &= !mask;
        let again = word.pending.load(Ordering::Acquire) & mask != 0;
        // Only the vCPU that it is routed to gets it again. Any other vCPU waits until it is deactivated.
        let rank = distributor.active_rank(spi);
        let latched = again
            && merge
            && rank == distributor.rank(spi)
            && distributor.is_open(spi)
            && distributor.route(spi) == Some(self.index)
            && word.take_latch(mask);
        let state = if latched {
            State::PendingActive
        } else {
            State::Active
        };
        let intid = spi.intid();
        let slot = Slot {
            intid,
            latched,
            backing: Backing::of_active(physical, again),
            lr: ListRegister::EMPTY,
        };
        let lr = rank.list(intid, state);
        self.list_spi(gic, index, spi, lr, slot, machine);
    }

    /// Claims a pending SPI and puts it into a list register, if it has no holder and is still pending; else
    /// returns the vCPUs whose doorbells were rung.
    pub(super) fn place_spi(
        &mut self,
        gic: &GuestGic,
        index: usize,
        spi: Spi,
        machine: &mut impl PhysicalGic,
    ) -> Result<(), VcpuIndexSet> {
        let distributor = &gic.distributor;
        if !distributor.claim(spi, self.index) {
            // The vCPU that claimed it first delivers it.
            return Err(VcpuIndexSet::EMPTY);
        }
        // Listed first; see `Word::pending_seen`.
        let word = distributor.word_of(spi);
        word.list(spi.mask());
        let Some(cause) = distributor.take(spi) else {
            word.unlist(spi.mask());
            return Err(gic.release(spi));
        };
        let intid = spi.intid();
        let slot = Slot {
            intid,
            latched: cause.latched,
            backing: Backing::of_pending(cause.fired),
            lr: ListRegister::EMPTY,
        };
        let lr = distributor.rank(spi).list(intid, State::Pending);
        self.list_spi(gic, index, spi, lr, slot, machine);
        Ok(())
    }

    fn list_spi(
        &mut self,
        gic: &GuestGic,
        index: usize,
        spi: Spi,
        lr: ListRegister,
        slot: Slot,
        machine: &mut impl PhysicalGic,
    ) {
        let lr = match gic.distributor.physical(spi) {
            Some(physical) if slot.backing == Backing::Hardware => lr.backed_by(physical),
            // The device's output, or the physical interrupt, may be raised again by then.
            _ => lr.with_eoi_interrupt(),
        };
        self.list(index, lr, slot, machine);
    }

    /// Writes a list register, and its record.
    #[inline(always)]
    fn list(&mut self, index: usize, lr: ListRegister, slot: Slot, machine: &mut impl PhysicalGic) {
        self.slots[index % MAX_LIST_REGISTERS] = Slot { lr, ..slot };
        self.used |= 1 << index;
        machine.write_lr(index, lr);
    }
}
