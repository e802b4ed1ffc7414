// SPDX-License-Identifier: MIT OR Apache-2.0
//! The SPIs of a guest: what all its vCPUs, on any cores, see and change at the same time.
//!
//! One bit per SPI and property, in words of 32. A change of state is a read-modify-write of one word. Conditions that
//! span several words ("pending, enabled, routed to this vCPU, and without a holder") are made safe by one rule:
//! **write your own part, then a fence, then read the other parts.** An arrival writes *pending* and reads the route; a
//! write to ISENABLER or IROUTER writes that and reads *pending*; a holder that releases an SPI writes *no holder* and
//! reads *pending*; the target that was rung executes a fence and reads all of it. In any order, the last one to write
//! sees what all others wrote, so a deliverable SPI always has a vCPU that delivers it.

use super::rank::{PRIORITY_MASK, Rank};
use super::{MAX_SPIS, PhysicalGic, SPI_WORDS, VcpuIndex, VcpuIndexSet, bits};
use crate::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, Ordering, fence};
use spumone_config::packed;
use spumone_config::types::{IntId, MAX_VCPUS_PER_GUEST};

/// GICD_CTLR.EnableGrp0 (IHI 0069, GICD_CTLR with a single Security state).
pub(super) const ENABLE_GROUP_0: u32 = 1 << 0;
/// GICD_CTLR.EnableGrp1.
pub(super) const ENABLE_GROUP_1: u32 = 1 << 1;
/// The SPI has no holder.
const NO_HOLDER: u8 = 0xff;
/// How often a word is read that keeps changing. Each further read is needed only if a holder has entered EL2 and moved
/// an SPI since the last.
pub(super) const MAX_LOOKS: usize = 16;
/// All SPIs are routed to affinity 0 after a reset.
const RESET_TARGETS: VcpuIndexSet = VcpuIndexSet(1);
/// The SPI is not backed by a physical interrupt.
const UNMAPPED: u16 = 0;

/// An SPI of the guest, counted from INTID 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spi(u8);

impl Spi {
    /// The SPI at a bit of a word; the caller has them from a word of the distributor.
    pub const fn at(word: usize, bit: u32) -> Self {
        Self((word as u8) << 5 | (bit as u8 & 31))
    }

    pub const fn intid(self) -> IntId {
        IntId(self.0 as u16 + IntId::FIRST_SPI.0)
    }

    pub const fn word(self) -> usize {
        (self.0 >> 5) as usize % SPI_WORDS
    }

    pub const fn mask(self) -> u32 {
        1 << (self.0 & 31)
    }

    const fn index(self) -> usize {
        self.0 as usize % MAX_SPIS
    }
}

/// 32 SPIs.
///
/// All words are read with acquire and changed with acquire-release, so that a core that sees a bit sees what was
/// written before it. Order between different words comes from the fences described at the top of this module. `listed`
/// and `drop_*` are requests and records between holder and others.
pub(super) struct Word {
    /// Set: Group 1.
    pub group: AtomicU32,
    pub enabled: AtomicU32,
    /// The pending latch: edges of emulated devices, and ISPENDR.
    pub pending: AtomicU32,
    /// The physical interrupt was acknowledged and waits here, active in the physical GIC.
    pub fired: AtomicU32,
    /// Output of an emulated device is high.
    pub line: AtomicU32,
    /// Active, as of the holder's last fold.
    pub active: AtomicU32,
    /// Set: edge-triggered.
    pub edge: AtomicU32,
    /// Put into a list register as pending; as of the holder's last fold.
    pub listed: AtomicU32,
    /// How often a holder has put pending state back from a list register; see [`Self::pending_seen`].
    pub put_back: AtomicU32,
    /// Another vCPU has cleared the pending state of what the holder has in a list register.
    pub drop_pending: AtomicU32,
    /// Another vCPU has cleared the active state.
    pub drop_active: AtomicU32,
    /// The vCPUs that an SPI of this word has been routed to in this life of the guest, so those it is routed to now, too.
    targets: AtomicU8,
    /// It is backed by a physical interrupt. Constant while vCPUs run.
    mapped: AtomicU32,
}

