// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every state that three cores and three vCPUs can reach, with the code that the hypervisor runs.
//!
//! [`at_el2`] is one core at EL2: the real [`CoreState`], [`Scheduler`](crate::schedule::Scheduler), slots, doorbells
//! and presences, and the functions of [`migration`](super), called as `hypervisor/src/instance/` calls them. The time
//! of a core at EL2, from exit to entry, is one step; [`model`](super::model) and loom test accesses that interleave
//! within a step. [`state`] makes states comparable, [`explore`] explores them, and [`promises`] has what must hold.
//!
//! External events are: an interrupt, rung for any vCPU on any core; a vCPU that executes WFI, with its timer set or
//! not; a caught entry to or exit from the kernel; a real-time vCPU that wakes or sleeps; and, in the tests of
//! [`lives`], a vCPU that is turned on or off, and a reset of the guest. All that follows from up to a given number of
//! them is explored, in every order. Kicks arrive at any time, but before the next tick of their core. Time passes on
//! each core independently, so timers on different cores expire in either order.
//!
//! In each state:
//! - Each vCPU is on one core or parked. Its doorbell names its host core, and the state in that core's
//!   scheduler agrees with the parking slot. A core that runs a vCPU has its token.
//!
//! From each state, if no more external events come:
//! - Each vCPU becomes content: it sleeps with its doorbell silent and no timer set, or has taken what was rung and
//!   runs. So no interrupt, timer or runnable vCPU is lost, and there is no deadlock or livelock.
//!   [`System::is_content`] has the exceptions, which policies do not promise.
//! - The system comes to rest: no kick is pending on a core that takes it, and no core idles, or runs a lower band, while
//!   it may fetch a vCPU.
//! - A vCPU that is turned on starts, and a guest that is reset runs again. Both wait while a core runs a higher band,
//!   if that core has the mail, must still take vCPUs off, or is to load the guest.
//!
//! In the tests with `bands` in their names, some vCPUs that migrate are of a higher band than the others, as those of a
//! real-time guest that migrate. The real-time vCPUs that stay are of a higher band still. For such a vCPU there are two
//! more promises, where the policy has cores fetch it:
//! - The system does not rest while that vCPU is runnable or cut off, and another core idles or runs the lowest band.
//! - With one such vCPU and one core with a real-time vCPU, that other core takes it although no time passes: it waits for no
//!   alarm, only for kicks ([`System::hands_over_at_once`]).
//!
//! Not modelled: guests that end for good.

mod at_el2;
mod explore;
mod lives;
mod promises;
mod state;

use crate::migration::{
    Catch, CoreSetup, CoreState, Early, Grace, Level, Policy, Roles, Shared, VcpuFacts,
};
use crate::schedule::{Band, Ticks, VcpuState};
use crate::sets::CoreSet;
use at_el2::{AtEl2, Interrupt, Own, Point, Token};
use explore::explore;
use lives::Life;
use promises::Seen;
use spumone_config::packed::{self, Without};
use spumone_config::types::{GuestId, MAX_VCPUS, PcpuId, VcpuId};
use state::SharedSnapshot;
use std::vec::Vec;

const CORES: usize = 3;
/// vCPUs of one guest; core n is the home core of vCPU n.
const VCPUS: usize = 3;
/// The vCPUs that migrate; bit n for vCPU n.
const MOVING: u32 = (1 << VCPUS) - 1;
/// The core that goes off, where a core does: it has no real-time vCPU.
const OFF_CORE: u8 = 2;
const LOW: Band = Band::LOWEST;
/// The band of the vCPUs of [`System::middle`].
const MIDDLE: Band = band(1);
/// The band of the real-time vCPUs, which do not migrate.
const HIGH: Band = band(2);
/// One tick is the park delay of the policies. All other times are one tick as well: since clocks advance
/// independently, different times on different cores are explored all the same.
const FREQUENCY_HZ: u32 = 10_000;
const QUANTUM: Ticks = Ticks(1);
/// The time after which a vCPU starves under `steal`, at [`FREQUENCY_HZ`].
const STARVED: Ticks = Ticks(50);

const fn band(number: u8) -> Band {
    match Band::new(number) {
        Some(band) => band,
        None => Band::HIGHEST,
    }
}

