// SPDX-License-Identifier: MIT OR Apache-2.0
//! vCPUs that are turned on and off, and a guest that is reset, as in `hypervisor/src/instance/life.rs`: mail to cores,
//! and what a core does when it reads it.

use super::at_el2::{AtEl2, moves};
use super::state::Timer;
use super::{CORES, VCPUS};
use crate::migration::*;
use crate::schedule::VcpuState;
use spumone_config::types::VcpuId;

/// The vCPU that loads the guest, and starts first.
const FIRST: VcpuId = VcpuId(0);

/// Where the guest is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Life {
    Running,
    /// Bit n is set while core n must still take its vCPUs off, and has mail about it.
    Stopping {
        left: u8,
    },
    /// The core that is to load the guest: it has mail, or has begun.
    Restoring {
        core: u8,
        has_begun: bool,
    },
}

impl Life {
    /// The number of values.
    pub const COUNT: u64 = 1 + (1 << CORES) + 2 * CORES as u64;

    pub fn number(self) -> u64 {
        match self {
            Self::Running => 0,
            Self::Stopping { left } => 1 + u64::from(left),
            Self::Restoring { core, has_begun } => {
                1 + (1 << CORES) + u64::from(core) * 2 + u64::from(has_begun)
            }
        }
    }

    /// The value with this number.
    pub fn numbered(number: u64) -> Self {
        let mut cores = (0..CORES as u8)
            .flat_map(|core| [false, true].map(|has_begun| Self::Restoring { core, has_begun }));
        let mut all = core::iter::once(Self::Running)
            .chain((0..1 << CORES).map(|left| Self::Stopping { left }))
            .chain(&mut cores);
        all.nth(number as usize).unwrap()
    }
}

/// Mail that a vCPU is to start: to which core, of the present life and of an earlier one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Starts {
    pub present: Option<u8>,
    pub past: Option<u8>,
}

impl Starts {
    pub const COUNT: u64 = (CORES as u64 + 1) * (CORES as u64 + 1);

    pub fn number(self) -> u64 {
        let one = |to: Option<u8>| to.map_or(0, |core| u64::from(core) + 1);
        one(self.present) * (CORES as u64 + 1) + one(self.past)
    }

    /// The value with this number.
    pub fn numbered(number: u64) -> Self {
        let one = |number: u64| number.checked_sub(1).map(|core| core as u8);
        Self {
            present: one(number / (CORES as u64 + 1)),
            past: one(number % (CORES as u64 + 1)),
        }
    }

    fn of(&mut self, is_past: bool) -> &mut Option<u8> {
        match is_past {
            true => &mut self.past,
            false => &mut self.present,
        }
    }
}

fn all() -> impl Iterator<Item = VcpuId> {
    (0..VCPUS as u8).map(VcpuId)
}

