// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of a guest: running, stopping on all its cores, stopped or restored, running again.
//!
//! ```text
//! Restoring --run--> Running --begin_stop--> Stopping --finish_stop--> Stopped
//!     ^                                          |                        |
//!     +-------- finish_stop, if it starts again -+      begin_restore     |
//!     +-------------------------------------------------------------------+
//! ```
//!
//! A guest's memory may be rewritten only when no core runs the guest. So every core that has vCPUs of it takes them
//! off and acknowledges. The last core to do so is the only one that touches the guest: it clears the guest's state,
//! and only then allows a restart. One atomic operation decides which core begins a stop, and one which core is the
//! last.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use spumone_config::types::PcpuId;

/// The number of a guest's life. Mail of an earlier life is recognized by it, and dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation(pub u32);

/// Why a guest is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The guest called `SYSTEM_OFF`, or its last vCPU turned off.
    Off,
    /// The guest called `SYSTEM_RESET`.
    Reset,
    /// The guest did what it may not.
    Fault,
    /// Its watchdog has expired.
    Watchdog,
    /// The operator asked for a restart.
    Operator,
    /// What was loaded for it is not what its description says. It has not run.
    Unverified,
    /// Memory that must not change while it runs has changed, or the guest wrote there.
    Tampered,
}

impl StopReason {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 7] = [
        Self::Off,
        Self::Reset,
        Self::Fault,
        Self::Watchdog,
        Self::Operator,
        Self::Unverified,
        Self::Tampered,
    ];
}

/// Where a guest is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Its images are being loaded, or are loaded; no core has a vCPU of it that is on.
    Restoring,
    /// Its vCPUs run.
    Running,
    /// Its cores take its vCPUs off one by one.
    Stopping(StopReason),
    /// No core runs a vCPU of it. Only the operator can restart it. With [`StopReason::Reset`] only if it has reset itself too often.
    Stopped(StopReason),
}

/// What the last core that stopped a guest has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStop {
    /// Nothing: the guest is stopped.
    Stay(StopReason),
    /// Restore the guest's memory and devices, then [`Lifecycle::run`].
    Restore,
}

/// The life of one guest, shared by its cores.
#[derive(Debug)]
pub struct Lifecycle {
    /// Phase (lowest byte) and generation (upper half): one word, so that no core reads the phase of one life with the
    /// number of another. Shared because any core of the guest may stop it.
    word: AtomicU64,
    /// Cores that must still acknowledge a stop; bit n for core n. Equal to `cores` while the guest runs. Shared
    /// because the cores find out by it which of them is the last.
    cores_left: AtomicU32,
    /// All cores that may have vCPUs of the guest.
    cores: u32,
}

impl Lifecycle {
    constructor! {
        /// A guest before its first start, being restored: generation 0. `cores`: bit n is set if core n may have a
        /// vCPU of it.
        pub fn new(cores: u32) -> Self {
            Self {
                word: AtomicU64::new(pack(Phase::Restoring, Generation(0))),
                cores_left: AtomicU32::new(cores),
                cores,
            }
        }
    }

    /// All cores that may have vCPUs of the guest; bit n for core n.
    pub fn cores(&self) -> u32 {
        self.cores
    }

    /// Phase and generation at this moment.
    pub fn now(&self) -> (Phase, Generation) {
        // Acquire: a core that sees a guest running sees it restored (`run`).
        unpack(self.word.load(Ordering::Acquire))
    }

    /// Whether the guest runs, in this generation. If not, mail of this generation is to be dropped.
    pub fn is_running(&self, generation: Generation) -> bool {
        self.now() == (Phase::Running, generation)
    }

    /// Running becomes stopping, if this is still the guest's `life`. Of several callers exactly one gets the generation, and must send
    /// `StopGuest` with it to the guest's other cores, or have cores that it tells do so, and then stop its own vCPUs. `None`: the guest does not run, or another core was
    /// first and has sent mail.
    pub fn begin_stop(&self, life: Generation, reason: StopReason) -> Option<Generation> {
        let won = self.change((Phase::Running, life), (Phase::Stopping(reason), life));
        won.then_some(life)
    }

    /// Whether the guest is being stopped at the end of this life. A `StopGuest` of another life is
    /// to be dropped.
    #[cfg(test)]
    pub fn is_stopping(&self, generation: Generation) -> bool {
        matches!(self.now(), (Phase::Stopping(_), current) if current == generation)
    }

