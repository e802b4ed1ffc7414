// SPDX-License-Identifier: MIT OR Apache-2.0
//! The distributor's registers (IHI 0069, section 12.9), with affinity routing and a single
//! Security state fixed (GICD_CTLR.ARE = DS = 1). So fields of SGIs and PPIs, GICD_ITARGETSR,
//! GICD_SGIR, GICD_IGRPMODR and GICD_NSACR are RAZ/WI.

use super::cpu_interface::CpuInterface;
use super::distributor::{MAX_LOOKS, Spi, Word};
use super::part::{are_few, part_of};
use super::rank::Rank;
use super::register::{Bank, InterruptRegister, Part};
use super::{GuestGic, PhysicalGic, VcpuIndex, VcpuIndexSet, bits};
use crate::sync::atomic::{Ordering, fence};
use spumone_config::types::IntId;

/// `GICD_IROUTER<n>`: Aff2, Aff1, Aff0. Aff3 (GICD_TYPER.A3V = 0) and Interrupt_Routing_Mode
/// (GICD_TYPER.No1N = 1) are RES0.
const AFFINITY_MASK: u64 = 0xff_ffff;
/// Interrupts in one word of GICD_ICFGR.
const CONFIGS_PER_WORD: usize = 16;

impl GuestGic {
    /// The word of SPIs in the distributor that register `n` of a bank accesses.
    fn shared_word(&self, n: usize) -> Option<usize> {
        let word = n.checked_sub(1)?;
        (word < usize::from(self.distributor.spis() / 32)).then_some(word)
    }

    /// Reads a register of SPIs. Pending and active state is exact for SPIs without another holder. `None`: the core was interrupted.
    pub(super) fn read_shared(
        &self,
        register: InterruptRegister,
        machine: &impl PhysicalGic,
    ) -> Option<u32> {
        let distributor = &self.distributor;
        Some(match register {
            InterruptRegister::Bank(bank, n) => {
                let Some(word) = self.shared_word(n) else {
                    return Some(0);
                };
                let number = word;
                let word = distributor.word(number);
                match bank {
                    Bank::Group => word.group.load(Ordering::Acquire),
                    Bank::SetEnable | Bank::ClearEnable => word.enabled.load(Ordering::Acquire),
                    Bank::SetPending | Bank::ClearPending => {
                        // A disabled or active one may be pending only in the physical GIC. That is read first,
                        // because from there the state moves to the latches.
                        distributor.physical_pending(number, machine)? | word.pending_seen()
                    }
                    Bank::SetActive | Bank::ClearActive => word.active.load(Ordering::Acquire),
                }
            }
            InterruptRegister::Priority { first, count } => {
                // At most 4 times: priorities in a word.
                (0..count).rev().fold(0, |value, offset| {
                    let spi = distributor.spi(IntId(first.0 + offset));
                    value << 8 | spi.map_or(0, |spi| u32::from(distributor.priority(spi)))
                })
            }
            InterruptRegister::Config(n) => match self.shared_word(n / 2) {
                Some(word) => {
                    let edge = distributor.word(word).edge.load(Ordering::Acquire);
                    spread(edge >> (n % 2 * CONFIGS_PER_WORD))
                }
                None => 0,
            },
        })
    }

    /// After a read of pending or active state: recalls the SPIs from other holders, so that the next read is exact.
    pub(super) fn refresh_shared(
        &self,
        register: InterruptRegister,
        reader: VcpuIndex,
    ) -> VcpuIndexSet {
        let InterruptRegister::Bank(_, n) = register else {
            return VcpuIndexSet::EMPTY;
        };
        match self.shared_word(n) {
            Some(word) => self.ring_holders(word, u32::MAX, reader),
            None => VcpuIndexSet::EMPTY,
        }
    }

    /// Rings the holders of these SPIs, except `me`.
    fn ring_holders(&self, word: usize, spis: u32, me: VcpuIndex) -> VcpuIndexSet {
        let holders = self.distributor.holders(word, spis);
        self.recall_each(holders.without(me))
    }

