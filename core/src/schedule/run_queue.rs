// SPDX-License-Identifier: MIT OR Apache-2.0
//! The run queue: the runnable vCPUs of a core, and the running one.
//!
//! One first-in first-out queue per band, as a ring of links between vCPU ids, and a bitmap of the bands that have a
//! member: every operation takes constant time. The vCPU that runs in turn stays the first of its band, so a preemption does not
//! change the queue.

use super::{Band, Level};
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// The runnable vCPUs of one core, and the running one, by band and in the order of their time slices.
#[derive(Clone, Debug)]
pub struct RunQueue {
    /// Places by vCPU id; valid for queued vCPUs.
    places: [Place; MAX_VCPUS],
    /// The first of each band that has members.
    first: [VcpuId; Band::COUNT],
    /// Bit n is set while vCPU n is queued.
    queued: u32,
    /// Bit b is set while the queue of band b has members.
    occupied: u8,
}

/// The place of a queued vCPU. Four bytes, so that a shift computes its address.
#[derive(Clone, Copy, Debug)]
#[repr(align(4))]
struct Place {
    /// The vCPU after it in its band; after the last, the first.
    after: VcpuId,
    /// The vCPU before it in its band.
    before: VcpuId,
    band: Band,
}

const _: () = assert!(Band::COUNT <= u8::BITS as usize);
const _: () = assert!(MAX_VCPUS <= u32::BITS as usize);

