// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is to be simulated.

use crate::costs::Costs;
use crate::time::us;
use core::fmt;
use spumone_config::packed;
use spumone_config::types::{MAX_PCPUS, MAX_VCPUS};
use spumone_core::schedule::Ticks;

/// Most cores of a simulation.
pub const MAX_CORES: usize = 1024;
/// Most vCPUs of a system beside the real-time vCPU: the hypervisor's masks have a bit for each vCPU.
pub const MAX_GUEST_VCPUS: usize = MAX_VCPUS - 1;

/// What decides whether a vCPU changes cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decisions {
    /// A policy of the hypervisor.
    Policy(packed::Policy),
    /// Chance: every move that the protocol allows may happen at every opportunity. For tests of the protocol, not for figures.
    Chance,
}

/// What the vCPUs of the SMP guest do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Processes that send each other messages through sockets: locks, wake-ups, IPIs, ticks.
    Messages,
    /// A thread for each vCPU, which works for a part of each period.
    Duty(Duty),
    /// vCPUs that compute, sleep and send each other SGIs, each for some microseconds: as many moves as possible.
    Churn,
    /// The same with pauses: most of the time a vCPU sleeps.
    Naps,
}

/// Threads that work for a part of each period, as those of `guests/linux/programs/duty.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Duty {
    /// The length of a period.
    pub period: Ticks,
    /// How long each thread works in each period; 0: the guest idles.
    pub busy: Ticks,
    /// Thread n begins its periods so much, times n, after the first thread.
    pub apart: Ticks,
}

/// From when until when the SMP guest works. Before that and after it the guest idles. [`Workload::Churn`] and [`Workload::Naps`] always work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The begin of the load.
    pub from: Ticks,
    /// After this, the guest begins nothing new.
    pub to: Ticks,
}

impl Span {
    /// The whole simulation.
    pub const ALWAYS: Self = Self {
        from: Ticks(0),
        to: Ticks::NEVER,
    };
}

/// What decides which cores are on. Core 0 of each system always is. For systems of at most 8 cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Powered {
    /// The governor, in this mode.
    Governed(packed::PowerMode),
    /// The same with its times a hundred times shorter, so that a short simulation has many of its decisions.
    Hasty(packed::PowerMode),
    /// As `Hasty`, in modes that change at random.
    Changing,
    /// Chance: cores go off and come back again and again.
    Chance,
}

impl Powered {
    /// The mode at first; that of chance brings no core back.
    pub const fn mode(self) -> packed::PowerMode {
        match self {
            Self::Governed(mode) | Self::Hasty(mode) => mode,
            Self::Changing | Self::Chance => packed::PowerMode::Saving,
        }
    }

    /// By what the governor's times are shorter than in the hypervisor.
    pub const fn haste(self) -> u32 {
        match self {
            Self::Governed(_) => 1,
            Self::Hasty(_) | Self::Changing | Self::Chance => 100,
        }
    }
}

/// When the simulation ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// At this virtual time.
    Time(Ticks),
    /// When vCPUs have changed cores this many times.
    Migrations(u64),
}

/// A machine, what runs on it, and for how long.
///
/// The cores are divided among systems of equal size. Each has one SMP guest on all its cores, and a real-time
/// guest on its first core.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Cores of the machine.
    pub cores: usize,
    /// Cores of each SMP guest: a divisor of `cores`.
    pub guest_cores: usize,
    /// vCPUs of each SMP guest; vCPU n has its home on core n + 1, the last on core 0.
    pub guest_vcpus: usize,
    /// What decides about moves.
    pub decisions: Decisions,
    /// What the SMP guests do.
    pub workload: Workload,
    /// When they do it.
    pub span: Span,
    /// The real-time guests.
    pub rt: Option<Rt>,
    /// Interrupts that arrive at the real-time guest's core without end.
    pub storm: Option<Storm>,
    /// Which cores are on; `None`: all.
    pub power: Option<Powered>,
    /// Length of a time slice.
    pub quantum: Ticks,
    /// What EL2 costs.
    pub costs: Costs,
    /// Whether a core can catch a guest leaving its kernel (FEAT_XNX).
    pub catches_exit: bool,
    /// Seed of all random numbers.
    pub seed: u64,
    /// When the simulation ends.
    pub end: End,
}

/// A device of the SMP guest that interrupts the first core without end, each time for another vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Storm {
    /// From one interrupt to the next.
    pub interval: Ticks,
    /// Instructions that EL2 needs for each.
    pub cost: u64,
}

/// A real-time guest: a vCPU that preempts all others of its core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rt {
    /// The length of its period.
    pub period: Ticks,
    /// How long its task is busy in each period.
    pub busy: Ticks,
    /// How often its timer ticks; `None`: it has no tick, and wakes once a period.
    pub tick: Option<Ticks>,
}

