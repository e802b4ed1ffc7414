//! `ondemand`: a vCPU departs when a more urgent one takes its core, and returns when that one sleeps.
//!
//! ```text
//!                    core 0                        core 1
//!   rt wakes         parks v, tells core 1
//!                    runs rt                       takes v, which shares the core with w in turns
//!                       ⋮                             ⋮
//!   rt sleeps        tells the host of v           gives v up, tells core 0
//!                    takes v
//! ```
//!
//! As in *Solving the Lock Holder Preemption Problem* (2012), section 4.3: two moves for each activation of the
//! more urgent vCPU, however short.

use super::{Candidate, Decide, Here, Verdict};
use crate::schedule::Ticks;

/// The policy.
#[derive(Clone, Copy, Debug)]
pub struct OnDemand;

impl Decide for OnDemand {
    fn patience(&self) -> Option<Ticks> {
        Some(Ticks(0))
    }

    fn goes_home(&self) -> bool {
        true
    }

    fn verdict(&self, here: &Here, candidate: &Candidate) -> Verdict {
        if here.running.is_some_and(|it| it.band > candidate.band) {
            return Verdict::Leave;
        }
        if candidate.is_cut_off || candidate.is_at_home_here {
            Verdict::Take
        } else {
            Verdict::Leave
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::migration::{Parked, Rest};
    use crate::schedule::Band;
    use spumone_config::types::PcpuId;

    const IDLE: Here = Here {
        now: Ticks(0),
        running: None,
        equal_waits: false,
    };

    fn candidate(is_cut_off: bool, is_at_home_here: bool) -> Candidate {
        Candidate {
            parked: Parked {
                host: PcpuId(0),
                rest: Rest::Runnable,
            },
            band: Band::LOWEST,
            ripe: Ticks(0),
            is_cut_off,
            is_at_home_here,
        }
    }

    #[test]
    fn a_vcpu_departs_from_a_core_that_is_taken_away() {
        assert_eq!(OnDemand.verdict(&IDLE, &candidate(true, false)), Verdict::Take);
    }

    #[test]
    fn a_vcpu_returns_home_and_goes_nowhere_else() {
        assert_eq!(OnDemand.verdict(&IDLE, &candidate(false, true)), Verdict::Take);
        assert_eq!(OnDemand.verdict(&IDLE, &candidate(false, false)), Verdict::Leave);
    }
}
