// SPDX-License-Identifier: MIT OR Apache-2.0
//! Comparable snapshots of a state: all that decides what may happen next, and nothing else. Times are relative to now,
//! in ticks; all past times are equal.

use super::at_el2::{Own, Token, moves};
use super::lives::{Life, Starts};
use super::{CORES, HIGH, LOW, MIDDLE, MOVING, OFF_CORE, System, VCPUS, rt_of};
use crate::migration::core_state::SinceEntry;
use crate::migration::presence::Published;
use crate::migration::*;
use crate::schedule::{Allowance, Band, OutOfTurn, Scheduler, ShortTurns, Ticks, VcpuState};
use crate::sets::VcpuSet;
use crate::vgic::Doorbell;
use spumone_config::types::{PcpuId, VcpuId};

/// The timer of a vCPU that does not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Timer {
    None,
    /// It expires with the next tick of the core that has the vCPU.
    Armed,
    Due,
}

/// What a slot shows, and whether time has passed since the vCPU was parked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub parked: Parked,
    pub aged: bool,
}

/// What cores share.
pub struct World {
    /// Slots, presences and constants.
    pub shared: Shared,
    pub tokens: [Option<Token>; VCPUS],
    pub doorbells: [Doorbell; VCPUS],
    /// vCPUs for which each core was kicked; bit n for vCPU n.
    pub kicked: [u32; CORES],
    /// Whether a vCPU that does not run was in its kernel.
    pub in_kernel: [bool; VCPUS],
    pub timers: [Timer; VCPUS],
    pub life: Life,
    pub starts: [Starts; VCPUS],
    /// Whether [`OFF_CORE`](super::OFF_CORE) is wanted.
    pub is_wanted: bool,
}

/// A [`World`] as plain values.
#[derive(Clone, Copy, Debug)]
pub struct SharedSnapshot {
    pub places: [Option<Place>; VCPUS],
    pub rung: [bool; VCPUS],
    pub locations: [u8; VCPUS],
    /// The band that each core has published.
    pub levels: [Option<Band>; CORES],
    /// On which cores another vCPU of the band waits.
    pub others_wait: [bool; CORES],
    pub kicked: [u32; CORES],
    pub in_kernel: [bool; VCPUS],
    pub timers: [Timer; VCPUS],
    pub life: Life,
    pub starts: [Starts; VCPUS],
    pub is_wanted: bool,
}

/// What stands for [`Level::OFF`] among the bands that cores publish: a band above all others.
pub const OFF: Option<Band> = Some(Band::HIGHEST);
const LEVELS: [Option<Band>; 5] = [None, Some(LOW), Some(MIDDLE), Some(HIGH), OFF];

/// How many of these a core can publish.
const fn levels(core: usize) -> u64 {
    LEVELS.len() as u64 - (core != OFF_CORE as usize) as u64
}

/// The level that stands for itself among [`LEVELS`].
fn level_of(published: Option<Band>) -> Level {
    match published {
        OFF => Level::OFF,
        band => Level::of(band),
    }
}
const STATES: [VcpuState; 4] = [
    VcpuState::Off,
    VcpuState::Sleep,
    VcpuState::Runnable,
    VcpuState::Running,
];
const TIMERS: [Timer; 3] = [Timer::None, Timer::Armed, Timer::Due];

/// How many values a slot can show: not parked, or each state, host core and age.
const PLACES: u64 = 1 + ParkedState::ALL.len() as u64 * CORES as u64 * 2;

/// The index of `it` in `all`.
fn number<T: PartialEq>(all: &[T], it: &T) -> u64 {
    all.iter().position(|other| other == it).unwrap() as u64
}

impl SharedSnapshot {
    /// Each vCPU is on its home core, and all cores idle.
    pub fn start() -> Self {
        Self {
            places: [None; VCPUS],
            rung: [false; VCPUS],
            locations: core::array::from_fn(|id| id as u8),
            levels: [None; CORES],
            others_wait: [false; CORES],
            kicked: [0; CORES],
            in_kernel: [true; VCPUS],
            timers: [Timer::None; VCPUS],
            life: Life::Running,
            starts: [Starts::default(); VCPUS],
            is_wanted: true,
        }
    }

