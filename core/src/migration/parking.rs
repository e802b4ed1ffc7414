//! Where the token of a vCPU lies that is on no core.

use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use spumone_config::types::PcpuId;

/// What a parked vCPU was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// It could run, and was in a program of the guest, or has just been woken: it holds no lock of the kernel.
    Runnable,
    /// It could run, and was in the guest's kernel: others may be waiting for it.
    InKernel,
    /// It waits for an interrupt.
    Asleep,
    /// It is turned off.
    Off,
}

/// A parked vCPU, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The core that parked it.
    pub host: PcpuId,
    /// What it was doing.
    pub rest: Rest,
}

/// The token is with a core.
const TAKEN: u32 = 0;
const REST_SHIFT: u32 = 8;

impl Parked {
    const fn encode(self) -> u32 {
        let rest = match self.rest {
            Rest::Runnable => 1,
            Rest::InKernel => 2,
            Rest::Asleep => 3,
            Rest::Off => 4,
        };
        rest << REST_SHIFT | self.host.0 as u32
    }

    const fn decode(word: u32) -> Option<Self> {
        let rest = match word >> REST_SHIFT {
            1 => Rest::Runnable,
            2 => Rest::InKernel,
            3 => Rest::Asleep,
            4 => Rest::Off,
            _ => return None,
        };
        Some(Self {
            host: PcpuId(word as u8),
            rest,
        })
    }
}

/// The parking slot of one vCPU: who may take its token.
#[derive(Debug)]
pub struct ParkingSlot {
    /// [`TAKEN`], or what is parked. Shared because any core of the guest may claim it. Stored with release by the
    /// core that has the token, so that who claims it, with acquire, finds the registers in memory. Whoever changes it
    /// from parked to taken has the token.
    word: AtomicU32,
    /// From when on others than the host may take it, in ticks. A hint beside `word`, so relaxed: read with another
    /// parking's word it makes a claim early or late, never wrong.
    ripe: AtomicU64,
}

impl ParkingSlot {
    /// The slot of a vCPU whose token is with a core.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self {
            word: AtomicU32::new(TAKEN),
            ripe: AtomicU64::new(0),
        }
    }

    /// As the constant constructor, which atomics under loom do not permit.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(TAKEN),
            ripe: AtomicU64::new(0),
        }
    }

    /// The core that has the token, `parked.host`, gives it up; it has put it where a claim finds it. Others may take it
    /// from `ripe` on.
    ///
    /// A look at other words that follows (a doorbell, a [`Presence`](super::Presence)) comes after the parking.
    pub fn park(&self, parked: Parked, ripe: Ticks) {
        self.ripe.store(ripe.0, Ordering::Relaxed);
        self.word.store(parked.encode(), Ordering::Release);
        // Write, fence, look: see the module.
        fence(Ordering::SeqCst);
    }

    /// What is parked here; `None` while the token is with a core.
    pub fn look(&self) -> Option<Parked> {
        Parked::decode(self.word.load(Ordering::Relaxed))
    }

    /// From when on others than the host may take it.
    pub fn ripe(&self) -> Ticks {
        Ticks(self.ripe.load(Ordering::Relaxed))
    }

    /// Takes the token, if it is still parked as it was seen. Returns whether the caller has it now.
    #[must_use = "who claims a token must keep it"]
    pub fn claim(&self, seen: Parked) -> bool {
        self.word
            .compare_exchange(seen.encode(), TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// An interrupt has come for a vCPU that `host`, the caller, has parked asleep: it could run now. Returns whether that was
    /// so. If somebody claims it at the same moment, he looks at its doorbell.
    pub fn rouse(&self, host: PcpuId) -> bool {
        let asleep = Parked {
            host,
            rest: Rest::Asleep,
        };
        let awake = Parked {
            host,
            rest: Rest::Runnable,
        };
        // Relaxed: as a read-modify-write it goes on with the release of `park`. The fence is for the look at idle cores.
        let roused = self
            .word
            .compare_exchange(
                asleep.encode(),
                awake.encode(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok();
        fence(Ordering::SeqCst);
        roused
    }
}

impl Default for ParkingSlot {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    const RESTS: [Rest; 4] = [Rest::Runnable, Rest::InKernel, Rest::Asleep, Rest::Off];

    fn parked(host: u8, rest: Rest) -> Parked {
        Parked {
            host: PcpuId(host),
            rest,
        }
    }

    #[test]
    fn what_is_parked_is_seen_and_claimed_once() {
        for rest in RESTS {
            let slot = ParkingSlot::new();
            assert_eq!(slot.look(), None);
            slot.park(parked(3, rest), Ticks(7));
            let seen = slot.look().unwrap();
            assert_eq!((seen, slot.ripe()), (parked(3, rest), Ticks(7)));
            assert!(slot.claim(seen));
            assert!(!slot.claim(seen));
            assert_eq!(slot.look(), None);
        }
    }

    #[test]
    fn a_claim_counts_only_for_what_was_seen() {
        let slot = ParkingSlot::new();
        slot.park(parked(1, Rest::Asleep), Ticks(0));
        let seen = slot.look().unwrap();
        assert!(slot.rouse(PcpuId(1)));
        assert!(!slot.claim(seen));
        assert!(slot.claim(parked(1, Rest::Runnable)));
    }

    #[test]
    fn only_its_host_rouses_a_sleeper() {
        let slot = ParkingSlot::new();
        slot.park(parked(1, Rest::Asleep), Ticks(0));
        assert!(!slot.rouse(PcpuId(2)));
        assert!(slot.rouse(PcpuId(1)));
        assert!(!slot.rouse(PcpuId(1)));
        let slot = ParkingSlot::new();
        slot.park(parked(1, Rest::Off), Ticks(0));
        assert!(!slot.rouse(PcpuId(1)));
    }
}
