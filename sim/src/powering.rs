// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are on: the governor and the wish of `core/src/power`, as the console's core of the hypervisor has them
//! (`hypervisor/src/instance/power.rs`), or chance.

use crate::random::Random;
use crate::setup::Powered;
use crate::time::{FREQUENCY_HZ, us};
use spumone_config::packed::{Power, PowerMode};
use spumone_config::types::{GuestId, MAX_PCPUS, PcpuId};
use spumone_core::power::{Governor, Limits, Loads, Movers, Request, Step, Wish};
use spumone_core::schedule::Ticks;
use spumone_core::sets::CoreSet;
use spumone_core::usage::{Usage, Watch};

/// The guests, as the users of cores' time.
pub const RT_GUEST: GuestId = GuestId(0);
pub const SMP_GUEST: GuestId = GuestId(1);

/// The governor's times are so many times shorter than in the hypervisor, so that a short simulation has many of its decisions.
const FASTER: u32 = 100;

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
    /// When the wish was changed last: a core that has to act on it does so from then on.
    pub changed_at: Ticks,
    governor: Governor,
    random: Random,
    pub usages: [Usage; MAX_PCPUS],
    watch: Watch,
}

impl Powering {
    /// For a system with so many cores, of which core 0 stays on.
    pub fn new(powered: Powered, cores: usize, seed: u64) -> Self {
        let power = Power {
            mode: powered.mode(),
            least: 1,
            most: cores as u8,
            stay: 1,
            off_us: 5,
            on_us: 5,
        };
        let all = CoreSet::from_bits((1 << cores) - 1);
        let limits = Limits::new(Some(&power), all);
        let wish = Wish::new(&limits);
        let movers = Movers::new(core::iter::once((SMP_GUEST, all)));
        let frequency = FREQUENCY_HZ / FASTER;
        Self {
            powered,
            limits,
            request: Request::new(power.mode),
            next: Ticks(0),
            mode_at: Ticks(0),
            changed_at: Ticks(0),
            governor: Governor::new(&power, limits, movers, wish.cores(), Ticks(0), frequency),
            wish,
            random: Random::new(seed, 0x0ff),
            usages: [const { Usage::new() }; MAX_PCPUS],
            watch: Watch::new(),
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

    /// Changes the wish, if it is time. Returns the cores that are to look at it; bit n for core n.
    pub fn step(&mut self, now: Ticks) -> u32 {
        let seen = self.wish.cores();
        self.changed_at = now;
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
            Powered::Governed(_) | Powered::Changing => {
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
        ((seen - self.wish.cores()) | (self.wish.cores() - seen)).bits()
    }
}
