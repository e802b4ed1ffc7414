// SPDX-License-Identifier: MIT OR Apache-2.0
//! The short way: one interrupt more for a running vCPU whose list registers have room. All else
//! goes the long way, through fold and fill.

use super::cpu_interface::CpuInterface;
use super::distributor::Spi;
use super::slot::Backing;
use super::{GuestGic, ListRegister, MAX_LIST_REGISTERS, PhysicalGic, TIMER_PPIS, VcpuSet, bits};
use crate::sync::atomic::{Ordering, fence};
use spumone_config::types::IntId;

impl CpuInterface {
    /// Delivers what is pending in this vCPU: at once if there is room and nothing to reorder,
    /// else through fold and fill.
    pub(super) fn deliver(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> VcpuSet {
        if self.words != 0 {
            return self.synchronize(gic, machine);
        }
        let ready = (self.latch | self.fired) & self.open(gic.distributor.control());
        if ready == 0 {
            return VcpuSet::EMPTY;
        }
        if self.deliver_private(ready, machine) {
            return VcpuSet::EMPTY;
        }
        let (_, kick) = self.retire(gic, machine);
        let ready = (self.latch | self.fired) & self.open(gic.distributor.control());
        if !kick.contains(self.index) && self.deliver_private(ready, machine) {
            return kick;
        }
        kick.without(self.index)
            .with(self.synchronize(gic, machine))
    }

    /// Puts SGIs and PPIs into list registers: one that has been in a list register into the same
    /// again, if the guest is done with it there, others into unused ones. Returns whether all
    /// found a place.
    fn deliver_private(&mut self, ready: u32, machine: &mut impl PhysicalGic) -> bool {
        if self.pending_overflow || self.active_overflow || ready & self.active != 0 {
            return false;
        }
        let empty = machine.empty_lrs();
        for bit in bits(ready) {
            let index = if self.listed & 1 << bit != 0 {
                let index = self.home[bit as usize];
                let slot = self.slots[usize::from(index) % MAX_LIST_REGISTERS];
                if empty & 1 << index == 0 || slot.backing == Backing::Deferred {
                    return false;
                }
                usize::from(index)
            } else {
                let index = (!self.used).trailing_zeros() as usize;
                if index >= machine.list_registers() {
                    return false;
                }
                index
            };
            self.place_private(index, IntId(bit as u16), machine);
        }
        true
    }

    /// The guest waits for an interrupt: whether there plainly is none. If not, look closer. Loaded
    /// only. Returns whom to kick, too.
    pub fn is_quiet(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> (bool, VcpuSet) {
        let (_, kick) = self.retire(gic, machine);
        // What was collected and can be delivered is in list registers, all of it if none is used.
        let quiet = self.used == 0
            && gic.doorbell(self.index).peek().is_silent()
            && machine.lines() & TIMER_PPIS == 0;
        (quiet, kick)
    }

    /// As [`deliver`](Self::deliver), an SPI that fires now.
    pub(super) fn deliver_spi(
        &mut self,
        gic: &GuestGic,
        spi: Spi,
        machine: &mut impl PhysicalGic,
    ) -> VcpuSet {
        // First, for the last list register to be retired may be that of the same SPI.
        let (free, mut kick) = self.retire(gic, machine);
        gic.distributor.fire(spi);
        // The arrival before the look at who is to have it; see `distributor`.
        fence(Ordering::SeqCst);
        if gic.distributor.route(spi) != Some(self.index) {
            return kick.with(gic.ring(spi));
        }
        if !gic.distributor.is_open(spi) {
            // Who enables it rings.
            return kick;
        }
        if free != 0 {
            let index = free.trailing_zeros() as usize;
            match self.place_spi(gic, index, spi, machine) {
                Ok(()) => return kick,
                Err(more) => kick = kick.with(more),
            }
        }
        kick = kick.with(gic.ring(spi));
        kick.without(self.index)
            .with(self.synchronize(gic, machine))
    }

    /// Folds list registers that the guest is done with. Returns those that are free for an
    /// interrupt more: none as long as others wait for them.
    fn retire(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> (u32, VcpuSet) {
        if self.pending_overflow || self.active_overflow {
            return (0, VcpuSet::EMPTY);
        }
        let empty = machine.empty_lrs();
        let mut kick = VcpuSet::EMPTY;
        for index in bits(self.used & empty) {
            let slot = self.slots[index as usize % MAX_LIST_REGISTERS];
            if slot.intid.is_private() {
                self.listed &= !(1 << (slot.intid.0 & 31));
            }
            if !slot.intid.is_private() || slot.backing == Backing::Deferred {
                let kicked = self.fold_slot(gic, index as usize, ListRegister::EMPTY, machine);
                kick = kick.with(kicked);
            }
        }
        self.used &= !empty;
        let all = u32::MAX >> (32 - machine.list_registers().clamp(1, MAX_LIST_REGISTERS));
        (empty & !self.used & all, kick)
    }
}