    /// This core has taken all vCPUs of the stopping guest off. Returns `true` to the last core only: no core touches
    /// the guest any more, and until it calls [`finish_stop`](Self::finish_stop) it alone may clear the guest's state.
    /// A second acknowledgement of a core is ignored, as is one of a core that is not in [`cores`](Self::cores).
    ///
    /// Before this, without a return to a guest in between, the core receives all its mail: the
    /// [capacity](crate::mailbox::CAPACITY) of the boxes depends on it.
    pub fn acknowledge(&self, core: PcpuId) -> bool {
        if !matches!(self.now().0, Phase::Stopping(_)) {
            return false;
        }
        let Some(this) = 1_u32.checked_shl(u32::from(core.0)) else {
            return false;
        };
        // Release: this core's use of the guest happens before the clearing. Acquire: the last core sees what all
        // others did, because their changes form one release sequence on this word.
        self.cores_left.fetch_and(!this, Ordering::AcqRel) == this
    }

    /// The last core has cleared the guest. Stopping becomes stopped or restoring; returns what is to be done next.
    /// `None` if the guest is not being stopped, or a core must still acknowledge. `restarts`: whether it starts again
    /// ([`Ending`](super::Ending)).
    pub fn finish_stop(&self, restarts: bool) -> Option<AfterStop> {
        let (Phase::Stopping(reason), generation) = self.now() else {
            return None;
        };
        // Relaxed: the caller is the core that made it zero.
        if self.cores_left.load(Ordering::Relaxed) != 0 {
            return None;
        }
        // Relaxed: a core acknowledges next only after it has seen the phase stored below, or a later one.
        self.cores_left.store(self.cores, Ordering::Relaxed);
        let (next, after) = match restarts {
            true => (Phase::Restoring, AfterStop::Restore),
            false => (Phase::Stopped(reason), AfterStop::Stay(reason)),
        };
        self.change((Phase::Stopping(reason), generation), (next, generation))
            .then_some(after)
    }

    /// Stopped becomes restoring, for a restart by the operator. Returns whether this caller won: it
    /// must restore the guest and call [`run`](Self::run).
    pub fn begin_restore(&self) -> bool {
        let (phase, generation) = self.now();
        matches!(phase, Phase::Stopped(_))
            && self.change((phase, generation), (Phase::Restoring, generation))
    }

    /// Restoring becomes running, in a new generation, which is returned; `None` if the guest was
    /// not being restored. Only for the core that restores it.
    pub fn run(&self) -> Option<Generation> {
        let (phase, generation) = self.now();
        let next = Generation(generation.0.wrapping_add(1));
        let won = phase == Phase::Restoring
            && self.change((Phase::Restoring, generation), (Phase::Running, next));
        won.then_some(next)
    }

    /// Exchanges phase and generation if they are still `from`.
    fn change(&self, from: (Phase, Generation), to: (Phase, Generation)) -> bool {
        // Release: what was done in the old phase happens before the new one. The change that led to the old phase was
        // acquired when `from` was read. No value repeats, so there is no ABA problem.
        self.word
            .compare_exchange(
                pack(from.0, from.1),
                pack(to.0, to.1),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

const GENERATION_SHIFT: u32 = 32;

/// The number of a phase with a reason is that of the reason and one of these.
const STOPPING: u64 = 8;
const STOPPED: u64 = 16;
/// More than the number of any reason.
const REASON_NUMBERS: usize = 8;

const fn pack(phase: Phase, generation: Generation) -> u64 {
    let number = match phase {
        Phase::Restoring => 0,
        Phase::Running => 1,
        Phase::Stopping(reason) => STOPPING + reason as u64,
        Phase::Stopped(reason) => STOPPED + reason as u64,
    };
    (generation.0 as u64) << GENERATION_SHIFT | number
}

const fn unpack(word: u64) -> (Phase, Generation) {
    let generation = Generation((word >> GENERATION_SHIFT) as u32);
    let number = word as usize % REASON_NUMBERS;
    let number = if number < StopReason::ALL.len() {
        number
    } else {
        0
    };
    let reason = StopReason::ALL[number];
    let phase = match word as u32 {
        0 => Phase::Restoring,
        1 => Phase::Running,
        number if (number as u64) < STOPPED => Phase::Stopping(reason),
        _ => Phase::Stopped(reason),
    };
    (phase, generation)
}
