// SPDX-License-Identifier: MIT OR Apache-2.0
//! The doorbell: how a core notes an interrupt for a vCPU, on whichever core the vCPU is.
//!
//! A sender sets bits, then reads the location and kicks that core. A core that has claimed the vCPU first writes its
//! number as the location, then reads the bits. Both execute a sequentially consistent fence in between, so at least
//! one of them sees what the other wrote: either the new core finds the bits, or the kick goes to the new core. No
//! interrupt has to be forwarded when a vCPU migrates.

use crate::sync::atomic::{AtomicU8, AtomicU32, Ordering, fence};
use spumone_config::types::{IntId, PcpuId};

/// SGIs that were sent as Group 0 are this many bits higher.
const GROUP0_SHIFT: u32 = 16;

/// A bit of the words of SPIs: the vCPU is to fold the SPIs whose holder it is. It does not make the vCPU look for
/// pending SPIs, else two vCPUs that wait for each other's SPIs would ring each other forever.
pub(super) const RECALL: u32 = 1 << 31;

/// The doorbell of one vCPU.
#[derive(Debug)]
pub struct Doorbell {
    /// SGIs sent and not yet collected; bits 0-15 sent through ICC_SGI1R_EL1, bits 16-31 through registers that reach
    /// Group 0 only. Set by senders, taken by the owner. An SGI is only this bit, so relaxed order would suffice for
    /// it; release on setting and acquire on taking make visible to the target what the sender wrote before the SGI.
    sgis: AtomicU32,
    /// Words of SPIs in the distributor that may have a pending SPI for this vCPU, and [`RECALL`]. Set
    /// with release *after* the distributor was written, taken with acquire before it is read.
    spi_words: AtomicU32,
    /// The vCPU's host core. Ordered against the two above by the fences.
    location: AtomicU8,
    /// GICR_WAKER.ProcessorSleep. Here because every vCPU may read it; orders nothing.
    asleep: AtomicU8,
}

/// What was rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rung {
    /// SGIs as in [`Doorbell::ring_sgi`]; those in the upper half count only if the target has them in Group 0.
    pub(super) sgis: u32,
    /// Bit n: look at SPIs 32 × (n + 1) and up. Or [`RECALL`].
    pub(super) spi_words: u32,
}

impl Rung {
    /// The SGI, if one SGI that counts in either group is all that was rung.
    pub(super) const fn single_sgi(self) -> Option<u32> {
        if self.spi_words == 0 && self.sgis.is_power_of_two() && self.sgis < 1 << GROUP0_SHIFT {
            Some(self.sgis.trailing_zeros())
        } else {
            None
        }
    }

    /// Whether nothing was rung.
    pub(super) const fn is_silent(self) -> bool {
        self.sgis | self.spi_words == 0
    }

    /// The SGIs that count, given which SGIs are Group 1 at the target.
    pub(super) const fn accepted(self, group1: u32) -> u32 {
        self.sgis & 0xffff | (self.sgis >> GROUP0_SHIFT) & !group1
    }
}

impl Doorbell {
    constructor! {
        /// The silent doorbell of a vCPU on core 0.
        pub fn new() -> Self {
            Self {
                sgis: AtomicU32::new(0),
                spi_words: AtomicU32::new(0),
                location: AtomicU8::new(0),
                asleep: AtomicU8::new(1),
            }
        }
    }

    /// Clears what was rung, and keeps the location. Only when no vCPU of the guest runs.
    pub fn reset(&self) {
        self.sgis.store(0, Ordering::Relaxed);
        self.spi_words.store(0, Ordering::Relaxed);
        self.asleep.store(1, Ordering::Relaxed);
    }

    /// Publishes that core `pcpu` has the vCPU's token now. To be called after the token was claimed, before what was
    /// rung is looked at.
    pub fn settle(&self, pcpu: PcpuId) {
        self.location.store(pcpu.0, Ordering::Relaxed);
        // Location before bits; pairs with the fence in `location`.
        fence(Ordering::SeqCst);
    }

    /// The core to kick after ringing.
    pub fn location(&self) -> PcpuId {
        // Bits before location; pairs with the fence in `settle`.
        fence(Ordering::SeqCst);
        PcpuId(self.location.load(Ordering::Relaxed))
    }

    /// Whether the owner has taken all that was rung.
    pub fn is_silent(&self) -> bool {
        self.peek().is_silent()
    }

    /// Rings for an SGI. `group0_only`: it counts only if the target has it in Group 0. `false`
    /// when the same SGI was rung already and not yet collected: that sender kicks.
    pub(super) fn ring_sgi(&self, sgi: IntId, group0_only: bool) -> bool {
        let bit = 1 << (sgi.0 & 15) << if group0_only { GROUP0_SHIFT } else { 0 };
        self.sgis.fetch_or(bit, Ordering::Release) & bit == 0
    }

    /// Rings for the SPIs of these words, or [`RECALL`]. The caller always kicks: a bit that is already set may
    /// stand for other SPIs of the word.
    pub fn ring_spis(&self, words: u32) {
        self.spi_words.fetch_or(words, Ordering::Release);
    }

    /// Returns what was rung, without clearing it.
    pub(super) fn peek(&self) -> Rung {
        Rung {
            sgis: self.sgis.load(Ordering::Acquire),
            spi_words: self.spi_words.load(Ordering::Acquire),
        }
    }

    /// Clears and returns what was rung. Owner only.
    pub(super) fn take(&self) -> Rung {
        let seen = self.peek();
        // Most often only one of them is not zero; a read is cheaper than a swap.
        Rung {
            sgis: if seen.sgis == 0 {
                0
            } else {
                self.sgis.swap(0, Ordering::AcqRel)
            },
            spi_words: if seen.spi_words == 0 {
                0
            } else {
                self.spi_words.swap(0, Ordering::AcqRel)
            },
        }
    }

    /// Takes this SGI if it is still the only one that was rung. Owner only.
    pub(super) fn take_single_sgi(&self, sgi: u32) -> bool {
        self.sgis
            .compare_exchange(1 << sgi, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.load(Ordering::Relaxed) != 0
    }

    pub(super) fn set_asleep(&self, asleep: bool) {
        self.asleep.store(u8::from(asleep), Ordering::Relaxed);
    }
}