/// The real-time vCPU of a core, which stays there.
const fn rt_of(core: u8) -> VcpuId {
    VcpuId(VCPUS as u8 + core)
}

/// An event, and the core on which it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    core: u8,
    what: What,
    /// Whether the vCPU that runs is interrupted in its kernel.
    in_kernel: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    /// An interrupt for a vCPU, from the running vCPU or from a device.
    Ring(VcpuId),
    /// The running vCPU executes WFI, with its timer set or not.
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
    /// As [`Self::Between`], but with no interrupt: if the core saves the registers of a vCPU, that rings the doorbell of
    /// this other vCPU.
    RungBySave(VcpuId),
    /// The running vCPU does what is caught.
    Caught,
    /// The running vCPU turns another one on, or itself off.
    Start(VcpuId),
    Off,
    /// The running vCPU resets its guest, or the operator does.
    Reset,
    /// A kick arrives.
    Kick,
    /// The core reads its mail: that the guest stops either before or after that a vCPU starts.
    Mail {
        stops_first: bool,
    },
    /// The core, which is [`OFF_CORE`], is wanted from now on, or not wanted any more.
    Wish,
    /// The guest is loaded.
    Loaded,
    /// Time passes; an alarm may expire.
    Tick,
}

impl What {
    /// Whether it follows from earlier events: it is no external event.
    fn is_internal(self) -> bool {
        matches!(
            self,
            Self::Kick | Self::Mail { .. } | Self::Loaded | Self::Tick
        )
    }
}

/// A system under test.
struct System {
    name: packed::Policy,
    policy: Policy,
    /// Cores that have a real-time vCPU; bit n for core n.
    rt: u8,
    /// vCPUs that set their timers; bit n for vCPU n.
    timers: u8,
    /// vCPUs that migrate and are of a band between the lowest and that of the real-time vCPUs; bit n for vCPU n.
    middle: u8,
    /// vCPUs that are woken a tick before their timers expire; bit n for vCPU n.
    early: u8,
    /// Whether vCPUs are turned on and off, and the guest is reset.
    lives: bool,
    /// Whether [`OFF_CORE`] goes off and comes back.
    goes_off: bool,
    /// The length of a time slice.
    quantum: Ticks,
}

impl System {
    fn new(name: packed::Policy, rt: u8, timers: u8) -> Self {
        Self {
            name,
            policy: Policy::new(name, FREQUENCY_HZ),
            rt,
            timers,
            middle: 0,
            early: 0,
            lives: false,
            goes_off: false,
            quantum: QUANTUM,
        }
    }

    fn band(&self, id: VcpuId) -> Band {
        match at_el2::moves(id) {
            false => HIGH,
            true if self.middle >> id.0 & 1 != 0 => MIDDLE,
            true => LOW,
        }
    }

    /// The bands of the vCPUs that migrate.
    fn bands(&self) -> [Band; VCPUS] {
        core::array::from_fn(|id| self.band(VcpuId(id as u8)))
    }

    /// Whether a core is wanted.
    fn is_wanted(&self, core: u8, world: &state::World) -> bool {
        core != OFF_CORE || world.is_wanted
    }

    fn excludes_kernels(&self, core: u8) -> bool {
        self.policy.rules().excludes_kernels && self.rt >> core & 1 != 0
    }

    /// The state in which all vCPUs run on their home cores.
    fn start(&self) -> (SharedSnapshot, [Own; CORES]) {
        let mut shared = SharedSnapshot::start();
        let cores = core::array::from_fn(|core| {
            let core = core as u8;
            let at_el2 = AtEl2::new(self, core, self.core(core), &shared);
            let (own, after) = at_el2.end();
            shared = after;
            own
        });
        (shared, cores)
    }

