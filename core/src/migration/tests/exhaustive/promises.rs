// SPDX-License-Identifier: MIT OR Apache-2.0
//! What must hold in each state, and what must follow from each state if no more external events come.

use super::at_el2;
use super::lives::Life;
use super::state::{CoreSnapshot, OFF, SharedSnapshot, Timer};
use super::{CORES, HIGH, OFF_CORE, System, VCPUS};
use crate::migration::ParkedState;
use crate::schedule::{Band, VcpuState};
use spumone_config::packed;
use spumone_config::types::VcpuId;
use std::format;
use std::string::String;
use std::vec::Vec;

/// A state, unpacked for the checks.
pub struct Seen<'a> {
    pub shared: SharedSnapshot,
    pub cores: [&'a CoreSnapshot; CORES],
    /// The bands of the vCPUs that migrate.
    pub bands: [Band; VCPUS],
}

impl Seen<'_> {
    pub fn runs(&self, id: usize) -> bool {
        let vcpu = Some(VcpuId(id as u8));
        self.cores.iter().any(|it| it.running() == vcpu)
    }

    pub fn sleeps(&self, id: usize) -> bool {
        self.is_in(id, ParkedState::Asleep, VcpuState::Sleep)
    }

    pub fn is_off(&self, id: usize) -> bool {
        self.is_in(id, ParkedState::Off, VcpuState::Off)
    }

    /// Whether a vCPU is parked in state `parked`, or on a core in state `state`.
    pub fn is_in(&self, id: usize, parked: ParkedState, state: VcpuState) -> bool {
        match self.shared.places[id] {
            Some(place) => place.parked.state == parked,
            None => {
                let host = self.cores[usize::from(self.shared.locations[id])];
                host.state(VcpuId(id as u8)) == Some(state)
            }
        }
    }

    /// Whether a kick is pending on a core, and the priority mask lets it through.
    pub fn takes_kicks(&self, core: u8) -> bool {
        let core = usize::from(core);
        // A core that is off takes all interrupts.
        let is_let_through = |id: usize| {
            let level = self.shared.levels[core];
            level <= Some(self.bands[id]) || level == OFF
        };
        (0..VCPUS).any(|id| self.shared.kicked[core] >> id & 1 != 0 && is_let_through(id))
    }

    /// Whether a core takes mail, which has the band of the guest's highest vCPU.
    pub fn takes_mail(&self, core: u8) -> bool {
        self.shared.levels[usize::from(core)] != Some(HIGH)
    }

    /// Whether a core has mail.
    pub fn has_mail(&self, core: u8) -> bool {
        let mut starts = self.shared.starts.iter();
        starts.any(|it| it.present == Some(core) || it.past == Some(core))
            || self.is_to_stop(core)
            || self.shared.life
                == Life::Restoring {
                    core,
                    has_begun: false,
                }
    }

    pub fn is_to_stop(&self, core: u8) -> bool {
        matches!(self.shared.life, Life::Stopping { left } if left >> core & 1 != 0)
    }

    /// Whether a core is loading the guest, and runs no higher band.
    pub fn loads(&self, core: u8) -> bool {
        let begun = Life::Restoring {
            core,
            has_begun: true,
        };
        self.shared.life == begun && self.cores[usize::from(core)].running() == Some(VcpuId(0))
    }

    /// Whether the guest's next life waits for a core that runs a higher band.
    pub fn waits_for_higher_band(&self) -> bool {
        let waits = |core| match self.shared.life {
            Life::Running => false,
            Life::Stopping { .. } => self.is_to_stop(core),
            Life::Restoring { core: loads, .. } => loads == core,
        };
        (0..CORES as u8).any(|core| !self.takes_mail(core) && waits(core))
    }

    pub fn is_cut_off(&self, id: usize) -> bool {
        self.shared.levels[usize::from(self.shared.locations[id])] > Some(self.bands[id])
    }

    /// Whether a vCPU does not run, and is runnable or cut off.
    fn waits(&self, id: usize) -> bool {
        let is_runnable = !self.sleeps(id) && !self.is_off(id);
        !self.runs(id) && (is_runnable || self.is_cut_off(id))
    }

    /// The cores that idle or run a band below that of a vCPU.
    fn lower_cores(&self, id: usize) -> impl Iterator<Item = u8> {
        let levels = (0..).zip(&self.shared.levels);
        levels
            .filter(move |it| *it.1 < Some(self.bands[id]))
            .map(|it| it.0)
    }

    /// Whether every core runs a band above that of a vCPU.
    fn is_cut_off_everywhere(&self, id: usize) -> bool {
        let mut levels = self.shared.levels.iter();
        levels.all(|&level| level > Some(self.bands[id]))
    }

    pub fn idle(&self) -> impl Iterator<Item = u8> {
        let cores = (0..).zip(&self.cores).zip(&self.shared.levels);
        cores
            .filter(|((_, it), level)| it.running().is_none() && **level != OFF)
            .map(|((core, _), _)| core)
    }
}

