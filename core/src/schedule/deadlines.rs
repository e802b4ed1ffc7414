// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a vCPU that does not run must be woken.
//!
//! A vCPU takes the virtual timer of its core with it while it runs. When it is switched out, the
//! time its timer would fire is kept here, and EL2's own alarm stands in for it.
//!
//! The alarm goes off only for what can change who runs: a vCPU of a lower band cannot, so its
//! deadline waits, and the running vCPU is not disturbed. An equal's deadline is served when the
//! running vCPU's turn is over: before that it could only queue.

use super::{Band, Ticks, Turn};
use crate::bits::bits;
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// Virtual timer deadlines of the vCPUs of one core that do not run.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// By id; valid where the bit in `set` is.
    entries: [Deadline; MAX_VCPUS],
    /// Bit n: there is a deadline of vCPU n. A core has a few, so looking at each is quick.
    set: u32,
}

const _: () = assert!(MAX_VCPUS <= u32::BITS as usize);

#[derive(Clone, Copy, Debug)]
struct Deadline {
    band: Band,
    at: Ticks,
}

impl Deadlines {
    /// No deadlines.
    pub const fn new() -> Self {
        Self {
            entries: [Deadline {
                band: Band::LOWEST,
                at: Ticks(0),
            }; MAX_VCPUS],
            set: 0,
        }
    }

    /// The vCPU has been switched out, and its timer fires at `at` (physical counter). Replaces
    /// an earlier deadline. Returns whether such a vCPU can exist.
    pub fn set(&mut self, vcpu: VcpuId, band: Band, at: Ticks) -> bool {
        let Some(entry) = self.entries.get_mut(vcpu.index()) else {
            return false;
        };
        *entry = Deadline { band, at };
        self.set |= 1 << vcpu.0;
        true
    }

    /// The vCPU runs (its timer is back in the hardware), stops or leaves the core. Returns whether
    /// it had a deadline.
    pub fn clear(&mut self, vcpu: VcpuId) -> bool {
        let bit = 1u32.checked_shl(u32::from(vcpu.0)).unwrap_or(0);
        let had = self.set & bit != 0;
        self.set &= !bit;
        had
    }

    /// The deadlines there are.
    fn each(&self) -> impl Iterator<Item = (u32, Deadline)> {
        bits(self.set).filter_map(|id| Some((id, *self.entries.get(id as usize)?)))
    }

    /// Takes out the vCPU whose timer fired first, if one did by `now`; the caller gives it its
    /// timer interrupt and wakes it. To be repeated until `None`, at most [`MAX_VCPUS`] times.
    ///
    /// Those below band `running` (of the current vCPU; `None` while there is none) stay.
    pub fn take_due(&mut self, now: Ticks, running: Option<Band>) -> Option<VcpuId> {
        let (vcpu, _) = self
            .each()
            .filter(|(_, deadline)| deadline.at <= now && Some(deadline.band) >= running)
            .min_by_key(|(_, deadline)| deadline.at)?;
        let vcpu = VcpuId(vcpu as u8);
        self.clear(vcpu);
        Some(vcpu)
    }

    /// When the core must be interrupted next; `None`: no need to.
    ///
    /// `turn` is that of the vCPU which is about to run; `None` for an idle core, which every
    /// deadline may wake.
    pub fn next_alarm(&self, turn: Option<Turn>) -> Option<Ticks> {
        let deadlines = self.each().map(|(_, deadline)| deadline);
        let Some(turn) = turn else {
            return deadlines.map(|deadline| deadline.at).min();
        };
        let woken = deadlines.filter_map(|deadline| {
            if deadline.band > turn.band {
                Some(deadline.at)
            } else if deadline.band == turn.band {
                Some(deadline.at.max(turn.quantum_end))
            } else {
                None
            }
        });
        woken
            .chain(turn.equal_waits.then_some(turn.quantum_end))
            .min()
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn band(rank: u8) -> Band {
        match Band::new(rank) {
            Some(band) => band,
            None => unreachable!(),
        }
    }

    fn turn(rank: u8, quantum_end: u64, equal_waits: bool) -> Option<Turn> {
        Some(Turn {
            band: band(rank),
            since: Ticks(0),
            quantum_end: Ticks(quantum_end),
            equal_waits,
        })
    }

    fn deadlines() -> Deadlines {
        let mut deadlines = Deadlines::new();
        deadlines.set(VcpuId(0), band(0), Ticks(10));
        deadlines.set(VcpuId(1), band(1), Ticks(20));
        deadlines.set(VcpuId(2), band(2), Ticks(30));
        deadlines
    }

    #[test]
    fn an_idle_core_is_woken_by_the_first_deadline() {
        assert_eq!(deadlines().next_alarm(None), Some(Ticks(10)));
        assert_eq!(Deadlines::new().next_alarm(None), None);
    }

    #[test]
    fn a_running_vcpu_is_disturbed_by_higher_bands_at_once() {
        assert_eq!(deadlines().next_alarm(turn(1, 100, false)), Some(Ticks(30)));
        assert_eq!(deadlines().next_alarm(turn(3, 100, false)), None);
    }

    #[test]
    fn an_equal_is_woken_when_the_turn_is_over() {
        assert_eq!(
            deadlines().next_alarm(turn(2, 100, false)),
            Some(Ticks(100))
        );
        assert_eq!(deadlines().next_alarm(turn(2, 25, false)), Some(Ticks(30)));
    }

    #[test]
    fn a_waiting_equal_needs_the_quantum_timer() {
        assert_eq!(deadlines().next_alarm(turn(3, 100, true)), Some(Ticks(100)));
        assert_eq!(deadlines().next_alarm(turn(1, 25, true)), Some(Ticks(25)));
    }

    #[test]
    fn due_deadlines_are_taken_once_and_lower_bands_wait() {
        let mut deadlines = deadlines();
        assert_eq!(deadlines.take_due(Ticks(9), None), None);
        assert_eq!(
            deadlines.take_due(Ticks(30), Some(band(2))),
            Some(VcpuId(2))
        );
        assert_eq!(deadlines.take_due(Ticks(30), Some(band(2))), None);
        assert_eq!(deadlines.take_due(Ticks(30), None), Some(VcpuId(0)));
        assert_eq!(deadlines.take_due(Ticks(30), None), Some(VcpuId(1)));
        assert_eq!(deadlines.take_due(Ticks(30), None), None);
    }

    #[test]
    fn a_deadline_can_be_replaced_and_cleared() {
        let mut deadlines = deadlines();
        assert!(deadlines.set(VcpuId(0), band(0), Ticks(50)));
        assert_eq!(deadlines.next_alarm(None), Some(Ticks(20)));
        deadlines.clear(VcpuId(1));
        deadlines.clear(VcpuId(2));
        assert_eq!(deadlines.next_alarm(None), Some(Ticks(50)));
        assert!(!deadlines.set(VcpuId(MAX_VCPUS as u8), band(0), Ticks(1)));
    }
}
