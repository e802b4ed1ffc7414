// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are on, as all cores see it. `instance/power.rs` has what a core does about that.

use spumone_config::GuestId;
use spumone_config::packed::{PowerMode, System};
use spumone_core::power::{Limits, Movers, Request, Supply, Wish};
use spumone_core::sets::CoreSet;

/// What the description says about power, and which cores are wanted.
pub struct Power {
    /// `None`: all cores stay on.
    pub described: Option<spumone_config::packed::Power>,
    /// Which cores may be off.
    pub limits: Limits,
    /// The cores that are to be on.
    pub wish: Wish,
    /// The cores that have turned themselves off.
    pub supply: Supply,
    /// What the governor is asked for.
    pub request: Request,
    /// The guests whose vCPUs migrate.
    pub movers: Movers,
}

impl Power {
    /// That of a system, at start.
    pub fn new(system: &System) -> Self {
        let guests = || (0..).map(GuestId).zip(&system.guests);
        let cores = |cores| CoreSet::from_bits(cores);
        let used = guests().fold(0, |all, (_, it)| all | it.cores);
        let limits = Limits::new(system.power.as_ref(), cores(used));
        let moving = guests().filter(|(_, it)| it.moves);
        let mode = system.power.map_or(PowerMode::Performance, |it| it.mode);
        Self {
            described: system.power,
            limits,
            wish: Wish::new(&limits),
            supply: Supply::new(),
            request: Request::new(mode),
            movers: Movers::new(moving.map(|(guest, it)| (guest, cores(it.cores)))),
        }
    }

    /// The mode; `None`: all cores stay on in this system.
    pub fn mode(&self) -> Option<PowerMode> {
        self.described.as_ref().map(|_| self.request.mode())
    }

    /// Whether a core is off that may come on.
    #[inline(always)]
    pub fn may_bring_back(&self) -> bool {
        self.described.is_some() && self.wish.cores().count() < self.limits.most
    }
}