    /// The atomics that cores share, for a core whose clock shows `now`.
    pub fn restore(&self, system: &System, now: Ticks) -> World {
        let shared = system.shared();
        for (id, place) in (0..).map(VcpuId).zip(&self.places) {
            if let Some(it) = place {
                let before = now.saturating_sub(Ticks(it.aged.into()));
                shared.slot(id).park(it.parked, before);
            }
        }
        for (core, level) in (0..).map(PcpuId).zip(self.levels) {
            shared.presence(core).publish_all(Published {
                level: level_of(level),
                others_wait: self.others_wait[core.index()],
            });
        }
        World {
            shared,
            tokens: core::array::from_fn(|id| self.places[id].map(|_| Token(VcpuId(id as u8)))),
            doorbells: core::array::from_fn(|id| {
                let doorbell = Doorbell::new();
                doorbell.settle(PcpuId(self.locations[id]));
                if self.rung[id] {
                    doorbell.ring_spis(1);
                }
                doorbell
            }),
            kicked: self.kicked,
            in_kernel: self.in_kernel,
            timers: self.timers,
            life: self.life,
            starts: self.starts,
            is_wanted: self.is_wanted,
        }
    }

    pub fn pack(&self) -> u64 {
        let mut word: u64 = 0;
        let mut push = |values: u64, value: u64| {
            assert!(value < values);
            word = word * values + value;
        };
        for id in 0..VCPUS {
            let place = self.places[id].map_or(0, |it| {
                let state = number(&ParkedState::ALL, &it.parked.state);
                let host = u64::from(it.parked.host.0);
                1 + (state * CORES as u64 + host) * 2 + u64::from(it.aged)
            });
            push(PLACES, place);
            push(2, self.rung[id].into());
            push(CORES as u64, self.locations[id].into());
            push(2, self.in_kernel[id].into());
            push(TIMERS.len() as u64, number(&TIMERS, &self.timers[id]));
            push(Starts::COUNT, self.starts[id].number());
        }
        for core in 0..CORES {
            push(levels(core), number(&LEVELS, &self.levels[core]));
            push(1 << VCPUS, self.kicked[core].into());
        }
        push(Life::COUNT, self.life.number());
        push(2, self.is_wanted.into());
        word
    }

    pub fn unpack(mut word: u64) -> Self {
        let mut pop = |values: u64| {
            let value = word % values;
            word /= values;
            value
        };
        let mut it = Self::start();
        it.is_wanted = pop(2) != 0;
        it.life = Life::numbered(pop(Life::COUNT));
        for core in (0..CORES).rev() {
            it.kicked[core] = pop(1 << VCPUS) as u32;
            it.levels[core] = LEVELS[pop(levels(core)) as usize];
        }
        for id in (0..VCPUS).rev() {
            it.starts[id] = Starts::numbered(pop(Starts::COUNT));
            it.timers[id] = TIMERS[pop(TIMERS.len() as u64) as usize];
            it.in_kernel[id] = pop(2) != 0;
            it.locations[id] = pop(CORES as u64) as u8;
            it.rung[id] = pop(2) != 0;
            it.places[id] = pop(PLACES).checked_sub(1).map(|place| Place {
                parked: Parked {
                    host: PcpuId((place / 2 % CORES as u64) as u8),
                    state: ParkedState::ALL[(place / 2 / CORES as u64) as usize],
                },
                aged: place % 2 != 0,
            });
        }
        it
    }
}

impl World {
    pub fn snapshot(&self, now: Ticks) -> SharedSnapshot {
        SharedSnapshot {
            places: core::array::from_fn(|id| {
                let slot = self.shared.slot(VcpuId(id as u8));
                let parked = slot.parked();
                let token = self.tokens[id].as_ref().map(|it| it.0);
                assert_eq!(
                    token,
                    parked.map(|_| VcpuId(id as u8)),
                    "a parked vCPU has its token beside the slot"
                );
                parked.map(|parked| Place {
                    parked,
                    // Since when a vCPU is parked does not count while it is not runnable.
                    aged: slot.since() < now || !parked.state.is_runnable(),
                })
            }),
            rung: core::array::from_fn(|id| !self.doorbells[id].is_silent()),
            locations: core::array::from_fn(|id| self.doorbells[id].location().0),
            levels: core::array::from_fn(|core| {
                let level = self.shared.presence(PcpuId(core as u8)).level();
                LEVELS[number(&LEVELS.map(level_of), &level) as usize]
            }),
            others_wait: core::array::from_fn(|core| {
                let presence = self.shared.presence(PcpuId(core as u8));
                presence.published().others_wait
            }),
            kicked: self.kicked,
            in_kernel: self.in_kernel,
            timers: self.timers,
            life: self.life,
            starts: self.starts,
            is_wanted: self.is_wanted,
        }
    }
}