impl Word {
    constructor! {
        pub fn new() -> Self {
            Self {
                group: AtomicU32::new(0),
                enabled: AtomicU32::new(0),
                pending: AtomicU32::new(0),
                fired: AtomicU32::new(0),
                line: AtomicU32::new(0),
                active: AtomicU32::new(0),
                edge: AtomicU32::new(0),
                listed: AtomicU32::new(0),
                put_back: AtomicU32::new(0),
                drop_pending: AtomicU32::new(0),
                drop_active: AtomicU32::new(0),
                targets: AtomicU8::new(RESET_TARGETS.0),
                mapped: AtomicU32::new(0),
            }
        }
    }

    /// SPIs that are backed by a physical interrupt.
    pub fn mapped(&self) -> u32 {
        self.mapped.load(Ordering::Relaxed)
    }

    /// SPIs that are pending for any reason, without those in list registers.
    pub fn pending_now(&self) -> u32 {
        self.pending.load(Ordering::Acquire)
            | self.fired.load(Ordering::Acquire)
            | self.line.load(Ordering::Acquire) & !self.edge.load(Ordering::Acquire)
    }

    /// SPIs that are pending, including those in list registers as of the last fold.
    ///
    /// State on its way to a list register is set in `listed` before it leaves the latches, and on its way back set in
    /// the latches before it leaves `listed`. A reader of the latches and then of `listed` can miss it only if it is
    /// put back in between, which `put_back` counts.
    pub fn pending_seen(&self) -> u32 {
        let mut seen = 0;
        for _ in 0..MAX_LOOKS {
            let put_back = self.put_back.load(Ordering::Acquire);
            // An SPI that was pending at any moment of the read may be reported.
            seen |= self.pending_now() | self.listed.load(Ordering::Acquire);
            if self.put_back.load(Ordering::Acquire) == put_back {
                break;
            }
        }
        seen
    }

    /// The holder is about to take the pending state of the SPIs in `mask` from the latches into list registers: they
    /// are listed. Voids requests to drop an earlier pending state. A vCPU that has cleared the latches since looks at
    /// `listed` afterwards: the change of the latch orders that after this.
    pub fn list(&self, mask: u32) {
        if self.drop_pending.load(Ordering::Acquire) & mask != 0 {
            self.drop_pending.fetch_and(!mask, Ordering::AcqRel);
        }
        self.listed.fetch_or(mask, Ordering::AcqRel);
    }

    /// The holder takes an SPI from the pending latch into a list register, unless another vCPU has cleared the latch.
    pub fn take_latch(&self, mask: u32) -> bool {
        // Listed first; see `pending_seen`.
        self.list(mask);
        let taken = self.pending.fetch_and(!mask, Ordering::AcqRel) & mask != 0;
        if !taken {
            self.unlist(mask);
        }
        taken
    }

    /// The holder has put the pending state of the SPIs in `mask` back into the latches: they are no longer listed.
    pub fn unlist(&self, mask: u32) {
        self.put_back.fetch_add(1, Ordering::AcqRel);
        self.listed.fetch_and(!mask, Ordering::AcqRel);
    }

    /// SPIs that may have a holder, without those that their holder has just claimed, or is about to release.
    ///
    /// A holder sets one of these words after its claim, before it takes the pending state, and clears the last of them before the
    /// release. An SPI goes from the first to the second, and from the second to the third, by setting the bit of the later one first, so
    /// a reader in this order finds it.
    pub fn may_be_held(&self) -> u32 {
        self.listed.load(Ordering::Acquire)
            | self.active.load(Ordering::Acquire)
            | self.drop_active.load(Ordering::Acquire)
    }

    /// SPIs that are enabled, and whose group is enabled.
    fn open(&self, control: u32) -> u32 {
        self.enabled.load(Ordering::Acquire)
            & open_groups(control, self.group.load(Ordering::Acquire))
    }
}

