// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the governor knows of guests: which ones migrate, between which cores, and what load they are.

use crate::sets::CoreSet;
use crate::usage::Shares;
use spumone_config::types::{GuestId, MAX_GUESTS, MAX_PCPUS, PcpuId};

/// A whole, in the unit of [`Loads`].
pub(super) const WHOLE: u32 = 1000;

/// The guests whose vCPUs migrate, with the cores that each may use. Guests with the fewest cores come first.
#[derive(Clone, Debug, Default)]
pub struct Movers(heapless::Vec<(GuestId, CoreSet), MAX_GUESTS>);

impl Movers {
    /// Of at most [`MAX_GUESTS`] guests. At start only.
    pub fn new(guests: impl Iterator<Item = (GuestId, CoreSet)>) -> Self {
        let mut all: heapless::Vec<_, MAX_GUESTS> = guests.take(MAX_GUESTS).collect();
        all.sort_unstable_by_key(|(guest, cores)| (cores.count(), guest.0));
        Self(all)
    }

    /// One of them by its place.
    pub(super) fn get(&self, place: usize) -> Option<(GuestId, CoreSet)> {
        self.0.get(place).copied()
    }

    /// The cores that a guest may use; none if it does not migrate.
    pub(super) fn cores_of(&self, guest: GuestId) -> CoreSet {
        // At most 8 times: guests.
        let found = self.0.iter().find(|it| it.0 == guest);
        found.map_or(CoreSet::EMPTY, |it| it.1)
    }

    /// Which guests they are; bit n for guest n.
    pub(super) fn bits(&self) -> u32 {
        // At most 8 times: guests.
        self.0.iter().fold(0, |all, (guest, _)| all | 1 << guest.0)
    }
}

/// What cores have spent a window on, in thousandths of a core's time. The rest they have idled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// By core, on vCPUs that stay there: no other core can have this load.
    fixed: [u32; MAX_PCPUS],
    /// By core, on vCPUs that migrate.
    movable: [u32; MAX_PCPUS],
    /// By guest that migrates, on all cores.
    of_guest: [u32; MAX_GUESTS],
}

impl Loads {
    /// No load.
    pub const NONE: Self = Self {
        fixed: [0; MAX_PCPUS],
        movable: [0; MAX_PCPUS],
        of_guest: [0; MAX_GUESTS],
    };

    /// Adds what a core has spent its time on.
    pub fn add(&mut self, core: PcpuId, shares: &Shares, movers: &Movers) {
        let movers = movers.bits();
        // At most 8 times: guests.
        for (guest, share) in (0..).map(GuestId).zip(shares.by_guest()) {
            match movers >> guest.0 & 1 {
                0 => self.add_fixed(core, share),
                _ => self.add_movable(core, guest, share),
            }
        }
    }

    /// Adds what a core has spent on vCPUs that stay there, in thousandths of its time.
    pub fn add_fixed(&mut self, core: PcpuId, load: u32) {
        if let Some(fixed) = self.fixed.get_mut(core.index()) {
            *fixed += load;
        }
    }

    /// Adds what a core has spent on a guest whose vCPUs migrate, in thousandths of its time.
    pub fn add_movable(&mut self, core: PcpuId, guest: GuestId, load: u32) {
        if let Some(movable) = self.movable.get_mut(core.index())
            && let Some(of_guest) = self.of_guest.get_mut(guest.index())
        {
            *movable += load;
            *of_guest += load;
        }
    }

    /// The load of vCPUs that stay on this core, at most a whole; `None`: there is no such core.
    pub(super) fn fixed(&self, core: PcpuId) -> Option<u32> {
        Some(*self.fixed.get(core.index())?.min(&WHOLE))
    }

    /// The load of vCPUs that migrate, on this core.
    pub(super) fn movable(&self, core: PcpuId) -> u32 {
        self.movable.get(core.index()).copied().unwrap_or(0)
    }

    /// The load of a guest whose vCPUs migrate, on all cores.
    pub(super) fn of(&self, guest: GuestId) -> u32 {
        self.of_guest.get(guest.index()).copied().unwrap_or(0)
    }
}
