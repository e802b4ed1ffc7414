//! The policies against lock-holder preemption: when a vCPU changes cores.
//!
//! Each is one module. Its [`Conduct`] is what it has the cores do on their own; its verdicts answer one question: a core of
//! the guest looks at a parked vCPU; does it take it? All that follows (claims, clocks, who is told) is the same for all.

mod balance;
mod cosched;
mod delay;
mod none;
mod ondemand;
mod random;
mod steal;
mod trap;

use super::Parked;
use crate::schedule::{Band, Ticks};
use balance::Balance;
use cosched::Cosched;
use delay::Delay;
use none::Stay;
use ondemand::OnDemand;
use random::Random;
use spumone_config::packed;
use spumone_config::types::PcpuId;
use steal::Steal;
use trap::Trap;

/// A parked vCPU of another core, as the core that looks sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Who parked it, and what it was doing.
    pub parked: Parked,
    /// Its band.
    pub band: Band,
    /// Its home.
    pub home: PcpuId,
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
    /// Which it is.
    pub core: PcpuId,
    /// The time.
    pub now: Ticks,
    /// Who runs; `None`: nobody.
    pub running: Option<Running>,
    /// Whether a vCPU of the running one's band waits here already.
    pub equal_waits: bool,
    /// Whether guests' kernels are kept off this core.
    pub keeps_kernels_off: bool,
}

impl Here {
    /// Whether somebody more urgent runs here: the vCPU would get nothing.
    fn is_too_urgent_for(&self, candidate: &Candidate) -> bool {
        self.running.is_some_and(|it| it.band > candidate.band)
    }

    /// Takes it in exchange, once the time `due` has come.
    fn swap_from(&self, due: Ticks) -> Verdict {
        if self.now < due {
            Verdict::Later(due)
        } else {
            Verdict::Swap
        }
    }
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

/// What a policy has the cores do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Conduct {
    /// Whether vCPUs ever change cores.
    pub moves: bool,
    /// How long a vCPU that made room for a more urgent one is kept by its core before it is parked, if vCPUs move.
    pub patience: Ticks,
    /// Whether vCPUs that are away go home once their home core could run them.
    pub goes_home: bool,
    /// Whether guests' kernels run only on cores that have no more urgent vCPU.
    pub keeps_kernels_off: bool,
    /// After how long a running vCPU is sent away, though nobody wants its core.
    pub restless: Option<Ticks>,
    /// For how long at most a more urgent vCPU waits until the guest's kernel has no lock.
    pub delay: Option<Ticks>,
    /// Whether all vCPUs of a guest wait while one of its cores is taken.
    pub gang: bool,
}

/// One policy.
trait Decide {
    /// What it has the cores do.
    fn conduct(&self) -> Conduct;

    /// Whether the core `here` takes the vCPU.
    fn verdict(&self, _: &Here, _: &Candidate) -> Verdict {
        Verdict::Leave
    }
}

/// The policy of a system.
#[derive(Clone, Copy, Debug)]
pub enum Policy {
    /// See [`none`].
    None(Stay),
    /// See [`steal`].
    Steal(Steal),
    /// See [`ondemand`].
    OnDemand(OnDemand),
    /// See [`trap`].
    Trap(Trap),
    /// See [`delay`].
    Delay(Delay),
    /// See [`balance`].
    Balance(Balance),
    /// See [`cosched`].
    Cosched(Cosched),
    /// See [`random`].
    Random(Random),
}

impl Policy {
    /// The policy of a description, on a machine whose counter has this frequency.
    pub fn new(policy: packed::Policy, frequency_hz: u32) -> Self {
        match policy {
            packed::Policy::None => Self::None(Stay),
            packed::Policy::Steal => Self::Steal(Steal::new(frequency_hz)),
            packed::Policy::OnDemand => Self::OnDemand(OnDemand),
            packed::Policy::Trap => Self::Trap(Trap::new(frequency_hz)),
            packed::Policy::Delay => Self::Delay(Delay::new(frequency_hz)),
            packed::Policy::Balance => Self::Balance(Balance::new(frequency_hz)),
            packed::Policy::Cosched => Self::Cosched(Cosched),
            packed::Policy::Random => Self::Random(Random::new(frequency_hz)),
        }
    }

    /// What it has the cores do.
    pub fn conduct(&self) -> Conduct {
        self.as_dyn().conduct()
    }

    /// Whether the core `here` takes a parked vCPU of another one.
    pub fn verdict(&self, here: &Here, candidate: &Candidate) -> Verdict {
        self.as_dyn().verdict(here, candidate)
    }

    fn as_dyn(&self) -> &dyn Decide {
        match self {
            Self::None(policy) => policy,
            Self::Steal(policy) => policy,
            Self::OnDemand(policy) => policy,
            Self::Trap(policy) => policy,
            Self::Delay(policy) => policy,
            Self::Balance(policy) => policy,
            Self::Cosched(policy) => policy,
            Self::Random(policy) => policy,
        }
    }
}

/// What tests of policies start from.
#[cfg(test)]
mod samples {
    use super::*;
    use crate::migration::Rest;

    /// Home and host of the candidates.
    pub const HOME: PcpuId = PcpuId(0);
    /// Another core.
    pub const OTHER: PcpuId = PcpuId(1);
    /// Above the candidates' band.
    pub const HIGH: Band = match Band::new(1) {
        Some(band) => band,
        None => unreachable!(),
    };

    /// Cut off on its home core, since time 0.
    pub fn candidate(rest: Rest) -> Candidate {
        Candidate {
            parked: Parked { host: HOME, rest },
            band: Band::LOWEST,
            home: HOME,
            since: Ticks(0),
            is_cut_off: true,
        }
    }

    /// [`OTHER`], where an equal runs.
    pub fn busy(now: u64, since: u64, turn_end: u64) -> Here {
        Here {
            core: OTHER,
            now: Ticks(now),
            running: Some(Running {
                band: Band::LOWEST,
                since: Ticks(since),
                turn_end: Ticks(turn_end),
            }),
            equal_waits: false,
            keeps_kernels_off: false,
        }
    }

    /// [`OTHER`], where nobody runs.
    pub fn idle(now: u64) -> Here {
        Here {
            running: None,
            ..busy(now, 0, 0)
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn policies_are_as_descriptions_are_checked_for() {
        for packed in packed::Policy::ALL {
            let conduct = Policy::new(packed, 1_000_000).conduct();
            assert_eq!(conduct.moves, packed.moves_vcpus(), "{packed:?}");
            let is_patient = conduct.patience > Ticks(0);
            assert_eq!(is_patient, packed.is_patient(), "{packed:?}");
        }
    }
}
