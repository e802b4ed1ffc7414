// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every state that three cores and three vCPUs get into, with the code that the hypervisor runs.
//!
//! [`visit`] is one core at EL2: the real [`CoreState`], [`Scheduler`](crate::schedule::Scheduler), slots, doorbells and
//! presences, and the functions of [`migration`](super), called as `hypervisor/src/instance/` calls them. A visit is one
//! step; [`model_tests`](super::super::model) and loom take what crosses within one. [`state`] makes states comparable,
//! [`explore`] goes through them.
//!
//! From outside come interrupts, rung for any vCPU on any core; vCPUs that wait, with a timer or without, or
//! leave or enter their kernel where that is caught; real-time vCPUs that wake and sleep; vCPUs that are turned on and off,
//! and a guest that is reset, where [`lives`] are gone through. All that follows from up to so many of
//! these, in every order, is gone through: kicks arrive when they like, and time passes on each core apart, so whichever
//! of two waits on different cores is shorter, both orders are there. But a kick arrives before the next tick of its core.
//!
//! - The token of each vCPU is on one core, or lies in its slot, which says so; its doorbell names that core, whose
//!   scheduler takes it for what the slot tells. Who runs has its token.
//! - From each state, however it came about, and if nothing more comes from outside, each vCPU gets to where nothing waits
//!   for it: it sleeps with nothing rung and no timer set, or has heard what was rung and runs. So no interrupt,
//!   no timer and no vCPU that could run is forgotten, and nothing stops or goes round for ever. What a policy does not promise
//!   is excepted in [`System::is_content`].
//! - As well, all get to where no core has a kick to hear, or idles beside a vCPU that it may take.
//! - A vCPU that is turned on starts, and a guest that is reset runs again. Both wait while a core that has the message,
//!   has yet to take vCPUs off, or is to load the guest runs somebody more urgent.
//!
//! Not here: guests that end for good, real-time vCPUs that move.

mod explore;
mod lives;
mod state;
mod visit;

use crate::migration::{
    Catch, CoreSetup, CoreState, Grace, Level, ParkedState, Policy, Roles, Shared, VcpuFacts,
};
use crate::schedule::{Band, Ticks, VcpuState};
use crate::sets::CoreSet;
use explore::explore;
use lives::Life;
use spumone_config::packed::{self, Without};
use spumone_config::types::{MAX_VCPUS, PcpuId, VcpuId};
use state::{CoreSnapshot, SharedSnapshot, Timer};
use std::format;
use std::string::String;
use std::vec::Vec;
use visit::{Interrupt, Own, Point, Token, Visit};

const CORES: usize = 3;
/// Of one guest; vCPU n is at home on core n.
const VCPUS: usize = 3;
/// Those that change cores.
const MOVING: u32 = (1 << VCPUS) - 1;
const LOW: Band = Band::LOWEST;
const HIGH: Band = match Band::new(1) {
    Some(band) => band,
    None => Band::HIGHEST,
};
/// One tick is the patience of the policies. What differs from core to core in real time does so here too, for
/// clocks go apart; so all times are one tick.
const FREQUENCY_HZ: u32 = 10_000;
const QUANTUM: Ticks = Ticks(1);
/// After which `steal` says that a vCPU starves, at [`FREQUENCY_HZ`].
const STARVED: Ticks = Ticks(50);

/// The real-time vCPU of a core, which stays there.
const fn rt_of(core: u8) -> VcpuId {
    VcpuId(VCPUS as u8 + core)
}

/// What happens, and on which core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    core: u8,
    what: What,
    /// Whether the vCPU that runs is interrupted in its kernel.
    in_kernel: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// Something is sent for a vCPU: by the one that runs, or by a device.
    Ring(VcpuId),
    /// The vCPU that runs waits for an interrupt, its timer set or not.
    Wait {
        timer: bool,
    },
    /// The real-time vCPU of the core wakes, or sleeps.
    Rt {
        wakes: bool,
    },
    /// The real-time vCPU goes to sleep, a kick arrives, or time passes; and while the core is at EL2 for that, an interrupt
    /// arrives at one of the points where the core looks for interrupts.
    Between {
        interrupt: Interrupt,
        point: Point,
    },
    /// The vCPU that runs does what is to be caught.
    Caught,
    /// The vCPU that runs turns another one on, or itself off.
    Start(VcpuId),
    Off,
    /// It resets its guest, or somebody at the console does.
    Reset,
    /// A kick arrives.
    Kick,
    /// Messages arrive: that the guest stops before that a vCPU starts, or after.
    Mail {
        stops_first: bool,
    },
    /// The guest is loaded.
    Loaded,
    /// Time passes; an alarm may ring.
    Tick,
}

