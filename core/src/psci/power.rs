// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which vCPUs of a guest are on.
//!
//! The states of a vCPU are off, being started, on, and off again. Each change is one compare-and-exchange: any vCPU of
//! the guest may begin a start, and one of them wins; the core that has the vCPU's token then sets it on, and later
//! off.

use crate::sync::atomic::{AtomicU8, Ordering};
use spumone_config::types::MAX_VCPUS_PER_GUEST;

/// Power state of a vCPU. The discriminant is what `AFFINITY_INFO` returns (DEN0022).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Power {
    /// Started.
    On = 0,
    /// Not started, or turned off.
    Off = 1,
    /// Being started: a caller of `CPU_ON` has won, and has sent mail or is about to.
    OnPending = 2,
}

impl Power {
    const fn from_bits(bits: u8) -> Self {
        match bits {
            0 => Self::On,
            1 => Self::Off,
            _ => Self::OnPending,
        }
    }
}

/// Power states of a guest's vCPUs, by their number within the guest.
#[derive(Debug)]
pub struct GuestPower {
    /// Shared because any vCPU of the guest may start any other.
    vcpus: [AtomicU8; MAX_VCPUS_PER_GUEST],
    /// The number of vCPUs that are on or being started. Shared so that exactly one vCPU learns that it was the last to
    /// turn off; if each looked at all states, two of them could learn it, or none.
    alive: AtomicU8,
    count: u8,
}

impl GuestPower {
    constructor! {
        /// A guest of `count` vCPUs, at most [`MAX_VCPUS_PER_GUEST`], all off.
        pub fn new(count: u8) -> Self {
            Self {
                vcpus: atomics!(AtomicU8::new(Power::Off as u8)),
                alive: AtomicU8::new(0),
                count: Self::limited(count),
            }
        }
    }

    const fn limited(count: u8) -> u8 {
        if count as usize > MAX_VCPUS_PER_GUEST {
            MAX_VCPUS_PER_GUEST as u8
        } else {
            count
        }
    }

    /// Number of vCPUs.
    pub fn count(&self) -> u8 {
        self.count
    }

    /// Power state of a vCPU; `None` if the guest has no such vCPU.
    pub fn get(&self, index: u8) -> Option<Power> {
        // Acquire: a core that sees a vCPU off sees all that the vCPU wrote, as after joining a thread.
        let bits = self.vcpu(index)?.load(Ordering::Acquire);
        Some(Power::from_bits(bits))
    }

    /// Marks a vCPU that is off as being started. Of several callers exactly one succeeds, and must start the vCPU. To
    /// be called by a vCPU of the guest that is on, or for the first vCPU of a restored guest.
    ///
    /// # Errors
    ///
    /// The state that prevents the start: on, or being started. `Off` if there is no such vCPU.
    pub fn request_start(&self, index: u8) -> Result<(), Power> {
        let vcpu = self.vcpu(index).ok_or(Power::Off)?;
        // Acquire: what the vCPU did before it turned off happens before what the winner does next. The mail publishes
        // the entry point, not this word.
        vcpu.compare_exchange(
            Power::Off as u8,
            Power::OnPending as u8,
            Ordering::Acquire,
            Ordering::Relaxed,
        )
        .map_err(Power::from_bits)?;
        // The caller itself is counted, so the count cannot reach zero before this. Relaxed: only the order of changes
        // of this one word matters.
        self.alive.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// The vCPU's core has begun the start: being started becomes on. Returns whether the vCPU was being started.
    pub fn started(&self, index: u8) -> bool {
        // Relaxed: only this core sets the vCPU on or off, and the word publishes nothing but the state.
        self.vcpu(index).is_some_and(|vcpu| {
            vcpu.compare_exchange(
                Power::OnPending as u8,
                Power::On as u8,
                Ordering::Relaxed,
                Ordering::Relaxed,
            )
            .is_ok()
        })
    }

    /// The vCPU, which was on, is off and in no run queue: from now on it can be started again. Returns whether it was
    /// the last, so that no vCPU is left that could start one; the guest is then to be stopped with
    /// [`StopReason::Off`](super::StopReason::Off).
    pub fn stopped(&self, index: u8) -> bool {
        let Some(vcpu) = self.vcpu(index) else {
            return false;
        };
        // Release: pairs with the acquiring loads in `get` and `request_start`.
        let was_on = vcpu
            .compare_exchange(
                Power::On as u8,
                Power::Off as u8,
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok();
        // AcqRel: the last vCPU sees all that the others wrote.
        was_on && self.alive.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Sets all vCPUs off, as before the guest's first start. Only for the core that clears a guest which all cores
    /// have stopped: no other core uses these words then, and
    /// [`Lifecycle::finish_stop`](super::Lifecycle::finish_stop) publishes them.
    pub fn reset(&self) {
        for vcpu in &self.vcpus {
            vcpu.store(Power::Off as u8, Ordering::Relaxed);
        }
        self.alive.store(0, Ordering::Relaxed);
    }

    fn vcpu(&self, index: u8) -> Option<&AtomicU8> {
        self.vcpus
            .get(..usize::from(self.count))?
            .get(usize::from(index))
    }
}