impl AtEl2<'_> {
    /// A vCPU is turned on, by the running vCPU or by mail. See `Instance::start_vcpu`.
    pub fn start(&mut self, id: VcpuId, is_past: bool) {
        if is_past || self.machine.world.life != Life::Running {
            return;
        }
        if !pull_for_start(&mut self.state, &mut self.machine, id) {
            let host = self.machine.world.doorbells[id.index()].location();
            let is_parked = self.machine.world.shared.slot(id).parked().is_some();
            let band = self.machine.system.band(id);
            let is_reachable = !self.machine.world.shared.presence(host).is_above(band);
            let is_cut_off_here = self.state.current_band() > Some(band);
            assert!(
                is_reachable || is_cut_off_here || !is_parked || !self.state.pulls_for_interrupts,
                "mail for a cut-off vCPU that this core could have pulled"
            );
            let message = self.machine.world.starts[id.index()]
                .present
                .replace(host.0);
            assert_eq!(message, None, "a second mail to start vCPU {}", id.0);
            return;
        }
        self.power_on(id);
        assert_eq!(self.state.vcpu_state(id), Some(VcpuState::Off));
        self.state.start(id);
        self.state.park_soon(id);
    }

    /// A vCPU begins in its kernel, with no timer set.
    fn power_on(&mut self, id: VcpuId) {
        self.machine.world.in_kernel[id.index()] = true;
        self.machine.world.timers[id.index()] = Timer::None;
    }

    /// See `Instance::turn_off`.
    pub fn turn_off(&mut self, id: VcpuId) {
        if self.state.loaded() == Some(id) {
            save_loaded(&mut self.state, &mut self.machine);
        }
        self.take_off(id);
        park(&mut self.state, &mut self.machine, id);
    }

    fn take_off(&mut self, id: VcpuId) {
        self.state.stop(id);
        self.machine.world.timers[id.index()] = Timer::None;
    }

    /// The running vCPU resets the guest, or the operator does. See `Instance::stop_guest`.
    pub fn reset(&mut self) {
        if self.machine.world.life == Life::Running {
            self.machine.world.life = Life::Stopping {
                left: (1 << CORES) - 1,
            };
            self.take_mail(false);
        } else if let Some(id) = self.state.running().filter(|&id| moves(id)) {
            self.take_off(id);
        }
    }

    /// The core reads its mail.
    pub fn take_mail(&mut self, stops_first: bool) {
        self.take_starts(true);
        if !stops_first {
            self.take_starts(false);
        }
        let this = 1 << self.core.0;
        if let Life::Stopping { left } = self.machine.world.life
            && left & this != 0
        {
            self.stop(left & !this);
        }
        if stops_first {
            self.take_starts(false);
        }
        let own = Life::Restoring {
            core: self.core.0,
            has_begun: false,
        };
        if self.machine.world.life == own {
            self.load();
        }
    }

    fn take_starts(&mut self, is_past: bool) {
        for id in all() {
            let message = self.machine.world.starts[id.index()].of(is_past);
            if *message == Some(self.core.0) {
                *message = None;
                self.start(id, is_past);
            }
        }
    }

    /// As `Instance::do_stop_step`, with all steps at once: meanwhile other cores fetch no vCPU of a guest that is stopped. The last core, for which `left` is 0, starts the loading of the guest.
    fn stop(&mut self, left: u8) {
        for id in all() {
            if !acquire_token(&mut self.state, &mut self.machine, id) {
                self.state.forget(id);
                continue;
            }
            if self.state.loaded() == Some(id) {
                save_loaded(&mut self.state, &mut self.machine);
            }
            self.take_off(id);
            self.power_on(id);
            self.state.park_soon(id);
        }
        self.machine.world.life = Life::Stopping { left };
        if left == 0 {
            self.machine.world.life = Life::Restoring {
                core: self.machine.world.doorbells[FIRST.index()].location().0,
                has_begun: false,
            };
        }
    }

    /// See `Instance::begin_loading`.
    fn load(&mut self) {
        assert!(
            acquire_token(&mut self.state, &mut self.machine, FIRST),
            "the vCPU that loads the guest is here"
        );
        self.machine.world.life = Life::Restoring {
            core: self.core.0,
            has_begun: true,
        };
        self.state.start(FIRST);
    }

    /// Whether this vCPU is loading its guest on this core.
    pub fn is_loading(&self, id: VcpuId) -> bool {
        let own = Life::Restoring {
            core: self.core.0,
            has_begun: true,
        };
        id == FIRST && self.machine.world.life == own
    }

    /// See `Instance::begin_life`.
    pub fn begin_life(&mut self) {
        self.machine.world.life = Life::Running;
        self.power_on(FIRST);
        for doorbell in &self.machine.world.doorbells[..VCPUS] {
            doorbell.reset();
        }
        for starts in &mut self.machine.world.starts {
            if let Some(to) = starts.present.take() {
                let before = starts.past.replace(to);
                assert_eq!(before, None, "mail of two earlier lives");
            }
        }
    }
}
