//! The vCPUs of a core that could run but do not.
//!
//! One first-in first-out queue per band, and a bitmap of the bands that have a member, so the
//! next vCPU is found at once however many there are. A queue is a plain array: it holds a handful
//! of vCPUs, and moving a few bytes beats links.

use super::Band;
use heapless::Vec;
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// Runnable vCPUs of one core, by band and in the order of their turns.
#[derive(Clone, Debug, Default)]
pub struct RunQueue {
    /// Head first. Cannot overflow: a vCPU is in at most one queue, once, and all ids are below
    /// `MAX_VCPUS`.
    queues: [Vec<VcpuId, MAX_VCPUS>; Band::COUNT],
    /// Bit b is set while the queue of band b has members.
    occupied: u8,
}

const _: () = assert!(Band::COUNT <= u8::BITS as usize);

impl RunQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self {
            queues: [const { Vec::new() }; Band::COUNT],
            occupied: 0,
        }
    }

    /// Puts a vCPU behind its equals: it has just become runnable.
    ///
    /// Returns whether it was put there; not if it is queued already or no such vCPU can exist.
    pub fn wake(&mut self, vcpu: VcpuId, band: Band) -> bool {
        self.insert(vcpu, band, End::Tail)
    }

    /// Puts a vCPU before its equals: it ran and a higher one took the core, so the rest of its
    /// turn comes first. Returns as [`wake`](Self::wake) does.
    pub fn preempted(&mut self, vcpu: VcpuId, band: Band) -> bool {
        self.insert(vcpu, band, End::Head)
    }

    /// Puts a vCPU behind its equals: it ran and its turn is over. Returns as
    /// [`wake`](Self::wake) does.
    pub fn quantum_expired(&mut self, vcpu: VcpuId, band: Band) -> bool {
        self.insert(vcpu, band, End::Tail)
    }

    /// Takes a vCPU out: it sleeps, stops or leaves the core. Returns whether it was queued.
    pub fn remove(&mut self, vcpu: VcpuId) -> bool {
        for (band, queue) in self.queues.iter_mut().enumerate() {
            if let Some(position) = queue.iter().position(|&queued| queued == vcpu) {
                queue.remove(position);
                if queue.is_empty() {
                    self.occupied &= !(1 << band);
                }
                return true;
            }
        }
        false
    }

    /// The vCPU whose turn it is: the head of the highest band. It stays queued.
    pub fn next(&self) -> Option<VcpuId> {
        self.queues
            .get(self.highest_band()?.index())?
            .first()
            .copied()
    }

    /// The highest band with a member.
    pub fn highest_band(&self) -> Option<Band> {
        Band::new(self.occupied.checked_ilog2()? as u8)
    }

    /// Whether a vCPU of this band waits; if not, the one that runs needs no quantum timer.
    pub fn has_equal(&self, band: Band) -> bool {
        self.occupied & 1 << band.index() != 0
    }

    /// Whether the vCPU is queued.
    pub fn contains(&self, vcpu: VcpuId) -> bool {
        self.queues.iter().any(|queue| queue.contains(&vcpu))
    }

    fn insert(&mut self, vcpu: VcpuId, band: Band, end: End) -> bool {
        if vcpu.index() >= MAX_VCPUS || self.contains(vcpu) {
            return false;
        }
        let Some(queue) = self.queues.get_mut(band.index()) else {
            return false;
        };
        let inserted = match end {
            End::Head => queue.insert(0, vcpu),
            End::Tail => queue.push(vcpu),
        };
        self.occupied |= 1 << band.index();
        inserted.is_ok()
    }
}

/// An end of a queue.
#[derive(Clone, Copy)]
enum End {
    Head,
    Tail,
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

    /// Takes all members in the order of their turns.
    fn drain(queue: &mut RunQueue) -> std::vec::Vec<u8> {
        core::iter::from_fn(|| {
            let vcpu = queue.next()?;
            assert!(queue.remove(vcpu));
            Some(vcpu.0)
        })
        .collect()
    }

    #[test]
    fn the_highest_band_comes_first_and_equals_in_order() {
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
    fn a_preempted_vcpu_comes_before_its_equals_an_expired_one_after() {
        let mut queue = RunQueue::new();
        queue.wake(VcpuId(1), LOW);
        queue.preempted(VcpuId(2), LOW);
        queue.quantum_expired(VcpuId(3), LOW);
        assert_eq!(drain(&mut queue), [2, 1, 3]);
    }

    #[test]
    fn a_vcpu_is_queued_once() {
        let mut queue = RunQueue::new();
        assert!(queue.wake(VcpuId(1), LOW));
        assert!(!queue.wake(VcpuId(1), LOW));
        assert!(!queue.preempted(VcpuId(1), HIGH));
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
        assert!(queue.has_equal(HIGH));
        assert!(!queue.has_equal(LOW));
        assert_eq!(drain(&mut queue).len(), MAX_VCPUS);
        assert!(!queue.has_equal(HIGH));
    }
}
