// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of a guest that its cores share.

use crate::cpu::{self, Vttbr};
use crate::hardware;
use crate::timers;
use core::sync::atomic::{AtomicBool, AtomicU32};
use heapless::Vec;
use spumone_config::packed::{self, Mapping};
use spumone_config::types::{MAX_LINKS_PER_GUEST, MAX_VCPUS_PER_GUEST};
use spumone_config::{GuestAddr, GuestId, PhysAddr, VcpuId};
use spumone_core::link::{Gpio, Signal};
use spumone_core::load::{Claims, Phases};
use spumone_core::local::Counts;
use spumone_core::protect::{Pace, Rounds};
use spumone_core::psci::{GuestPower, Lifecycle, Restarts};
use spumone_core::schedule::Ticks;
use spumone_core::sets::VcpuSet;
use spumone_core::stolen::Stolen;
use spumone_core::vgic::{self, GuestGic, VcpuIndex};
use spumone_core::virtio::{Device, Direction};
use spumone_core::vuart::Vuart;
use spumone_core::watchdog::Watchdog;

/// The stage 2 tables of a guest.
#[derive(Clone, Copy, Debug)]
pub struct Tables {
    /// The guest's kernel and its programs may execute.
    pub all: Vttbr,
    /// Only its kernel may execute: they catch its return to a program. Only with FEAT_XNX, and a policy that needs it.
    pub of_kernel: Option<Vttbr>,
    /// Only its programs may execute: they catch its entry to the kernel. Only with a policy that keeps kernels off
    /// cores.
    pub of_programs: Option<Vttbr>,
}

/// The state of a guest that its cores share.
pub struct Guest {
    /// Its part of the system description.
    pub config: packed::Guest,
    /// Its stage 2 tables.
    pub stage2: Tables,
    /// Its virtual interrupt controller.
    pub gic: GuestGic,
    /// Which of its vCPUs are on.
    pub power: GuestPower,
    /// The phase and the number of its life.
    pub lifecycle: Lifecycle,
    /// How often it has started again lately.
    pub restarts: Restarts,
    /// Its watchdog.
    pub watchdog: Watchdog,
    /// The stolen time of each vCPU, where it [counts](Guest::counts_stolen); by [`VcpuIndex`].
    pub stolen: [Stolen; MAX_VCPUS_PER_GUEST],
    /// The numbers of the chunks that load it.
    pub phases: Phases,
    /// How far it is loaded.
    pub loading: Claims,
    /// How far its protected memory is checked.
    pub rounds: Rounds,
    /// How fast that is to be.
    pub pace: Pace,
    /// How many pages were copied, if it runs from local memory.
    pub local: Counts,
    /// Its console.
    pub vuart: Vuart,
    /// The signals at its ends of links; by the number of the link.
    pub signals: [Signal; MAX_LINKS_PER_GUEST],
    /// The GPIO controllers of those signals; only guests of kind `linux` see them.
    pub gpios: [Gpio; MAX_LINKS_PER_GUEST],
    /// Its virtio devices, by the number of the link.
    pub virtio: [Device; MAX_LINKS_PER_GUEST],
    /// The frames and packets from those devices to those of its peers.
    pub outbound: [Direction; MAX_LINKS_PER_GUEST],
    /// What its vCPUs are to do for its virtio devices before one of them is entered (`instance/virtio.rs`). Any core may set a bit; a
    /// core that runs a vCPU of the guest clears it and then does it. Release and acquire: that core sees what the driver has
    /// written to a queue before the bit was set. Else a frame would stay there with its bit cleared.
    pub due: AtomicU32,
    /// The devices whose drivers have broken the rules in this life; bit n for link n; and behind those, the ones that have not
    /// accepted what frames for them need. A device is reported once in a life.
    pub broken_virtio: AtomicU32,
    /// An external abort that the guest has taken in this life was reported.
    pub has_aborted: AtomicBool,
    /// The ids of its vCPUs, by [`VcpuIndex`].
    pub vcpus: Vec<VcpuId, { MAX_VCPUS_PER_GUEST }>,
}

impl Guest {
    /// Whether the guest has memory at this address.
    pub fn has_memory(&self, ipa: GuestAddr) -> bool {
        // At most 16 times: ranges of memory.
        self.config
            .memory
            .iter()
            .any(|range| ipa.0.wrapping_sub(range.ipa.0) < range.size)
    }

