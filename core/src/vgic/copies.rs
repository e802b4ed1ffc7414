// SPDX-License-Identifier: MIT OR Apache-2.0
//! Copies of the list registers of a vCPU, after which a vCPU of a higher band runs.
//!
//! To take an interrupt back from a list register costs a hundred instructions and more, which the vCPU of the higher band would wait
//! for. To copy the list register costs a tenth of that. The interrupts are taken back from the copies when the vCPU is loaded again,
//! on whatever core. Until then its SPIs count as listed, as if it still ran. A vCPU that sleeps is woken to take them back: whether one of
//! them wakes it is not known before.

use super::cpu_interface::CpuInterface;
use super::slot::Backing;
use super::{GuestGic, MAX_LIST_REGISTERS, PhysicalGic, VcpuIndexSet, bits};

impl CpuInterface {
    /// The first part of [`unload`](Self::unload) if a vCPU of a higher band has the core next: copies list registers instead of taking
    /// their interrupts back. Those of timers remain, since their physical interrupts are the core's, and must not stay active.
    #[inline(always)]
    pub fn copy_lists(&mut self, machine: &mut impl PhysicalGic) {
        if self.active_overflow {
            self.count_deactivations(machine);
            self.active_overflow = false;
        }
        // At most 16 times: list registers.
        for index in bits(self.used) {
            let slot = &self.slots[index as usize % MAX_LIST_REGISTERS];
            if slot.intid.is_private() && slot.backing != Backing::None {
                continue;
            }
            self.copies[index as usize % MAX_LIST_REGISTERS] = machine.read_lr(index as usize);
            self.copied |= 1 << index;
        }
        self.used &= !self.copied;
        self.stale |= self.copied;
        // An interrupt that comes before the vCPU is saved must not be put where a copy is still to be taken back.
        self.is_unfilled |= self.copied != 0;
    }

    /// Takes interrupts back from the copies of list registers, and looks after each whether the core is interrupted. Returns the vCPUs whose
    /// doorbells were rung, and whether all interrupts are taken back. If not, the core was interrupted, and the next call takes back the
    /// rest.
    #[inline(never)]
    pub(super) fn take_copies_back(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let mut kick = VcpuIndexSet::EMPTY;
        // At most 16 times: list registers.
        for index in bits(self.copied) {
            self.copied &= self.copied - 1;
            let lr = self.copies[index as usize % MAX_LIST_REGISTERS];
            kick = kick.with(self.fold_slot(gic, index as usize, lr, machine));
            if self.copied != 0 && machine.is_interrupted() {
                break;
            }
        }
        (kick.without(self.index), self.copied == 0)
    }
}
