// SPDX-License-Identifier: MIT OR Apache-2.0
//! The fast path: one more interrupt for a running vCPU whose list registers have room. All else takes the slow path,
//! through fold and fill.

use super::cpu_interface::{CpuInterface, SGIS};
use super::distributor::Spi;
use super::rank::Rank;
use super::slot::Backing;
use super::{
    GuestGic, ListRegister, MAX_LIST_REGISTERS, PhysicalGic, State, TIMER_PPIS, VcpuIndexSet, bits,
};
use crate::sync::atomic::{Ordering, fence};
use spumone_config::types::IntId;

impl CpuInterface {
    /// Delivers the pending interrupts of this vCPU: at once if there is room and nothing to reorder, else through fold
    /// and fill.
    pub(super) fn deliver(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        if self.words != 0 || self.is_unfilled {
            return self.synchronize(gic, machine);
        }
        let ready = (self.latch | self.fired) & self.open(gic.distributor.control());
        if ready == 0 {
            return VcpuIndexSet::EMPTY;
        }
        if self.deliver_private(ready, machine) {
            return VcpuIndexSet::EMPTY;
        }
        let (_, kick) = self.retire(gic, machine);
        if machine.is_interrupted() {
            return kick.with(self.put_off(machine));
        }
        let ready = (self.latch | self.fired) & self.open(gic.distributor.control());
        if !kick.contains(self.index) && self.deliver_private(ready, machine) {
            return kick;
        }
        kick.without(self.index)
            .with(self.synchronize(gic, machine))
    }

    /// Puts SGIs and PPIs into list registers: an interrupt that has a list register into the same one, others into
    /// unused ones. Returns whether that was possible for all. It is not if there are too few list registers, or if the
    /// guest has not deactivated an interrupt that has a list register and is not an SGI.
    fn deliver_private(&mut self, ready: u32, machine: &mut impl PhysicalGic) -> bool {
        if self.pending_overflow || self.active_overflow || ready & self.active != 0 {
            return false;
        }
        let empty = machine.empty_lrs();
        // At most 32 times: SGIs and PPIs.
        for bit in bits(ready) {
            let index = if self.listed & 1 << bit != 0 {
                let index = usize::from(self.list_register[bit as usize]) % MAX_LIST_REGISTERS;
                let slot = &mut self.slots[index];
                if empty & 1 << index == 0 {
                    let rank = Rank::new(self.priority[bit as usize], self.group >> bit & 1 != 0);
                    let is_stale =
                        slot.lr.state() != State::Pending && self.active_rank[bit as usize] != rank;
                    if slot.backing != Backing::None || SGIS & 1 << bit == 0 || is_stale {
                        return false;
                    }
                    slot.latched = true;
                    self.latch &= !(1 << bit);
                    machine.write_lr(index, machine.read_lr(index).with_pending());
                    continue;
                }
                if slot.backing == Backing::Deferred {
                    return false;
                }
                index
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

    /// The guest executed WFI: whether certainly no interrupt is pending. If `false`, a closer look is needed. Loaded
    /// only. Also returns the vCPUs whose doorbells were rung.
    pub fn is_quiet(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (bool, VcpuIndexSet) {
        let (_, kick) = self.retire(gic, machine);
        // All that was collected and can be delivered is in list registers; so if none is used, there is nothing.
        let quiet = self.used == 0
            && gic.doorbell(self.index).peek().is_silent()
            && machine.lines() & TIMER_PPIS == 0;
        (quiet, kick)
    }

    /// As [`deliver`](Self::deliver), for an SPI that fires now.
    pub(super) fn deliver_spi(
        &mut self,
        gic: &GuestGic,
        spi: Spi,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        // Retire first: a list register to be retired may be that of the same SPI.
        let (free, mut kick) = match self.is_unfilled {
            true => (0, VcpuIndexSet::EMPTY),
            false => self.retire(gic, machine),
        };
        let waits = self.is_unfilled || machine.is_interrupted();
        gic.distributor.fire(spi);
        // The arrival is written before route and holder are read; see `distributor`.
        fence(Ordering::SeqCst);
        if gic.distributor.route(spi) != Some(self.index) {
            return kick.with(gic.ring(spi));
        }
        if !gic.distributor.is_open(spi) {
            // The vCPU that enables it will ring.
            return kick;
        }
        if waits {
            return kick.with(gic.ring(spi));
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

    /// Folds list registers whose interrupt the guest has deactivated. Returns those that are free for one more
    /// interrupt: none as long as others wait for them.
    fn retire(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> (u32, VcpuIndexSet) {
        if self.pending_overflow || self.active_overflow {
            return (0, VcpuIndexSet::EMPTY);
        }
        let empty = machine.empty_lrs();
        let mut kick = VcpuIndexSet::EMPTY;
        // At most 16 times: list registers.
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
