// SPDX-License-Identifier: MIT OR Apache-2.0
//! Driver of the machine's GICv3. `EOImode` is 1: priority drop and deactivation are separate, so
//! the deactivation can be left to the guest.
//!
//! Source: GIC architecture specification IHI 0069, chapter 12.

use crate::hardware::{GicError, dsb_ish, initialize_gic, isb, read_u32, write_u32, write_u64};
use crate::sysreg::{mrs, msr, msr_own};
use spumone_config::gic::{
    HYPERVISOR_TIMER, MAINTENANCE, PHYSICAL_TIMER, REDISTRIBUTOR_SIZE, SGI_FRAME, VIRTUAL_TIMER,
};
use spumone_config::packed::{Board, Spi};
use spumone_config::{IntId, PcpuId, PhysAddr};
use spumone_core::schedule::{
    ALARM_PRIORITY, Band, GicPriority, OWN_PRIORITY, band_priority, kick_sgi,
};

/// EL2's alarm: the physical timer of EL2.
pub const ALARM: IntId = HYPERVISOR_TIMER;
/// INTIDs from here on are special: nothing is pending (IHI 0069, 2.2.1).
const FIRST_SPECIAL: u64 = 1020;

mod offset {
    //! Register offsets: distributor, then SGI frame of a redistributor.
    pub const WAKER: u64 = 0x0014;
    pub const IGROUPR: u64 = 0x0080;
    pub const ISENABLER: u64 = 0x0100;
    pub const ICENABLER: u64 = 0x0180;
    pub const ISPENDR: u64 = 0x0200;
    pub const ICPENDR: u64 = 0x0280;
    pub const ISACTIVER: u64 = 0x0300;
    pub const ICACTIVER: u64 = 0x0380;
    pub const IPRIORITYR: u64 = 0x0400;
    pub const IROUTER: u64 = 0x6000;
}

/// How many SGIs and PPIs are in use: an SGI for each band, and four PPIs.
const PRIVATE_COUNT: usize = Band::COUNT + 4;

/// The SGIs and PPIs in use, with their priorities.
pub const PRIVATE_INTERRUPTS: [(IntId, GicPriority); PRIVATE_COUNT] = {
    let mut all = [(MAINTENANCE, OWN_PRIORITY); PRIVATE_COUNT];
    let mut index = 0;
    // At most 8 times: bands.
    while let Some(band) = Band::new(index as u8) {
        all[index] = (kick_sgi(band), band_priority(band));
        index += 1;
    }
    all[index] = (ALARM, ALARM_PRIORITY);
    all[index + 1] = (VIRTUAL_TIMER, OWN_PRIORITY);
    all[index + 2] = (PHYSICAL_TIMER, OWN_PRIORITY);
    all
};

/// What a redistributor is set to: `GICR_ISENABLER0`, and the words of `GICR_IPRIORITYR`.
const PRIVATE_REGISTERS: (u32, [u32; 8]) = {
    let mut used = 0;
    let mut priorities = [0xFFFF_FFFF; 8];
    let mut index = 0;
    // At most 12 times: SGIs and PPIs in use.
    while index < PRIVATE_COUNT {
        let (interrupt, priority) = PRIVATE_INTERRUPTS[index];
        let shift = 8 * (interrupt.index() % 4);
        let word = &mut priorities[interrupt.index() / 4];
        *word = *word & !(0xFF << shift) | (priority.0 as u32) << shift;
        used |= 1 << interrupt.0;
        index += 1;
    }
    (used, priorities)
};

/// The interrupt controller. Contains addresses only. Each operation writes a set or clear register,
/// where zeros have no effect, so cores need no lock.
#[derive(Clone, Copy, Debug)]
pub struct Gic {
    distributor: PhysAddr,
    redistributor: PhysAddr,
}

impl Gic {
    /// The GIC of this board.
    pub fn new(board: &Board) -> Self {
        Self {
            distributor: board.gic_distributor,
            redistributor: board.gic_redistributor,
        }
    }

    /// Initializes distributor and redistributors. Boot core, once, before any other core runs.
    pub fn set_up(&self, cores: usize, spis: &[Spi]) -> Result<(), GicError> {
        // SAFETY: the board file names the GIC's frames, EL2's stage 1 maps them as device
        // memory, and no other core runs.
        unsafe {
            initialize_gic(
                self.distributor,
                self.redistributor,
                cores,
                &PRIVATE_INTERRUPTS.map(|(interrupt, priority)| (interrupt, priority.0)),
                spis,
            )
        }
    }

