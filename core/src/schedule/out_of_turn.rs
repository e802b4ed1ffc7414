// SPDX-License-Identifier: MIT OR Apache-2.0
//! Out of turn: a vCPU for which an interrupt has come runs before its turn, for a short time, although another vCPU of its band has the
//! core. That vCPU keeps the rest of its time slice.
//!
//! Two things bound this, so that vCPUs of one band share their core fairly whatever a guest does, and switches stay rare. A vCPU runs
//! out of turn at most once in twenty times that length on average, and [eight times](BURST) in a row. And what it runs out of turn is
//! taken off its next time slice, unless it sleeps first. If it may hold a lock when that time is over, it goes on with its next turn. It
//! does not get that turn a second time, and does not run out of turn before the turn would have come. If it sleeps instead, what it ran of
//! that turn counts as time out of turn.

use super::{Band, Ticks};
use crate::sets::VcpuSet;
use spumone_config::types::VcpuId;

/// How many times in a row a vCPU runs out of turn that has not done so for long.
pub(super) const BURST: u64 = 8;
/// How often a vCPU runs out of turn on average: every so many lengths of that.
const INTERVAL: u64 = 20;

/// How often one vCPU has run out of turn of late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Allowance {
    /// When none of it counts any more. Each time that the vCPU runs out of turn moves this by an interval.
    full_at: Ticks,
    /// See [`Self::has_taken_turn`].
    has_taken_turn: bool,
    /// For how many ticks the vCPU has run in the turn that it has taken, before it was preempted. 32 bits, so that a shift computes the address of an entry.
    ran: u32,
}

impl Allowance {
    /// Takes one of the times that the vCPU may run out of turn, one for each `interval`. Returns whether there was one.
    fn take(&mut self, now: Ticks, interval: Ticks) -> bool {
        let used = self.full_at.saturating_sub(now).0;
        if self.has_taken_turn || used > interval.0.saturating_mul(BURST - 1) {
            return false;
        }
        self.full_at = self.full_at.max(now).saturating_add(interval);
        true
    }

    /// The vCPU has run out of turn, and goes on with its next turn.
    pub(super) fn take_turn(&mut self) {
        self.has_taken_turn = true;
        self.ran = 0;
    }

    /// The vCPU has run for this long, and is preempted.
    #[inline(always)]
    pub(super) fn has_run(&mut self, time: Ticks) {
        if self.has_taken_turn {
            let time = u32::try_from(time.0).unwrap_or(u32::MAX);
            self.ran = self.ran.saturating_add(time);
        }
    }

    /// Whether the vCPU has had its next turn already.
    #[inline(always)]
    pub(super) fn has_taken_turn(&self) -> bool {
        self.has_taken_turn
    }

    /// A turn of the vCPU has come. Returns whether the vCPU has had that already.
    #[inline(always)]
    pub(super) fn has_had_turn(&mut self) -> bool {
        core::mem::take(&mut self.has_taken_turn)
    }

    /// The same state, with times relative to `now`.
    #[cfg(test)]
    pub fn relative_to(mut self, now: Ticks) -> Self {
        self.full_at = self.full_at.saturating_sub(now);
        self
    }
}

/// Which vCPUs are to run out of turn on a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OutOfTurn {
    /// For how long a vCPU runs out of turn.
    length: Ticks,
    /// See [`INTERVAL`].
    interval: Ticks,
    /// The vCPUs that are to run out of turn, all of `band`.
    asked: VcpuSet,
    band: Band,
    /// When the vCPU that runs gives up the core to the first of them.
    from: Ticks,
    /// Whether the vCPU that runs does so out of turn.
    runs: bool,
}

impl OutOfTurn {
    /// Each time for `length`; never if that is zero.
    pub(super) const fn new(length: Ticks) -> Self {
        Self {
            length,
            interval: Ticks(length.0.saturating_mul(INTERVAL)),
            asked: VcpuSet::EMPTY,
            band: Band::LOWEST,
            from: Ticks(0),
            runs: false,
        }
    }

    /// For how long a vCPU runs out of turn.
    pub(super) fn length(&self) -> Ticks {
        self.length
    }