/// The interrupts whose group GICD_CTLR enables, of a word with these group bits.
pub(super) const fn open_groups(control: u32, group: u32) -> u32 {
    let mut open = 0;
    if control & ENABLE_GROUP_0 != 0 {
        open |= !group;
    }
    if control & ENABLE_GROUP_1 != 0 {
        open |= group;
    }
    open
}

/// Why a claimed SPI was pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    pub latched: bool,
    pub fired: bool,
    pub line: bool,
}

/// The distributor of one guest: GICD_* state of the SPIs.
pub struct Distributor {
    /// EnableGrp0 and EnableGrp1 of GICD_CTLR; a vCPU that sets one rings all vCPUs afterwards.
    control: AtomicU32,
    words: [Word; SPI_WORDS],
    /// One byte each. A priority is an opaque value: relaxed.
    priority: [AtomicU8; MAX_SPIS],
    /// Rank of an SPI that is active. Only the holder uses it, like `active`: relaxed.
    active_rank: [AtomicU8; MAX_SPIS],
    /// Affinity 2.1.0 as the guest wrote it to GICD_IROUTER. Ordered by the fences.
    route: [AtomicU32; MAX_SPIS],
    /// The vCPU that has the SPI in a list register or active. Claimed by compare-exchange with acquire, released with
    /// release order: in between the holder owns the SPI's `active` and `listed`.
    holder: [AtomicU8; MAX_SPIS],
    /// Physical INTID, or 0. Constant while vCPUs run.
    physical: [AtomicU16; MAX_SPIS],
    /// Number of SPIs. Constant while vCPUs run, as is the next field.
    spis: AtomicU16,
    vcpus: AtomicU8,
}

/// How many SPIs are looked up in the machine's GIC before the core looks for interrupts.
const READ_WITHOUT_LOOK: usize = 16;
/// How many SPIs with a holder are looked at for their holders.
const FEW_HELD: u32 = 8;

impl Distributor {
    constructor! {
        pub fn new() -> Self {
            Self {
                control: AtomicU32::new(0),
                words: atomics!(Word::new()),
                priority: atomics!(AtomicU8::new(0)),
                active_rank: atomics!(AtomicU8::new(0)),
                route: atomics!(AtomicU32::new(0)),
                holder: atomics!(AtomicU8::new(NO_HOLDER)),
                physical: atomics!(AtomicU16::new(UNMAPPED)),
                spis: AtomicU16::new(0),
                vcpus: AtomicU8::new(0),
            }
        }
    }

    pub fn configure(&self, spis: u16, vcpus: usize, interrupts: &[packed::Interrupt]) {
        let spis = spis.min(MAX_SPIS as u16) & !31;
        self.spis.store(spis, Ordering::Relaxed);
        let vcpus = vcpus.min(MAX_VCPUS_PER_GUEST);
        self.vcpus.store(vcpus as u8, Ordering::Relaxed);
        for interrupt in interrupts {
            if let Some(spi) = self.spi(interrupt.guest) {
                self.physical[spi.index()].store(interrupt.physical.0, Ordering::Relaxed);
                self.words[spi.word()]
                    .mapped
                    .fetch_or(spi.mask(), Ordering::Relaxed);
            }
        }
    }

    /// Resets what is no SPI's own, and what devices have made pending since [`Self::reset_spis`].
    pub fn reset_rest(&self) {
        self.control.store(0, Ordering::Relaxed);
        for word in &self.words {
            word.line.store(0, Ordering::Relaxed);
            word.pending.store(0, Ordering::Relaxed);
        }
    }

