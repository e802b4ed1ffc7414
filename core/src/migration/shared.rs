// SPDX-License-Identifier: MIT OR Apache-2.0
//! What all cores share: constants about vCPUs, and the atomics by which tokens move.

use super::lead::Early;
use super::presence::Presence;
use super::slot::{Parked, ParkingSlot};
use crate::schedule::{Band, Level};
use crate::sets::CoreSet;
use spumone_config::types::{GuestId, MAX_PCPUS, MAX_VCPUS, PcpuId, VcpuId};

/// What the cores of a system are for, as the image says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Cores off which kernels of guests that migrate are kept, because they are the home of a vCPU of a higher band.
    pub kernel_free: CoreSet,
    /// The band of the gang, and the homes of its vCPUs.
    pub gang: Option<(Band, CoreSet)>,
    /// The highest level of a vCPU that may migrate.
    pub highest_movable: Level,
    /// The lowest level of a vCPU that may migrate.
    pub lowest_movable: Level,
}

/// What is constant of a vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VcpuFacts {
    /// Its guest.
    pub guest: GuestId,
    /// Its band.
    pub band: Band,
    /// Its home core.
    pub home: PcpuId,
    /// The cores on which it may run.
    pub cores: CoreSet,
    /// Whether it migrates between those cores.
    pub moves: bool,
    /// When its core begins to switch to it, while it sleeps, because of its timer.
    pub early: Early,
}

/// The proof that the calling core has claimed the parking slot of a vCPU, and has not taken the vCPU's token since. It
/// is made only by [`Shared::claim`], and cannot be copied.
#[derive(Debug)]
#[must_use = "a claimed token must be taken"]
pub struct Claim(VcpuId);

impl Claim {
    /// The claimed vCPU.
    #[inline(always)]
    pub const fn vcpu(&self) -> VcpuId {
        self.0
    }
}

/// What all cores of a system share for migration.
#[derive(Debug)]
pub struct Shared {
    /// What each core is for.
    pub roles: Roles,
    vcpus: [Option<VcpuFacts>; MAX_VCPUS],
    slots: [ParkingSlot; MAX_VCPUS],
    presences: [Presence; MAX_PCPUS],
}

impl Shared {
    /// The shared state of a system with these vCPUs, by id. No vCPU is parked, and all cores idle.
    pub fn new(roles: Roles, vcpus: [Option<VcpuFacts>; MAX_VCPUS]) -> Self {
        Self {
            roles,
            vcpus,
            slots: atomics!(ParkingSlot::new()),
            presences: atomics!(Presence::new()),
        }
    }

    /// What is constant of a vCPU; `None`: there is none with this id.
    #[inline(always)]
    pub fn vcpu(&self, id: VcpuId) -> Option<&VcpuFacts> {
        self.vcpus.get(id.index())?.as_ref()
    }

    /// The vCPUs, by id.
    pub fn vcpus(&self) -> impl Iterator<Item = (VcpuId, &VcpuFacts)> {
        let ids = (0..).map(VcpuId).zip(&self.vcpus);
        ids.filter_map(|(id, vcpu)| Some((id, vcpu.as_ref()?)))
    }

    /// The band of a vCPU.
    #[inline(always)]
    pub fn band(&self, id: VcpuId) -> Option<Band> {
        Some(self.vcpu(id)?.band)
    }

    /// Those of these cores that are on and run no higher band than `band`, as far as they have published it: an SGI of that band interrupts them.
    pub fn running_at_most(&self, cores: CoreSet, band: Band) -> CoreSet {
        let level = Level::of(Some(band));
        // At most 8 times: cores.
        cores
            .iter()
            .filter(|&core| self.presence(core).level() <= level)
            .collect()
    }

    /// The parking slot of a vCPU.
    #[inline(always)]
    pub fn slot(&self, id: VcpuId) -> &ParkingSlot {
        &self.slots[id.index() % MAX_VCPUS]
    }

    /// Claims a vCPU, if it is still parked as in `seen`. `None`: another core was faster.
    #[inline(always)]
    pub(super) fn claim(&self, id: VcpuId, seen: Parked) -> Option<Claim> {
        self.slot(id).claim(seen).then_some(Claim(id))
    }

    /// What a core publishes.
    #[inline(always)]
    pub fn presence(&self, core: PcpuId) -> &Presence {
        &self.presences[core.index() % MAX_PCPUS]
    }

    /// Whether kernels of guests that migrate are kept off a core.
    pub fn excludes_kernels(&self, core: PcpuId) -> bool {
        self.roles.kernel_free.contains(core)
    }
}
