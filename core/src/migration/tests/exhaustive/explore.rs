// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explores all states of a system, those that need the fewest external events first, so that the path printed with a
//! violation is short.

use super::at_el2::Own;
use super::promises::Seen;
use super::state::{CoreSnapshot, SharedSnapshot};
use super::{CORES, Event, System, VCPUS, What};
use std::collections::{HashMap, VecDeque};
use std::format;
use std::hash::{BuildHasherDefault, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::vec;
use std::vec::Vec;

/// Faster than the hasher of `std`, which resists chosen keys; no attacker chooses these keys.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = (self.0.rotate_left(5) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }

    fn write_u128(&mut self, value: u128) {
        self.write_u64(value as u64);
        self.write_u64((value >> 64) as u64);
    }
}

type Map<K> = HashMap<K, u32, BuildHasherDefault<Mix>>;

/// Bits for the number of a core's own state.
const CORE_BITS: u32 = 21;

/// The states that cores have had, each with the first `Own` that had it.
#[derive(Default)]
struct Cores {
    numbers: Map<(u8, CoreSnapshot)>,
    all: Vec<(CoreSnapshot, Own)>,
}

impl Cores {
    fn number(&mut self, core: u8, own: Own) -> u32 {
        let state = CoreSnapshot::new(core, &own);
        let next = self.all.len() as u32;
        let number = *self.numbers.entry((core, state.clone())).or_insert(next);
        if number == next {
            assert!(
                number < 1 << CORE_BITS,
                "a core has too many states for CORE_BITS"
            );
            self.all.push((state, own));
        }
        number
    }
}

/// A whole state: the packed shared state, and for each core the number of its own state.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Packed(u128);

impl Packed {
    fn new(shared: &SharedSnapshot, cores: [u32; CORES]) -> Self {
        let fold = |word, core| word << CORE_BITS | u128::from(core);
        Self(cores.into_iter().fold(u128::from(shared.pack()), fold))
    }

    fn shared(self) -> SharedSnapshot {
        SharedSnapshot::unpack((self.0 >> (CORE_BITS * CORES as u32)) as u64)
    }

    fn cores(self) -> [u32; CORES] {
        core::array::from_fn(|core| {
            let shift = CORE_BITS * (CORES - 1 - core) as u32;
            (self.0 >> shift) as u32 & ((1 << CORE_BITS) - 1)
        })
    }
}

/// The last step to a state.
#[derive(Clone, Copy)]
struct Way {
    before: u32,
    event: Option<Event>,
}

impl Way {
    /// The state has not been explored.
    const NONE: Self = Self {
        before: u32::MAX,
        event: None,
    };

    fn is_none(self) -> bool {
        self.before == u32::MAX
    }
}

struct Exploration<'a> {
    system: &'a System,
    cores: Cores,
    states: Vec<Packed>,
    numbers: Map<Packed>,
    /// The last step to each state.
    ways: Vec<Way>,
    /// Internal steps, from one state to the next: those that are no external events.
    internal: Vec<(u32, u32)>,
    /// Those of them with which no time passes, if the system has a promise about them.
    timeless: Vec<(u32, u32)>,
}

/// Explores all states that up to `bound` external events can lead to.
pub fn explore(system: &System, bound: u8) -> Explored {
    let mut it = Exploration {
        system,
        cores: Cores::default(),
        states: Vec::new(),
        numbers: Map::default(),
        ways: Vec::new(),
        internal: Vec::new(),
        timeless: Vec::new(),
    };
    it.reach_all(bound);
    it.check_all_settle();
    std::println!(
        "{:?}: {} states, {} internal steps",
        system.name,
        it.states.len(),
        it.internal.len()
    );
    Explored {
        states: it.states.len(),
        runs_out_of_turn: it.cores.all.iter().any(|(core, _)| core.runs_out_of_turn()),
    }
}

/// What an exploration has reached.
pub struct Explored {
    pub states: usize,
    /// Whether in one of these states a vCPU runs out of turn.
    pub runs_out_of_turn: bool,
}

