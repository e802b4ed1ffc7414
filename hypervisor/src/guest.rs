// SPDX-License-Identifier: MIT OR Apache-2.0
//! A guest, as far as its cores share it.

use crate::cpu::{self, Vttbr};
use crate::hardware;
use heapless::Vec;
use spumone_config::packed;
use spumone_config::types::MAX_VCPUS_PER_GUEST;
use spumone_config::{GuestAddr, GuestId, VcpuId};
use spumone_core::psci::{GuestPower, Lifecycle};
use spumone_core::sets::VcpuSet;
use spumone_core::vgic::{self, GuestGic, VcpuIndex};
use spumone_core::vuart::Vuart;

/// The stage 2 tables of a guest.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// All of the guest may run.
    pub all: Vttbr,
    /// Only its kernel may run: they catch the moment at which it returns to a program. Where the core can
    /// (FEAT_XNX), and the policy waits for that moment.
    pub of_kernel: Option<Vttbr>,
    /// Only its programs may run, where the policy keeps kernels off cores.
    pub of_programs: Option<Vttbr>,
}

/// A guest, as far as its cores share it.
pub struct Guest {
    /// What the system description says of it.
    pub config: packed::Guest,
    /// Its stage 2 tables.
    pub stage2: Tables,
    /// Its virtual interrupt controller.
    pub gic: GuestGic,
    /// Which of its vCPUs are on.
    pub power: GuestPower,
    /// Where it is in its life.
    pub lifecycle: Lifecycle,
    /// Its console.
    pub vuart: Vuart,
    /// The vCPUs of the system that are its own, by its own numbering.
    pub vcpus: Vec<VcpuId, { MAX_VCPUS_PER_GUEST }>,
}

impl Guest {
    /// Whether the guest has memory at this address.
    pub fn has_memory(&self, ipa: GuestAddr) -> bool {
        self.config
            .memory
            .iter()
            .any(|range| ipa.0.wrapping_sub(range.ipa.0) < range.size)
    }

    /// The 32 bits at an address of the loaded vCPU, which is this guest's; `None` if the address is no multiple of 4, its
    /// kernel could not read them, or they lie outside the guest's memory.
    pub fn read_word(&self, address: u64) -> Option<u32> {
        if !address.is_multiple_of(4) {
            return None;
        }
        let at = cpu::translate(address)?;
        let is_own = self
            .config
            .memory
            .iter()
            .any(|range| at.0.wrapping_sub(range.pa.0) < range.size);
        // SAFETY: memory of the guest, mapped, aligned, and a multiple of pages, so the whole word is; vCPUs of the guest
        // may write it meanwhile, which a volatile read of a word allows for.
        is_own.then(|| unsafe { hardware::read_word_of_memory(at) })
    }

    /// The cores its vCPUs may run on: the home of each, and those of its description's `cores`; bit n for core n.
    pub fn cores(&self) -> u32 {
        self.lifecycle.cores()
    }

    /// The ids of vCPUs of the guest. It has consecutive ones.
    #[inline(always)]
    pub fn ids_of(&self, vcpus: vgic::VcpuSet) -> VcpuSet {
        // Most often: then nothing of the guest is looked at.
        if vcpus.is_empty() {
            return VcpuSet::EMPTY;
        }
        let first = self.vcpus.first().map_or(0, |id| id.0);
        VcpuSet::from_bits(u32::from(vcpus.0) << (first & 31))
    }

    /// The vCPU of the system that is this one of the guest's.
    pub fn vcpu(&self, index: VcpuIndex) -> Option<VcpuId> {
        self.vcpus.get(index.index()).copied()
    }
}

/// The guest of a vCPU.
#[derive(Clone, Copy)]
pub struct Owner {
    /// The guest.
    pub guest: &'static Guest,
    /// Its id.
    pub id: GuestId,
    /// Which of the guest's vCPUs it is.
    pub index: VcpuIndex,
}
