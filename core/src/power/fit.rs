// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether cores can carry the load of guests, each of which may use only some of the cores.

use super::loads::{Loads, Movers, WHOLE};
use crate::sets::CoreSet;
use spumone_config::types::{GuestId, MAX_PCPUS};

/// Distributes the loads of guests over cores, one guest per step: those that may use the fewest cores first. If that leaves no load over, the cores
/// can carry it. The opposite holds too if of any two guests either may use all cores of the other, or none: otherwise, another distribution might
/// leave none over.
#[derive(Debug)]
pub(super) struct Fit {
    /// The cores that carry the load.
    cores: CoreSet,
    /// What each may still be given.
    left: [u32; MAX_PCPUS],
    /// The cores that have any time for vCPUs that migrate.
    with_room: CoreSet,
    /// How many guests are distributed.
    done: usize,
}

/// What came of a step of [`Fit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fits {
    /// The load of all guests fits.
    All,
    /// That of the guest of this step fits.
    SoFar,
    /// That of this guest does not.
    Not(GuestId),
}

impl Fit {
    /// Of these cores, which may be filled by this share, in percent of the time that their own vCPUs leave.
    pub(super) fn new(cores: CoreSet, loads: &Loads, percent: u32) -> Self {
        let mut left = [0; MAX_PCPUS];
        let mut with_room = CoreSet::EMPTY;
        // At most 8 times: cores.
        for core in cores.iter() {
            if let Some((left, fixed)) = left.get_mut(core.index()).zip(loads.fixed(core)) {
                let room = WHOLE.saturating_sub(fixed);
                *left = room * percent / 100;
                with_room.insert_if(core, room > 0);
            }
        }
        Self {
            cores,
            left,
            with_room,
            done: 0,
        }
    }

    /// Distributes the load of the next guest. After [`Fits::Not`], the guest fills its cores, and others can be tried.
    pub(super) fn step(&mut self, movers: &Movers, loads: &Loads) -> Fits {
        let Some((guest, allowed)) = movers.get(self.done) else {
            return Fits::All;
        };
        self.done += 1;
        let mut load = loads.of(guest);
        let cores = allowed & self.cores;
        // At most 8 times: cores.
        for core in cores.iter() {
            if let Some(left) = self.left.get_mut(core.index()) {
                let given = load.min(*left);
                *left -= given;
                load -= given;
            }
        }
        // Without any room, vCPUs that wait have no load.
        match load == 0 && !(cores & self.with_room).is_empty() {
            true => Fits::SoFar,
            false => Fits::Not(guest),
        }
    }
}