    fn core(&self, core: u8) -> Own {
        let setup = CoreSetup {
            quantum: self.quantum,
            frequency_hz: FREQUENCY_HZ,
            rules: self.policy.rules(),
            without: Without::default(),
        };
        let mut state = CoreState::new(PcpuId(core), &setup, &self.shared());
        // One sample of grace: more would add states, but nothing that other cores see.
        state.grace = Grace::new(Ticks(1), Ticks(1), 1, true);
        state.notify_again_after = Ticks(1);
        state.scheduler.set_interval_out_of_turn(Ticks(1));
        state.take_back_after = Ticks(1);
        state.longest_wait = Ticks(2);
        for (id, doing) in [
            (VcpuId(core), VcpuState::Runnable),
            (rt_of(core), VcpuState::Sleep),
        ] {
            state.place(id, Token(id), self.band(id), doing);
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
                guest: GuestId(0),
                band: self.band(VcpuId(core)),
                home: PcpuId(core),
                cores: CoreSet::from_bits((1 << CORES) - 1),
                moves: true,
                early: match self.early >> core & 1 {
                    0 => Early::AtTimer,
                    ticks => Early::By(Ticks(ticks.into())),
                },
            });
            vcpus[rt] = Some(VcpuFacts {
                guest: GuestId(1 + core),
                band: HIGH,
                home: PcpuId(core),
                cores: CoreSet::of(PcpuId(core)),
                moves: false,
                early: Early::AtTimer,
            });
        }
        let kernel_free = match self.policy.rules().excludes_kernels {
            true => CoreSet::from_bits(self.rt.into()),
            false => CoreSet::EMPTY,
        };
        let roles = Roles {
            kernel_free,
            gang: None,
            highest_movable: Level::of(self.bands().into_iter().max()),
            lowest_movable: Level::of(self.bands().into_iter().min()),
        };
        Shared::new(roles, vcpus)
    }

    /// All that can happen in a state.
    fn events(&self, seen: &Seen, is_external: bool, out: &mut Vec<Event>) {
        for core in 0..CORES as u8 {
            let own = seen.cores[usize::from(core)];
            let has_rt = self.rt >> core & 1 != 0;
            let runs_rt = own.running().is_some_and(|id| !at_el2::moves(id));
            // A vCPU that waits for its timer executes nothing.
            let guest = own.running().filter(|_| !runs_rt && !own.awaits());
            // With the exit from the kernel caught, the vCPU is in its kernel; with the entry caught, it is not.
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
            let takes_kicks = seen.takes_kicks(core);
            if takes_kicks {
                push(What::Kick, kernels);
            }
            if seen.has_mail(core) && !runs_rt {
                push(What::Mail { stops_first: false }, kernels);
                if seen.is_to_stop(core) {
                    push(What::Mail { stops_first: true }, kernels);
                }
            } else if !takes_kicks {
                push(What::Tick, kernels);
            }
            if seen.loads(core) {
                push(What::Loaded, kernels);
            }
            if has_rt && is_external {
                push(What::Rt { wakes: !runs_rt }, kernels);
                for point in Point::ALL {
                    let interrupt = Interrupt::Rt;
                    push(What::Between { interrupt, point }, kernels);
                }
            }
            if !is_external {
                continue;
            }
            if self.goes_off && core == OFF_CORE {
                push(What::Wish, &kernels[kernels.len() - 1..]);
            }
            if kicked != 0 {
                for point in Point::ALL {
                    let interrupt = Interrupt::Kick;
                    push(What::Between { interrupt, point }, kernels);
                }
            }
            let last = &kernels[kernels.len() - 1..];
            for point in Point::ALL {
                let interrupt = Interrupt::Chore;
                push(What::Between { interrupt, point }, last);
            }
            for id in (0..VCPUS).filter(|&id| !seen.shared.rung[id]) {
                let id = VcpuId(id as u8);
                push(What::Ring(id), last);
                if own.running().is_some_and(|running| running != id) {
                    push(What::RungBySave(id), last);
                }
            }
            let is_reset = match seen.shared.life {
                Life::Running => !runs_rt,
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
                // Turning off the last vCPU would end the guest for good.
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

    /// The core's step after an event.
    fn apply(&self, event: Event, own: Own, shared: &SharedSnapshot) -> (Own, SharedSnapshot) {
        let running = own.state.running();
        let running = running.filter(|&id| at_el2::moves(id) && !own.state.awaits(id));
        let mut at_el2 = AtEl2::new(self, event.core, own, shared);
        if let Some(id) = running {
            at_el2.set_in_kernel(id, event.in_kernel);
        }
        match (event.what, running) {
            (What::Ring(id), _) => at_el2.ring(id),
            (What::Wait { timer }, Some(id)) => at_el2.wait(id, timer),
            (What::Caught, Some(id)) => at_el2.caught(id),
            (What::Start(id), _) => at_el2.start(id, false),
            (What::Off, Some(id)) => at_el2.turn_off(id),
            (What::Reset, _) => at_el2.reset(),
            (What::Mail { stops_first }, _) => at_el2.take_mail(stops_first),
            (What::Loaded, _) => at_el2.begin_life(),
            (What::Wait { .. } | What::Caught | What::Off, None) => {}
            (What::Rt { wakes }, _) => at_el2.rt(wakes),
            (What::Between { interrupt, point }, _) => at_el2.between(interrupt, point),
            (What::RungBySave(id), _) => at_el2.ring_by_save(id),
            (What::Kick, _) => at_el2.take_kicks(),
            (What::Wish, _) => at_el2.machine.world.is_wanted ^= true,
            (What::Tick, _) => at_el2.tick(),
        }
        at_el2.end()
    }
}

/// Explores what follows from up to `bound` external events, and panics at a violation. `states` is the least number of
/// states, which shows if a change has made the model smaller.
#[track_caller]
fn check(policy: packed::Policy, rt: u8, timers: u8, bound: u8, states: usize) {
    check_system(&System::new(policy, rt, timers), bound, states);
}

/// As [`check`], where vCPUs are turned on and off and the guest is reset.
#[track_caller]
fn lives(policy: packed::Policy, rt: u8, timers: u8, bound: u8, states: usize) {
    let system = System {
        lives: true,
        ..System::new(policy, rt, timers)
    };
    check_system(&system, bound, states);
}

/// As [`check`], where the vCPUs of `middle` are of a higher band than the others. vCPU 0 is one of them, because its home
/// is a core with a real-time vCPU.
#[track_caller]
fn bands(policy: packed::Policy, middle: u8, rt: u8, bound: u8, states: usize) {
    let system = System {
        middle,
        ..System::new(policy, rt, 0b001)
    };
    check_system(&system, bound, states);
}

/// As [`check`], where vCPUs that set their timers are woken early.
#[track_caller]
fn early(policy: packed::Policy, rt: u8, timers: u8, bound: u8, states: usize) {
    let system = System {
        early: timers,
        ..System::new(policy, rt, timers)
    };
    check_system(&system, bound, states);
}

/// As [`check`], with time slices that are longer than what a vCPU runs out of turn, which is a tick.
#[track_caller]
fn turns(policy: packed::Policy, rt: u8, timers: u8, bound: u8, states: usize) {
    let system = System {
        quantum: Ticks(2),
        ..System::new(policy, rt, timers)
    };
    check_system(&system, bound, states);
}

#[track_caller]
fn check_system(system: &System, bound: u8, states: usize) {
    let found = explore(system, bound);
    assert!(found.states >= states, "only {} states", found.states);
    let has_turns = system.quantum > QUANTUM;
    assert_eq!(
        found.runs_out_of_turn, has_turns,
        "some vCPU runs out of turn"
    );
}

#[test]
fn lives_under_steal() {
    lives(packed::Policy::Steal, 0b001, 0b001, 3, 842_000);
}

#[test]
#[ignore = "takes a minute"]
fn lives_under_steal_with_one_more_event() {
    lives(packed::Policy::Steal, 0b001, 0b001, 4, 4_000_000);
}

#[test]
fn lives_under_steal_with_two_real_time_cores() {
    lives(packed::Policy::Steal, 0b011, 0b000, 2, 243_000);
}

#[test]
#[ignore = "takes a minute"]
fn lives_under_steal_with_two_real_time_cores_with_one_more_event() {
    lives(packed::Policy::Steal, 0b011, 0b000, 3, 3_500_000);
}

#[test]
fn lives_under_balance_with_two_real_time_cores() {
    lives(packed::Policy::Balance, 0b011, 0b000, 5, 1_040_000);
}

#[test]
fn lives_under_ondemand() {
    lives(packed::Policy::OnDemand, 0b001, 0b001, 5, 730_000);
}

#[test]
fn lives_under_trap() {
    lives(packed::Policy::Trap, 0b001, 0b001, 2, 323_000);
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
    check(packed::Policy::Steal, 0b001, 0b001, 3, 679_000);
}

#[test]
fn steal_with_two_real_time_cores() {
    check(packed::Policy::Steal, 0b011, 0b000, 2, 231_000);
}

#[test]
#[ignore = "takes a minute"]
fn steal_with_two_real_time_cores_with_one_more_event() {
    check(packed::Policy::Steal, 0b011, 0b000, 3, 3_000_000);
}

#[test]
#[ignore = "takes a minute"]
fn steal_with_one_more_event() {
    check(packed::Policy::Steal, 0b001, 0b111, 4, 5_500_000);
}

#[test]
fn ondemand() {
    check(packed::Policy::OnDemand, 0b001, 0b001, 6, 1_060_000);
}

#[test]
fn trap() {
    check(packed::Policy::Trap, 0b001, 0b001, 2, 258_000);
}

#[test]
fn balance() {
    check(packed::Policy::Balance, 0b001, 0b001, 7, 930_000);
}

#[test]
fn random() {
    check(packed::Policy::Random, 0b001, 0b001, 1, 330_000);
}

#[test]
fn ondemand_with_two_real_time_cores() {
    check(packed::Policy::OnDemand, 0b011, 0b001, 3, 160_000);
}

#[test]
fn turns_under_steal() {
    turns(packed::Policy::Steal, 1, 1, 2, 4_630_000);
}

#[test]
fn early_under_steal() {
    early(packed::Policy::Steal, 0b001, 0b001, 3, 724_000);
}

#[test]
fn bands_under_steal() {
    bands(packed::Policy::Steal, 0b001, 0b001, 5, 950_000);
}

#[test]
#[ignore = "takes a minute"]
fn bands_under_steal_with_one_more_event() {
    bands(packed::Policy::Steal, 0b001, 0b001, 6, 3_500_000);
}

#[test]
fn bands_under_steal_with_two_real_time_cores() {
    bands(packed::Policy::Steal, 0b001, 0b011, 3, 82_000);
}

#[test]
#[ignore = "takes a minute"]
fn bands_under_steal_with_two_real_time_cores_with_one_more_event() {
    bands(packed::Policy::Steal, 0b001, 0b011, 4, 915_000);
}

#[test]
fn bands_under_steal_with_two_vcpus_above_the_lowest() {
    bands(packed::Policy::Steal, 0b011, 0b001, 4, 135_000);
}

#[test]
fn bands_under_ondemand() {
    bands(packed::Policy::OnDemand, 0b001, 0b001, 3, 64_000);
}

#[test]
fn bands_under_balance() {
    bands(packed::Policy::Balance, 0b001, 0b001, 5, 84_000);
}

#[test]
fn lives_with_bands_under_steal() {
    let system = System {
        middle: 0b001,
        lives: true,
        ..System::new(packed::Policy::Steal, 0b001, 0b001)
    };
    check_system(&system, 4, 350_000);
}

/// As [`check`], where [`OFF_CORE`] goes off and comes back; `lives` and `middle`: see [`System`].
#[track_caller]
fn off(
    policy: packed::Policy,
    rt: u8,
    timers: u8,
    (lives, middle): (bool, u8),
    bound: u8,
    states: usize,
) {
    let system = System {
        lives,
        middle,
        goes_off: true,
        ..System::new(policy, rt, timers)
    };
    check_system(&system, bound, states);
}

#[test]
fn off_under_steal() {
    off(packed::Policy::Steal, 0b001, 0b100, (false, 0), 3, 865_000);
}

#[test]
fn off_under_steal_with_two_real_time_cores() {
    off(packed::Policy::Steal, 0b011, 0b100, (false, 0), 2, 245_000);
}

#[test]
fn off_with_lives_under_steal() {
    off(packed::Policy::Steal, 0b001, 0b100, (true, 0), 2, 91_400);
}

#[test]
#[ignore = "takes a minute"]
fn off_with_lives_under_steal_with_one_more_event() {
    off(packed::Policy::Steal, 0b001, 0b100, (true, 0), 3, 850_000);
}

#[test]
fn off_with_bands_under_steal() {
    off(
        packed::Policy::Steal,
        0b001,
        0b100,
        (false, 0b100),
        3,
        51_000,
    );
}
