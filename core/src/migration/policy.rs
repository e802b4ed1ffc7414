//! The policies against lock-holder preemption: when a parked vCPU changes cores.
//!
//! Each is one module and answers one question: a core of the guest looks at a parked vCPU; does it take it? All that
//! follows from the answer (claims, clocks, who is told) is the same for all of them.

mod none;
mod steal;

use super::Parked;
use crate::schedule::{Band, Ticks};
use none::Stay;
use spumone_config::packed;
use steal::Steal;

/// A parked vCPU of another core, as the core that looks sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Who parked it, and what it was doing.
    pub parked: Parked,
    /// Its band.
    pub band: Band,
    /// Since when it is parked.
    pub since: Ticks,
    /// Whether its host runs somebody more urgent, so that its interrupts and timers do not get through there.
    pub is_cut_off: bool,
}

/// The vCPU that runs on the core that looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// Its band.
    pub band: Band,
    /// Since when.
    pub since: Ticks,
    /// When its turn is over.
    pub turn_end: Ticks,
}

/// The core that looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here {
    /// The time.
    pub now: Ticks,
    /// Who runs; `None`: nobody.
    pub running: Option<Running>,
    /// Whether a vCPU of the running one's band waits here already.
    pub equal_waits: bool,
}

/// What is to be done about a parked vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Leave,
    /// To be looked at again then.
    Later(Ticks),
    /// This core becomes its host. It runs if nobody else wants to.
    Take,
    /// As `Take`, and the vCPU that runs lets go, after its [grace](super::Grace).
    Swap,
}

/// One policy.
trait Decide {
    /// How long a vCPU that made room for a more urgent one is kept by its core before it is parked; `None`: for ever.
    fn patience(&self) -> Option<Ticks>;
    /// Whether the core `here` takes the vCPU.
    fn verdict(&self, here: &Here, candidate: &Candidate) -> Verdict;
}

/// The policy of a system.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// See [`none`].
    None(Stay),
    /// See [`steal`].
    Steal(Steal),
}

impl Policy {
    /// The policy of a description, on a machine whose counter has this frequency.
    pub fn new(policy: packed::Policy, frequency_hz: u32) -> Self {
        match policy {
            packed::Policy::None => Self::None(Stay),
            packed::Policy::Steal => Self::Steal(Steal::new(frequency_hz)),
        }
    }

    /// Whether vCPUs ever change cores.
    pub fn moves(&self) -> bool {
        self.patience().is_some()
    }

    /// How long a vCPU that made room for a more urgent one is kept by its core before it is parked; `None`: for ever.
    pub fn patience(&self) -> Option<Ticks> {
        self.as_dyn().patience()
    }

    /// Whether the core `here` takes a parked vCPU of another one.
    pub fn verdict(&self, here: &Here, candidate: &Candidate) -> Verdict {
        self.as_dyn().verdict(here, candidate)
    }

    fn as_dyn(&self) -> &dyn Decide {
        match self {
            Self::None(policy) => policy,
            Self::Steal(policy) => policy,
        }
    }
}
