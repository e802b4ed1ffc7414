// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the GIC that belongs to one vCPU: SGIs and PPIs, the SPIs whose holder it is, and a record of its list
//! registers. This file has the state and the events; `fill` moves interrupts to list registers, `fold` takes them
//! back.

use super::distributor::{Spi, open_groups};
use super::doorbell::RECALL;
use super::rank::{PRIORITY_MASK, Rank};
use super::search::Search;
use super::sgi::SgiRegister;
use super::slot::{Backing, Slot};
use super::{
    GuestGic, ListRegister, MAX_LIST_REGISTERS, PhysicalGic, SPI_WORDS, State, TIMER_PPIS,
    VMCR_EOI_MODE, VcpuIndex, VcpuIndexSet, bits,
};
use crate::sync::atomic::{Ordering, fence};
use spumone_config::types::IntId;

/// The SGIs among the private interrupts.
pub(super) const SGIS: u32 = 0xffff;
/// ICH_VMCR_EL2.VENG0 (IHI 0069, section 12.4.9).
const VMCR_ENABLE_GROUP_0: u64 = 1 << 0;
/// ICH_VMCR_EL2.VENG1.
const VMCR_ENABLE_GROUP_1: u64 = 1 << 1;
/// ICH_VMCR_EL2.VPMR.
const VMCR_PRIORITY_MASK_SHIFT: u32 = 24;
/// How many pending interrupts of a sleeping vCPU are looked at while it is saved for a vCPU of a higher band.
const MAX_SEARCHED: usize = 8;
/// The running priority when nothing is active.
const IDLE_PRIORITY: u8 = 0xff;

/// The GIC of one vCPU. It belongs to the core that has the vCPU's token.
///
/// *Loaded* means: between [`load`](Self::load) and [`unload`](Self::unload), on the core that
/// calls.
pub struct CpuInterface {
    pub(super) index: VcpuIndex,
    /// GICR_IGROUPR0: set for Group 1.
    pub(super) group: u32,
    pub(super) enabled: u32,
    /// Pending latches. SGIs that were rung but not collected are still in the doorbell.
    pub(super) latch: u32,
    /// Active, not in a list register.
    pub(super) active: u32,
    /// Timer PPIs that are active in this core's GIC and wait for delivery. Only while loaded.
    pub(super) fired: u32,
    /// The subset of `active` whose physical PPI must be active as long as the virtual one is.
    pub(super) active_physical: u32,
    pub(super) priority: [u8; 32],
    /// Rank of each interrupt in `active`.
    pub(super) active_rank: [Rank; 32],
    /// SPIs that this vCPU has active and that are in no list register.
    pub(super) held: [u32; SPI_WORDS],
    /// The words of `held` that are not zero, so that a load need not read all of them.
    pub(super) held_words: u32,
    /// The subset of `held` whose physical SPI is active as long as the virtual one is.
    pub(super) held_physical: [u32; SPI_WORDS],
    /// Words of SPIs to search when list registers are filled next; bits as in the doorbell.
    pub(super) words: u32,
    /// How far the core has searched them.
    pub(super) search: Search,
    pub(super) slots: [Slot; MAX_LIST_REGISTERS],
    /// List registers with a record in `slots`.
    pub(super) used: u32,
    /// List registers that were folded: they are not empty in hardware, and their content is invalid.
    pub(super) stale: u32,
    /// The list registers that have [copies](mod@super::copies) with interrupts that are not taken back yet. `slots` has their records.
    pub(super) copied: u32,
    /// Valid where the bit in `copied` is set.
    pub(super) copies: [ListRegister; MAX_LIST_REGISTERS],
    /// SGIs and PPIs among the records.
    pub(super) listed: u32,
    /// The list register of each interrupt in `listed`.
    pub(super) list_register: [u8; 32],
    /// Whether there are pending interrupts for which there was no list register.
    pub(super) pending_overflow: bool,
    /// Whether there are active interrupts for which there was no list register.
    pub(super) active_overflow: bool,
    /// Whether list registers are to be filled before the vCPU runs.
    pub(super) is_unfilled: bool,
    /// How many interrupts in no list register the guest had ended at the last fold and that are still in `active` or `held`.
    pub(super) ended: u8,
    /// The list registers that were used at that fold.
    pub(super) ended_beside: u32,
}