/// [`Ticks::NEVER`], relative to now.
const NEVER: u8 = u8::MAX;

/// A core's own state.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CoreSnapshot {
    tokens: u8,
    running: Option<u8>,
    loaded: Option<u8>,
    must_refresh: bool,
    catches: Catch,
    /// Sets of vCPUs of the [`CoreState`].
    masks: [u8; 5],
    alarm: u8,
    notify_at: u8,
    is_put_off: bool,
    owes_notification: bool,
    since_entry: SinceEntry,
    long_at: u8,
    was_long: bool,
    fetch_at: u8,
    grace: Grace,
    /// Of the running vCPU: for how long it waits for its timer at most.
    awaits: Option<u8>,
    deadlines: [u8; VCPUS],
    /// States of the vCPUs that migrate, and of the core's real-time vCPU.
    states: [u8; VCPUS + 1],
    /// Of the running vCPU, if that is not the real-time one: whether it has run for a tick, when its time slice is
    /// over, and when it would be over without extensions.
    time_slice: Option<(bool, u8, u8)>,
    /// In which order the vCPUs run next, and what is left of their time slices.
    queue: [Option<(u8, u8)>; VCPUS],
    out_of_turn: OutOfTurn,
    short_turns: ShortTurns,
    /// Of the vCPUs that migrate.
    allowances: [Allowance; VCPUS],
}

