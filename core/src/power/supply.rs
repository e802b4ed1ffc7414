// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores the firmware is to have turned off, and which ones it is to turn on again.
//!
//! A core that is off by the [`Wish`](super::Wish) and has nothing to do turns itself off: PSCI `CPU_OFF` (Arm DEN0022, 5.5). From then on no interrupt
//! wakes it. So a core that kicks it, or sends it mail, also orders it to be turned on; the console's core, which is always on, carries that out by
//! `CPU_ON`. For others, nothing else is different from a core that waits for an interrupt.
//!
//! ```text
//!   core that turns itself off           core that has something for it        console's core
//!   begin_off                            sets the kick, mail or wish           take_starts
//!   looks for kicks, mail, the wish      must_start: is it off?                CPU_ON
//!   CPU_OFF, or come_on                  if so, SGI to the console's core      start_again if the firmware says that it is still on
//! ```
//!
//! Nothing is lost: between its store and its look, either side has a barrier that orders all memory. So the core that turns itself off sees the kick, or
//! the other core sees that it is off.

use crate::console::Off;
use crate::sets::CoreSet;
use crate::sync::atomic::{AtomicU32, Ordering, fence};
use spumone_config::types::PcpuId;

/// The cores that are turned off. One for the machine.
#[derive(Debug)]
pub struct Supply {
    /// Bit n: core n is turned off, or is about to turn itself off. Shared because the core itself writes its bit, and all others read it. The fences of
    /// [`begin_off`](Self::begin_off) and of the caller of [`must_start`](Self::must_start) order it with what the others have for the core.
    off: AtomicU32,
    /// Bit n: core n is to be turned on. Shared because any core sets bits, and the console's core takes them. Release and acquire: the console's core
    /// then reads that the core is off.
    starts: AtomicU32,
    /// Bit n: the firmware has refused to turn core n off, or on. Shared because the core itself or the console's core sets it, and the console's core shows
    /// it. Relaxed: nothing depends on it.
    refused: AtomicU32,
}

impl Supply {
    constructor! {
        /// All cores are on.
        #[expect(clippy::new_without_default, reason = "made once, as a constant initializer")]
        pub fn new() -> Self {
            Self { off: AtomicU32::new(0), starts: AtomicU32::new(0), refused: AtomicU32::new(0) }
        }
    }

    /// The calling core is about to turn itself off. It looks after this whether there is something to do. If so it [comes on](Self::come_on) at once.
    pub fn begin_off(&self, core: PcpuId) {
        self.off.fetch_or(1 << core.0, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The calling core is on again, or does not turn itself off after all. It looks after this whether there is something to do.
    pub fn come_on(&self, core: PcpuId) {
        self.off.fetch_and(!(1 << core.0), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether a core may be off. The caller has stored what it has for that core, and a barrier is between that store and this load.
    #[inline(always)]
    pub fn is_any_off(&self) -> bool {
        self.off.load(Ordering::Relaxed) != 0
    }

    /// Whether this core is off, and if so, orders that it is turned on: the caller then sends the console's core an SGI. As for
    /// [`is_any_off`](Self::is_any_off).
    pub fn must_start(&self, core: PcpuId) -> bool {
        let bit = 1 << core.0;
        let is_off = self.off.load(Ordering::Relaxed) & bit != 0;
        if is_off {
            self.starts.fetch_or(bit, Ordering::Release);
        }
        is_off
    }

    /// Whether cores are to be turned on.
    #[inline(always)]
    pub fn has_starts(&self) -> bool {
        self.starts.load(Ordering::Relaxed) != 0
    }

    /// Takes the cores that are to be turned on. Only the console's core calls this.
    pub fn take_starts(&self) -> CoreSet {
        let starts = self.starts.swap(0, Ordering::Acquire);
        CoreSet::from_bits(starts & self.off.load(Ordering::Relaxed))
    }

    /// The firmware says that this core is still on: it is on its way off, and is to be turned on later.
    pub fn start_again(&self, core: PcpuId) {
        self.starts.fetch_or(1 << core.0, Ordering::Relaxed);
    }

    /// The firmware has refused to turn this core off, or on.
    pub fn note_refusal(&self, core: PcpuId) {
        self.refused.fetch_or(1 << core.0, Ordering::Relaxed);
    }

    /// Whether the firmware may be asked to turn this core off.
    pub fn turns_off(&self, core: PcpuId) -> bool {
        self.refused.load(Ordering::Relaxed) & 1 << core.0 == 0
    }

    /// How this core is off, which is not on.
    pub fn off(&self, core: PcpuId) -> Off {
        let has_no_power = self.off.load(Ordering::Relaxed) & 1 << core.0 != 0;
        match (self.turns_off(core), has_no_power) {
            (true, _) => Off::Fine,
            (false, true) => Off::Lost,
            (false, false) => Off::Waits,
        }
    }
}