    /// Resets SPIs from `first` on, counted from INTID 32. No core uses them meanwhile, but others may reset other SPIs of their word.
    pub fn reset_spis(&self, first: u16, count: u16, machine: &mut impl PhysicalGic) {
        let spis = (first..first.saturating_add(count).min(self.spis())).map(|spi| Spi(spi as u8));
        // At most 2 times: `RESET_SPIS`.
        for spi in spis {
            if let Some(physical) = self.physical(spi) {
                machine.set_enabled(physical, false);
                machine.set_active(physical, false);
                machine.clear_pending(physical);
            }
            self.priority[spi.index()].store(0, Ordering::Relaxed);
            self.route[spi.index()].store(0, Ordering::Relaxed);
            self.holder[spi.index()].store(NO_HOLDER, Ordering::Relaxed);
        }
        let word = self.word(usize::from(first / 32));
        let mask = u32::MAX
            .checked_shr(u32::from(32 - count.min(32)))
            .unwrap_or(0)
            << (first % 32);
        for state in [
            &word.group,
            &word.enabled,
            &word.pending,
            &word.fired,
            &word.line,
            &word.active,
            &word.edge,
            &word.listed,
            &word.drop_pending,
            &word.drop_active,
        ] {
            state.fetch_and(!mask, Ordering::Relaxed);
        }
        word.targets.store(RESET_TARGETS.0, Ordering::Relaxed);
    }

    pub fn spis(&self) -> u16 {
        self.spis.load(Ordering::Relaxed)
    }

    pub fn vcpus(&self) -> usize {
        usize::from(self.vcpus.load(Ordering::Relaxed))
    }

    /// The SPI with this INTID, if the guest has it.
    pub fn spi(&self, intid: IntId) -> Option<Spi> {
        let number = intid.0.checked_sub(IntId::FIRST_SPI.0)?;
        (number < self.spis()).then_some(Spi(number as u8))
    }

    /// SPIs 32 × n + 32 and up.
    pub fn word(&self, n: usize) -> &Word {
        &self.words[n % SPI_WORDS]
    }

    pub fn word_of(&self, spi: Spi) -> &Word {
        &self.words[spi.word()]
    }

    pub fn control(&self) -> u32 {
        self.control.load(Ordering::Acquire)
    }

    /// Writes GICD_CTLR. Returns whether that changes anything.
    pub fn set_control(&self, value: u32) -> bool {
        let value = value & (ENABLE_GROUP_0 | ENABLE_GROUP_1);
        self.control.swap(value, Ordering::AcqRel) != value
    }

    pub fn physical(&self, spi: Spi) -> Option<IntId> {
        match self.physical[spi.index()].load(Ordering::Relaxed) {
            UNMAPPED => None,
            physical => Some(IntId(physical)),
        }
    }

    pub fn priority(&self, spi: Spi) -> u8 {
        self.priority[spi.index()].load(Ordering::Relaxed)
    }

    /// Priority and group now.
    pub fn rank(&self, spi: Spi) -> Rank {
        let group = self.word_of(spi).group.load(Ordering::Acquire);
        Rank::new(self.priority(spi), group & spi.mask() != 0)
    }

    /// Priority and group when it was acknowledged.
    pub fn active_rank(&self, spi: Spi) -> Rank {
        Rank(self.active_rank[spi.index()].load(Ordering::Relaxed))
    }

    pub fn set_active_rank(&self, spi: Spi, rank: Rank) {
        self.active_rank[spi.index()].store(rank.0, Ordering::Relaxed);
    }

    pub fn set_priority(&self, spi: Spi, priority: u8) {
        self.priority[spi.index()].store(priority & PRIORITY_MASK, Ordering::Relaxed);
    }

    /// Affinity 2.1.0 that the SPI is routed to.
    pub fn affinity(&self, spi: Spi) -> u32 {
        self.route[spi.index()].load(Ordering::Relaxed)
    }

    pub fn set_affinity(&self, spi: Spi, affinity: u32) {
        if let Some(vcpu) = self.vcpu_of(affinity) {
            // A vCPU that makes the SPI pending reads only this word if there are many. The caller's fence comes after both.
            let target = VcpuIndexSet::of(vcpu).0;
            let targets = &self.word_of(spi).targets;
            targets.fetch_or(target, Ordering::Relaxed);
        }
        self.route[spi.index()].store(affinity, Ordering::Relaxed);
    }

    /// The vCPU that the SPI is routed to; none if no vCPU has that affinity.
    pub fn route(&self, spi: Spi) -> Option<VcpuIndex> {
        self.vcpu_of(self.affinity(spi))
    }

