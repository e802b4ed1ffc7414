// SPDX-License-Identifier: MIT OR Apache-2.0
//! The parking slot: which core has parked a vCPU, and in which state.

use crate::schedule::Ticks;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use spumone_config::types::PcpuId;

/// The state of a parked vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParkedState {
    /// It is runnable, and was in a program of the guest or has just been woken: it holds no lock of the kernel.
    Runnable = 1,
    /// It is runnable, and other vCPUs may wait for it: it was in the guest's kernel, or an interrupt has come for it.
    Wanted,
    /// It is runnable, and its host core, which has sent it away, will not run it.
    Sent,
    /// It waits for an interrupt.
    Asleep,
    /// It is turned off.
    Off,
}

/// A parked vCPU, as other cores see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parked {
    /// The core that parked it.
    pub host: PcpuId,
    /// Its state.
    pub state: ParkedState,
}

/// What a core that looks for parked vCPUs sees in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peek {
    /// The vCPU is on a core, or parked by the core that looks.
    Nothing,
    /// Another core has parked it, the one given here, and it is runnable.
    Runnable(PcpuId),
    /// Another core has parked it, the one given here, and it sleeps or is off.
    Waits(PcpuId),
}

/// The word while a core has the token.
const NOT_PARKED: u32 = 0;
const STATE_SHIFT: u32 = 8;

impl ParkedState {
    /// Whether the vCPU is runnable.
    #[inline(always)]
    pub const fn is_runnable(self) -> bool {
        (self as u32) < Self::Asleep as u32
    }
}

impl Parked {
    #[inline(always)]
    const fn encode(self) -> u32 {
        (self.state as u32) << STATE_SHIFT | self.host.0 as u32
    }

    #[inline(always)]
    const fn decode(word: u32) -> Option<Self> {
        const RUNNABLE: u32 = ParkedState::Runnable as u32;
        const WANTED: u32 = ParkedState::Wanted as u32;
        const SENT: u32 = ParkedState::Sent as u32;
        const ASLEEP: u32 = ParkedState::Asleep as u32;
        const OFF: u32 = ParkedState::Off as u32;
        let state = match word >> STATE_SHIFT {
            RUNNABLE => ParkedState::Runnable,
            WANTED => ParkedState::Wanted,
            SENT => ParkedState::Sent,
            ASLEEP => ParkedState::Asleep,
            OFF => ParkedState::Off,
            _ => return None,
        };
        Some(Self {
            host: PcpuId(word as u8),
            state,
        })
    }
}

/// The parking slot of one vCPU. The core whose claim succeeds has the token.
#[derive(Debug)]
pub struct ParkingSlot {
    /// [`NOT_PARKED`], or what is parked. Shared because any core of the guest may claim it. The core that has the
    /// token stores it with release order, so that the core that claims it, with acquire order, finds the registers in
    /// memory. The core that changes it from parked to not parked has the token.
    word: AtomicU32,
    /// When it was parked, in ticks. A hint beside `word`, so relaxed: if it is read together with the word of another
    /// parking, a choice is less fair, never wrong.
    since: AtomicU64,
}

impl ParkingSlot {
    constructor! {
        /// The slot of a vCPU whose token a core has.
        pub fn new() -> Self {
            Self {
                word: AtomicU32::new(NOT_PARKED),
                since: AtomicU64::new(0),
            }
        }
    }

    /// The core that has the token, `parked.host`, gives it up. It has stored the token beside the slot before.
    ///
    /// What the core reads afterwards (a doorbell, a [`Presence`](super::Presence)) is read after the parking.
    pub(crate) fn park(&self, parked: Parked, now: Ticks) {
        self.since.store(now.0, Ordering::Relaxed);
        self.word.store(parked.encode(), Ordering::Release);
        // Write, fence, look: see the module.
        fence(Ordering::SeqCst);
    }

    /// What `core`, which looks for parked vCPUs, sees here.
    #[inline(always)]
    pub fn peek(&self, core: PcpuId) -> Peek {
        let word = self.word.load(Ordering::Relaxed);
        let host = PcpuId(word as u8);
        if word == NOT_PARKED || host == core {
            Peek::Nothing
        } else if word >> STATE_SHIFT < ParkedState::Asleep as u32 {
            Peek::Runnable(host)
        } else {
            Peek::Waits(host)
        }
    }

    /// What is parked here; `None` while the token is with a core.
    pub fn parked(&self) -> Option<Parked> {
        Parked::decode(self.word.load(Ordering::Relaxed))
    }

    /// When it was parked, or woke while it was parked.
    pub fn since(&self) -> Ticks {
        Ticks(self.since.load(Ordering::Relaxed))
    }

    /// Since when a vCPU that `core` has sent away is parked; `None`: it is not.
    pub fn sent_by(&self, core: PcpuId) -> Option<Ticks> {
        let sent = Parked {
            host: core,
            state: ParkedState::Sent,
        };
        (self.parked() == Some(sent)).then(|| self.since())
    }