impl What {
    /// It follows from what has happened, sooner or later.
    fn is_internal(self) -> bool {
        matches!(
            self,
            Self::Kick | Self::Mail { .. } | Self::Loaded | Self::Tick
        )
    }
}

/// A system.
struct System {
    name: packed::Policy,
    policy: Policy,
    /// Cores that have a real-time vCPU; bit n for core n.
    rt: u8,
    /// vCPUs that set their timers; bit n for vCPU n.
    timers: u8,
    /// Whether vCPUs are turned on and off, and the guest is reset.
    lives: bool,
}

/// A state, to be looked at.
struct Seen<'a> {
    shared: SharedSnapshot,
    cores: [&'a CoreSnapshot; CORES],
}

impl Seen<'_> {
    fn runs(&self, id: usize) -> bool {
        let vcpu = Some(VcpuId(id as u8));
        self.cores.iter().any(|it| it.running() == vcpu)
    }

    fn sleeps(&self, id: usize) -> bool {
        self.rests(id, ParkedState::Asleep, VcpuState::Sleep)
    }

    fn is_off(&self, id: usize) -> bool {
        self.rests(id, ParkedState::Off, VcpuState::Off)
    }

    /// Whether a vCPU is parked so, or its core has it so.
    fn rests(&self, id: usize, parked: ParkedState, state: VcpuState) -> bool {
        match self.shared.places[id] {
            Some(place) => place.parked.state == parked,
            None => {
                let host = self.cores[usize::from(self.shared.locations[id])];
                host.state(VcpuId(id as u8)) == Some(state)
            }
        }
    }

    fn hears(&self, core: u8) -> bool {
        self.shared.levels[usize::from(core)] != Some(HIGH)
    }

    /// Whether a core has messages.
    fn has_mail(&self, core: u8) -> bool {
        let mut starts = self.shared.starts.iter();
        starts.any(|it| it.present == Some(core) || it.past == Some(core))
            || self.is_to_stop(core)
            || self.shared.life
                == Life::Restoring {
                    core,
                    has_begun: false,
                }
    }

    fn is_to_stop(&self, core: u8) -> bool {
        matches!(self.shared.life, Life::Stopping { left } if left >> core & 1 != 0)
    }

    /// Whether a core loads the guest, and hears.
    fn loads(&self, core: u8) -> bool {
        let begun = Life::Restoring {
            core,
            has_begun: true,
        };
        self.shared.life == begun && self.cores[usize::from(core)].running() == Some(VcpuId(0))
    }

    /// Whether the life of the guest goes on only when a core hears again that does not.
    fn waits_for_deaf(&self) -> bool {
        let waits = |core| match self.shared.life {
            Life::Running => false,
            Life::Stopping { .. } => self.is_to_stop(core),
            Life::Restoring { core: loads, .. } => loads == core,
        };
        (0..CORES as u8).any(|core| !self.hears(core) && waits(core))
    }

    fn is_cut_off(&self, id: usize) -> bool {
        self.shared.levels[usize::from(self.shared.locations[id])] == Some(HIGH)
    }

    fn idle(&self) -> impl Iterator<Item = u8> {
        let cores = (0..).zip(&self.cores);
        cores
            .filter(|(_, it)| it.running().is_none())
            .map(|(core, _)| core)
    }
}

impl System {
    fn new(name: packed::Policy, rt: u8, timers: u8) -> Self {
        Self {
            name,
            policy: Policy::new(name, FREQUENCY_HZ),
            rt,
            timers,
            lives: false,
        }
    }

    fn excludes_kernels(&self, core: u8) -> bool {
        self.policy.rules().excludes_kernels && self.rt >> core & 1 != 0
    }

    /// All run at home.
    fn start(&self) -> (SharedSnapshot, [Own; CORES]) {
        let mut shared = SharedSnapshot::start();
        let cores = core::array::from_fn(|core| {
            let core = core as u8;
            let visit = Visit::new(self, core, self.core(core), &shared);
            let (own, after) = visit.end();
            shared = after;
            own
        });
        (shared, cores)
    }

