// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a vCPU that does not run must be woken.
//!
//! While a vCPU runs, its timers are in the core's hardware. When it is switched out, its deadline is kept here, and
//! EL2's alarm replaces its timers.
//!
//! The alarm is armed only for deadlines that can change which vCPU runs. The deadline of a lower band cannot, so it
//! waits, and the running vCPU is not interrupted. The deadline of a vCPU of the same band waits until the time slice
//! is over: before that, the vCPU could only enter the run queue.

use super::{Band, Ticks, TimeSlice};
use crate::bits::bits;
use crate::sets::VcpuSet;
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// Deadlines of the vCPUs of one core that are not loaded.
#[derive(Clone, Debug)]
pub struct Deadlines {
    /// By id; valid where the bit in `set` is.
    entries: [Deadline; MAX_VCPUS],
    /// Bit n: there is a deadline of vCPU n. A core has few, so searching all of them is fast.
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

    /// The vCPU has been switched out, and its first timer expires at `at` (physical counter). Replaces
    /// an earlier deadline. Returns whether such a vCPU can exist.
    pub fn set(&mut self, vcpu: VcpuId, band: Band, at: Ticks) -> bool {
        let Some(entry) = self.entries.get_mut(vcpu.index()) else {
            return false;
        };
        *entry = Deadline { band, at };
        self.set |= 1 << vcpu.0;
        true
    }

    /// Removes a deadline: the vCPU runs (its timers are in the hardware), stops or leaves the core. Returns whether
    /// it had a deadline.
    pub fn clear(&mut self, vcpu: VcpuId) -> bool {
        let bit = 1u32.checked_shl(u32::from(vcpu.0)).unwrap_or(0);
        let had = self.set & bit != 0;
        self.set &= !bit;
        had
    }

    /// All deadlines, with the number of their vCPU.
    fn each(&self) -> impl Iterator<Item = (u32, Deadline)> {
        self.each_of(self.set)
    }

    fn each_of(&self, vcpus: u32) -> impl Iterator<Item = (u32, Deadline)> {
        bits(vcpus).filter_map(|id| Some((id, *self.entries.get(id as usize)?)))
    }

    /// Removes the earliest deadline of the highest band that is due by `now`, and returns its vCPU, which the caller wakes. To be repeated
    /// until `None`, at most [`MAX_VCPUS`] times.
    ///
    /// Deadlines of bands below `highest` (the highest band that runs or is runnable by now; `None` if there is none) stay.
    pub fn take_due(&mut self, now: Ticks, highest: Option<Band>) -> Option<VcpuId> {
        let mut first: Option<(u32, Deadline)> = None;
        // At most 32 times: vCPUs.
        for (vcpu, deadline) in self.each() {
            let Deadline { band, at } = deadline;
            let is_before = first
                .is_none_or(|(_, first)| band > first.band || band == first.band && at < first.at);
            if at <= now && Some(band) >= highest && is_before {
                first = Some((vcpu, deadline));
            }
        }
        let (vcpu, _) = first?;
        let vcpu = VcpuId(vcpu as u8);
        self.clear(vcpu);
        Some(vcpu)
    }

    /// The deadline of a vCPU; `None`: it has none.
    pub fn of(&self, vcpu: VcpuId) -> Option<Ticks> {
        let has_one = self.set.checked_shr(u32::from(vcpu.0)).unwrap_or(0) & 1 != 0;
        let entry = self.entries.get(vcpu.index()).filter(|_| has_one)?;
        Some(entry.at)
    }

    /// Whether there is no deadline.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// Whether a deadline of `band` or above is due by `now`. Those of the vCPUs in `except` do not count.
    #[inline(always)]
    pub fn is_any_due_from(&self, band: Band, now: Ticks, except: VcpuSet) -> bool {
        // At most 32 times: vCPUs.
        self.each_of(self.set & !except.bits())
            .any(|(_, deadline)| deadline.at <= now && deadline.band >= band)
    }

    /// Of the vCPUs whose deadlines are due by `now`, without those in `except`, the one of the highest band. `None`: no deadline is due, or several of
    /// that band are.
    #[inline(always)]
    pub fn highest_due(&self, now: Ticks, except: VcpuSet) -> Option<VcpuId> {
        let (mut highest, mut is_only) = (None, false);
        // At most 32 times: vCPUs.
        for (vcpu, Deadline { band, at }) in self.each_of(self.set & !except.bits()) {
            let rank = Some(band);
            let best = highest.map(|(_, band)| band);
            if at <= now && rank >= best {
                is_only = rank > best;
                highest = Some((vcpu, band));
            }
        }
        let (vcpu, _) = highest.filter(|_| is_only)?;
        Some(VcpuId(vcpu as u8))
    }