    /// Sets up the redistributor of the calling core `core`: its SGIs and PPIs. The firmware may have changed it when it turned the core on (TF-A,
    /// `gicv3_rdistif_init`), or it has lost its state with the core's power.
    fn set_up_redistributor(&self, core: PcpuId) {
        /// `GICR_WAKER.ProcessorSleep` and `ChildrenAsleep`.
        const SLEEPS: u32 = 1 << 1;
        const CHILDREN_SLEEP: u32 = 1 << 2;
        /// Far more polls than any redistributor needs.
        const MAX_POLLS: usize = 1_000;
        let own = self.redistributor.0 + REDISTRIBUTOR_SIZE * core.index() as u64;
        let waker = PhysAddr(own + offset::WAKER);
        let frame = own + SGI_FRAME;
        let (used, priorities) = PRIVATE_REGISTERS;
        // SAFETY: registers of the core's own redistributor, mapped as device memory.
        unsafe {
            write_u32(waker, read_u32(waker) & !SLEEPS);
            for _ in 0..MAX_POLLS {
                // At most 1,000 times: `MAX_POLLS`.
                if read_u32(waker) & CHILDREN_SLEEP == 0 {
                    break;
                }
            }
            write_u32(PhysAddr(frame + offset::IGROUPR), 0xFFFF_FFFF);
            write_u32(PhysAddr(frame + offset::ICENABLER), !used);
            // At most 8 times: words of priorities.
            for (at, word) in (frame + offset::IPRIORITYR..).step_by(4).zip(priorities) {
                write_u32(PhysAddr(at), word);
            }
            write_u32(PhysAddr(frame + offset::ISENABLER), used);
        }
    }

    /// Sets up the redistributor, the CPU interface and the virtual interface of the calling core `core`; returns the
    /// number of its list registers.
    pub fn set_up_core(&self, core: PcpuId) -> usize {
        self.set_up_redistributor(core);
        /// `ICC_SRE_EL1`, `ICC_SRE_EL2`: system registers, no legacy bypass. Without `Enable`, a
        /// guest's access to `ICC_SRE_EL1` traps: the register is not switched between guests.
        const SRE: u64 = 0b0111;
        /// `ICC_CTLR_EL1.EOImode`: EOI drops the priority only.
        const EOI_MODE: u64 = 1 << 1;
        /// `ICH_VTR_EL2.ListRegs`.
        const LIST_REGISTERS: u64 = 0x1F;
        // SAFETY: enables the system registers, which the rest of this file uses.
        unsafe { msr_own!(ICC_SRE_EL2, SRE | 0b1000) };
        isb();
        msr!(ICC_SRE_EL1, SRE);
        isb();
        // SAFETY: as above; a guest's access traps from here on.
        unsafe { msr_own!(ICC_SRE_EL2, SRE) };
        isb();
        msr!(ICC_CTLR_EL1, EOI_MODE);
        msr!(ICC_BPR1_EL1, 0);
        msr!(ICC_PMR_EL1, 0xFF);
        msr!(ICC_IGRPEN1_EL1, 1);
        isb();
        // The registers of the virtual interface are UNKNOWN after a reset.
        let list_registers = (mrs!(ICH_VTR_EL2) & LIST_REGISTERS) as usize + 1;
        msr!(ICH_HCR_EL2, 0);
        msr!(ICH_VMCR_EL2, 0);
        msr!(ICH_AP0R0_EL2, 0);
        msr!(ICH_AP1R0_EL2, 0);
        // At most 16 times: list registers.
        for index in 0..list_registers {
            write_list_register(index, 0);
        }
        isb();
        list_registers
    }

    /// Takes the highest pending interrupt, if one passes the priority mask, and drops the
    /// running priority again. It stays active: [`Self::deactivate`] ends it.
    #[inline(always)]
    pub fn take(&self) -> Option<IntId> {
        let id = mrs!(ICC_IAR1_EL1);
        if id >= FIRST_SPECIAL {
            return None;
        }
        msr!(ICC_EOIR1_EL1, id);
        Some(IntId(id as u16))
    }

    /// Ends an interrupt taken on this core.
    #[inline(always)]
    pub fn deactivate(&self, interrupt: IntId) {
        msr!(ICC_DIR_EL1, u64::from(interrupt.0));
    }

    /// Holds back interrupts whose GIC priority is not above (numerically below) `mask`.
    #[inline(always)]
    pub fn set_priority_mask(&self, mask: u8) {
        msr!(ICC_PMR_EL1, u64::from(mask));
    }

    /// Sends SGI `sgi` to the core with this affinity.
    #[inline(always)]
    pub fn send_sgi(&self, sgi: u8, mpidr: u64) {
        /// `MPIDR_EL1` affinity fields to those of `ICC_SGI1R_EL1` (IHI 0069, 12.2.19).
        const fn target(mpidr: u64) -> u64 {
            let aff0 = mpidr & 0xF;
            let range = mpidr >> 4 & 0xF;
            let aff1 = mpidr >> 8 & 0xFF;
            let aff2 = mpidr >> 16 & 0xFF;
            let aff3 = mpidr >> 32 & 0xFF;
            1 << aff0 | aff1 << 16 | aff2 << 32 | range << 44 | aff3 << 48
        }
        // Earlier stores must be visible to the receiver before the interrupt, and before the caller reads whether the receiver is off.
        dsb_ish();
        msr!(ICC_SGI1R_EL1, target(mpidr) | u64::from(sgi & 0xF) << 24);
        isb();
    }

