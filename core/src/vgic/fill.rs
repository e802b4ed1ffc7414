// SPDX-License-Identifier: MIT OR Apache-2.0
//! Fill: puts the interrupts of the highest priority into list registers.

use super::cpu_interface::CpuInterface;
use super::distributor::Spi;
use super::doorbell::RECALL;
use super::search::HighestPriority;
use super::{
    GuestGic, ListRegister, MAX_LIST_REGISTERS, PhysicalGic, SPI_WORDS, TIMER_PPIS, VMCR_EOI_MODE,
    VcpuIndexSet, bits,
};
use crate::sync::atomic::{Ordering, fence};
use spumone_config::types::IntId;

/// ICH_HCR_EL2.En: the virtual CPU interface works (IHI 0069, section 12.4.7).
const HCR_ENABLE: u64 = 1 << 0;
/// ICH_HCR_EL2.LRENPIE: maintenance interrupt while EOIcount is not 0.
const HCR_EOI_NOT_PRESENT: u64 = 1 << 2;
/// ICH_HCR_EL2.NPIE: maintenance interrupt while no list register is pending.
const HCR_NO_PENDING: u64 = 1 << 3;
/// ICH_HCR_EL2.TDIR: writes to ICC_DIR_EL1 trap.
const HCR_TRAP_DEACTIVATE: u64 = 1 << 14;

/// SGIs and PPIs that are compared between two looks for interrupts.
const PRIVATE_WITHOUT_LOOK: usize = 4;

/// Why the fast path has not filled the list registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unfilled {
    /// There is no list register for one of the interrupts.
    NoRoom,
    /// The core was interrupted.
    Interrupted,
}

/// Whether more than `count` bits are set.
#[inline(always)]
fn has_more_than(count: usize, mut bits: u32) -> bool {
    // At most 16 times: list registers.
    for _ in 0..count {
        if bits == 0 {
            return false;
        }
        bits &= bits - 1;
    }
    bits != 0
}

/// Interrupts that a search leaves out.
pub(super) struct Listed {
    private: u32,
    words: [u32; SPI_WORDS],
}

impl Listed {
    pub const NOTHING: Self = Self {
        private: 0,
        words: [0; SPI_WORDS],
    };

    pub fn insert(&mut self, intid: IntId) {
        let words = core::iter::once(&mut self.private).chain(&mut self.words);
        if let Some(word) = words.into_iter().nth(intid.index() / 32) {
            *word |= 1 << (intid.0 % 32);
        }
    }
}

/// `ICH_HCR_EL2` where all interrupts have list registers. In a guest of several vCPUs writes to ICC_DIR_EL1 trap.
#[inline(always)]
pub(super) fn hcr_of(gic: &GuestGic) -> u64 {
    match gic.vcpus() > 1 {
        true => HCR_ENABLE | HCR_TRAP_DEACTIVATE,
        false => HCR_ENABLE,
    }
}