    /// Recalls the SPIs that these vCPUs hold, and returns the vCPUs.
    pub(super) fn recall_each(&self, holders: VcpuIndexSet) -> VcpuIndexSet {
        // At most 8 times: vCPUs of the guest.
        for holder in holders.iter() {
            let _ = self.recall(holder);
        }
        holders
    }

    /// Rings the vCPUs that these SPIs are routed to, if they are pending.
    fn ring_pending(&self, word: usize, spis: u32) -> VcpuIndexSet {
        // The caller's change is written before *pending* is read; see `distributor`.
        fence(Ordering::SeqCst);
        match spis & self.distributor.word(word).pending_now() {
            0 => VcpuIndexSet::EMPTY,
            pending => self.ring_each(word, pending),
        }
    }

    /// What rings after a change of these SPIs that concerns both their holders and, if they are pending, the vCPUs that they are routed to.
    /// `me` folds in any case. Many pending SPIs may concern all vCPUs, so each is rung once.
    fn ring_changed(&self, word: usize, spis: u32, me: VcpuIndex) -> VcpuIndexSet {
        // The caller's change is written before *pending* is read; see `distributor`.
        fence(Ordering::SeqCst);
        let distributor = &self.distributor;
        let holders = distributor.holders(word, spis).without(me);
        let pending = spis & distributor.word(word).pending_now();
        match are_few(pending) {
            true => self
                .ring_each(word, pending)
                .with(self.recall_each(holders)),
            false => self.ring_many(word, holders),
        }
    }

    pub(super) fn write_control(&self, value: u32) -> VcpuIndexSet {
        if !self.distributor.set_control(value) {
            return VcpuIndexSet::EMPTY;
        }
        fence(Ordering::SeqCst);
        let all = VcpuIndexSet::first(self.vcpus());
        // At most 8 times: vCPUs of the guest.
        for vcpu in all.iter() {
            self.doorbell(vcpu)
                .ring_spis((1 << (self.distributor.spis() / 32)) - 1);
        }
        all
    }

    pub(super) fn read_route(&self, intid: IntId) -> u64 {
        self.distributor
            .spi(intid)
            .map_or(0, |spi| u64::from(self.distributor.affinity(spi)))
    }

    pub(super) fn write_route(
        &self,
        intid: IntId,
        part: Part,
        value: u64,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        let Some(spi) = self.distributor.spi(intid) else {
            return VcpuIndexSet::EMPTY;
        };
        if part == Part::High {
            return VcpuIndexSet::EMPTY;
        }
        self.distributor
            .set_affinity(spi, (value & AFFINITY_MASK) as u32);
        self.distributor.route_physical(spi, machine);
        // If it is in another vCPU's list register, that vCPU folds it and then rings the new target.
        let moved = match self.distributor.holder(spi) {
            Some(holder) => self.recall(holder),
            None => VcpuIndexSet::EMPTY,
        };
        moved.with(self.ring_pending(spi.word(), spi.mask()))
    }
}

impl CpuInterface {
    /// Writes a register of SPIs. Folded only. Returns the vCPUs whose doorbells were rung, and whether all of the write is done: see
    /// [`mmio_write`](Self::mmio_write).
    pub(super) fn write_shared(
        &mut self,
        gic: &GuestGic,
        register: InterruptRegister,
        value: u32,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        match register {
            InterruptRegister::Bank(bank, n) => match gic.shared_word(n) {
                Some(word) => self.write_bank(gic, bank, word, value, machine),
                None => (VcpuIndexSet::EMPTY, true),
            },
            _ => (self.write_fields(gic, register, value), true),
        }
    }