    fn vcpu_of(&self, affinity: u32) -> Option<VcpuIndex> {
        ((affinity as usize) < self.vcpus()).then_some(VcpuIndex(affinity as u8))
    }

    /// The vCPUs that any SPI of a word is routed to, and maybe others. Ordered by the fences, as routes are.
    pub fn targets(&self, word: usize) -> VcpuIndexSet {
        VcpuIndexSet(self.word(word).targets.load(Ordering::Relaxed))
    }

    pub fn holder(&self, spi: Spi) -> Option<VcpuIndex> {
        match self.holder[spi.index()].load(Ordering::Acquire) {
            NO_HOLDER => None,
            vcpu => Some(VcpuIndex(vcpu)),
        }
    }

    /// Makes `vcpu` the holder, if there is none.
    pub fn claim(&self, spi: Spi, vcpu: VcpuIndex) -> bool {
        let claimed = self.holder[spi.index()]
            .compare_exchange(NO_HOLDER, vcpu.0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if claimed {
            // A request to an earlier holder is void, since it has released the SPI.
            let request = &self.word_of(spi).drop_active;
            if request.load(Ordering::Relaxed) & spi.mask() != 0 {
                request.fetch_and(!spi.mask(), Ordering::AcqRel);
            }
        }
        claimed
    }

    /// To be called only by `GuestGic::release`, which then looks whether the SPI has become pending.
    pub(super) fn clear_holder(&self, spi: Spi) {
        self.holder[spi.index()].store(NO_HOLDER, Ordering::Release);
    }

    /// The physical interrupt was acknowledged.
    pub fn fire(&self, spi: Spi) {
        self.word_of(spi)
            .fired
            .fetch_or(spi.mask(), Ordering::AcqRel);
    }

    /// An emulated device's output; `true` if it changed.
    pub fn set_level(&self, spi: Spi, high: bool) -> bool {
        let (word, mask) = (self.word_of(spi), spi.mask());
        if high {
            let rose = word.line.fetch_or(mask, Ordering::AcqRel) & mask == 0;
            if rose && word.edge.load(Ordering::Acquire) & mask != 0 {
                word.pending.fetch_or(mask, Ordering::AcqRel);
            }
            rose
        } else {
            word.line.fetch_and(!mask, Ordering::AcqRel) & mask != 0
        }
    }

    pub fn is_pending(&self, spi: Spi) -> bool {
        self.word_of(spi).pending_now() & spi.mask() != 0
    }

    /// SPIs of a word that are pending and enabled, with any holder and any route.
    pub fn deliverable(&self, word: usize) -> u32 {
        let word = self.word(word);
        let pending = word.pending_now();
        if pending == 0 {
            return 0;
        }
        pending & word.open(self.control())
    }

    /// SPIs of a word that `vcpu` is to deliver. An SPI with a holder is not among them: the holder rings when it
    /// releases the SPI. If `vcpu` itself is the holder, the SPI is active, and `place_active` sees that it is pending
    /// as well.
    pub fn pending_for(&self, vcpu: VcpuIndex, word: usize) -> impl Iterator<Item = Spi> {
        bits(self.deliverable(word))
            .map(move |bit| Spi::at(word, bit))
            .filter(move |&spi| self.is_to_be_delivered_by(spi, vcpu))
    }

    /// Whether `vcpu` is to deliver this SPI of [`Self::deliverable`].
    pub fn is_to_be_delivered_by(&self, spi: Spi, vcpu: VcpuIndex) -> bool {
        self.route(spi) == Some(vcpu) && self.holder(spi).is_none()
    }

    /// The vCPUs that hold these SPIs of a word, for a recall. If many of the SPIs have a holder, these are all vCPUs of the guest: a recall
    /// of a vCPU that holds none does no harm, and to look at each SPI would take long.
    pub fn holders(&self, n: usize, spis: u32) -> VcpuIndexSet {
        let held = spis & self.word(n).may_be_held();
        if held.count_ones() > FEW_HELD {
            return VcpuIndexSet::first(self.vcpus());
        }
        let mut holders = VcpuIndexSet::EMPTY;
        // At most 8 times: few.
        for bit in bits(held) {
            if let Some(holder) = self.holder(Spi::at(n, bit)) {
                holders.insert(holder);
            }
        }
        holders
    }

    /// Whether `vcpu` is to deliver this SPI now.
    pub fn is_deliverable_by(&self, spi: Spi, vcpu: VcpuIndex) -> bool {
        self.deliverable(spi.word()) & spi.mask() != 0 && self.is_to_be_delivered_by(spi, vcpu)
    }

    /// Whether the SPI and its group are enabled.
    pub fn is_open(&self, spi: Spi) -> bool {
        self.word_of(spi).open(self.control()) & spi.mask() != 0
    }

    /// The holder clears the pending state of the SPI, and gets its cause; `None` if the SPI is no longer pending.
    pub fn take(&self, spi: Spi) -> Option<Cause> {
        let (word, mask) = (self.word_of(spi), spi.mask());
        let taken = |state: &AtomicU32| {
            state.load(Ordering::Acquire) & mask != 0
                && state.fetch_and(!mask, Ordering::AcqRel) & mask != 0
        };
        let cause = Cause {
            latched: taken(&word.pending),
            fired: taken(&word.fired),
            line: word.line.load(Ordering::Acquire) & !word.edge.load(Ordering::Acquire) & mask
                != 0,
        };
        (cause.latched || cause.fired || cause.line).then_some(cause)
    }

    /// Enables or disables the physical interrupts that back some SPIs of a word, as the SPIs are enabled now. Two
    /// vCPUs may change the same SPI at once; each reads the state again after it has acted, so the last action is by a
    /// vCPU that saw the last change.
    pub fn enable_physical(&self, n: usize, changed: u32, machine: &mut impl PhysicalGic) {
        let word = self.word(n);
        // At most 4 times: a part of a word.
        for bit in bits(changed & word.mapped()) {
            let spi = Spi::at(n, bit);
            let Some(physical) = self.physical(spi) else {
                continue;
            };
            let enabled = || word.enabled.load(Ordering::Acquire) & spi.mask() != 0;
            let mut wanted = enabled();
            // At most one round is needed for each vCPU that can interfere.
            for _ in 0..MAX_VCPUS_PER_GUEST {
                machine.set_enabled(physical, wanted);
                fence(Ordering::SeqCst);
                if enabled() == wanted {
                    break;
                }
                wanted = !wanted;
            }
        }
    }

    /// Of word `n`, which stands for 32 SPIs, those whose physical interrupts are pending. `None`: the core was interrupted before it had read all of them.
    pub fn physical_pending(&self, n: usize, machine: &impl PhysicalGic) -> Option<u32> {
        // Neighbours here are most often neighbours there: each word of the machine's GIC is read once.
        let (mut read, mut value) = (usize::MAX, 0);
        let mut pending = 0;
        // At most 32 times: SPIs of a word.
        for (number, bit) in bits(self.word(n).mapped()).enumerate() {
            let Some(physical) = self.physical(Spi::at(n, bit)) else {
                continue;
            };
            if number == READ_WITHOUT_LOOK && machine.is_interrupted() {
                return None;
            }
            let word = physical.index() / 32;
            if word != read {
                (read, value) = (word, machine.pending(word));
            }
            pending |= (value >> (physical.0 % 32) & 1) << bit;
        }
        Some(pending)
    }

    /// Routes the physical interrupt that backs an SPI to where the SPI is routed now. Two vCPUs may do this at once,
    /// as in [`enable_physical`](Self::enable_physical).
    pub fn route_physical(&self, spi: Spi, machine: &mut impl PhysicalGic) {
        let Some(physical) = self.physical(spi) else {
            return;
        };
        let mut wanted = self.route(spi);
        for _ in 0..MAX_VCPUS_PER_GUEST {
            if let Some(vcpu) = wanted {
                machine.set_route(physical, vcpu);
            }
            fence(Ordering::SeqCst);
            let now = self.route(spi);
            if now == wanted {
                break;
            }
            wanted = now;
        }
    }
}