    /// Enables or disables an SPI.
    pub fn set_spi_enabled(&self, interrupt: IntId, enabled: bool) {
        let register = if enabled {
            offset::ISENABLER
        } else {
            offset::ICENABLER
        };
        self.write_bit(self.distributor.0 + register, interrupt);
    }

    /// Waits until earlier disables of SPIs have taken effect: none is signalled to any core any more.
    pub fn wait_until_disabled(&self) {
        /// `GICD_CTLR.RWP`: a register write is in progress.
        const WRITE_PENDING: u32 = 1 << 31;
        /// Far more polls than any distributor needs.
        const MAX_POLLS: usize = 10_000;
        for _ in 0..MAX_POLLS {
            // SAFETY: GICD_CTLR, mapped as device memory; reading has no effect.
            let control = unsafe { read_u32(self.distributor) };
            // At most 10,000 times: `MAX_POLLS`.
            if control & WRITE_PENDING == 0 {
                break;
            }
        }
    }

    /// Which of the SPIs 32 × `word` to 32 × `word` + 31, which exist, are pending.
    pub fn pending_spis(&self, word: usize) -> u32 {
        let register = self.distributor.0 + offset::ISPENDR + 4 * word as u64;
        // SAFETY: a register of the distributor, mapped as device memory; reading has no effect.
        unsafe { read_u32(PhysAddr(register)) }
    }

    /// Clears the pending state of an SPI.
    pub fn clear_spi_pending(&self, interrupt: IntId) {
        self.write_bit(self.distributor.0 + offset::ICPENDR, interrupt);
    }

    /// Routes an SPI to the core with this affinity.
    pub fn route_spi(&self, interrupt: IntId, mpidr: u64) {
        let register = self.distributor.0 + offset::IROUTER + 8 * interrupt.index() as u64;
        // SAFETY: IROUTER<n> of an existing SPI, mapped as device memory; 64-bit writes are
        // single-copy atomic.
        unsafe { write_u64(PhysAddr(register), mpidr & 0xFF_00FF_FFFF) };
    }

    /// Makes an SPI, or a private interrupt of the calling core `core`, active or inactive.
    pub fn set_active(&self, core: PcpuId, interrupt: IntId, active: bool) {
        let register = if active {
            offset::ISACTIVER
        } else {
            offset::ICACTIVER
        };
        let frame = if interrupt.is_private() {
            self.redistributor.0 + REDISTRIBUTOR_SIZE * core.index() as u64 + SGI_FRAME
        } else {
            self.distributor.0
        };
        self.write_bit(frame + register, interrupt);
        // The write must be complete before a guest deactivates the interrupt: a read of the same
        // frame waits for it.
        // SAFETY: the register just written; reading has no effect.
        unsafe { read_u32(PhysAddr(frame + register)) };
    }

    /// Writes one bit of a set-by-one or clear-by-one register bank; other bits are not touched.
    #[inline(always)]
    fn write_bit(&self, bank: u64, interrupt: IntId) {
        let register = bank + 4 * (interrupt.index() as u64 / 32);
        // SAFETY: a register of the GIC, mapped as device memory, of an interrupt that exists
        // (`spm` checks); zero bits of the value change nothing.
        unsafe { write_u32(PhysAddr(register), 1 << (interrupt.0 % 32)) };
    }
}

macro_rules! list_registers {
    ($($index:literal => $register:ident,)*) => {
        /// Reads list register `index`; absent ones read as zero.
        #[inline(always)]
        pub fn read_list_register(index: usize) -> u64 {
            match index {
                $($index => mrs!($register),)*
                _ => 0,
            }
        }

        /// Writes list register `index`, which the core must have.
        #[inline(always)]
        pub fn write_list_register(index: usize, value: u64) {
            match index {
                $($index => msr!($register, value),)*
                _ => {}
            }
        }
    };
}

list_registers! {
    0 => ICH_LR0_EL2, 1 => ICH_LR1_EL2, 2 => ICH_LR2_EL2, 3 => ICH_LR3_EL2,
    4 => ICH_LR4_EL2, 5 => ICH_LR5_EL2, 6 => ICH_LR6_EL2, 7 => ICH_LR7_EL2,
    8 => ICH_LR8_EL2, 9 => ICH_LR9_EL2, 10 => ICH_LR10_EL2, 11 => ICH_LR11_EL2,
    12 => ICH_LR12_EL2, 13 => ICH_LR13_EL2, 14 => ICH_LR14_EL2, 15 => ICH_LR15_EL2,
}
