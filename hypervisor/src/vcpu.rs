// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vCPU: its registers while it is not loaded, and its identity.

use crate::context::{FloatingPoint, SystemRegisters};
use crate::guest::{Guest, Owner};
use crate::guest_registers::GuestRegisters;
use crate::hardware;
use crate::sysreg::{mrs, msr};
use crate::timers::GuestTimers;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::Ordering::Relaxed;
use spumone_config::{GuestId, VcpuId};
use spumone_core::load::Hashing;
use spumone_core::local::Paging;
use spumone_core::psci::EntryPoint;
use spumone_core::schedule::Ticks;
use spumone_core::stolen::Stolen;
use spumone_core::vgic::{CpuInterface, VcpuIndex, running_priority};
use spumone_core::virtio::{Precedence, Turn};

/// What a vCPU does when it runs.
#[derive(Debug)]
pub enum Work {
    /// Runs the guest.
    Guest,
    /// Loads the guest: only the guest's first vCPU, before the guest runs.
    Load,
    /// The same vCPU resets what the guest's cores share, when it is loaded.
    Reset,
    /// The same vCPU begins the life of the guest.
    Begin,
}

/// The virtual CPU interface: `ICH_*` registers other than list registers, which the virtual GIC
/// saves and loads itself.
#[derive(Debug, Default)]
pub struct InterfaceRegisters {
    vmcr: u64,
    ap0r0: u64,
    ap1r0: u64,
}

impl InterfaceRegisters {
    /// As after a reset: both groups off, every priority masked (IHI 0069, ICH_VMCR_EL2).
    pub const fn reset() -> Self {
        Self {
            vmcr: 0,
            ap0r0: 0,
            ap1r0: 0,
        }
    }

    /// Saves the registers of the core. With 5 priority bits there is one active priority
    /// register per group (`ICH_VTR_EL2.PREbits`).
    pub fn save(&mut self) {
        *self = Self {
            vmcr: mrs!(ICH_VMCR_EL2),
            ap0r0: mrs!(ICH_AP0R0_EL2),
            ap1r0: mrs!(ICH_AP1R0_EL2),
        };
    }

    /// The saved `ICH_VMCR_EL2`.
    pub fn vmcr(&self) -> u64 {
        self.vmcr
    }

    /// The running priority that was saved.
    pub fn running_priority(&self) -> u8 {
        running_priority(self.ap0r0 as u32, self.ap1r0 as u32)
    }

    /// Restores the registers to the core.
    pub fn restore(&self) {
        let Self { vmcr, ap0r0, ap1r0 } = *self;
        msr!(ICH_VMCR_EL2, vmcr);
        msr!(ICH_AP0R0_EL2, ap0r0);
        msr!(ICH_AP1R0_EL2, ap1r0);
    }
}

/// A vCPU. Reached only through its [`VcpuToken`].
#[repr(C)]
pub struct Vcpu {
    /// General registers; the entry code loads and saves them in place.
    pub registers: GuestRegisters,
    /// System registers, while it is not loaded.
    pub system: SystemRegisters,
    /// Floating point registers, while it is not loaded.
    pub floating_point: FloatingPoint,
    /// Timers, while it is not loaded.
    pub timers: GuestTimers,
    /// CPU interface, while it is not loaded.
    pub interface: InterfaceRegisters,
    /// Its SGIs, PPIs and list registers.
    pub vgic: CpuInterface,
    /// What it does when it runs.
    pub work: Work,
    /// The local memory of its guest, if that runs from there: it is the guest's only vCPU.
    pub paging: Option<Paging>,
    /// The chunk of its guest that it has begun to hash, while it loads it.
    pub hashing: Option<Hashing>,
    /// Set for a vCPU that was turned on, or suspended to powerdown: it starts at this entry point, with its context reset.
    pub resume: Option<EntryPoint>,
    /// How often its context was reset. A core whose TLB may have its translations from before a reset invalidates them.
    pub resets: u32,
    /// Whether its stolen time is counted.
    pub counts_stolen: bool,
    /// Which of its guest's links it serves next.
    pub turn: Turn,
    /// Whether it handles an interrupt before it moves frames of its guest's links.
    pub precedence: Precedence,
    /// Its id in the system, which no other vCPU has. It never changes: the place of its token goes by it
    /// ([`ParkedTokens`](crate::parking::ParkedTokens)).
    id: VcpuId,
    /// The id of its guest.
    pub guest: GuestId,
    /// The shared state of its guest.
    pub shared: &'static Guest,
    /// Its index in its guest.
    pub index: VcpuIndex,
}