    /// The time for which the alarm must be armed while `highest`, the highest band that is runnable, may not run: only deadlines count that
    /// [`take_due`](Self::take_due) takes. An alarm for the others, which stay, would expire again and again.
    pub fn next_alarm_from(&self, highest: Option<Band>) -> Option<Ticks> {
        // At most 32 times: vCPUs.
        let counted = self.each().filter(|(_, it)| Some(it.band) >= highest);
        // At most 32 times: vCPUs.
        counted.map(|(_, it)| it.at).min()
    }

    /// The time for which the alarm must be armed; `None`: not at all.
    ///
    /// `slice` is that of the vCPU which is about to run; `None` for an idle core, on which every deadline counts.
    pub fn next_alarm(&self, slice: Option<TimeSlice>) -> Option<Ticks> {
        let deadlines = self.each().map(|(_, deadline)| deadline);
        let Some(slice) = slice else {
            // At most 32 times: vCPUs.
            return deadlines.map(|deadline| deadline.at).min();
        };
        // At most 32 times: vCPUs.
        let woken = deadlines.filter_map(|deadline| {
            if deadline.band > slice.band {
                Some(deadline.at)
            } else if deadline.band == slice.band {
                Some(deadline.at.max(slice.end))
            } else {
                None
            }
        });
        // At most 32 times: vCPUs.
        woken
            .chain(slice.same_band_waits.then_some(slice.end))
            .min()
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

    fn slice(rank: u8, end: u64, same_band_waits: bool) -> Option<TimeSlice> {
        Some(TimeSlice {
            band: band(rank),
            since: Ticks(0),
            end: Ticks(end),
            same_band_waits,
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
    fn on_an_idle_core_the_alarm_is_the_first_deadline() {
        assert_eq!(deadlines().next_alarm(None), Some(Ticks(10)));
        assert_eq!(Deadlines::new().next_alarm(None), None);
    }

    #[test]
    fn deadlines_below_a_paused_band_do_not_count() {
        let mut deadlines = deadlines();
        assert_eq!(deadlines.next_alarm_from(Some(band(1))), Some(Ticks(20)));
        assert_eq!(
            deadlines.take_due(Ticks(25), Some(band(1))),
            Some(VcpuId(1))
        );
        assert_eq!(deadlines.take_due(Ticks(25), Some(band(1))), None);
        assert_eq!(deadlines.next_alarm_from(Some(band(1))), Some(Ticks(30)));
    }

    #[test]
    fn deadlines_of_higher_bands_interrupt_the_running_vcpu_at_once() {
        assert_eq!(
            deadlines().next_alarm(slice(1, 100, false)),
            Some(Ticks(30))
        );
        assert_eq!(deadlines().next_alarm(slice(3, 100, false)), None);
    }

    #[test]
    fn a_deadline_of_the_same_band_waits_for_the_end_of_the_time_slice() {
        assert_eq!(
            deadlines().next_alarm(slice(2, 100, false)),
            Some(Ticks(100))
        );
        assert_eq!(deadlines().next_alarm(slice(2, 25, false)), Some(Ticks(30)));
    }

    #[test]
    fn a_waiting_vcpu_of_the_same_band_needs_an_alarm_at_the_end_of_the_time_slice() {
        assert_eq!(
            deadlines().next_alarm(slice(3, 100, true)),
            Some(Ticks(100))
        );
        assert_eq!(deadlines().next_alarm(slice(1, 25, true)), Some(Ticks(25)));
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
        // The higher band first, though its deadline is later.
        assert_eq!(deadlines.take_due(Ticks(30), None), Some(VcpuId(1)));
        assert_eq!(deadlines.take_due(Ticks(30), None), Some(VcpuId(0)));
        assert_eq!(deadlines.take_due(Ticks(30), None), None);
    }

    #[test]
    fn the_highest_due_deadline_is_the_only_one_of_its_band() {
        let mut deadlines = deadlines();
        assert_eq!(deadlines.highest_due(Ticks(9), VcpuSet::EMPTY), None);
        assert_eq!(
            deadlines.highest_due(Ticks(30), VcpuSet::EMPTY),
            Some(VcpuId(2))
        );
        assert!(deadlines.is_any_due_from(band(2), Ticks(30), VcpuSet::EMPTY));
        assert!(!deadlines.is_any_due_from(band(3), Ticks(30), VcpuSet::EMPTY));
        let without = VcpuSet::of(VcpuId(2));
        assert_eq!(deadlines.highest_due(Ticks(30), without), Some(VcpuId(1)));
        assert!(!deadlines.is_any_due_from(band(2), Ticks(30), without));
        deadlines.set(VcpuId(3), band(2), Ticks(1));
        assert_eq!(deadlines.highest_due(Ticks(30), VcpuSet::EMPTY), None);
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
