// SPDX-License-Identifier: MIT OR Apache-2.0
//! The wish: the set of cores that are to be on.

use super::Limits;
use crate::sets::CoreSet;
use crate::sync::atomic::{AtomicU32, Ordering};
use spumone_config::types::PcpuId;

/// The cores that are to be on. A core that idles goes off if it is not among them, and comes back if it is.
#[derive(Debug)]
pub struct Wish {
    /// Bit n: core n. Shared because any core adds one, and each core reads it. Relaxed: it is one word, changed by compare and swap, and it guards
    /// nothing else. A core that changes it sends the core in question an SGI afterwards, with a barrier in between (DSB), so that core reads the new
    /// value when it has taken the SGI. A core that reads an old value goes off, or stays on, for as long as that SGI takes; no vCPU is
    /// lost by that, because the tokens of vCPUs do not depend on this word.
    cores: AtomicU32,
}

impl Wish {
    /// As many cores as may be on.
    pub fn new(limits: &Limits) -> Self {
        let mut cores = limits.stay;
        // At most 8 times: cores.
        for core in (limits.all - limits.stay).iter() {
            if cores.count() < limits.most {
                cores.insert(core);
            }
        }
        Self {
            cores: AtomicU32::new(cores.bits()),
        }
    }

    /// The cores that are to be on.
    pub fn cores(&self) -> CoreSet {
        CoreSet::from_bits(self.cores.load(Ordering::Relaxed))
    }

    /// Whether a core is to be on.
    #[inline(always)]
    pub fn wants(&self, core: PcpuId) -> bool {
        self.cores().contains(core)
    }

    /// Adds a core of `among`, the first that is not wanted yet, unless as many as may be on are wanted already. Any core may call this. Returns
    /// the core that was added; the caller sends it an SGI. If another core changes the wish at this moment, no core is added: the vCPU still waits,
    /// and its core asks again.
    pub fn add(&self, limits: &Limits, among: CoreSet) -> Option<PcpuId> {
        let seen = self.cores();
        let added = (limits.all & among) - seen;
        let core = added.iter().next().filter(|_| seen.count() < limits.most)?;
        self.change(seen, seen | CoreSet::of(core)).then_some(core)
    }

    /// Takes cores out, if the cores that are wanted are still those that the governor has `seen`, and the limits allow it. Only the core with
    /// the governor calls this. Returns whether they were taken out; then the caller sends each an SGI.
    pub fn take_out(&self, limits: &Limits, seen: CoreSet, cores: CoreSet) -> bool {
        let rest = seen - cores;
        let may = (cores - seen).is_empty()
            && (limits.stay - rest).is_empty()
            && rest.count() >= limits.least;
        may && self.change(seen, rest)
    }

    fn change(&self, from: CoreSet, to: CoreSet) -> bool {
        let (from, to) = (from.bits(), to.bits());
        self.cores
            .compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}