impl Vcpu {
    /// Whether its guest's devices have something to do.
    #[inline(always)]
    pub fn has_due(&self) -> bool {
        self.shared.due.load(Relaxed) != 0
    }

    /// A vCPU that is turned off. Start-up makes one with each id.
    pub fn new(id: VcpuId, owner: &Owner) -> Self {
        Self {
            registers: GuestRegisters::new(),
            system: SystemRegisters::reset(owner.index.0),
            floating_point: FloatingPoint::new(),
            timers: GuestTimers::reset(),
            interface: InterfaceRegisters::reset(),
            vgic: CpuInterface::new(owner.index),
            work: Work::Guest,
            // SAFETY: the range is local memory of this guest, and this is its only vCPU.
            paging: Paging::new(&owner.guest.config, |at, count| unsafe {
                hardware::words_of_memory(at, count)
            }),
            hashing: None,
            resume: None,
            resets: 0,
            counts_stolen: owner.guest.counts_stolen(),
            turn: Turn::new(),
            precedence: Precedence::new(),
            id,
            guest: owner.id,
            shared: owner.guest,
            index: owner.index,
        }
    }

    /// Its id in the system.
    #[inline(always)]
    pub const fn id(&self) -> VcpuId {
        self.id
    }

    /// Its stolen time, if that is counted.
    #[inline(always)]
    pub fn stolen(&self) -> Option<&'static Stolen> {
        match self.counts_stolen {
            true => self.shared.stolen.get(self.index.index()),
            false => None,
        }
    }

    /// It does not run any more, and waits for a core from this time on ([`Stolen::waits`]).
    #[inline(always)]
    pub fn waits(&self, from: Ticks) {
        if let Some(stolen) = self.stolen() {
            stolen.waits(from);
        }
    }

    /// Sets the state in which a vCPU starts after PSCI CPU_ON and CPU_SUSPEND: MMU and caches off,
    /// interrupts masked, `x0` = context (DEN0022, 6.4).
    fn reset_context(&mut self, start: EntryPoint) {
        self.registers = GuestRegisters::new();
        self.registers.pc = start.entry.0;
        self.registers.x[0] = start.context;
        self.system = SystemRegisters::reset(self.index.0);
        self.floating_point = FloatingPoint::new();
        self.resume = None;
        self.resets = self.resets.wrapping_add(1);
    }

    /// As [`Self::reset_context`], with the CPU interface: before a vCPU runs that was turned on, or woke from a suspend to powerdown.
    /// Timers and redistributor keep their state; they may have woken it.
    pub fn power_up(&mut self, start: EntryPoint) {
        self.reset_context(start);
        self.interface = InterfaceRegisters::reset();
    }

    /// Starts a vCPU after `CPU_ON` at `now`, with its timers reset. The core that runs it [powers it up](Self::power_up) first. The redistributor
    /// keeps its state, as on hardware.
    pub fn power_on(&mut self, start: EntryPoint, now: Ticks) {
        self.waits(now);
        self.timers = GuestTimers::reset();
        self.work = Work::Guest;
        self.resume = Some(start);
    }

    /// Its guest's life ends: resets what [`Self::power_on`] and [`Self::reset`] of the next life leave as it is.
    pub fn end_life(&mut self) {
        self.waits(Ticks::NEVER);
        self.vgic.reset();
        self.work = Work::Guest;
        self.resume = None;
    }

    /// As [`Self::power_up`], with timers and redistributor: begins a new life of the guest.
    pub fn reset(&mut self, start: EntryPoint) {
        self.power_up(start);
        self.timers = GuestTimers::reset();
        self.vgic.reset();
        self.work = Work::Guest;
        if let Some(paging) = &mut self.paging {
            paging.reset();
        }
    }
}

/// The right to access a vCPU. Neither `Clone` nor `Copy`: only the core that has the token accesses
/// the vCPU, and a vCPU migrates by its token.
pub struct VcpuToken(&'static mut Vcpu);

impl VcpuToken {
    /// The token of a vCPU, from the one reference to it. Start-up only.
    pub fn new(vcpu: &'static mut Vcpu) -> Self {
        Self(vcpu)
    }
}

impl Deref for VcpuToken {
    type Target = Vcpu;

    fn deref(&self) -> &Vcpu {
        self.0
    }
}

impl DerefMut for VcpuToken {
    fn deref_mut(&mut self) -> &mut Vcpu {
        self.0
    }
}