    fn core(&self, core: u8) -> Own {
        let setup = CoreSetup {
            quantum: QUANTUM,
            frequency_hz: FREQUENCY_HZ,
            rules: self.policy.rules(),
            without: Without::default(),
        };
        let mut state = CoreState::new(PcpuId(core), &setup, &self.shared());
        // Looked at once more: that it may be more often adds states, and nothing that others see.
        state.grace = Grace::new(Ticks(1), 1, true);
        state.notify_again_after = Ticks(1);
        state.take_back_after = Ticks(1);
        for (id, band) in [(VcpuId(core), LOW), (rt_of(core), HIGH)] {
            let doing = if band == LOW {
                VcpuState::Suspend
            } else {
                VcpuState::Sleep
            };
            state.place(id, Token(id), band, doing);
        }
        let now = Ticks(1_000);
        Own { state, now }
    }

    /// What the cores share, all of them idle and no vCPU parked.
    fn shared(&self) -> Shared {
        let mut vcpus = [None; MAX_VCPUS];
        for core in 0..CORES as u8 {
            let (vcpu, rt) = (usize::from(core), rt_of(core).index());
            vcpus[vcpu] = Some(VcpuFacts {
                band: LOW,
                home: PcpuId(core),
                cores: CoreSet::from_bits((1 << CORES) - 1),
                moves: true,
            });
            vcpus[rt] = Some(VcpuFacts {
                band: HIGH,
                home: PcpuId(core),
                cores: CoreSet::of(PcpuId(core)),
                moves: false,
            });
        }
        let kernel_free = match self.policy.rules().excludes_kernels {
            true => CoreSet::from_bits(self.rt.into()),
            false => CoreSet::EMPTY,
        };
        let roles = Roles {
            kernel_free,
            gang: None,
            highest_movable: Level::of(Some(LOW)),
            lowest_movable: Level::of(Some(LOW)),
        };
        Shared::new(roles, vcpus)
    }

    /// All that can happen in a state.
    fn events(&self, seen: &Seen, is_external: bool, out: &mut Vec<Event>) {
        for core in 0..CORES as u8 {
            let own = seen.cores[usize::from(core)];
            let has_rt = self.rt >> core & 1 != 0;
            let is_deaf = own.running().is_some_and(|id| !visit::moves(id));
            let guest = own.running().filter(|_| !is_deaf);
            // Where one of both is caught, it would not be there.
            let kernels: &[bool] = match (guest, own.catches()) {
                (None, _) | (_, Catch::Entry) => &[false],
                (_, Catch::Nothing) => &[false, true],
                (_, Catch::Exit) => &[true],
            };
            let mut push = |what, kernels: &[bool]| {
                out.extend(kernels.iter().map(|&in_kernel| Event {
                    core,
                    what,
                    in_kernel,
                }));
            };
            let kicked = seen.shared.kicked[usize::from(core)];
            if kicked != 0 && !is_deaf {
                push(What::Kick, kernels);
            }
            if seen.has_mail(core) && !is_deaf {
                push(What::Mail { stops_first: false }, kernels);
                if seen.is_to_stop(core) {
                    push(What::Mail { stops_first: true }, kernels);
                }
            } else if kicked == 0 || is_deaf {
                push(What::Tick, kernels);
            }
            if seen.loads(core) {
                push(What::Loaded, kernels);
            }
            if has_rt && is_external {
                push(What::Rt { wakes: !is_deaf }, kernels);
                for point in Point::ALL {
                    let interrupt = Interrupt::Rt;
                    push(What::Between { interrupt, point }, kernels);
                }
            }
            if !is_external {
                continue;
            }
            if kicked != 0 {
                for point in Point::ALL {
                    let interrupt = Interrupt::Kick;
                    push(What::Between { interrupt, point }, kernels);
                }
            }
            for id in 0..VCPUS {
                if !seen.shared.rung[id] {
                    push(What::Ring(VcpuId(id as u8)), &kernels[kernels.len() - 1..]);
                }
            }
            let is_reset = match seen.shared.life {
                Life::Running => !is_deaf,
                Life::Stopping { .. } => guest.is_some(),
                Life::Restoring { .. } => false,
            };
            if self.lives && is_reset {
                push(What::Reset, &kernels[kernels.len() - 1..]);
            }
            let Some(guest) = guest.filter(|_| !seen.loads(core)) else {
                continue;
            };
            if self.lives && own.catches() != Catch::Entry {
                for id in (0..VCPUS).filter(|&id| seen.is_off(id)) {
                    if seen.shared.starts[id].present.is_none() {
                        push(What::Start(VcpuId(id as u8)), &[true]);
                    }
                }
                // The last one that is on, or about to be, ends the guest for good.
                let is_alive =
                    |id: usize| !seen.is_off(id) || seen.shared.starts[id].present.is_some();
                if (0..VCPUS).any(|id| id != guest.index() && is_alive(id)) {
                    push(What::Off, &[true]);
                }
            }
            if own.catches() != Catch::Nothing {
                push(What::Caught, &[false]);
            }
            if own.catches() != Catch::Entry && !seen.shared.rung[guest.index()] {
                push(What::Wait { timer: false }, &[true]);
                if self.timers >> guest.0 & 1 != 0 {
                    push(What::Wait { timer: true }, &[true]);
                }
            }
        }
    }

