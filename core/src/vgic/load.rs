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
    /// vCPUs whose doorbells this vCPU has rung, and whether this vCPU may run.
    ///
    /// It may not run if the core was interrupted while there was much to do. The vCPU is then loaded with its virtual CPU interface off, and
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
        // A core that rings the doorbell after this look kicks this core.
        if self.has_interrupts() || !gic.doorbell(self.index).is_silent() {
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
        let lr = self.rank(u32::from(timer.0)).list(timer, State::Pending);
        let slot = Slot {
            intid: timer,
            latched: false,
            backing: Backing::Hardware,
            lr: ListRegister::EMPTY,
        };
        self.list_private(0, lr, slot, machine);
    }

    /// Whether this vCPU has interrupts outside list registers, or in copies of them, besides those in its doorbell and the outputs of its
    /// timers.
    #[inline(always)]
    const fn has_interrupts(&self) -> bool {
        let private = self.active | self.latch | self.fired;
        private | self.held_words | self.words | self.copied | self.ended as u32 != 0
    }

    /// As [`timer_fired`](Self::timer_fired), where it is the vCPU's only interrupt. Returns whether that was so; if not, nothing is done.
    #[inline(always)]
    pub(super) fn timer_fired_alone(
        &mut self,
        gic: &GuestGic,
        timer: IntId,
        machine: &mut impl PhysicalGic,
    ) -> bool {
        let is_open = self.open(gic.distributor.control()) & TIMER_PPIS & 1 << (timer.0 & 31) != 0;
        if self.used != 0 || self.has_interrupts() || self.is_unfilled || !is_open {
            return false;
        }
        debug_assert!(!self.active_overflow && !self.pending_overflow);
        self.list_timer(timer, machine);
        true
    }

    // Not inlined: in the run loop it would take registers from all other paths.
    #[inline(never)]
    fn load_all(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> (VcpuIndexSet, bool) {
        // At most 2 times: timers.
        for bit in bits(self.active_physical) {
            machine.set_active(IntId(bit as u16), true);
        }
        let mut kick = VcpuIndexSet::EMPTY;
        if self.copied != 0 {
            let (rung, is_done) = self.take_copies_back(gic, machine);
            kick = rung;
            if !is_done {
                let _ = self.put_off(machine);
                return (kick, false);
            }
        }
        let (rung, is_done) = self.fill_unless_interrupted(gic, machine);
        (kick.with(rung), is_done)
    }

    /// Whether [`take_back`](Self::take_back) comes before [`unload`](Self::unload): there are more than two interrupts in list registers, or an
    /// SPI, or the guest may have ended interrupts that were in none, which are searched for. Loaded only.
    #[inline(always)]
    pub fn lists_many(&self) -> bool {
        let rest = self.used & self.used.wrapping_sub(1);
        let more_than_two = rest & rest.wrapping_sub(1) != 0;
        // With up to two interrupts, an SPI is among them if there are fewer private ones.
        let more_than_one_private = self.listed & self.listed.wrapping_sub(1) != 0;
        let has_spi = self.used != 0 && self.listed == 0 || rest != 0 && !more_than_one_private;
        more_than_two || has_spi || self.active_overflow || self.ended != 0
    }

    /// Takes interrupts back from the list registers, as the first part of [`unload`](Self::unload), or to see what the guest has pending;
    /// looks for interrupts after each SPI. Loaded only. Returns the vCPUs with a rung doorbell, and whether it is done. If the core was
    /// interrupted, it is not: the virtual CPU interface is off, and the vCPU must be [synchronized](Self::synchronize) if it runs again.
    #[inline(never)]
    pub fn take_back(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let (mut kick, mut is_done) = self.fold_unless_interrupted(gic, machine);
        if is_done {
            let (rung, has_finished) = self.finish_ended_first(gic, machine);
            kick = kick.with(rung);
            is_done = has_finished;
        }
        if !is_done {
            let _ = self.put_off(machine);
        }
        (kick, is_done)
    }

    /// The vCPU is switched out: takes all state back, empties the list registers and turns the virtual CPU interface
    /// off, so that no other vCPU gets its interrupts. No timer PPI stays active on this core. What the guest has ended in no list register, and
    /// [`take_back`](Self::take_back) has not found, is searched for when the vCPU is loaded again: the search takes long where many interrupts
    /// are active. Returns the vCPUs whose doorbells this vCPU has rung.
    #[inline(always)]
    pub fn unload(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> VcpuIndexSet {
        let kick = self.fold(gic, machine);
        machine.write_hcr(0);
        // At most 16 times: list registers.
        for index in bits(self.stale) {
            machine.write_lr(index as usize, ListRegister::EMPTY);
        }
        self.stale = 0;
        // At most 2 times: timers.
        for bit in bits(self.fired | self.active_physical) {
            machine.set_active(IntId(bit as u16), false);
        }
        // If a timer is still due when the vCPU is loaded again, its output signals it again.
        self.fired = 0;
        kick
    }
}
