// SPDX-License-Identifier: MIT OR Apache-2.0
//! The run.

use crate::agenda::Agenda;
use crate::guest::Smp;
use crate::instance::Instance;
use crate::invariants::{Invariants, Violation};
use crate::outcome::{Counters, Outcome, Times, Work};
use crate::setup::{End, Setup, SetupError};
use crate::world::World;
use core::fmt;
use spumone_config::types::PcpuId;
use spumone_core::schedule::Ticks;

/// A machine that is being simulated.
#[derive(Debug)]
pub struct Simulation {
    systems: Vec<System>,
    agenda: Agenda,
    guest_cores: usize,
    end: End,
    now: Ticks,
    migrations: u64,
}

/// Cores that share guests.
#[derive(Debug)]
struct System {
    cores: Vec<Instance>,
    world: World,
    invariants: Invariants,
}

/// Why a simulation has no outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failed {
    /// The setup cannot be simulated.
    Setup(SetupError),
    /// An invariant does not hold.
    Violation(Violation),
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(error) => error.fmt(f),
            Self::Violation(violation) => violation.fmt(f),
        }
    }
}

impl std::error::Error for Failed {}

/// Simulates from beginning to end.
///
/// # Errors
///
/// See [`Failed`].
pub fn simulate(setup: &Setup) -> Result<Outcome, Failed> {
    let mut simulation = Simulation::new(setup)?;
    while !simulation.run(u64::MAX)? {}
    Ok(simulation.outcome())
}

impl Simulation {
    /// A machine that has just been started.
    ///
    /// # Errors
    ///
    /// [`Failed::Setup`].
    pub fn new(setup: &Setup) -> Result<Self, Failed> {
        setup.check().map_err(Failed::Setup)?;
        let system = |number| {
            let mut world = World::new(setup, number);
            let cores: Vec<_> = (0..setup.guest_cores)
                .map(|core| Instance::new(PcpuId(core as u8), setup, &mut world))
                .collect();
            let invariants = Invariants::new(setup, &cores, &world);
            System {
                cores,
                world,
                invariants,
            }
        };
        let mut agenda = Agenda::new(setup.cores);
        for core in 0..setup.cores {
            agenda.set(core, Ticks(0));
        }
        Ok(Self {
            systems: (0..setup.cores / setup.guest_cores).map(system).collect(),
            agenda,
            guest_cores: setup.guest_cores,
            end: setup.end,
            now: Ticks(0),
            migrations: 0,
        })
    }

    /// Simulates so many further events at most. Returns whether the end of the run is reached.
    ///
    /// # Errors
    ///
    /// [`Failed::Violation`].
    pub fn run(&mut self, events: u64) -> Result<bool, Failed> {
        for _ in 0..events {
            let (now, core) = self.agenda.next();
            let is_over = match self.end {
                End::Time(end) => now >= end,
                End::Migrations(migrations) => self.migrations >= migrations,
            };
            if is_over || now == Ticks::NEVER {
                if let End::Time(end) = self.end {
                    self.now = end;
                }
                return Ok(true);
            }
            self.now = now;
            self.step(core)?;
        }
        Ok(false)
    }

    fn step(&mut self, core: usize) -> Result<(), Failed> {
        let now = self.now;
        let number = core / self.guest_cores;
        let first = number * self.guest_cores;
        let system = &mut self.systems[number];
        let before = system.world.counters.migrations;
        system.cores[core - first].step(&mut system.world, now);
        system.world.counters.events += 1;
        self.migrations += system.world.counters.migrations - before;
        let mut touched = core::mem::take(&mut system.world.touched) | 1 << (core - first);
        while touched != 0 {
            let index = touched.trailing_zeros() as usize;
            touched &= touched - 1;
            let next = system.cores[index].next_event(&system.world);
            self.agenda.set(first + index, next);
        }
        system
            .invariants
            .check(&system.cores, &mut system.world, core - first, now)
            .map_err(|what| {
                Failed::Violation(Violation {
                    at: now,
                    system: number,
                    what,
                })
            })
    }

    /// The share of the run that is simulated, from 0 to 1.
    pub fn progress(&self) -> f64 {
        let (done, all) = match self.end {
            End::Time(end) => (self.now.0, end.0),
            End::Migrations(migrations) => (self.migrations, migrations),
        };
        done as f64 / all.max(1) as f64
    }

    /// Number of times that vCPUs have changed cores.
    pub fn migrations(&self) -> u64 {
        self.migrations
    }

    /// The results so far.
    pub fn outcome(&self) -> Outcome {
        let mut outcome = Outcome {
            time: self.now,
            work: Work::default(),
            counters: Counters::default(),
            longest_dispatch: Ticks(0),
            activations: 0,
            pieces: Times::default(),
            power: None,
            longest_wait: Ticks(0),
            longest_wait_beside_idle: Ticks(0),
        };
        for system in &self.systems {
            outcome.counters.add(&system.world.counters);
            match &system.world.smp {
                Smp::Messages(guest) => {
                    outcome.work.messages += guest.received;
                    outcome.work.spun += guest.spun;
                }
                Smp::Duty(guest) => {
                    outcome.work.pieces += guest.work;
                    outcome.pieces.merge(&guest.taken);
                }
                Smp::Churn(_) => {}
            }
            if let Some(power) = &system.world.power {
                let sum = outcome.power.get_or_insert_default();
                sum.add(&power.meter.outcome(self.now));
            }
            if let Some(rt) = &system.world.rt {
                outcome.longest_dispatch = outcome.longest_dispatch.max(rt.longest_wait);
                outcome.activations += rt.activations;
            }
            let invariants = &system.invariants;
            outcome.longest_wait = outcome.longest_wait.max(invariants.longest_wait);
            outcome.longest_wait_beside_idle = outcome
                .longest_wait_beside_idle
                .max(invariants.longest_wait_beside_idle);
        }
        outcome
    }
}