    /// What a core makes of an event.
    fn apply(&self, event: Event, own: Own, shared: &SharedSnapshot) -> (Own, SharedSnapshot) {
        let running = own.state.running().filter(|&id| visit::moves(id));
        let mut visit = Visit::new(self, event.core, own, shared);
        if let Some(id) = running {
            visit.set_in_kernel(id, event.in_kernel);
        }
        match (event.what, running) {
            (What::Ring(id), _) => visit.ring(id),
            (What::Wait { timer }, Some(id)) => visit.wait(id, timer),
            (What::Caught, Some(id)) => visit.caught(id),
            (What::Start(id), _) => visit.start(id, false),
            (What::Off, Some(id)) => visit.turn_off(id),
            (What::Reset, _) => visit.reset(),
            (What::Mail { stops_first }, _) => visit.take_mail(stops_first),
            (What::Loaded, _) => visit.begin_life(),
            (What::Wait { .. } | What::Caught | What::Off, None) => {}
            (What::Rt { wakes }, _) => visit.rt(wakes),
            (What::Between { interrupt, point }, _) => visit.between(interrupt, point),
            (What::Kick, _) => visit.take_kicks(),
            (What::Tick, _) => visit.tick(),
        }
        visit.end()
    }

    /// Whether a state is one that may be at all.
    fn check(&self, seen: &Seen) -> Result<(), String> {
        for (id, place) in seen.shared.places.iter().enumerate() {
            let has = |core: &usize| seen.cores[*core].tokens() >> id & 1 != 0;
            let holders: Vec<_> = (0..CORES).filter(has).collect();
            let host = match (place, &holders[..]) {
                (Some(place), []) => place.parked.host.index(),
                (None, [core]) => *core,
                _ => return Err(format!("vCPU {id} is on {holders:?}, and lies: {place:?}")),
            };
            if usize::from(seen.shared.locations[id]) != host {
                return Err(format!(
                    "the doorbell of vCPU {id} does not name core {host}"
                ));
            }
            let known = seen.cores[host].state(VcpuId(id as u8));
            let told = place.map(|it| match it.parked.state {
                ParkedState::Runnable | ParkedState::Wanted => Some(VcpuState::Suspend),
                ParkedState::Sent => None,
                ParkedState::Asleep => Some(VcpuState::Sleep),
                ParkedState::Off => Some(VcpuState::Off),
            });
            if told.map_or(known.is_none(), |told| told != known) {
                return Err(format!(
                    "core {host} takes its vCPU {id} for {known:?}: {place:?}"
                ));
            }
        }
        for (core, own) in seen.cores.iter().enumerate() {
            if let Some(id) = own.running().filter(|&id| visit::moves(id))
                && own.tokens() >> id.0 & 1 == 0
            {
                return Err(format!("core {core} runs vCPU {} without its token", id.0));
            }
            let level = own
                .running()
                .map(|id| if visit::moves(id) { LOW } else { HIGH });
            if seen.shared.levels[core] != level {
                return Err(format!("core {core} does not tell whom it runs"));
            }
        }
        Ok(())
    }

    /// Whether a vCPU waits for nothing, or for what its policy does not promise.
    fn is_content(&self, seen: &Seen, id: usize) -> bool {
        if seen.shared.life != Life::Running {
            return seen.waits_for_deaf();
        }
        if seen.is_off(id) {
            // A message waits until its core hears again. It heard when the message was sent, if the vCPU could be
            // taken then: see `Visit::start`.
            let asked = seen.shared.starts[id].present;
            return asked.is_none_or(|core| !seen.hears(core));
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
            // Only an idle core helps, also one that sleeps where its timer, or a kick that came late, is not heard.
            packed::Policy::Balance => {
                (!sleeps || seen.is_cut_off(id)) && seen.idle().next().is_none()
            }
            // A preempted program waits, until an interrupt comes for it.
            packed::Policy::Trap => {
                state == Some(ParkedState::Runnable)
                    && !seen.shared.rung[id]
                    && seen.idle().next().is_none()
            }
            _ => false,
        }
    }

