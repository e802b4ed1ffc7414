// SPDX-License-Identifier: MIT OR Apache-2.0
//! The virtual GICv3 of a guest: its registers, and which interrupts are in the list registers of the core that runs a
//! vCPU.
//!
//! # Ownership
//!
//! * [`GuestGic`] is one per guest and shared by the cores that run its vCPUs. It has only atomics: the distributor
//!   (SPIs) and one [`Doorbell`] per vCPU.
//! * [`CpuInterface`] is one per vCPU and belongs to the core that has the vCPU's token: SGIs, PPIs, and a
//!   record of the list registers. It is used through `&mut`.
//! * [`PhysicalGic`] is the machine below: list registers of this core, timer outputs, and the state of passed-through
//!   interrupts in the real GIC. The hypervisor implements it with system registers, tests with a simulated core.
//!
//! # The life of an interrupt
//!
//! Between two calls of [`CpuInterface::fold`] and [`CpuInterface::fill`] all state is in software, exact, in one
//! place: private interrupts in the [`CpuInterface`], SPIs in the [`GuestGic`]. *Fill* moves the interrupts of the
//! highest priority to list registers, *fold* takes their state back. An SPI in a list register, or active, has one
//! vCPU as its *holder*; only the holder delivers it. One thing is found out late: interrupts in no list register that the guest has
//! ended are counted by the fold, and deactivated by the next fill, access or unload.
//!
//! A vCPU that makes an interrupt pending for another vCPU writes the state, rings that vCPU's doorbell and kicks its
//! core. Each function that may do so returns the [`VcpuIndexSet`] to kick; the doorbells have been rung by then. A kick has
//! no content, so it may be early, late or superfluous.
//!
//! # Physical interrupts
//!
//! The hypervisor acknowledges a physical interrupt and drops its priority (EOImode = 1), so it stays active and cannot
//! fire again. Such an interrupt is *fired* here until it goes to a list register with HW = 1, where the guest's own
//! EOI deactivates it (IHI 0069, section 6.4.1). If it is dropped instead (pending state cleared by the guest, timer
//! output low again), it is deactivated through [`PhysicalGic::set_active`]. A list register with HW = 1 never is
//! pending and active at once (IHI 0069, `ICH_LR<n>_EL2`); where the guest makes it so, HW = 0 is used and the physical
//! interrupt is deactivated when the guest has deactivated the virtual one.
//!
//! # What the hypervisor calls
//!
//! | event | call |
//! | --- | --- |
//! | a core has claimed a vCPU's token | `gic.doorbell(index).settle(pcpu)`, first of all |
//! | a vCPU is loaded, its timers are in the hardware | [`CpuInterface::load`] |
//! | it is switched out | [`CpuInterface::unload`], then save the timers and ICH_VMCR, ICH_AP*R; before that, if a vCPU of a higher band has the core next, [`CpuInterface::copy_lists`] |
//! | physical timer PPI acknowledged, priority dropped | [`CpuInterface::timer_fired`] |
//! | passed-through SPI, a vCPU of its guest is loaded here | [`CpuInterface::spi_arrived`], else [`GuestGic::spi_arrived`] |
//! | the kick SGI | [`CpuInterface::kicked`] if the vCPU is loaded; else the vCPU is woken, which is always correct |
//! | timer or kick, the fast path | [`CpuInterface::timer_fired_again`], [`CpuInterface::kicked_again`] first, if the guest's devices have nothing to do |
//! | the guest waits for an interrupt | [`CpuInterface::is_quiet`] first |
//! | maintenance interrupt | [`CpuInterface::synchronize`] |
//! | trapped ICC_SGI*R, ICC_DIR | [`CpuInterface::send_sgi`], [`CpuInterface::deactivate`] |
//! | load or store in a GIC frame | [`CpuInterface::mmio_read`], [`CpuInterface::mmio_write`]; then [`CpuInterface::synchronize`] if [`CpuInterface::is_unfilled`] |
//! | output of the virtual UART | [`GuestGic::set_level`] |
//!
//! For each vCPU of a returned [`VcpuIndexSet`]: `gic.doorbell(vcpu).location()` is the core to kick. If that is the calling
//! core, it does at once what it would do after the kick. At start the list registers of every core are to be cleared
//! once. PSCI CPU_ON and CPU_OFF do not change a [`CpuInterface`], because the redistributor is not part of the core;
//! only ICH_VMCR and ICH_AP*R are reset.
//!
//! # Limits
//!
//! * SGIs and PPIs in the redistributor of *another* vCPU are RAZ/WI: their state belongs to
//!   another core. TYPER, IIDR, WAKER and the identification registers of all can be read.
//! * An SPI in the list registers of another, running vCPU reads as pending or active as that vCPU's last fold found
//!   it; the read makes that vCPU fold, so a loop of reads sees the present state. Changes to such an SPI take effect
//!   when that core has taken the kick, not before the write completes, and ISACTIVER for it is ignored.
//! * If a vCPU is preempted while it has an SPI active, and another vCPU deactivates the SPI (ICACTIVER, DIR), the SPI
//!   is delivered again only when the first vCPU has been loaded again.
//! * After a vCPU of a higher band has taken the core, the interrupts of the vCPU that was loaded may be in [copies](mod@copies) of its
//!   list registers. Until it has been loaded again, other vCPUs see its SPIs as if it ran, and an SPI that the guest routes to another
//!   vCPU is not delivered there.
//! * A passed-through level interrupt whose device lowers its output before the guest has acknowledged it
//!   is delivered nevertheless. So is a timer's, until the guest's next exit.
//! * Of a passed-through edge interrupt, a second edge before the guest has acknowledged the first
//!   is delivered too, not merged with it.
//! * A store to ISENABLER that enables more than four SPIs with a device, or to ICACTIVER that deactivates more than four, is not one
//!   access: the guest may take interrupts before all of it is done, and what their handlers do to these SPIs may be undone by the rest.
//! * If a vCPU ends an interrupt that is in no list register and turns itself off, or is preempted, just then, another core may get that
//!   SPI only when the vCPU has been loaded again.
//! * No LPIs, no message-based SPIs, no 1-of-N routing, no extended SPI or PPI ranges.
//! * `GICR_WAKER.ProcessorSleep` is stored, but does not hold interrupts back.
//! * PPIs are level-sensitive, `GICR_ICFGR1` is read-only.