impl RunQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            places: [Place {
                after: VcpuId(0),
                before: VcpuId(0),
                band: Band::LOWEST,
            }; MAX_VCPUS],
            first: [VcpuId(0); Band::COUNT],
            queued: 0,
            occupied: 0,
        }
    }

    /// Puts a vCPU behind the others of its band: it has just become runnable.
    ///
    /// Returns whether it was put there; not if it is queued already or no such vCPU can exist.
    pub fn wake(&mut self, vcpu: VcpuId, band: Band) -> bool {
        self.append(vcpu, band)
    }

    /// As [`Self::wake`], for a vCPU that is not queued, and a band that has no members.
    #[inline(always)]
    pub(super) fn wake_first(&mut self, vcpu: VcpuId, band: Band) {
        debug_assert!(
            !self.contains(vcpu) && !self.has_band(band),
            "the vCPU is alone in its band"
        );
        if let Some(place) = self.places.get_mut(vcpu.index()) {
            *place = Place {
                after: vcpu,
                before: vcpu,
                band,
            };
            self.first[band.index()] = vcpu;
            self.queued |= 1 << vcpu.index();
            self.occupied |= 1 << band.index();
        }
    }

    /// Puts a vCPU that is queued in `band` behind the others of the band: its time slice is over.
    #[inline(always)]
    pub fn put_last(&mut self, vcpu: VcpuId, band: Band) {
        debug_assert!(self.contains(vcpu), "the vCPU is queued");
        let first = &mut self.first[band.index()];
        if *first == vcpu {
            // In a ring, the vCPU behind the last is the one before the first.
            *first = self.places[vcpu.index() % MAX_VCPUS].after;
        } else {
            self.remove(vcpu);
            self.append(vcpu, band);
        }
    }

    /// Removes a vCPU: it sleeps, stops or leaves the core. Returns whether it was queued.
    #[inline(always)]
    pub fn remove(&mut self, vcpu: VcpuId) -> bool {
        if !self.contains(vcpu) {
            return false;
        }
        let index = vcpu.index();
        let Place {
            before,
            after,
            band,
        } = self.places[index];
        self.queued &= !(1 << index);
        if after == vcpu {
            self.occupied &= !(1 << band.index());
            return true;
        }
        self.places[before.index()].after = after;
        self.places[after.index()].before = before;
        let first = &mut self.first[band.index()];
        if *first == vcpu {
            *first = after;
        }
        true
    }

    /// The vCPU to run: the first of the highest band. It stays queued.
    pub fn next(&self) -> Option<VcpuId> {
        Some(self.first[self.highest_band()?.index()])
    }

    /// The highest band with a member.
    pub fn highest_band(&self) -> Option<Band> {
        Band::new(self.occupied.checked_ilog2()? as u8)
    }

    /// Whether a vCPU above this band is queued; `None`: any vCPU.
    #[inline(always)]
    pub fn has_above(&self, band: Option<Band>) -> bool {
        let above = band.map_or(0, |band| band.index() + 1);
        u32::from(self.occupied) >> above != 0
    }

    /// The level of the highest band with a member.
    #[inline(always)]
    pub fn highest_level(&self) -> Level {
        Level::of_highest(self.occupied)
    }

    /// Whether other vCPUs of its band are queued beside this one, which is queued. If not, no alarm is needed for the end
    /// of its time slice.
    #[inline(always)]
    pub fn has_others(&self, vcpu: VcpuId) -> bool {
        self.places[vcpu.index() % MAX_VCPUS].after != vcpu
    }

    /// The vCPU of the same band behind this one, which is queued; `None`: it is alone in its band.
    pub fn after(&self, vcpu: VcpuId) -> Option<VcpuId> {
        let after = self.places[vcpu.index() % MAX_VCPUS].after;
        (after != vcpu).then_some(after)
    }

    #[inline(always)]
    fn has_band(&self, band: Band) -> bool {
        self.occupied & 1 << band.index() != 0
    }

    /// Whether a vCPU is queued.
    pub fn contains(&self, vcpu: VcpuId) -> bool {
        vcpu.index() < MAX_VCPUS && self.queued & 1 << vcpu.index() != 0
    }

    #[inline(always)]
    fn append(&mut self, vcpu: VcpuId, band: Band) -> bool {
        let index = vcpu.index();
        if index >= MAX_VCPUS || self.contains(vcpu) {
            return false;
        }
        if self.has_band(band) {
            let first = self.first[band.index()];
            let last = self.places[first.index()].before;
            self.places[index] = Place {
                after: first,
                before: last,
                band,
            };
            self.places[last.index()].after = vcpu;
            self.places[first.index()].before = vcpu;
            self.queued |= 1 << index;
        } else {
            self.wake_first(vcpu, band);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Band = match Band::new(0) {
        Some(band) => band,
        None => unreachable!(),
    };
    const HIGH: Band = match Band::new(7) {
        Some(band) => band,
        None => unreachable!(),
    };

    /// Takes all members in the order of their time slices.
    fn drain(queue: &mut RunQueue) -> std::vec::Vec<u8> {
        core::iter::from_fn(|| {
            let vcpu = queue.next()?;
            assert!(queue.remove(vcpu));
            Some(vcpu.0)
        })
        .collect()
    }

    #[test]
    fn the_highest_band_comes_first_and_one_band_is_in_order() {
        let mut queue = RunQueue::new();
        for vcpu in [3, 1, 2] {
            assert!(queue.wake(VcpuId(vcpu), LOW));
        }
        assert!(queue.wake(VcpuId(9), HIGH));
        assert_eq!(drain(&mut queue), [9, 3, 1, 2]);
        assert_eq!(queue.next(), None);
        assert_eq!(queue.highest_band(), None);
    }

    #[test]
    fn a_vcpu_whose_time_slice_is_over_comes_after_the_others_of_its_band() {
        let mut queue = RunQueue::new();
        for vcpu in [1, 2, 3] {
            assert!(queue.wake(VcpuId(vcpu), LOW));
        }
        queue.put_last(VcpuId(1), LOW);
        queue.wake(VcpuId(4), HIGH);
        queue.put_last(VcpuId(4), HIGH);
        assert_eq!(drain(&mut queue.clone()), [4, 2, 3, 1]);
        queue.put_last(VcpuId(3), LOW);
        assert_eq!(drain(&mut queue), [4, 2, 1, 3]);
    }

    #[test]
    fn a_vcpu_has_others_of_its_band_only() {
        let mut queue = RunQueue::new();
        queue.wake(VcpuId(1), LOW);
        queue.wake(VcpuId(2), HIGH);
        assert!(!queue.has_others(VcpuId(1)) && !queue.has_others(VcpuId(2)));
        queue.wake(VcpuId(3), LOW);
        assert!(queue.has_others(VcpuId(1)) && queue.has_others(VcpuId(3)));
        queue.remove(VcpuId(1));
        assert!(!queue.has_others(VcpuId(3)));
    }

    #[test]
    fn the_highest_level_is_that_of_the_highest_band() {
        let mut queue = RunQueue::new();
        assert_eq!(queue.highest_level(), Level::IDLE);
        for band in (0..Band::COUNT as u8).filter_map(Band::new) {
            queue.wake(VcpuId(band.index() as u8), band);
            assert_eq!(queue.highest_level(), Level::of(Some(band)));
            assert_eq!(queue.highest_band(), Some(band));
        }
    }

    #[test]
    fn a_vcpu_is_queued_once() {
        let mut queue = RunQueue::new();
        assert!(queue.wake(VcpuId(1), LOW));
        assert!(!queue.wake(VcpuId(1), LOW));
        assert!(!queue.wake(VcpuId(1), HIGH));
        assert_eq!(drain(&mut queue), [1]);
        assert!(!queue.remove(VcpuId(1)));
    }

    #[test]
    fn all_vcpus_fit_into_one_band_and_no_others_exist() {
        let mut queue = RunQueue::new();
        for vcpu in 0..MAX_VCPUS as u8 {
            assert!(queue.wake(VcpuId(vcpu), HIGH));
        }
        assert!(!queue.wake(VcpuId(MAX_VCPUS as u8), HIGH));
        assert!(queue.has_band(HIGH));
        assert!(!queue.has_band(LOW));
        assert_eq!(drain(&mut queue).len(), MAX_VCPUS);
        assert!(!queue.has_band(HIGH));
    }
}