    /// Whether a vCPU could run, does not, and a core idles that may take it.
    fn is_beside_idle(&self, seen: &Seen, id: usize) -> bool {
        let state = seen.shared.places[id].map(|it| it.parked.state);
        let may_take = |core: u8| match self.name {
            packed::Policy::OnDemand => seen.is_cut_off(id) || usize::from(core) == id,
            packed::Policy::Trap => {
                !self.excludes_kernels(core) || state == Some(ParkedState::Runnable)
            }
            _ => true,
        };
        let could_run = !seen.runs(id) && !seen.sleeps(id) && !seen.is_off(id);
        could_run && seen.shared.life == Life::Running && seen.idle().any(may_take)
    }

    /// Whether nobody has anything left to do.
    fn is_settled(&self, seen: &Seen) -> bool {
        let is_kicked =
            |core: u8| seen.shared.kicked[usize::from(core)] != 0 || seen.has_mail(core);
        let is_asked = (0..CORES as u8).any(|core| seen.hears(core) && is_kicked(core));
        !is_asked && !(0..VCPUS).any(|id| self.is_beside_idle(seen, id))
    }
}

/// What follows from up to `bound` events from outside: a violation panics. The number of states is there to notice a model
/// that has become smaller.
#[track_caller]
fn holds(policy: packed::Policy, rt: u8, timers: u8, bound: u8, states: usize) {
    let found = explore(&System::new(policy, rt, timers), bound);
    assert!(found >= states, "{found} states");
}

/// As [`holds`], where vCPUs are turned on and off and the guest is reset.
#[track_caller]
fn lives(policy: packed::Policy, rt: u8, timers: u8, bound: u8, states: usize) {
    let system = System {
        lives: true,
        ..System::new(policy, rt, timers)
    };
    let found = explore(&system, bound);
    assert!(found >= states, "{found} states");
}

#[test]
fn lives_under_steal() {
    lives(packed::Policy::Steal, 0b001, 0b001, 3, 1_100_000);
}

#[test]
#[ignore = "takes a minute"]
fn lives_under_steal_further() {
    lives(packed::Policy::Steal, 0b001, 0b001, 4, 6_300_000);
}

#[test]
fn lives_under_steal_where_two_cores_are_taken() {
    lives(packed::Policy::Steal, 0b011, 0b000, 2, 280_000);
}

#[test]
#[ignore = "takes a minute"]
fn lives_under_steal_where_two_cores_are_taken_further() {
    lives(packed::Policy::Steal, 0b011, 0b000, 3, 4_500_000);
}

#[test]
fn lives_under_balance_where_two_cores_are_taken() {
    lives(packed::Policy::Balance, 0b011, 0b000, 5, 1_040_000);
}

#[test]
fn lives_under_ondemand() {
    lives(packed::Policy::OnDemand, 0b001, 0b001, 5, 730_000);
}

#[test]
fn lives_under_trap() {
    lives(packed::Policy::Trap, 0b001, 0b001, 2, 490_000);
}

#[test]
fn lives_under_balance() {
    lives(packed::Policy::Balance, 0b001, 0b001, 6, 1_000_000);
}

#[test]
fn lives_under_random() {
    lives(packed::Policy::Random, 0b001, 0b001, 1, 330_000);
}

#[test]
fn steal() {
    holds(packed::Policy::Steal, 0b001, 0b001, 3, 960_000);
}

#[test]
fn steal_where_two_cores_are_taken() {
    holds(packed::Policy::Steal, 0b011, 0b000, 2, 275_000);
}

#[test]
#[ignore = "takes a minute"]
fn steal_where_two_cores_are_taken_further() {
    holds(packed::Policy::Steal, 0b011, 0b000, 3, 4_100_000);
}

#[test]
#[ignore = "takes a minute"]
fn steal_further() {
    holds(packed::Policy::Steal, 0b001, 0b111, 4, 5_500_000);
}

#[test]
fn ondemand() {
    holds(packed::Policy::OnDemand, 0b001, 0b001, 6, 1_060_000);
}

#[test]
fn trap() {
    holds(packed::Policy::Trap, 0b001, 0b001, 2, 400_000);
}

#[test]
fn balance() {
    holds(packed::Policy::Balance, 0b001, 0b001, 7, 930_000);
}

#[test]
fn random() {
    holds(packed::Policy::Random, 0b001, 0b001, 1, 330_000);
}
