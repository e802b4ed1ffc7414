// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores the firmware is to have turned off, and which ones it is to turn on again.
//!
//! A core that is off by the [`Wish`](super::Wish) and has nothing to do turns itself off: PSCI `CPU_OFF` (Arm DEN0022, 5.5). From then on no interrupt
//! wakes it. So a core that kicks it, or sends it mail, also turns it on, by `CPU_ON`. While the firmware says that the core is still on, it is on its way
//! off. Then the console's core, which is never turned off, is ordered to turn it on later.
//!
//! ```text
//!   core that turns itself off           core that has something for it        console's core
//!   begin_off                            sets the kick, mail or wish           take_starts
//!   looks for kicks, mail, the wish      is_off?                               CPU_ON
//!   CPU_OFF, or come_on                  CPU_ON; if it is still on:            if it is still on: order_start
//!                                        order_start, SGI
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
    /// [`begin_off`](Self::begin_off) and of the caller of [`is_off`](Self::is_off) order it with what the others have for the core.
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

    /// Whether this core is off. As for [`is_any_off`](Self::is_any_off).
    pub fn is_off(&self, core: PcpuId) -> bool {
        self.off.load(Ordering::Relaxed) & 1 << core.0 != 0
    }

    /// Orders that the console's core turns this core on. The caller then sends the console's core an SGI, unless it is that core.
    pub fn order_start(&self, core: PcpuId) {
        self.starts.fetch_or(1 << core.0, Ordering::Release);
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

    /// Orders that the console's core turns on the cores that the firmware has refused to turn on. That core calls this when it serves the console.
    pub fn order_lost(&self) {
        let lost = self.refused.load(Ordering::Relaxed) & self.off.load(Ordering::Relaxed);
        if lost != 0 {
            self.starts.fetch_or(lost, Ordering::Relaxed);
        }
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
        match (self.turns_off(core), self.is_off(core)) {
            (true, _) => Off::Fine,
            (false, true) => Off::Lost,
            (false, false) => Off::Waits,
        }
    }
}