    /// The 32 bits at a virtual address of the loaded vCPU, which must be one of this guest; `None` if the address is
    /// not a multiple of 4, if the vCPU's kernel could not read it, or if it is outside the guest's memory.
    pub fn read_word(&self, address: u64) -> Option<u32> {
        if !address.is_multiple_of(4) {
            return None;
        }
        let at = cpu::translate(address)?;
        let is_own = self.range_of(at).is_some() || self.is_local(at);
        // SAFETY: the address is aligned and in the guest's memory, which consists of whole mapped pages. Another vCPU
        // of the guest may write the word concurrently, which this read allows.
        is_own.then(|| unsafe { hardware::read_word_of_memory(at) })
    }

    /// Whether this machine address, which stage 2 gives the guest, is in the local memory from which it runs.
    fn is_local(&self, at: PhysAddr) -> bool {
        let local = self.config.protect.as_ref().and_then(|it| it.local);
        local.is_some_and(|it| at.0.wrapping_sub(it.memory.start.0) < it.memory.size)
    }

    /// The range of the guest's memory that has this machine address.
    fn range_of(&self, at: PhysAddr) -> Option<&Mapping> {
        let mut ranges = self.config.memory.iter();
        // At most 16 times: ranges of memory.
        ranges.find(|range| at.0.wrapping_sub(range.pa.0) < range.size)
    }

    /// The guest's own address of a machine address; `None` if that is outside the guest's memory.
    pub fn own_address(&self, at: PhysAddr) -> Option<GuestAddr> {
        let range = self.range_of(at)?;
        Some(GuestAddr(range.ipa.0 + (at.0 - range.pa.0)))
    }

    /// Whether the stolen time of its vCPUs is of use.
    pub fn counts_stolen(&self) -> bool {
        self.config.watchdog_s != 0 || self.config.stolen_time.is_some()
    }

    /// Where this vCPU reads its stolen time: a structure of 64 bytes (DEN0057, "Stolen time"); `None`: the guest does not.
    pub fn stolen_time_of(&self, vcpu: VcpuIndex) -> Option<GuestAddr> {
        let page = self.config.stolen_time?;
        Some(GuestAddr(page.ipa.0 + stolen_offset(vcpu)))
    }

    /// Writes what this vCPU reads as its stolen time, if its guest does. Only for the core that has the vCPU's token.
    #[inline(always)]
    pub fn publish_stolen(&self, vcpu: VcpuIndex, stolen: Ticks) {
        /// Offset of the stolen time in nanoseconds, behind revision and attributes, which are zero.
        const NANOSECONDS: u64 = 8;
        let Some(page) = &self.config.stolen_time else {
            return;
        };
        let place = PhysAddr(page.pa.0 + stolen_offset(vcpu) + NANOSECONDS);
        let nanoseconds = stolen.to_nanos(timers::frequency() as u32);
        // SAFETY: the page is the hypervisor's and apart from all else (`isolation::check`), and the offset is in it. Guests can only read it.
        // Only the core that has the token of this vCPU writes the word, which is aligned.
        unsafe { hardware::write_memory(place, nanoseconds) };
    }

    /// Begins a new life of the guest: nothing is stolen from its vCPUs.
    pub fn reset_stolen(&self) {
        // At most 8 times: vCPUs of the guest.
        for (index, stolen) in (0..).zip(self.stolen()) {
            stolen.reset();
            self.publish_stolen(VcpuIndex(index), Ticks(0));
        }
    }

    /// The stolen time of each of its vCPUs.
    pub fn stolen(&self) -> &[Stolen] {
        self.stolen.get(..self.vcpus.len()).unwrap_or_default()
    }

    /// The cores that its vCPUs may run on: the home core of each, and those of `cores` in the description; bit n for
    /// core n.
    pub fn cores(&self) -> u32 {
        self.lifecycle.cores()
    }

    /// The ids of these vCPUs of the guest. The ids of a guest's vCPUs are consecutive.
    #[inline(always)]
    pub fn ids_of(&self, vcpus: vgic::VcpuIndexSet) -> VcpuSet {
        // Most often: then nothing of the guest is looked at.
        if vcpus.is_empty() {
            return VcpuSet::EMPTY;
        }
        let first = self.vcpus.first().map_or(0, |id| id.0);
        VcpuSet::from_bits(u32::from(vcpus.0) << (first & 31))
    }

    /// The id of this vCPU of the guest.
    pub fn vcpu(&self, index: VcpuIndex) -> Option<VcpuId> {
        self.vcpus.get(index.index()).copied()
    }
}

/// Offset of a vCPU's stolen time in the page of its guest.
const fn stolen_offset(vcpu: VcpuIndex) -> u64 {
    /// Size of the structure (DEN0057).
    const SIZE: u64 = 64;
    vcpu.0 as u64 % MAX_VCPUS_PER_GUEST as u64 * SIZE
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