impl CpuInterface {
    /// The GIC of vCPU `index` after power-on.
    pub const fn new(index: VcpuIndex) -> Self {
        Self {
            index,
            group: 0,
            enabled: 0,
            latch: 0,
            active: 0,
            fired: 0,
            active_physical: 0,
            priority: [0; 32],
            active_rank: [Rank(0); 32],
            held: [0; SPI_WORDS],
            held_words: 0,
            held_physical: [0; SPI_WORDS],
            words: 0,
            search: Search::NOTHING,
            slots: [Slot::EMPTY; MAX_LIST_REGISTERS],
            used: 0,
            stale: 0,
            copied: 0,
            copies: [ListRegister::EMPTY; MAX_LIST_REGISTERS],
            listed: 0,
            list_register: [0; 32],
            pending_overflow: false,
            active_overflow: false,
            is_unfilled: false,
            ended: 0,
            ended_beside: 0,
        }
    }

    /// Resets to the state after power-on, when the guest is restarted: see [`GuestGic::reset`]. Only while not loaded.
    pub const fn reset(&mut self) {
        *self = Self::new(self.index);
    }

    /// Which vCPU of the guest this is.
    pub const fn index(&self) -> VcpuIndex {
        self.index
    }

    /// Brings list registers up to date, as after a maintenance interrupt. Loaded only.
    pub fn synchronize(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> VcpuIndexSet {
        let (kick, is_done) = self.fold_unless_interrupted(gic, machine);
        match is_done {
            true => kick.with(self.fill(gic, machine)),
            false => kick.with(self.put_off(machine)),
        }
    }

    /// The doorbell may have been rung: a kick has arrived at this core. Loaded only. Returns the vCPUs whose doorbells were rung.
    pub fn kicked(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> VcpuIndexSet {
        self.collect(gic);
        self.deliver(gic, machine)
    }

    /// The physical timer PPI `ppi` (27 or 30) was acknowledged on this core, its priority dropped. Loaded only.
    /// Returns the vCPUs whose doorbells were rung.
    #[inline(always)]
    pub fn timer_fired(
        &mut self,
        gic: &GuestGic,
        ppi: IntId,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        if self.timer_fired_alone(gic, ppi, machine) {
            return VcpuIndexSet::EMPTY;
        }
        self.timer_fired_late(ppi);
        self.deliver(gic, machine)
    }

    /// As [`timer_fired`](Self::timer_fired) for a vCPU that is about to be unloaded, or
    /// [synchronized](Self::synchronize) if it is not unloaded after all: the interrupt waits until then.
    pub fn timer_fired_late(&mut self, ppi: IntId) {
        self.fired |= 1u32.checked_shl(u32::from(ppi.0)).unwrap_or(0) & TIMER_PPIS;
    }

    /// The fast path of [`timer_fired`](Self::timer_fired), for the most frequent case: the timer's last interrupt was
    /// in a list register, and the guest has deactivated it. Returns whether that was so; if not, nothing is done.
    #[inline(always)]
    pub fn timer_fired_again(&mut self, ppi: IntId, machine: &mut impl PhysicalGic) -> bool {
        match self.last_listed(u32::from(ppi.0), Backing::Hardware, machine) {
            Some((index, lr)) => {
                machine.write_lr(index, lr);
                true
            }
            None => false,
        }
    }

    /// The fast path of [`kicked`](Self::kicked), for the most frequent case: a single SGI was rung, which was pending
    /// in a list register before. Returns whether that was so; if not, nothing is done.
    #[inline(always)]
    pub fn kicked_again(&mut self, gic: &GuestGic, machine: &mut impl PhysicalGic) -> bool {
        let doorbell = gic.doorbell(self.index);
        let Some(sgi) = doorbell.peek().single_sgi() else {
            return false;
        };
        match self.last_listed(sgi, Backing::None, machine) {
            Some((index, lr)) if doorbell.take_single_sgi(sgi) => {
                machine.write_lr(index, lr);
                true
            }
            _ => false,
        }
    }

    /// The list register of an SGI or PPI that became pending there and is pending once more, and the value to write.
    /// `None` if that is not possible: the guest has not deactivated it, and it is not an SGI, or others wait for list
    /// registers.
    #[inline(always)]
    fn last_listed(
        &self,
        bit: u32,
        backing: Backing,
        machine: &impl PhysicalGic,
    ) -> Option<(usize, ListRegister)> {
        if self.listed >> (bit & 31) & 1 == 0 {
            return None;
        }
        let index = usize::from(self.list_register[(bit & 31) as usize]) % MAX_LIST_REGISTERS;
        let slot = &self.slots[index];
        let same = slot.backing == backing
            && slot.latched == (backing == Backing::None)
            && slot.lr.state() == State::Pending;
        if !same {
            None
        } else if machine.empty_lrs() >> index & 1 != 0 {
            // The record is still valid.
            Some((index, slot.lr))
        } else if backing == Backing::None && !self.pending_overflow {
            Some((index, machine.read_lr(index).with_pending()))
        } else {
            None
        }
    }

    /// The physical interrupt behind the guest's SPI `guest` was acknowledged on this core, its priority dropped, while
    /// this vCPU is loaded. If the core is interrupted half way, the SPI is not delivered, and the vCPU's own doorbell is rung. Returns
    /// the vCPUs whose doorbells were rung.
    pub fn spi_arrived(
        &mut self,
        gic: &GuestGic,
        guest: IntId,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        match gic.distributor.spi(guest) {
            Some(spi) => self.deliver_spi(gic, spi, machine),
            None => VcpuIndexSet::EMPTY,
        }
    }

    /// The guest wrote `value` to an SGI register (the access trapped). Loaded only. Returns the vCPUs
    /// whose doorbells were rung. This vCPU is among them only if others are, too: then the SGI for this vCPU is not delivered yet, and the
    /// caller calls [`kicked`](Self::kicked).
    pub fn send_sgi(
        &mut self,
        gic: &GuestGic,
        register: SgiRegister,
        value: u64,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        let kick = gic.send_sgi(self.index, register, value);
        match kick == VcpuIndexSet::of(self.index) {
            true => self.kicked(gic, machine),
            false => kick,
        }
    }

    /// The guest wrote `intid` to ICC_DIR_EL1 (the access trapped, see [`fill`](Self::fill)). Ignored with EOImode = 0, where a write to
    /// EOIR deactivates. Loaded only. Returns the vCPUs whose doorbells were rung, and whether the write is done. If not, the core was
    /// interrupted, and the guest must execute it again.
    pub fn deactivate(
        &mut self,
        gic: &GuestGic,
        intid: IntId,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        if machine.vmcr() & VMCR_EOI_MODE == 0 {
            return (VcpuIndexSet::EMPTY, true);
        }
        let (mut kick, is_done) = self.fold_unless_interrupted(gic, machine);
        if !is_done {
            return (kick.with(self.put_off(machine)), false);
        }
        if intid.is_private() {
            self.clear_active(1 << intid.0);
        } else if let Some(spi) = gic.distributor.spi(intid) {
            kick = kick.with(self.clear_spi_active(gic, spi, machine));
        }
        kick = kick.without(self.index).with(self.fill(gic, machine));
        (kick, true)
    }

    /// Whether an interrupt would be signalled if the vCPU ran now, so that it must wake from WFI.
    ///
    /// For a vCPU that is not loaded. `lines` as [`PhysicalGic::lines`], from its saved timers;
    /// `vmcr` its saved `ICH_VMCR_EL2`; `running` its [`running_priority`]. An interrupt that the
    /// vCPU's own mask or an active interrupt holds back does not count (IHI 0069, section 4.8);
    /// PSTATE does not matter, as for WFI. `is_late` is asked for each interrupt that is looked at: if it says that the search takes too long,
    /// the answer is `true`, which a WFI may always get.
    pub fn has_deliverable(
        &self,
        gic: &GuestGic,
        lines: u32,
        vmcr: u64,
        running: u8,
        mut is_late: impl FnMut() -> bool,
    ) -> bool {
        if self.ended != 0 || self.copied != 0 {
            // What is active is known only when it is filled again.
            return true;
        }
        let mask = ((vmcr >> VMCR_PRIORITY_MASK_SHIFT) as u8).min(running);
        let signalled = |group1: bool, priority: u8| {
            let enable = if group1 {
                VMCR_ENABLE_GROUP_1
            } else {
                VMCR_ENABLE_GROUP_0
            };
            vmcr & enable != 0 && priority < mask
        };
        let rung = gic.doorbell(self.index).peek();
        let pending = self.latch | rung.accepted(self.group) | lines & TIMER_PPIS;
        let private = pending & self.open(gic.distributor.control()) & !self.active;
        // At most 32 times: SGIs and PPIs.
        if bits(private).any(|bit| {
            signalled(self.group >> bit & 1 != 0, self.priority[bit as usize]) || is_late()
        }) {
            return true;
        }
        let distributor = &gic.distributor;
        // Pairs with the fences of vCPUs that change an SPI's state; see `distributor`.
        fence(Ordering::SeqCst);
        bits((self.words | rung.spi_words) & !RECALL)
            // At most 256 times in all: SPIs.
            .flat_map(|word| {
                let deliverable = bits(distributor.deliverable(word as usize));
                deliverable.map(move |bit| Spi::at(word as usize, bit))
            })
            // At most 256 times in all: SPIs.
            .any(|spi| {
                let group = distributor.word_of(spi).group.load(Ordering::Acquire);
                let is_signalled = distributor.is_to_be_delivered_by(spi, self.index)
                    && signalled(group & spi.mask() != 0, distributor.priority(spi));
                is_signalled || is_late()
            })
    }

    /// As [`Self::has_deliverable`], for a vCPU that slept and is saved. The search ends when the core is interrupted. `is_urgent`: a vCPU of
    /// a higher band waits for the core, so at most [`MAX_SEARCHED`] pending interrupts are looked at.
    ///
    /// A vCPU that has masked all of them may be woken for nothing: when it runs next, it executes WFI again.
    pub fn wakes(
        &self,
        gic: &GuestGic,
        lines: u32,
        vmcr: u64,
        running: u8,
        is_urgent: bool,
        is_interrupted: impl Fn() -> bool,
    ) -> bool {
        let mut searched = 0;
        self.has_deliverable(gic, lines, vmcr, running, || {
            searched += 1;
            is_interrupted() || is_urgent && searched >= MAX_SEARCHED
        })
    }

    /// Private interrupts that are enabled, and whose group is enabled.
    pub(super) const fn open(&self, control: u32) -> u32 {
        self.enabled & open_groups(control, self.group)
    }

    /// Moves what was rung from the doorbell to this state.
    pub(super) fn collect(&mut self, gic: &GuestGic) {
        let rung = gic.doorbell(self.index).take();
        self.latch |= rung.accepted(self.group);
        if rung.spi_words != 0 {
            self.words |= rung.spi_words;
            self.search.rung(rung.spi_words);
        }
    }

    pub(super) const fn set_priority(&mut self, intid: u32, priority: u8) {
        self.priority[(intid & 31) as usize] = priority & PRIORITY_MASK;
    }

    /// Deactivates private interrupts. Folded only.
    pub(super) const fn clear_active(&mut self, mask: u32) {
        // The physical interrupt now waits for delivery again; the next fill delivers or deactivates it.
        self.fired |= self.active_physical & mask;
        self.active_physical &= !mask;
        self.active &= !mask;
    }

    /// This vCPU has an SPI active that is in no list register.
    pub(super) const fn hold(&mut self, spi: Spi) {
        self.held[spi.word()] |= spi.mask();
        self.held_words |= 1 << spi.word();
    }

    /// It has this SPI active no longer, or has it in a list register.
    pub(super) const fn end_holding(&mut self, spi: Spi) {
        let word = &mut self.held[spi.word()];
        *word &= !spi.mask();
        if *word == 0 {
            self.held_words &= !(1 << spi.word());
        }
    }

    /// Deactivates an SPI, or requests that from its holder. Folded only. Returns the vCPUs whose doorbells were rung.
    pub(super) fn clear_spi_active(
        &mut self,
        gic: &GuestGic,
        spi: Spi,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        let word = gic.distributor.word_of(spi);
        match gic.distributor.holder(spi) {
            None => VcpuIndexSet::EMPTY,
            Some(holder) if holder == self.index => {
                word.active.fetch_and(!spi.mask(), Ordering::AcqRel);
                self.end_holding(spi);
                if self.held_physical[spi.word()] & spi.mask() != 0 {
                    self.held_physical[spi.word()] &= !spi.mask();
                    if let Some(physical) = gic.distributor.physical(spi) {
                        machine.set_active(physical, false);
                    }
                }
                gic.release(spi)
            }
            Some(holder) => {
                word.drop_active.fetch_or(spi.mask(), Ordering::AcqRel);
                word.active.fetch_and(!spi.mask(), Ordering::AcqRel);
                gic.recall(holder)
            }
        }
    }
}

/// The running priority from the active-priorities registers of a vCPU, `ICH_AP0R0_EL2` and
/// `ICH_AP1R0_EL2`, with 5 bits of preemption (IHI 0069, section 4.8.4): 0xff when nothing is
/// active.
pub const fn running_priority(ap0r0: u32, ap1r0: u32) -> u8 {
    match (ap0r0 | ap1r0).trailing_zeros() {
        32 => IDLE_PRIORITY,
        level => (level as u8) << 3,
    }
}