impl Exploration<'_> {
    fn seen(&self, packed: Packed) -> Seen<'_> {
        Seen {
            shared: packed.shared(),
            cores: packed.cores().map(|core| &self.cores.all[core as usize].0),
            bands: self.system.bands(),
        }
    }

    fn number(&mut self, shared: &SharedSnapshot, cores: [u32; CORES]) -> u32 {
        let packed = Packed::new(shared, cores);
        let next = self.states.len() as u32;
        let number = *self.numbers.entry(packed).or_insert(next);
        if number == next {
            self.states.push(packed);
            self.ways.push(Way::NONE);
        }
        number
    }

    /// Explores states in the order of the number of external events, so that each state is reached with the fewest.
    fn reach_all(&mut self, bound: u8) {
        let has_promise = (0..VCPUS).any(|id| self.system.hands_over_at_once(id));
        let (shared, owns) = self.system.start();
        let mut core = 0;
        let cores = owns.map(|own| {
            core += 1;
            self.cores.number(core - 1, own)
        });
        let start = self.number(&shared, cores);
        let mut events = Vec::new();
        let mut later = vec![(start, start, None)];
        for outside in 0..=bound {
            let mut left: VecDeque<_> = core::mem::take(&mut later).into();
            while let Some((number, before, event)) = left.pop_front() {
                if !self.ways[number as usize].is_none() {
                    continue;
                }
                self.ways[number as usize] = Way { before, event };
                let packed = self.states[number as usize];
                let seen = self.seen(packed);
                if let Err(what) = self.system.check(&seen) {
                    self.fail(number, &what);
                }
                let may_more = outside < bound;
                self.system.events(&seen, may_more, &mut events);
                let shared = packed.shared();
                for event in events.drain(..) {
                    let mut cores = packed.cores();
                    let core = usize::from(event.core);
                    let own = self.cores.all[cores[core] as usize].1.clone();
                    let apply = || self.system.apply(event, own, &shared);
                    let Ok((own, after)) = catch_unwind(AssertUnwindSafe(apply)) else {
                        self.fail(number, &format!("panicked at the next step, {event:?}"));
                    };
                    cores[core] = self.cores.number(event.core, own);
                    let next = self.number(&after, cores);
                    let is_internal = event.what.is_internal();
                    if is_internal && next != number {
                        self.internal.push((next, number));
                        if has_promise && event.what != What::Tick {
                            self.timeless.push((next, number));
                        }
                    }
                    if self.ways[next as usize].is_none() {
                        let queue = (next, number, Some(event));
                        match is_internal {
                            true => left.push_back(queue),
                            false => later.push(queue),
                        }
                    }
                }
            }
        }
    }

    /// Checks that from each state internal steps lead to one in which each vCPU is content, and to one in which the
    /// system is at rest.
    fn check_all_settle(&mut self) {
        self.internal.sort_unstable();
        self.timeless.sort_unstable();
        for id in 0..VCPUS {
            if self.system.hands_over_at_once(id)
                && let Some(state) =
                    self.first_without(&self.timeless, |seen| !self.system.is_missed(seen, id))
            {
                self.fail(state, &format!("vCPU {id} waits until time passes"));
            }
            let lost = self.first_without(&self.internal, |seen| self.system.is_content(seen, id));
            if let Some(state) = lost {
                self.fail(state, &format!("vCPU {id} waits forever"));
            }
        }
        if let Some(state) = self.first_without(&self.internal, |seen| self.system.is_at_rest(seen))
        {
            self.fail(state, "the system never comes to rest");
        }
    }

    /// The first state from which no `steps` lead to a goal.
    fn first_without(&self, steps: &[(u32, u32)], is_goal: impl Fn(&Seen) -> bool) -> Option<u32> {
        let goals = self
            .states
            .iter()
            .map(|&packed| is_goal(&self.seen(packed)));
        let mut leads: Vec<bool> = goals.collect();
        let mut left: Vec<u32> = (0..)
            .zip(&leads)
            .filter(|it| *it.1)
            .map(|it| it.0)
            .collect();
        while let Some(state) = left.pop() {
            let first = steps.partition_point(|it| it.0 < state);
            for &(_, before) in steps[first..].iter().take_while(|it| it.0 == state) {
                if !leads[before as usize] {
                    leads[before as usize] = true;
                    left.push(before);
                }
            }
        }
        (0..).zip(&leads).find(|it| !it.1).map(|it| it.0)
    }

    /// Prints the steps that lead to a state, and panics.
    fn fail(&self, state: u32, what: &str) -> ! {
        let mut way = Vec::new();
        let mut at = state;
        while let Way {
            before,
            event: Some(event),
        } = self.ways[at as usize]
        {
            way.push(event);
            at = before;
        }
        std::eprintln!("\n{:?}, with all cores running a vCPU:", self.system.name);
        for (step, event) in way.iter().rev().enumerate() {
            std::eprintln!("{step:3}  {event:?}");
        }
        let seen = self.seen(self.states[state as usize]);
        std::eprintln!("{:#?}", seen.shared);
        for core in seen.cores {
            std::eprintln!("{core:?}");
        }
        panic!("{:?}: {what}", self.system.name);
    }
}
