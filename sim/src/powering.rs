// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are on: the governor and the wish of `core/src/power`, as the console's core of the hypervisor has them
//! (`hypervisor/src/instance/power.rs`), or chance.

use crate::costs::Costs;
use crate::meter::Meter;
use crate::random::Random;
use crate::setup::{Powered, Setup};
use crate::time::{FREQUENCY_HZ, TICKS_PER_US, us};
use spumone_config::packed::{Power, PowerMode};
use spumone_config::types::{GuestId, MAX_PCPUS, PcpuId};
use spumone_core::power::{Governor, Limits, Loads, Movers, Request, Step, Wish};
use spumone_core::schedule::Ticks;
use spumone_core::sets::CoreSet;
use spumone_core::usage::{Usage, Watch};

/// The guests, as the users of cores' time.
pub const RT_GUEST: GuestId = GuestId(0);
pub const SMP_GUEST: GuestId = GuestId(1);

/// By how much a decision is put off, once, if the core is about to wake a vCPU, as in `hypervisor/src/instance/power.rs`.
const PUT_OFF: Ticks = us(20);

/// Which cores of a system are on.
#[derive(Debug)]
pub struct Powering {
    pub powered: Powered,
    pub limits: Limits,
    pub wish: Wish,
    /// What the governor is asked for.
    pub request: Request,
    /// When wishes are looked at next.
    next: Ticks,
    /// When the mode changes next, if it does.
    mode_at: Ticks,
    /// Whether the decision was put off because the core was about to wake a vCPU.
    was_put_off: bool,
    /// By core: when it was called because the wish has changed.
    called_at: [Ticks; MAX_PCPUS],
    /// By core: when it was turned off, if it is.
    off_at: [Option<Ticks>; MAX_PCPUS],
    costs: Costs,
    governor: Governor,
    random: Random,
    pub usages: [Usage; MAX_PCPUS],
    watch: Watch,
    pub meter: Meter,
}

impl Powering {
    /// For one system of a setup; its core 0 stays on.
    pub fn new(powered: Powered, setup: &Setup, seed: u64) -> Self {
        let (cores, costs) = (setup.guest_cores, setup.costs);
        let in_us = |ticks: u64| (ticks / TICKS_PER_US) as u32;
        let power = Power {
            mode: powered.mode(),
            least: 1,
            most: cores as u8,
            stay: 1,
            off_us: in_us(costs.turn_off),
            on_us: in_us(costs.turn_on),
        };
        let all = CoreSet::from_bits((1 << cores) - 1);
        let limits = Limits::new(Some(&power), all);
        let wish = Wish::new(&limits);
        let movers = Movers::new(core::iter::once((SMP_GUEST, all)));
        let frequency = FREQUENCY_HZ / powered.haste();
        Self {
            powered,
            limits,
            request: Request::new(power.mode),
            next: Ticks(0),
            mode_at: Ticks(0),
            was_put_off: false,
            called_at: [Ticks(0); MAX_PCPUS],
            off_at: [None; MAX_PCPUS],
            costs,
            governor: Governor::new(&power, limits, movers, wish.cores(), Ticks(0), frequency),
            wish,
            random: Random::new(seed, 0x0ff),
            usages: [const { Usage::new() }; MAX_PCPUS],
            watch: Watch::new(),
            meter: Meter::new(setup),
        }
    }

    /// A core asks the governor for a decision, or sets the mode.
    pub fn ask(&mut self, now: Ticks, mode: Option<PowerMode>) {
        let is_first = match mode {
            Some(mode) => self.request.set_mode(mode).1,
            None => self.request.ask(),
        };
        if is_first && self.next == Ticks::NEVER {
            self.next = now;
        }
    }

    /// When [`Self::step`] has something to do next.
    pub fn next(&self) -> Ticks {
        match self.powered {
            Powered::Changing => self.next.min(self.mode_at),
            _ => self.next,
        }
    }

    /// A core is to act on the wish.
    pub fn call(&mut self, core: PcpuId, now: Ticks) {
        self.called_at[core.index()] = now;
    }

    /// A core has done a step, after which it is at rest, or is not. If it is, the firmware turns it off.
    pub fn turn(&mut self, core: PcpuId, now: Ticks, rests: bool) {
        let off_at = &mut self.off_at[core.index()];
        if off_at.is_some() != rests {
            *off_at = rests.then_some(now);
            self.meter.turns(now, core.0, rests);
        }
    }

    /// When the wish of a core has changed last.
    pub const fn called_at(&self, core: PcpuId) -> Ticks {
        self.called_at[core.index()]
    }

    /// When a core executes its first instruction for what comes for it at this time: if it was turned off, the firmware has turned it on then.
    pub fn acts_at(&self, core: PcpuId, at: Ticks) -> Ticks {
        match self.off_at[core.index()] {
            Some(off_at) if at != Ticks::NEVER => {
                let is_off = Ticks(off_at.0 + self.costs.turn_off);
                Ticks(at.max(is_off).0 + self.costs.turn_on)
            }
            _ => at,
        }
    }

    /// Whether the decision that is due is put off, as the core is quiet from then on.
    pub fn puts_off(&mut self, now: Ticks, quiet_from: Ticks) -> bool {
        self.was_put_off = quiet_from <= now && !self.was_put_off;
        if self.was_put_off {
            self.next = Ticks(now.0 + PUT_OFF.0);
        }
        self.was_put_off
    }

    /// Changes the wish, if it is time. Returns the cores that are to look at it; bit n for core n.
    pub fn step(&mut self, now: Ticks) -> u32 {
        let seen = self.wish.cores();
        if self.powered == Powered::Changing && self.mode_at <= now {
            self.mode_at = Ticks(now.0 + 1 + self.random.below(us(2_000).0));
            let modes = [
                PowerMode::Performance,
                PowerMode::Balanced,
                PowerMode::Saving,
            ];
            let mode = modes[self.random.below(3) as usize];
            self.ask(now, Some(mode));
        }
        match self.powered {
            _ if self.next > now => {}
            Powered::Governed(_) | Powered::Hasty(_) | Powered::Changing => {
                let mode = self.request.take();
                let mut loads = Loads::NONE;
                for (core, usage) in (0..).map(PcpuId).zip(&self.usages) {
                    let shares = self.watch.look(core, usage, now);
                    loads.add(core, &shares, self.governor.movers());
                }
                let step = loop {
                    if let Some(step) = self.governor.step(now, seen, mode, &loads) {
                        break step;
                    }
                };
                match step {
                    Step::Stay => {}
                    Step::On(cores) => {
                        for core in cores.iter() {
                            let _ = self.wish.add(&self.limits, CoreSet::of(core));
                        }
                    }
                    Step::Off(cores) => _ = self.wish.take_out(&self.limits, seen, cores),
                }
                self.next = self.governor.next_end(now);
            }
            Powered::Chance => {
                self.next = Ticks(now.0 + 1 + self.random.below(us(200).0));
                let core = CoreSet::of(PcpuId(self.random.below(MAX_PCPUS as u64) as u8));
                let core = core & self.limits.all;
                if (core - seen).is_empty() {
                    let out = core.iter().next();
                    out.map(|core| self.wish.take_out(&self.limits, seen, CoreSet::of(core)));
                } else {
                    self.wish.add(&self.limits, core);
                }
            }
        }
        let changed = (seen - self.wish.cores()) | (self.wish.cores() - seen);
        for core in changed.iter() {
            self.call(core, now);
        }
        changed.bits()
    }
}
