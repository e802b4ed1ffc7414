// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are on: they follow the load.
//!
//! ```text
//!   console's core: Governor ── takes cores out ──►  Wish  ◄── adds a core ── any core on which a vCPU waits
//!   (at each window's end, from each core's Usage)     │
//!                                                      ▼
//!         each core that idles, before it waits for an interrupt: migration::follow_wish
//! ```
//!
//! - The [`Wish`] is the set of cores that are to be on: one atomic word that all cores read.
//! - Only one core has the [`Governor`], so only one core takes cores out of the wish. From what each core has spent its time on, it decides whether
//!   the other cores can carry the load with a reserve, and it waits for longer before it takes the next ones out if the last ones were missed soon.
//!   Each guest's load can only be on the cores that it may use ([`Movers`]). While as few cores are on as may be, there are no windows.
//! - A vCPU that waits for a core while one is off adds that core at once ([`brings_back`]): that is no decision of the governor, and waits for no
//!   window. It is a [`Request`], so that windows begin again.
//! - The mode can change at any time: it is part of the [`Request`].
//! - How a core goes off is in [`migration::follow_wish`](crate::migration::follow_wish). One that has nothing left to do then turns itself off by a call of
//!   the firmware ([`Supply`]).
//!
//! A core that has a vCPU that stays there is never taken out, nor is the console's core. For each guest whose vCPUs migrate, one of its cores
//! stays on, too ([`Limits::stay`]).

mod call;
mod fit;
mod governor;
mod loads;
mod request;
mod supply;
mod wish;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use call::call;
pub use governor::{Governor, Step, full_percent};
pub use loads::{Loads, Movers};
pub use request::Request;
pub use supply::Supply;
pub use wish::Wish;

use crate::schedule::{Band, Level};
use crate::sets::CoreSet;
use spumone_config::packed::{Power, PowerMode};

/// Which cores may be off, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The cores on which vCPUs may run.
    pub all: CoreSet,
    /// Those that stay on.
    pub stay: CoreSet,
    /// How many are on at least.
    pub least: u32,
    /// How many are on at most: as many as stay on, or more.
    pub most: u32,
}

impl Limits {
    /// Those of a description; `used`: the cores on which vCPUs may run. The others are off as soon as they idle, except those that are described to
    /// stay on. Without a description of power, all cores stay on.
    pub fn new(power: Option<&Power>, used: CoreSet) -> Self {
        let stay = CoreSet::from_bits(power.map_or(0, |it| it.stay));
        let all = used | stay;
        let cores = all.count();
        match power {
            Some(power) => {
                let most = u32::from(power.most).clamp(stay.count().max(1), cores.max(1));
                Self {
                    all,
                    stay,
                    least: u32::from(power.least).min(most),
                    most,
                }
            }
            None => Self {
                all,
                stay: all,
                least: cores,
                most: cores,
            },
        }
    }
}

/// Whether a vCPU of `band` that waits for a core brings a core back at once. In mode `saving`, vCPUs of the lowest band that migrates
/// (`lowest`) share the cores that are on, until the governor sees that those are busy.
pub fn brings_back(mode: PowerMode, band: Option<Band>, lowest: Level) -> bool {
    match mode {
        PowerMode::Performance | PowerMode::Balanced => true,
        PowerMode::Saving => Level::of(band) > lowest,
    }
}