mod copies;
mod cpu_interface;
mod delivery;
mod distributor;
mod doorbell;
mod fill;
mod fold;
mod guest_gic;
mod list_register;
mod load;
mod mmio;
mod mmio_distributor;
mod mmio_redistributor;
mod part;
mod place;
mod rank;
mod register;
mod search;
mod sgi;
mod slot;

use crate::bits::bits;
pub use cpu_interface::{CpuInterface, running_priority};
pub use doorbell::Doorbell;
pub use guest_gic::GuestGic;
pub use list_register::{ListRegister, State};
pub use register::Region;
pub use sgi::SgiRegister;

use spumone_config::gic::{PHYSICAL_TIMER, VIRTUAL_TIMER};
use spumone_config::types::{IntId, MAX_VCPUS_PER_GUEST};

/// The largest number of SPIs of a guest. Small under loom, which explores every order of accesses.
pub const MAX_SPIS: usize = if cfg!(loom) { 32 } else { 256 };
/// Words of 32 SPIs.
pub const SPI_WORDS: usize = MAX_SPIS / 32;
/// The largest number of list registers of a core (ICH_VTR_EL2.ListRegs).
pub const MAX_LIST_REGISTERS: usize = 16;
/// The PPIs that are backed by the core's own PPIs, as a bitmap.
pub const TIMER_PPIS: u32 = 1 << VIRTUAL_TIMER.0 | 1 << PHYSICAL_TIMER.0;

/// ICH_VMCR_EL2.VEOIM: EOI only drops the priority, DIR deactivates (IHI 0069, section 12.4.9).
const VMCR_EOI_MODE: u64 = 1 << 9;

/// The number of a vCPU within its guest: `MPIDR_EL1.Aff0`, position in `packed::Guest::vcpus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VcpuIndex(pub u8);

