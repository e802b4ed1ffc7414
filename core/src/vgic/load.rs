// SPDX-License-Identifier: MIT OR Apache-2.0
//! Load and unload: the interrupts of a vCPU come to the list registers of a core, and leave them.

use super::cpu_interface::CpuInterface;
use super::fill::hcr_of;
use super::slot::{Backing, Slot};
use super::{GuestGic, ListRegister, PhysicalGic, State, TIMER_PPIS, VcpuIndexSet, bits};
use spumone_config::types::IntId;

impl CpuInterface {
    /// The vCPU is about to run on this core: its timer registers are in place, list registers are free,
    /// [`Doorbell::settle`](super::Doorbell::settle) was called. Writes list registers and `ICH_HCR_EL2`. Returns the
    /// vCPUs whose doorbells were rung, and whether the vCPU may run.
    ///
    /// It may not if the core was interrupted while there was much to do. The vCPU is then loaded with its virtual CPU interface off, and
    /// must be unloaded, or [synchronized](Self::synchronize) before it runs.
    #[inline(always)]
    pub fn load(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> (VcpuIndexSet, bool) {
        match self.load_timer(gic, machine) {
            true => (VcpuIndexSet::EMPTY, true),
            false => self.load_all(gic, machine),
        }
    }

    /// The most frequent case: the vCPU has no interrupt but that of one timer, or none at all. Returns whether that was so; if not,
    /// nothing is done.
    #[inline(always)]
    fn load_timer(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> bool {
        let private = self.active | self.latch | self.fired;
        let others = private | self.held_words | self.words | u32::from(self.ended);
        // Whoever rings the doorbell after this look kicks this core.
        if others != 0 || !gic.doorbell(self.index).is_silent() {
            return false;
        }
        let lines = machine.lines() & TIMER_PPIS;
        let is_one = lines & lines.wrapping_sub(1) == 0;
        if !is_one || lines & !self.open(gic.distributor.control()) != 0 {
            return false;
        }
        self.active_overflow = false;
        self.pending_overflow = false;
        self.is_unfilled = false;
        if lines != 0 {
            let timer = IntId(lines.trailing_zeros() as u16);
            // Otherwise it would fire at once; this saves the exit.
            machine.set_active(timer, true);
            self.list_timer(timer, machine);
        }
        debug_assert_eq!(self.stale, 0, "no list register of another vCPU is left");
        machine.write_hcr(hcr_of(gic));
        true
    }

    /// Puts a timer that has expired into the first list register, while none is used.
    #[inline(always)]
    fn list_timer(&mut self, timer: IntId, machine: &mut impl PhysicalGic) {
        let bit = u32::from(timer.0);
        self.listed = 1 << (bit & 31);
        self.list_register[bit as usize & 31] = 0;
        let lr = self.rank(bit).list(timer, State::Pending);
        let slot = Slot {
            intid: timer,
            latched: false,
            backing: Backing::Hardware,
            lr: ListRegister::EMPTY,
        };
        self.list(0, lr.backed_by(timer), slot, machine);
    }

    /// As [`timer_fired`](Self::timer_fired), where it is the vCPU's only interrupt. Returns whether that was so; if not, nothing is done.
    #[inline(always)]
    pub(super) fn timer_fired_alone(
        &mut self,
        gic: &GuestGic,
        timer: IntId,
        machine: &mut impl PhysicalGic,
    ) -> bool {
        let private = self.active | self.latch | self.fired | self.used;
        let others = private | self.held_words | self.words | u32::from(self.ended);
        let mask = 1 << (timer.0 & 31);
        if others != 0
            || self.is_unfilled
            || self.open(gic.distributor.control()) & TIMER_PPIS & mask == 0
        {
            return false;
        }
        debug_assert!(!self.active_overflow && !self.pending_overflow);
        self.list_timer(timer, machine);
        true
    }

    // Not inlined: in the run loop it would take registers from all other paths.
    #[inline(never)]
    fn load_all(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> (VcpuIndexSet, bool) {
        for bit in bits(self.active_physical) {
            machine.set_active(IntId(bit as u16), true);
        }
        self.fill_unless_interrupted(gic, machine)
    }

    /// The vCPU is switched out: takes all state back, empties the list registers and turns the virtual CPU interface
    /// off, so that no other vCPU sees them. No timer PPI stays active on this core. Returns the vCPUs whose doorbells were rung.
    #[inline(always)]
    pub fn unload(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> VcpuIndexSet {
        let mut kick = self.fold(gic, machine);
        machine.write_hcr(0);
        if self.ended != 0 {
            // Other vCPUs may wait for the interrupts that it has ended. Its maintenance interrupt for them is off by now.
            kick = kick.with(self.finish_ended(gic, machine).0);
        }
        for index in bits(self.stale) {
            machine.write_lr(index as usize, ListRegister::EMPTY);
        }
        self.stale = 0;
        for bit in bits(self.fired | self.active_physical) {
            machine.set_active(IntId(bit as u16), false);
        }
        // If a timer is still due when the vCPU is loaded again, its output signals it again.
        self.fired = 0;
        kick
    }
}