impl Rt {
    /// Busy for a share of every 500 ms, with a tick of 1 kHz: as in `spm bench lhp`.
    pub fn busy_percent(percent: u8) -> Self {
        Self {
            period: us(500_000),
            busy: us(5_000 * u64::from(percent)),
            tick: Some(us(1_000)),
        }
    }
}

impl Setup {
    /// A machine of `cores` cores with one SMP guest on all of them, with the workload of the testbed.
    pub fn new(cores: usize, decisions: Decisions, busy_percent: u8, seed: u64) -> Self {
        Self {
            cores,
            guest_cores: cores,
            guest_vcpus: cores,
            decisions,
            workload: Workload::Messages,
            span: Span::ALWAYS,
            rt: Some(Rt::busy_percent(busy_percent)),
            storm: None,
            power: None,
            quantum: us(2_000),
            costs: Costs::SPUMONE,
            catches_exit: true,
            seed,
            end: End::Time(us(5_000_000)),
        }
    }

    /// The same guest alone on a machine with `cores` cores and without a hypervisor.
    #[must_use]
    pub fn bare(self, cores: usize) -> Self {
        Self {
            cores,
            guest_cores: cores,
            guest_vcpus: cores,
            decisions: Decisions::Policy(packed::Policy::None),
            rt: None,
            storm: None,
            power: None,
            costs: Costs::BARE,
            ..self
        }
    }

    /// Share of a core that the real-time guest takes in [`Self::churn`], in percent.
    pub const CHURN_PERCENT: u8 = 10;

    /// As many vCPUs move as often as they can, beside a real-time guest with short activations at 1 kHz.
    pub fn churn(cores: usize, seed: u64, migrations: u64) -> Self {
        Self {
            workload: Workload::Churn,
            guest_vcpus: (2 * cores).min(MAX_GUEST_VCPUS),
            quantum: us(20),
            end: End::Migrations(migrations),
            rt: Some(Rt {
                period: us(1_000),
                busy: us(10 * u64::from(Self::CHURN_PERCENT)),
                tick: None,
            }),
            ..Self::new(cores, Decisions::Chance, 0, seed)
        }
    }

    /// Whether such a machine can be simulated.
    ///
    /// # Errors
    ///
    /// What is wrong, and what would be right.
    pub fn check(&self) -> Result<(), SetupError> {
        let error = |message: String, help: String| Err(SetupError { message, help });
        if !(1..=MAX_CORES).contains(&self.cores) {
            return error(
                format!("a machine with {} cores cannot be simulated", self.cores),
                format!("use 1 to {MAX_CORES} cores"),
            );
        }
        if !(1..=MAX_GUEST_VCPUS).contains(&self.guest_cores) {
            return error(
                format!("a guest cannot have {} cores", self.guest_cores),
                format!(
                    "a system has {MAX_VCPUS} vCPUs at most, one of them the real-time one: 1 to {MAX_GUEST_VCPUS}"
                ),
            );
        }
        if !self.cores.is_multiple_of(self.guest_cores) {
            return error(
                format!(
                    "{} cores cannot be divided among guests of {} cores",
                    self.cores, self.guest_cores
                ),
                "choose a divisor of the number of cores".into(),
            );
        }
        if !(self.guest_cores..=MAX_GUEST_VCPUS).contains(&self.guest_vcpus) {
            return error(
                format!("{} vCPUs on {} cores", self.guest_vcpus, self.guest_cores),
                format!(
                    "each core must be the home of at least one vCPU; there are at most {MAX_GUEST_VCPUS}"
                ),
            );
        }
        if self.storm.is_some_and(|it| it.interval == Ticks(0)) {
            return error(
                "a storm of interrupts without time between them".into(),
                "use at least one tick".into(),
            );
        }
        if self.power.is_some() && self.guest_cores > MAX_PCPUS {
            return error(
                format!("cores go off in systems of {} cores", self.guest_cores),
                format!("use systems of at most {MAX_PCPUS} cores"),
            );
        }
        if let Workload::Duty(duty) = self.workload
            && (duty.period == Ticks(0) || duty.busy > duty.period)
        {
            return error(
                "threads that work for longer than their period".into(),
                "they must work for at most a period of at least one tick".into(),
            );
        }
        if let Some(rt) = self.rt {
            if rt.period == Ticks(0) || rt.tick == Some(Ticks(0)) {
                return error("a period of 0 ticks".into(), "use at least one tick".into());
            }
            if rt.busy >= rt.period && rt.busy != Ticks(0) {
                return error(
                    "a real-time guest that never sleeps".into(),
                    "it must be busy for less than its period".into(),
                );
            }
        }
        Ok(())
    }
}

/// Why a setup cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupError {
    /// What is wrong.
    pub message: String,
    /// What to use instead.
    pub help: String,
}

impl fmt::Display for SetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.help)
    }
}

impl std::error::Error for SetupError {}