    /// Claims the token, if it is still parked as in `seen`. Returns whether the caller has it now.
    #[must_use = "a claimed token must be kept"]
    pub(crate) fn claim(&self, seen: Parked) -> bool {
        self.word
            .compare_exchange(
                seen.encode(),
                NOT_PARKED,
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Marks a runnable vCPU that is cut off as wanted, because an interrupt was rung for it. Returns whether it is
    /// still parked as in `seen`. If not, the core that has it looks at its doorbell.
    pub fn mark_wanted(&self, seen: Parked) -> bool {
        let wanted = Parked {
            state: match seen.state {
                ParkedState::Runnable => ParkedState::Wanted,
                state => state,
            },
            ..seen
        };
        // Release: the core that claims it finds what was rung.
        self.word
            .compare_exchange(
                seen.encode(),
                wanted.encode(),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Marks a vCPU that `host`, the caller, has parked asleep as runnable, because an interrupt has come for it.
    /// Returns whether it was parked asleep. A core that claims it at the same moment looks at its doorbell.
    pub fn mark_runnable(&self, host: PcpuId, now: Ticks) -> bool {
        // It waits from now on. If another core has claimed and parked it meanwhile, that was a moment ago, too.
        self.since.store(now.0, Ordering::Relaxed);
        let asleep = Parked {
            host,
            state: ParkedState::Asleep,
        };
        let awake = Parked {
            host,
            state: ParkedState::Runnable,
        };
        // Relaxed: a read-modify-write continues the release sequence of `park`. The fence orders it before the
        // caller's look at idle cores.
        let woken = self
            .word
            .compare_exchange(
                asleep.encode(),
                awake.encode(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok();
        fence(Ordering::SeqCst);
        woken
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    impl ParkedState {
        /// All of them.
        pub const ALL: [Self; 5] = [
            Self::Runnable,
            Self::Wanted,
            Self::Sent,
            Self::Asleep,
            Self::Off,
        ];
    }

    fn parked(host: u8, state: ParkedState) -> Parked {
        Parked {
            host: PcpuId(host),
            state,
        }
    }

    #[test]
    fn what_is_parked_is_seen_and_claimed_once() {
        for state in ParkedState::ALL {
            let slot = ParkingSlot::new();
            assert_eq!(slot.parked(), None);
            assert_eq!(slot.peek(PcpuId(2)), Peek::Nothing);
            slot.park(parked(3, state), Ticks(7));
            let seen = slot.parked().unwrap();
            assert_eq!((seen, slot.since()), (parked(3, state), Ticks(7)));
            assert_eq!(slot.peek(PcpuId(3)), Peek::Nothing);
            let expected = match state.is_runnable() {
                true => Peek::Runnable(PcpuId(3)),
                false => Peek::Waits(PcpuId(3)),
            };
            assert_eq!(slot.peek(PcpuId(2)), expected);
            assert!(slot.claim(seen));
            assert!(!slot.claim(seen));
            assert_eq!(slot.parked(), None);
        }
    }

    #[test]
    fn a_claim_succeeds_only_for_what_was_seen() {
        let slot = ParkingSlot::new();
        slot.park(parked(1, ParkedState::Asleep), Ticks(0));
        let seen = slot.parked().unwrap();
        assert!(slot.mark_runnable(PcpuId(1), Ticks(0)));
        assert!(!slot.claim(seen));
        assert!(slot.claim(parked(1, ParkedState::Runnable)));
    }

    #[test]
    fn an_interrupt_marks_a_preempted_program_as_wanted() {
        let slot = ParkingSlot::new();
        for (state, wanted) in [
            (ParkedState::Runnable, ParkedState::Wanted),
            (ParkedState::Wanted, ParkedState::Wanted),
            (ParkedState::Sent, ParkedState::Sent),
        ] {
            slot.park(parked(1, state), Ticks(0));
            assert!(slot.mark_wanted(parked(1, state)));
            assert_eq!(slot.parked(), Some(parked(1, wanted)));
        }
        assert!(!slot.mark_wanted(parked(1, ParkedState::Runnable)));
        assert!(!slot.mark_wanted(parked(2, ParkedState::Sent)));
    }

    #[test]
    fn only_its_host_wakes_a_parked_vcpu() {
        let slot = ParkingSlot::new();
        slot.park(parked(1, ParkedState::Asleep), Ticks(0));
        assert!(!slot.mark_runnable(PcpuId(2), Ticks(0)));
        assert!(slot.mark_runnable(PcpuId(1), Ticks(0)));
        assert!(!slot.mark_runnable(PcpuId(1), Ticks(0)));
        let slot = ParkingSlot::new();
        slot.park(parked(1, ParkedState::Off), Ticks(0));
        assert!(!slot.mark_runnable(PcpuId(1), Ticks(0)));
    }
}
