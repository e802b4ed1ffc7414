// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which cores are on: the governor and the wish of `core/src/power`, as the console's core of the hypervisor has them
//! (`hypervisor/src/instance/power.rs`), or chance.

use crate::random::Random;
use crate::setup::Powered;
use crate::time::{FREQUENCY_HZ, us};
use spumone_config::packed::Power;
use spumone_config::types::{GuestId, MAX_PCPUS, PcpuId};
use spumone_core::power::{Governor, Limits, Load, Step, Wish};
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
    /// When wishes are looked at next.
    pub next: Ticks,
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
        let limits = Limits::new(Some(&power), CoreSet::from_bits((1 << cores) - 1));
        let wish = Wish::new(&limits);
        let frequency = FREQUENCY_HZ / FASTER;
        Self {
            powered,
            limits,
            next: Ticks(0),
            changed_at: Ticks(0),
            governor: Governor::new(&power, limits, wish.cores(), Ticks(0), frequency),
            wish,
            random: Random::new(seed, 0x0ff),
            usages: [const { Usage::new() }; MAX_PCPUS],
            watch: Watch::new(),
        }
    }

    /// Changes the wish, if it is time. Returns the cores that are to look at it; bit n for core n.
    pub fn step(&mut self, now: Ticks) -> u32 {
        let seen = self.wish.cores();
        self.changed_at = now;
        match self.powered {
            Powered::Governed(_) => {
                self.next = now.saturating_add(us(400));
                let loads = core::array::from_fn(|core| {
                    let core = PcpuId(core as u8);
                    let shares = self.watch.look(core, &self.usages[core.index()], now);
                    Load {
                        fixed: shares.of_guests(1 << RT_GUEST.0),
                        movable: shares.of_guests(1 << SMP_GUEST.0),
                    }
                });
                match self.governor.window_end(now, seen, &loads) {
                    Step::Stay => {}
                    Step::On(core) => _ = self.wish.add(&self.limits, CoreSet::of(core)),
                    Step::Off(core) => _ = self.wish.take_out(&self.limits, seen, core),
                }
            }
            Powered::Chance => {
                self.next = Ticks(now.0 + 1 + self.random.below(us(200).0));
                let core = CoreSet::of(PcpuId(self.random.below(MAX_PCPUS as u64) as u8));
                let core = core & self.limits.all;
                if (core - seen).is_empty() {
                    let out = core.iter().next();
                    out.map(|core| self.wish.take_out(&self.limits, seen, core));
                } else {
                    self.wish.add(&self.limits, core);
                }
            }
        }
        ((seen - self.wish.cores()) | (self.wish.cores() - seen)).bits()
    }
}