impl VcpuIndex {
    /// The number as an index into a table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A set of vCPUs of one guest, by their numbers within the guest. [`VcpuSet`](crate::sets::VcpuSet) is for vCPUs of the
/// system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "these vCPUs are to be kicked"]
pub struct VcpuIndexSet(pub u8);

impl VcpuIndexSet {
    /// No vCPU.
    pub const EMPTY: Self = Self(0);

    /// The first `count` vCPUs.
    pub const fn first(count: usize) -> Self {
        if count >= MAX_VCPUS_PER_GUEST {
            Self(u8::MAX)
        } else {
            Self((1 << count) - 1)
        }
    }

    /// Only this vCPU.
    pub const fn of(vcpu: VcpuIndex) -> Self {
        Self(1 << (vcpu.0 & 7))
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `vcpu` is in it.
    pub const fn contains(self, vcpu: VcpuIndex) -> bool {
        self.0 & Self::of(vcpu).0 != 0
    }

    /// Adds `vcpu`.
    pub const fn insert(&mut self, vcpu: VcpuIndex) {
        self.0 |= Self::of(vcpu).0;
    }

    /// The union of both sets.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// All but `vcpu`.
    pub const fn without(self, vcpu: VcpuIndex) -> Self {
        Self(self.0 & !Self::of(vcpu).0)
    }

    /// The members, lowest first.
    pub fn iter(self) -> impl Iterator<Item = VcpuIndex> {
        bits(u32::from(self.0)).map(|bit| VcpuIndex(bit as u8))
    }
}

/// The hardware below the virtual GIC, as the calling core sees it.
///
/// List registers, `lines` and the active state of PPIs are those of this core, and of the vCPU
/// loaded on it.
pub trait PhysicalGic {
    /// Number of list registers, 1 to 16 (`ICH_VTR_EL2.ListRegs` + 1).
    fn list_registers(&self) -> usize;
    /// `ICH_LR<index>_EL2`.
    fn read_lr(&self, index: usize) -> ListRegister;
    /// Writes `ICH_LR<index>_EL2`.
    fn write_lr(&mut self, index: usize, value: ListRegister);
    /// `ICH_ELRSR_EL2`: bit n is set if list register n is empty.
    fn empty_lrs(&self) -> u32;
    /// `ICH_HCR_EL2`.
    fn read_hcr(&self) -> u64;
    /// Writes `ICH_HCR_EL2`.
    fn write_hcr(&mut self, value: u64);
    /// `ICH_VMCR_EL2` of the loaded vCPU.
    fn vmcr(&self) -> u64;
    /// Whether an interrupt is pending that the core should take before it does more for the loaded vCPU. Work that a guest can make
    /// long asks this in between, and is done again once the interrupt is handled: from its beginning, but for the search of SPIs.
    fn is_interrupted(&self) -> bool;
    /// Outputs of the loaded vCPU's timers: bits of [`TIMER_PPIS`], set where the timer is
    /// enabled, not masked and has met its condition (`CNTV_CTL_EL0`, `CNTP_CTL_EL0`).
    fn lines(&self) -> u32;
    /// Enables or disables a physical SPI (GICD_ISENABLER, GICD_ICENABLER).
    fn set_enabled(&mut self, physical: IntId, enabled: bool);
    /// Routes a physical SPI to the core where `vcpu` is (GICD_IROUTER).
    fn set_route(&mut self, physical: IntId, vcpu: VcpuIndex);
    /// Which of the physical SPIs 32 × `word` to 32 × `word` + 31 are pending (GICD_ISPENDR).
    fn pending(&self, word: usize) -> u32;
    /// Clears the pending state of a physical SPI (GICD_ICPENDR).
    fn clear_pending(&mut self, physical: IntId);
    /// Makes a physical interrupt active or inactive (GICD_ISACTIVER and ICACTIVER, for PPIs those
    /// of this core's redistributor). Must be complete when the call returns.
    fn set_active(&mut self, physical: IntId, active: bool);
}

#[cfg(test)]
mod tests;
