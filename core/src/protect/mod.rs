// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether what must not change in a running guest's memory is still what was loaded.
//!
//! The packed form says which [leaves](spumone_config::packed::LeafRun) of the guest's image are protected. Each is hashed where it is in
//! guest memory, and compared with the hash in the verified list of its segment. [`Rounds`] says when which leaf is due, and shares them out
//! among the cores that have time.

mod rounds;
mod turns;

#[cfg(test)]
#[cfg(loom)]
mod loom_tests;

pub use rounds::{Pace, Rounds};
pub use turns::Turns;

use crate::load::{Expected, Subject, physical};
use crate::psci::StopReason;
use crate::schedule::{Band, Ticks};
use spumone_config::packed::{Guest, Hash};
use spumone_config::{GuestAddr, PhysAddr};

/// A protected leaf that differs from its hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its first byte, as the guest sees it.
    pub page: GuestAddr,
    /// The same on the machine.
    pub at: PhysAddr,
}

/// How the leaves of a guest are checked, for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// How many there are.
    pub pages: u32,
    /// How long the last whole round over all of them took, in milliseconds.
    pub took_ms: u32,
    /// How many rounds were ended.
    pub rounds: u32,
}

/// Why a guest is stopped that has made an access it may not, at `at` of its memory if that is known: a write to protected memory, which
/// stage 2 refuses, counts as a change of it.
pub fn reason_of_fault(guest: &Guest, at: Option<GuestAddr>) -> StopReason {
    let protect = guest.protect.as_ref();
    match protect.zip(at) {
        Some((protect, at)) if protect.is_read_only(at, 1) => StopReason::Tampered,
        _ => StopReason::Fault,
    }
}

/// While leaves are late, the core runs its vCPU for so many times as long as it checks.
const PAUSE: u64 = 2;
/// The least pause is this part of the time between two looks: a check that is interrupted at once is short.
const LEAST_PAUSE: u64 = 16;

/// Whether a core that runs a vCPU of band `running` (`None`: it idles) checks late leaves of a guest of band `guest`: if the running band is
/// lower, or the lowest one.
pub fn is_checked_beside(guest: Band, running: Option<Band>) -> bool {
    running.is_none_or(|running| running < guest || running == Band::LOWEST)
}

/// How long a core that has checked late leaves for the time `took` does not check any, while some are left. `look`: the time between two
/// looks.
pub fn pause(took: Ticks, look: Ticks) -> Ticks {
    Ticks((PAUSE * took.0).max(look.0 / LEAST_PAUSE))
}

/// Protected leaf `number` of a guest, counted over all of them: what is to be hashed, and where it is. `None` behind the last one.
pub fn leaf(guest: &Guest, number: u32) -> Option<(Subject, Changed)> {
    let mut left = number;
    let mut runs = guest.protect.as_ref()?.leaves.iter();
    // At most 16 times: runs of leaves.
    let run = runs.find(|run| {
        let is_here = left < run.count;
        if !is_here {
            left -= run.count;
        }
        is_here
    })?;
    let segment = guest.segments.get(usize::from(run.segment))?;
    let number = u64::from(run.first) + u64::from(left);
    let leaf = segment.leaf(number);
    let page = GuestAddr(segment.destination.0 + leaf.start);
    let at = physical(&guest.memory, page)?;
    let subject = Subject {
        from: at.0,
        to: None,
        size: leaf.size,
        expected: Expected::Listed(segment.list + number * Hash::SIZE as u64),
    };
    Some((subject, Changed { page, at }))
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn late_leaves_are_checked_in_the_time_of_lower_bands_or_of_the_lowest() {
        let (lowest, highest) = (Band::LOWEST, Band::HIGHEST);
        assert!(is_checked_beside(highest, Some(lowest)));
        assert!(is_checked_beside(lowest, Some(lowest)));
        assert!(is_checked_beside(highest, None));
        assert!(!is_checked_beside(highest, Some(highest)));
        assert!(!is_checked_beside(lowest, Some(highest)));
    }

    #[test]
    fn the_core_runs_its_vcpu_for_twice_as_long_as_it_checks() {
        assert_eq!(pause(Ticks(500), Ticks(160)), Ticks(1000));
        // An interrupt was pending.
        assert_eq!(pause(Ticks(0), Ticks(160)), Ticks(10));
    }
}