impl System {
    /// Checks what must hold in each state.
    pub fn check(&self, seen: &Seen) -> Result<(), String> {
        for (id, place) in seen.shared.places.iter().enumerate() {
            let has = |core: &usize| seen.cores[*core].tokens() >> id & 1 != 0;
            let owners: Vec<_> = (0..CORES).filter(has).collect();
            let host = match (place, &owners[..]) {
                (Some(place), []) => place.parked.host.index(),
                (None, [core]) => *core,
                _ => return Err(format!("vCPU {id} is on {owners:?}, and parked: {place:?}")),
            };
            if usize::from(seen.shared.locations[id]) != host {
                return Err(format!(
                    "the doorbell of vCPU {id} does not name core {host}"
                ));
            }
            let known = seen.cores[host].state(VcpuId(id as u8));
            let expected = place.map(|it| match it.parked.state {
                ParkedState::Runnable | ParkedState::Wanted => Some(VcpuState::Runnable),
                ParkedState::Sent => None,
                ParkedState::Asleep => Some(VcpuState::Sleep),
                ParkedState::Off => Some(VcpuState::Off),
            });
            if expected.map_or(known.is_none(), |expected| expected != known) {
                return Err(format!(
                    "core {host} has its vCPU {id} as {known:?}, its slot: {place:?}"
                ));
            }
        }
        for (core, own) in seen.cores.iter().enumerate() {
            if let Some(id) = own.running().filter(|&id| at_el2::moves(id))
                && own.tokens() >> id.0 & 1 == 0
            {
                return Err(format!("core {core} runs vCPU {} without its token", id.0));
            }
            let level = own.running().map(|id| self.band(id));
            let is_off = seen.shared.levels[core] == OFF;
            if is_off && (own.running().is_some() || own.tokens() != 0 || seen.shared.is_wanted) {
                return Err(format!("core {core} is off, and should not be"));
            }
            if !is_off && level.is_none() && core == usize::from(OFF_CORE) && !seen.shared.is_wanted
            {
                return Err(format!("core {core} idles, and should be off"));
            }
            if !is_off && seen.shared.levels[core] != level {
                return Err(format!(
                    "core {core} has not published the band that it runs"
                ));
            }
        }
        Ok(())
    }

    /// Whether a vCPU waits for nothing, or only for what its policy does not promise.
    pub fn is_content(&self, seen: &Seen, id: usize) -> bool {
        if seen.shared.life != Life::Running {
            return seen.waits_for_higher_band();
        }
        if seen.is_off(id) {
            // Mail waits while its core runs a higher band. It did not when the mail was sent, if the vCPU could have
            // been pulled then: see `AtEl2::start`.
            let asked = seen.shared.starts[id].present;
            return asked.is_none_or(|core| !seen.takes_mail(core));
        }
        if seen.runs(id) {
            return !seen.shared.rung[id];
        }
        let sleeps = seen.sleeps(id);
        if sleeps && !seen.shared.rung[id] && seen.shared.timers[id] == Timer::None {
            return true;
        }
        let state = seen.shared.places[id].map(|it| it.parked.state);
        match self.name {
            // Only an idle core fetches a vCPU, also one that sleeps and is cut off from its timer or a late kick.
            packed::Policy::Balance => {
                (!sleeps || seen.is_cut_off(id)) && seen.idle().next().is_none()
            }
            // A preempted program waits until an interrupt comes for it.
            packed::Policy::Trap => {
                state == Some(ParkedState::Runnable)
                    && !seen.shared.rung[id]
                    && seen.idle().next().is_none()
            }
            // Bands are strict: a vCPU waits while every core runs a higher one, of real-time vCPUs or of others that
            // migrate. If a core is left, the core that cuts the vCPU off notifies it, at the latest after the park delay,
            // and goes on to notify until a core has taken the vCPU. There the vCPU waits for time slices only.
            packed::Policy::Steal | packed::Policy::OnDemand | packed::Policy::Random => {
                seen.is_cut_off_everywhere(id)
            }
            packed::Policy::None | packed::Policy::Delay | packed::Policy::Cosched => false,
        }
    }

    /// Whether a vCPU waits although a core may run it that idles, or runs a lower band: it is runnable, or above the lowest
    /// band that moves and cut off. A vCPU of the lowest band that moves may sleep where it is cut off until it is woken.
    pub fn is_missed(&self, seen: &Seen, id: usize) -> bool {
        let state = seen.shared.places[id].map(|it| it.parked.state);
        let may_take = |core: u8| match self.name {
            packed::Policy::OnDemand => seen.is_cut_off(id) || usize::from(core) == id,
            packed::Policy::Trap => {
                !self.excludes_kernels(core) || state == Some(ParkedState::Runnable)
            }
            packed::Policy::Balance => seen.idle().any(|idle| idle == core),
            packed::Policy::Steal | packed::Policy::Random => true,
            packed::Policy::None | packed::Policy::Delay | packed::Policy::Cosched => true,
        };
        let waits = match self.is_above_lowest(id) {
            true => seen.waits(id),
            false => seen.waits(id) && !seen.sleeps(id) && !seen.is_off(id),
        };
        waits && seen.shared.life == Life::Running && seen.lower_cores(id).any(may_take)
    }

    /// Whether a vCPU is above the lowest band that moves, so that it does not wait for the park delay.
    pub fn is_above_lowest(&self, id: usize) -> bool {
        self.middle >> id & 1 != 0
    }

    /// Whether such a vCPU is handed to another core at once: a core that is notified of it runs no higher band when the
    /// kick arrives. If there are several cores with a real-time vCPU, it may, and this core notifies another one later; so it is if the core that
    /// goes off is another one than that with the real-time vCPU.
    pub fn hands_over_at_once(&self, id: usize) -> bool {
        self.is_above_lowest(id)
            && !self.goes_off
            && self.middle.is_power_of_two()
            && self.rt.is_power_of_two()
    }

    /// Whether no kick or mail is left that a core takes, and no core misses a vCPU.
    pub fn is_at_rest(&self, seen: &Seen) -> bool {
        let is_asked = (0..CORES as u8)
            .any(|core| seen.takes_kicks(core) || seen.takes_mail(core) && seen.has_mail(core));
        !is_asked && !(0..VCPUS).any(|id| self.is_missed(seen, id))
    }
}