    /// Writes a register with fields of several bits.
    fn write_fields(
        &self,
        gic: &GuestGic,
        register: InterruptRegister,
        value: u32,
    ) -> VcpuIndexSet {
        let distributor = &gic.distributor;
        match register {
            InterruptRegister::Bank(..) => VcpuIndexSet::EMPTY,
            InterruptRegister::Priority { first, count } => {
                // All are in one word, because an access is aligned to its size.
                let (mut word, mut spis) = (0, 0);
                // At most 4 times: priorities in a word.
                for offset in 0..count {
                    if let Some(spi) = distributor.spi(IntId(first.0 + offset)) {
                        distributor.set_priority(spi, (value >> (8 * offset)) as u8);
                        word = spi.word();
                        spis |= spi.mask();
                    }
                }
                // The order of interrupts in list registers, and of those that wait for one, may be different now.
                gic.ring_changed(word, spis, self.index)
            }
            InterruptRegister::Config(n) => {
                let Some(word) = gic.shared_word(n / 2) else {
                    return VcpuIndexSet::EMPTY;
                };
                let shift = n % 2 * CONFIGS_PER_WORD;
                let edge = gather(value) << shift;
                let field = 0xffff << shift;
                let state = distributor.word(word);
                let old = state.edge.fetch_or(edge, Ordering::AcqRel);
                state.edge.fetch_and(edge | !field, Ordering::AcqRel);
                // A high level now makes an SPI pending, or no longer does.
                let changed = (old ^ edge) & field;
                gic.ring_changed(word, changed, self.index)
            }
        }
    }

    /// Writes a register with a bit for each SPI. Work for each SPI with a device, or active, is done in parts of
    /// [`PART`](super::part::PART) SPIs; if the core is interrupted in between, the rest remains.
    fn write_bank(
        &mut self,
        gic: &GuestGic,
        bank: Bank,
        n: usize,
        value: u32,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let word = gic.distributor.word(n);
        let mut rest = match bank {
            Bank::Group => {
                let old = word.group.swap(value, Ordering::AcqRel);
                return (gic.ring_changed(n, old ^ value, self.index), true);
            }
            Bank::SetPending => {
                word.pending.fetch_or(value, Ordering::AcqRel);
                return (gic.ring_pending(n, value), true);
            }
            Bank::ClearPending => return self.clear_pending(gic, n, value, machine),
            Bank::SetEnable => value & !word.enabled.load(Ordering::Acquire),
            Bank::ClearEnable => value & word.enabled.load(Ordering::Acquire),
            Bank::SetActive => value,
            Bank::ClearActive => value & word.may_be_held(),
        };
        let mut kick = VcpuIndexSet::EMPTY;
        while rest != 0 {
            let part = match bank {
                Bank::SetEnable | Bank::ClearEnable => part_of(rest, word.mapped()),
                // Each is released, which takes as long as a part of other registers.
                Bank::ClearActive => rest & rest.wrapping_neg(),
                _ => part_of(rest, u32::MAX),
            };
            rest &= !part;
            kick = kick.with(match bank {
                Bank::SetEnable => self.set_enabled(gic, n, part, true, machine),
                Bank::ClearEnable => self.set_enabled(gic, n, part, false, machine),
                Bank::SetActive => self.make_active(gic, n, part),
                // This part is one SPI.
                _ => self.clear_spi_active(gic, Spi::at(n, part.trailing_zeros()), machine),
            });
            if machine.is_interrupted() {
                return (kick, rest == 0);
            }
        }
        (kick, true)
    }

    fn set_enabled(
        &self,
        gic: &GuestGic,
        n: usize,
        spis: u32,
        enabled: bool,
        machine: &mut impl PhysicalGic,
    ) -> VcpuIndexSet {
        let word = gic.distributor.word(n);
        let changed = match enabled {
            true => spis & !word.enabled.fetch_or(spis, Ordering::AcqRel),
            false => spis & word.enabled.fetch_and(!spis, Ordering::AcqRel),
        };
        gic.distributor.enable_physical(n, changed, machine);
        match enabled {
            // The holder may have it active in a list register, and pending only in the latches.
            true => gic.ring_pending(n, changed),
            false => {
                let listed = word.listed.load(Ordering::Acquire);
                gic.ring_holders(n, changed & listed, self.index)
            }
        }
    }

    fn make_active(&mut self, gic: &GuestGic, n: usize, spis: u32) -> VcpuIndexSet {
        let distributor = &gic.distributor;
        // At most 4 times: a part of a word.
        for bit in bits(spis) {
            let spi = Spi::at(n, bit);
            if distributor.claim(spi, self.index) {
                distributor.set_active_rank(spi, Rank::NEVER_ACKNOWLEDGED);
                distributor
                    .word(n)
                    .active
                    .fetch_or(spi.mask(), Ordering::AcqRel);
                self.hold(spi);
            }
        }
        VcpuIndexSet::EMPTY
    }