impl CoreSnapshot {
    pub fn new(core: u8, own: &Own) -> Self {
        let Own { state, now } = own;
        // The fields that are left out are constant, or checked below to have their value of rest.
        let CoreState {
            core: _,
            scheduler,
            deadlines,
            loaded,
            saved,
            running,
            must_decide,
            must_refresh,
            rung,
            alarm,
            alarm_is_stale,
            chore_at,
            chore_is_due,
            awaits,
            // No vCPU here is woken as early as a switch takes.
            lead: _,
            movable: _,
            rules: _,
            excludes_kernels: _,
            catches,
            alarm_expired,
            decided_band,
            home_vcpus: _,
            above_lowest: _,
            visitors,
            sent,
            taken_back,
            fetched,
            preempted,
            is_unfinished,
            parked_here,
            park_later,
            notify_at,
            rung_at,
            is_put_off,
            owes_notification,
            since_entry,
            long_at,
            was_long,
            short_park_delay: _,
            has_park_time,
            highest_movable: _,
            park_time: _,
            fetch_at,
            waiting,
            deferred_until,
            grace,
            pulls_for_interrupts: _,
            notify_again_after: _,
            take_back_after: _,
            defer_step: _,
            longest_wait: _,
            quiet: _,
        } = state;
        assert!(rung.is_empty() && *rung_at == Ticks::NEVER && has_park_time.is_empty());
        assert_eq!((*chore_at, *chore_is_due), (Ticks::NEVER, false));
        assert!(awaits.is_none_or(|it| *running == Some(it.id)));
        assert!(!must_decide && *deferred_until == Ticks::NEVER);
        // No core comes on for vCPUs that wait for their turn.
        assert_eq!(waiting.look_at, Ticks::NEVER);
        assert!(!is_unfinished && fetched.is_none() && preempted.is_none());
        assert_eq!(*running, scheduler.current());
        assert_eq!((*alarm_is_stale, *alarm_expired), (false, false));
        assert_eq!(*decided_band, scheduler.current_band());
        assert!(
            *alarm <= state.next_alarm(),
            "the alarm is later than a deadline"
        );
        let from_now = |at: Ticks| match at {
            Ticks::NEVER => NEVER,
            at => at.saturating_sub(*now).0.try_into().unwrap(),
        };
        let mut tokens = VcpuSet::EMPTY;
        for (id, token) in (0..).map(VcpuId).zip(saved) {
            if let Some(token) = token {
                assert_eq!(token.0, id);
                tokens.insert(id);
            }
        }
        if let Some(loaded) = loaded {
            assert_eq!(loaded.token.0, loaded.id);
            assert!(
                !tokens.contains(loaded.id),
                "a second token of the loaded vCPU"
            );
            tokens.insert(loaded.id);
        }
        let tokens = (tokens & VcpuSet::from_bits(MOVING)).bits() as u8;
        let loaded = state.loaded();
        let mut due = deadlines.clone();
        let mut at = [NEVER; VCPUS];
        for later in 0..2 {
            while let Some(id) = due.take_due(now.saturating_add(Ticks(later)), None) {
                at[id.index()] = later as u8;
            }
        }
        assert_eq!(due.next_alarm(None), None);
        let state_of = |id| {
            let state = scheduler.state(id);
            state.map_or(0, |it| number(&STATES, &it) as u8 + 1)
        };
        let slice = scheduler.time_slice().filter(|slice| slice.band != HIGH);
        let number_of = |id: VcpuId| if moves(id) { id.0 } else { VCPUS as u8 };
        Self {
            tokens,
            running: running.map(number_of),
            loaded: loaded.map(number_of),
            must_refresh: *must_refresh,
            catches: *catches,
            masks: [*visitors, *sent, *taken_back, *parked_here, *park_later]
                .map(|set| set.bits() as u8),
            alarm: from_now(*alarm),
            notify_at: from_now(*notify_at),
            is_put_off: *is_put_off,
            owes_notification: *owes_notification,
            since_entry: *since_entry,
            long_at: from_now(*long_at),
            was_long: *was_long,
            fetch_at: from_now(*fetch_at),
            grace: *grace,
            awaits: awaits.map(|it| from_now(it.until)),
            deadlines: at,
            states: core::array::from_fn(|id| {
                state_of(if id < VCPUS {
                    VcpuId(id as u8)
                } else {
                    rt_of(core)
                })
            }),
            time_slice: slice.map(|slice| {
                let mut without = scheduler.clone();
                without.withdraw_extension();
                let end = without.time_slice().map_or(Ticks(0), |it| it.end);
                (slice.since < *now, from_now(slice.end), from_now(end))
            }),
            queue: queue(scheduler, *now),
            out_of_turn: scheduler.out_of_turn().relative_to(*now),
            short_turns: scheduler.short_turns().normalized(),
            allowances: core::array::from_fn(|id| {
                scheduler.allowance(VcpuId(id as u8)).relative_to(*now)
            }),
        }
    }

    /// vCPUs whose tokens the core has; bit n for vCPU n.
    pub fn tokens(&self) -> u8 {
        self.tokens
    }

    /// Whether the running vCPU runs out of turn.
    pub fn runs_out_of_turn(&self) -> bool {
        self.running.is_some() && self.out_of_turn.runs()
    }

    /// The running vCPU. A number of [`VCPUS`] or more stands for the core's real-time vCPU.
    pub fn running(&self) -> Option<VcpuId> {
        self.running.map(VcpuId)
    }

    /// Whether it waits for its timer.
    pub fn awaits(&self) -> bool {
        self.awaits.is_some()
    }

    pub fn catches(&self) -> Catch {
        self.catches
    }

    /// The state of a vCPU that migrates, as far as this core knows.
    pub fn state(&self, id: VcpuId) -> Option<VcpuState> {
        self.states[id.index()]
            .checked_sub(1)
            .map(|it| STATES[usize::from(it)])
    }
}

/// Which vCPUs the scheduler would run next, in order.
fn queue(scheduler: &Scheduler, now: Ticks) -> [Option<(u8, u8)>; VCPUS] {
    let mut queue = [None; VCPUS];
    let is_queued = |id| scheduler.state(VcpuId(id)) == Some(VcpuState::Runnable);
    if !(0..VCPUS as u8).any(is_queued) {
        return queue;
    }
    let mut places = queue.iter_mut();
    let mut state = scheduler.clone();
    while let Some(last) = state.current() {
        let _ = state.remove(last);
        if let Some(slice) = state.decide(now).time_slice
            && let Some(id) = state.current().filter(|&id| moves(id))
            && let Some(place) = places.next()
        {
            *place = Some((id.0, slice.end.saturating_sub(now).0 as u8));
        }
    }
    queue
}