impl CpuInterface {
    /// Puts the interrupts of the highest priority into list registers, and enables in `ICH_HCR_EL2` the maintenance
    /// interrupts that are needed. Loaded only, after [`fold`](Self::fold). Returns the vCPUs whose doorbells were rung. This vCPU is
    /// among them if it is to be [synchronized](Self::synchronize) before it runs: another vCPU changed an SPI just while it was
    /// claimed, or there are so many interrupts that the core looked for its own in between, and one was pending.
    ///
    /// Active interrupts stay in list registers as long as there is room, those of the highest priority first; one is
    /// kept for a pending interrupt. If there is no room for an active one, `EOIcount` says when the guest has ended it
    /// (LRENPIE). With EOImode = 1 writes to ICC_DIR_EL1 then trap. In a guest of several vCPUs they always trap,
    /// because one vCPU may deactivate what another has acknowledged.
    pub fn fill(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> VcpuIndexSet {
        match self.fill_unless_interrupted(gic, machine) {
            (kick, true) => kick,
            (kick, false) => kick.with(VcpuIndexSet::of(self.index)),
        }
    }

    /// As [`fill`](Self::fill). Returns the vCPUs whose doorbells were rung, and whether it has filled the list registers. If not, the
    /// core was interrupted: the virtual CPU interface is off, and all is to be done again. It looks once it is known what is to be written
    /// and the timers of the vCPU no longer signal, and in between where there is much to do.
    #[inline(always)]
    pub(super) fn fill_unless_interrupted(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let (kick, is_done) = self.try_to_fill(gic, machine);
        self.is_unfilled = false;
        if !is_done {
            let _ = self.put_off(machine);
        }
        (kick, is_done)
    }

    /// The core was interrupted before the list registers were filled. Returns this vCPU, which is to be
    /// [synchronized](Self::synchronize) before it runs.
    pub(super) fn put_off(&mut self, machine: &mut impl PhysicalGic) -> VcpuIndexSet {
        self.is_unfilled = true;
        // A maintenance interrupt of what was in list registers before must not keep the core from the others.
        machine.write_hcr(0);
        VcpuIndexSet::of(self.index)
    }

    #[inline(always)]
    fn try_to_fill(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        debug_assert_eq!(self.copied, 0, "copies are taken back before a fill");
        let registers = machine.list_registers().clamp(1, MAX_LIST_REGISTERS);
        let mut kick = VcpuIndexSet::EMPTY;
        let holds_active = self.held_words != 0;
        if holds_active || self.ended != 0 {
            // May ring this vCPU too, so this comes before the doorbell is collected.
            let (rung, is_done) = self.settle_active(gic, machine);
            kick = rung.without(self.index);
            if !is_done {
                return (kick, false);
            }
        }
        let ready = self.collect_and_sample(gic, machine);
        if machine.is_interrupted() {
            return (kick, false);
        }
        let has_spis = holds_active || self.words & !RECALL != 0;
        let overflows = match has_spis {
            true => self.may_overflow(gic, ready, registers),
            false => has_more_than(registers, ready | self.active),
        };
        let filled = match overflows {
            true => Err(Unfilled::NoRoom),
            false => self.fill_unsorted(gic, ready, registers, &mut kick, machine),
        };
        match filled {
            Ok(()) => {}
            // The next fold takes back what was placed.
            Err(Unfilled::Interrupted) => return (kick, false),
            Err(Unfilled::NoRoom) => {
                let (rung, is_done) = self.fill_sorted(gic, registers, machine);
                kick = kick.with(rung);
                if !is_done {
                    return (kick, false);
                }
            }
        }
        self.switch_on(gic, machine);
        (kick, true)
    }

    /// Whether there may be more interrupts than list registers. Counts also SPIs that are for other vCPUs.
    #[inline(never)]
    fn may_overflow(&self, gic: &GuestGic, ready: u32, registers: usize) -> bool {
        let mut count = ready.count_ones() + self.active.count_ones();
        // At most 8 times: words of SPIs.
        for word in bits(self.words & !RECALL) {
            count += gic.distributor.deliverable(word as usize).count_ones();
        }
        // At most 8 times: words of SPIs.
        for word in bits(self.held_words) {
            count += self.held[word as usize % SPI_WORDS].count_ones();
        }
        count as usize > registers
    }

    /// The fast path: if there is room for all, the order does not matter.
    #[inline(always)]
    fn fill_unsorted(
        &mut self,
        gic: &GuestGic,
        ready: u32,
        registers: usize,
        kick: &mut VcpuIndexSet,
        machine: &mut impl PhysicalGic,
    ) -> Result<(), Unfilled> {
        self.active_overflow = false;
        self.pending_overflow = false;
        let mut places = 0..registers;
        // At most 16 times: list registers.
        for bit in bits(self.active) {
            self.go_on(machine)?;
            self.place_active(
                gic,
                places.next().ok_or(Unfilled::NoRoom)?,
                IntId(bit as u16),
                true,
                machine,
            );
        }
        // At most 8 times: words of SPIs.
        for word in bits(self.held_words) {
            let word = word as usize;
            // At most 16 times: list registers.
            for bit in bits(self.held[word % SPI_WORDS]) {
                self.go_on(machine)?;
                let intid = Spi::at(word, bit).intid();
                self.place_active(
                    gic,
                    places.next().ok_or(Unfilled::NoRoom)?,
                    intid,
                    true,
                    machine,
                );
            }
        }
        // At most 16 times: list registers.
        for bit in bits(ready) {
            self.go_on(machine)?;
            self.place_private(
                places.next().ok_or(Unfilled::NoRoom)?,
                IntId(bit as u16),
                machine,
            );
        }
        // At most 8 times: words of SPIs.
        for word in bits(self.words & !RECALL) {
            // At most 32 times: SPIs of a word.
            for spi in gic.distributor.pending_for(self.index, word as usize) {
                self.go_on(machine)?;
                if let Err(more) =
                    self.place_spi(gic, places.next().ok_or(Unfilled::NoRoom)?, spi, machine)
                {
                    *kick = kick.with(more);
                }
            }
        }
        self.words = 0;
        self.search.end();
        Ok(())
    }

    /// Looks for interrupts, unless nothing is placed yet.
    #[inline(always)]
    fn go_on(&self, machine: &impl PhysicalGic) -> Result<(), Unfilled> {
        match machine.is_interrupted() && self.used != 0 {
            true => Err(Unfilled::Interrupted),
            false => Ok(()),
        }
    }

    /// The slow path: there may be more interrupts than list registers, and those of the highest priority win. Returns as
    /// [`Self::fill_unless_interrupted`] does.
    // Not inlined: the fast path does not pay for its tables.
    #[inline(never)]
    fn fill_sorted(
        &mut self,
        gic: &GuestGic,
        registers: usize,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        // Takes back what the fast path has placed, to compare the priorities of all.
        let (mut kick, is_done) = self.fold_unless_interrupted(gic, machine);
        if !is_done {
            return (kick, false);
        }
        let ready = self.collect_and_sample(gic, machine);
        if machine.is_interrupted() {
            return (kick, false);
        }
        let mut active = HighestPriority::new(registers);
        if !self.find_active(gic, &mut active, &Listed::NOTHING, machine)
            || machine.is_interrupted()
        {
            return (kick, false);
        }
        // Until it is known.
        self.pending_overflow = true;
        if !self.search_spis(gic, registers, machine) || machine.is_interrupted() {
            return (kick, false);
        }
        let (mut pending, mut left) = (self.search.found, self.search.left);
        // At most 4 times: then it looks for interrupts.
        for (number, bit) in bits(ready).enumerate() {
            if number % PRIVATE_WITHOUT_LOOK == PRIVATE_WITHOUT_LOOK - 1 && machine.is_interrupted()
            {
                return (kick, false);
            }
            let key = HighestPriority::key(IntId(bit as u16), self.rank(bit));
            if let Some(out) = pending.insert(key) {
                left |= word_of(gic, out);
            }
        }
        self.active_overflow = active.overflows();
        self.pending_overflow = pending.overflows();

        let room = registers - usize::from(pending.len() > 0);
        let actives = active.len().min(room);
        let pendings = pending.len().min(registers - actives);
        self.active_overflow |= actives < active.len();
        self.pending_overflow |= pendings < pending.len();
        // At most 16 times: list registers.
        for key in pending.keys().skip(pendings) {
            left |= word_of(gic, HighestPriority::intid(key));
        }
        // While an interrupt of a higher priority may wait for a list register, the end of an active one must not make
        // the same one pending in its list register.
        let merge = !self.pending_overflow;
        let mut next = 0;
        // At most 16 times: list registers.
        for key in active.keys().take(actives) {
            if machine.is_interrupted() {
                return (kick, false);
            }
            self.place_active(gic, next, HighestPriority::intid(key), merge, machine);
            next += 1;
        }
        // At most 16 times: list registers.
        for key in pending.keys().take(pendings) {
            if machine.is_interrupted() {
                return (kick, false);
            }
            let intid = HighestPriority::intid(key);
            if let Some(spi) = gic.distributor.spi(intid) {
                // It may have been found before the core was interrupted.
                if !gic.distributor.is_deliverable_by(spi, self.index) {
                    if self.pending_overflow {
                        // Another one has its place.
                        self.search.end();
                        return (kick, false);
                    }
                    continue;
                }
                match self.place_spi(gic, next, spi, machine) {
                    Ok(()) => next += 1,
                    Err(more) => kick = kick.with(more),
                }
            } else {
                self.place_private(next, intid, machine);
                next += 1;
            }
        }
        self.words = left;
        self.search.end();
        (kick, true)
    }

    /// Searches the words of SPIs for the pending ones of the highest priority; goes on where it was interrupted. Returns whether it has
    /// searched all; if not, it was interrupted, or is to begin anew. A word is searched in one piece. Words that were rung since they were
    /// searched come last, so a core that is interrupted less often than a search of two words takes makes progress.
    #[inline(always)]
    fn search_spis(
        &mut self,
        gic: &GuestGic,
        registers: usize,
        machine: &impl PhysicalGic,
    ) -> bool {
        self.search.begin(registers);
        // At most 8 times in all: words of SPIs.
        while let Some(word) = self.search.next(self.words & !RECALL) {
            let deliverable = gic.distributor.deliverable(word as usize);
            if deliverable == 0 {
                self.search.searched(word);
                continue;
            }
            let mut found = self.search.found;
            let mut left = 0;
            for bit in bits(deliverable) {
                if machine.is_interrupted() {
                    return false;
                }
                let spi = Spi::at(word as usize, bit);
                if !gic.distributor.is_to_be_delivered_by(spi, self.index) {
                    continue;
                }
                let key = HighestPriority::key(spi.intid(), gic.distributor.rank(spi));
                match self.search.found_before(word, spi.intid()) {
                    None => {
                        if let Some(out) = found.insert(key) {
                            left |= word_of(gic, out);
                        }
                    }
                    Some(before) if before == key => {}
                    Some(_) => {
                        // Its priority was changed, so others may come first.
                        self.search.end();
                        return false;
                    }
                }
            }
            self.search.found = found;
            self.search.left |= left;
            self.search.searched(word);
        }
        true
    }

    /// Empties unused list registers, and enables the virtual CPU interface with the maintenance interrupts that are
    /// needed.
    fn switch_on(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) {
        // At most 16 times: list registers.
        for index in bits(self.stale & !self.used) {
            machine.write_lr(index as usize, ListRegister::EMPTY);
        }
        self.stale = 0;

        let mut hcr = hcr_of(gic);
        if self.pending_overflow {
            hcr |= HCR_NO_PENDING;
        }
        if self.active_overflow {
            hcr |= HCR_EOI_NOT_PRESENT;
        }
        if self.active_overflow && machine.vmcr() & VMCR_EOI_MODE != 0 {
            hcr |= HCR_TRAP_DEACTIVATE;
        }
        machine.write_hcr(hcr);
    }

    /// Collects the doorbell, samples the timers, and returns the SGIs and PPIs to deliver.
    #[inline(always)]
    fn collect_and_sample(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> u32 {
        self.collect(gic);
        // Between collecting and looking; pairs with the fences of vCPUs that change an SPI's state.
        fence(Ordering::SeqCst);
        self.sample_timers(gic.distributor.control(), machine)
    }

    /// Samples the timers: keeps the physical PPI of each active exactly as long as its output is high or the guest has
    /// it active. Returns the private interrupts to deliver.
    #[inline(always)]
    fn sample_timers(&mut self, control: u32, machine: &mut impl PhysicalGic) -> u32 {
        let lines = machine.lines() & TIMER_PPIS;
        let ready = (self.latch | lines) & self.open(control) & !self.active;
        // At most 2 times: timers.
        for bit in bits(lines & !self.fired & !self.active_physical) {
            // Otherwise it would fire at once; this saves the exit.
            machine.set_active(IntId(bit as u16), true);
            self.fired |= 1 << bit;
        }
        // At most 2 times: timers.
        for bit in bits(self.fired & !lines & !ready) {
            machine.set_active(IntId(bit as u16), false);
            self.fired &= !(1 << bit);
        }
        ready
    }

    /// Deactivates what the guest has ended, and what other vCPUs have requested. Returns the vCPUs whose doorbells were rung, and
    /// whether it is done, or the core was interrupted in between.
    #[inline(never)]
    pub(super) fn settle_active(
        &mut self,
        gic: &GuestGic,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let mut kick = VcpuIndexSet::EMPTY;
        if self.ended != 0 {
            let (rung, is_done) = self.finish_ended(gic, machine);
            kick = rung;
            if !is_done {
                return (kick, false);
            }
        }
        // At most 8 times: words of SPIs.
        for word in bits(self.held_words) {
            let word = word as usize % SPI_WORDS;
            let requests = &gic.distributor.word(word).drop_active;
            let dropped = requests.load(Ordering::Acquire) & self.held[word];
            for bit in bits(dropped) {
                requests.fetch_and(!(1 << bit), Ordering::AcqRel);
                kick = kick.with(self.clear_spi_active(gic, Spi::at(word, bit), machine));
                if machine.is_interrupted() {
                    return (kick, false);
                }
            }
        }
        (kick, true)
    }

    /// Adds the active interrupts that are in no list register, without those of `but`, to `active`. Returns whether it has added all. If
    /// not, the core was interrupted in between.
    pub(super) fn find_active(
        &self,
        gic: &GuestGic,
        active: &mut HighestPriority,
        but: &Listed,
        machine: &impl PhysicalGic,
    ) -> bool {
        // At most 4 times: then it looks for interrupts.
        for (number, bit) in bits(self.active & !but.private).enumerate() {
            if number % PRIVATE_WITHOUT_LOOK == PRIVATE_WITHOUT_LOOK - 1 && machine.is_interrupted()
            {
                return false;
            }
            let rank = self.active_rank[bit as usize];
            active.insert(HighestPriority::key(IntId(bit as u16), rank));
        }
        for (word, (&held, &listed)) in self.held.iter().zip(&but.words).enumerate() {
            for bit in bits(held & !listed) {
                if machine.is_interrupted() {
                    return false;
                }
                let spi = Spi::at(word, bit);
                active.insert(HighestPriority::key(
                    spi.intid(),
                    gic.distributor.active_rank(spi),
                ));
            }
        }
        true
    }
}

/// The bit of the word of SPIs that an interrupt belongs to; 0 for a private interrupt.
fn word_of(gic: &GuestGic, intid: IntId) -> u32 {
    gic.distributor.spi(intid).map_or(0, |spi| 1 << spi.word())
}