    /// Whether the vCPU that runs does so out of turn.
    pub fn runs(&self) -> bool {
        self.runs
    }

    /// How often vCPUs run out of turn is of no consequence for other cores.
    #[cfg(test)]
    pub fn set_interval(&mut self, interval: Ticks) {
        self.interval = interval;
    }

    /// A runnable vCPU of `band`, which is the band that runs, is to run out of turn. Returns whether it will, and was not to before: so
    /// the interrupts of a storm do not lead to a decision each.
    pub(super) fn ask(
        &mut self,
        vcpu: VcpuId,
        band: Band,
        allowance: &mut Allowance,
        now: Ticks,
    ) -> bool {
        let is_asked = self.band == band && self.asked.contains(vcpu);
        if is_asked || self.length == Ticks(0) || !allowance.take(now, self.interval) {
            return false;
        }
        if self.band != band {
            self.asked = VcpuSet::EMPTY;
            self.band = band;
        }
        if self.asked.is_empty() {
            // Not by a decision that is being made: it has looked already whether the running vCPU may hold a lock.
            self.from = now.saturating_add(Ticks(1));
        }
        self.asked.insert(vcpu);
        true
    }

    /// A vCPU that has taken its turn early, and last ran for `ran`, sleeps at `now` before that turn has come: its next turn is a new one, and the time that it
    /// ran counts as time out of turn, for a quantum at most. The time out of turn before that has been counted already.
    #[inline(never)]
    pub(super) fn count(&self, allowance: &mut Allowance, ran: Ticks, quantum: Ticks, now: Ticks) {
        let ran = ran.saturating_add(Ticks(allowance.ran.into()));
        let time = ran.saturating_sub(self.length).min(quantum);
        // The length is zero only if no vCPU runs out of turn.
        let intervals = time.0 / self.length.0.max(1);
        let more = Ticks(self.interval.0.saturating_mul(intervals));
        allowance.full_at = allowance.full_at.max(now).saturating_add(more);
    }

    /// When the vCPU of `band` that runs gives up the core for one that is to run out of turn; `None`: there is none, or the vCPU that
    /// runs does so out of turn itself, and the next one waits until that is over.
    #[inline(always)]
    pub(super) fn due(&self, band: Band) -> Option<Ticks> {
        (!self.asked.is_empty() && self.band == band && !self.runs).then_some(self.from)
    }

    /// The vCPU that runs keeps the core until `end`.
    #[inline(always)]
    pub(super) fn put_off(&mut self, end: Ticks) {
        self.from = self.from.max(end);
    }

    /// No vCPU is to run out of turn.
    pub(super) fn cancel(&mut self) {
        self.asked = VcpuSet::EMPTY;
    }

    /// The vCPU that runs has left its kernel: it gives up the core at once.
    #[inline(always)]
    pub(super) fn no_longer_put_off(&mut self) {
        self.from = Ticks(0);
    }

    /// A vCPU begins to run, in turn.
    #[inline(always)]
    pub(super) fn runs_in_turn(&mut self, vcpu: VcpuId) {
        self.runs = false;
        self.asked.remove(vcpu);
    }

    /// The vCPU of `band` that runs out of turn from `now` on, if there is one.
    #[inline(always)]
    pub(super) fn next(&mut self, band: Band, now: Ticks) -> Option<VcpuId> {
        if self.asked.is_empty() || self.band != band || self.from > now {
            return None;
        }
        let vcpu = self.asked.iter().next()?;
        self.asked.remove(vcpu);
        self.from = Ticks(0);
        self.runs = true;
        Some(vcpu)
    }

    /// The same state, with times relative to `now`, and without what is of no consequence.
    #[cfg(test)]
    pub fn relative_to(mut self, now: Ticks) -> Self {
        if self.asked.is_empty() {
            (self.band, self.from) = (Band::LOWEST, Ticks(0));
        }
        self.from = self.from.saturating_sub(now);
        self
    }

    /// A vCPU sleeps, is off, or has left the core.
    #[inline(always)]
    pub(super) fn forget(&mut self, vcpu: VcpuId) {
        self.asked.remove(vcpu);
    }
}