    fn clear_pending(
        &mut self,
        gic: &GuestGic,
        n: usize,
        value: u32,
        machine: &mut impl PhysicalGic,
    ) -> (VcpuIndexSet, bool) {
        let word = gic.distributor.word(n);
        let mut holders = VcpuIndexSet::EMPTY;
        // A request makes a holder drop what it has pending in a list register. It comes before the latches are cleared
        // (see `fold_spi`), and again for what is listed afterwards, because listing voids requests (`Word::list`).
        let mut request = |spis| {
            // Folded, this vCPU has nothing listed itself.
            let listed = spis & word.listed.load(Ordering::Acquire);
            word.drop_pending.fetch_or(listed, Ordering::AcqRel);
            holders = holders.with(gic.distributor.holders(n, listed));
        };
        request(value);
        let mut is_done = !machine.is_interrupted();
        let mut spis = value;
        for _ in 0..MAX_LOOKS {
            let put_back = word.put_back.load(Ordering::Acquire);
            is_done = is_done && self.clear_latches(gic, n, word, spis, machine);
            if !is_done {
                break;
            }
            request(value);
            if word.put_back.load(Ordering::Acquire) == put_back {
                break;
            }
            is_done = !machine.is_interrupted();
            // A holder may have taken an SPI from the latches before, and put it back into them after.
            spis = value & word.pending_now();
        }
        (gic.recall_each(holders.without(self.index)), is_done)
    }

    /// Clears pending state outside list registers. Returns whether all of it was cleared, or the core was interrupted in between.
    fn clear_latches(
        &self,
        gic: &GuestGic,
        n: usize,
        word: &Word,
        value: u32,
        machine: &mut impl PhysicalGic,
    ) -> bool {
        word.pending.fetch_and(!value, Ordering::AcqRel);
        let mut rest = value & word.mapped();
        while rest != 0 {
            let part = part_of(rest, u32::MAX);
            rest &= !part;
            let fired = word.fired.fetch_and(!part, Ordering::AcqRel);
            // At most 4 times in all: a part of a word.
            for bit in bits(part) {
                let Some(physical) = gic.distributor.physical(Spi::at(n, bit)) else {
                    continue;
                };
                machine.clear_pending(physical);
                if fired >> bit & 1 != 0 {
                    // It was not delivered, so no EOI of the guest will deactivate it.
                    machine.set_active(physical, false);
                }
            }
            if rest != 0 && machine.is_interrupted() {
                return false;
            }
        }
        true
    }
}

/// GICD_ICFGR from 16 edge bits: each to the upper bit of its two-bit field.
fn spread(edge: u32) -> u32 {
    // Halves move apart, then quarters, and so on, until each bit is alone in its field.
    let bytes = (edge & 0xffff | edge << 8) & 0x00ff_00ff;
    let nibbles = (bytes | bytes << 4) & 0x0f0f_0f0f;
    let pairs = (nibbles | nibbles << 2) & 0x3333_3333;
    ((pairs | pairs << 1) & 0x5555_5555) << 1
}

/// The edge bits in a value of GICD_ICFGR.
fn gather(value: u32) -> u32 {
    // As `spread`, in the other direction.
    let bits = value >> 1 & 0x5555_5555;
    let pairs = (bits | bits >> 1) & 0x3333_3333;
    let nibbles = (pairs | pairs >> 2) & 0x0f0f_0f0f;
    let bytes = (nibbles | nibbles >> 4) & 0x00ff_00ff;
    (bytes | bytes >> 8) & 0xffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_edge_bit_is_the_upper_bit_of_a_field() {
        for edge in 0..=0xffff {
            let fields = bits(edge).fold(0, |value, bit| value | 2 << (2 * bit));
            assert_eq!(spread(edge), fields);
            assert_eq!(spread(edge | 0xffff_0000), fields);
            // The lower bits of fields are RES0.
            assert_eq!(gather(fields | 0x5555_5555), edge);
        }
    }
}
