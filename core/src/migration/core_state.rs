// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one core knows of vCPUs, and no other core sees: which vCPUs are here, which one runs, and what became of those
//! that left.

use super::grace::Grace;
use super::policy::PolicyRules;
use crate::schedule::{Band, Deadlines, Scheduler, Ticks};
use crate::sets::VcpuSet;
use spumone_config::packed::Without;
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// In microseconds: how often a vCPU whose time slice is over is looked at while it is in its kernel.
const GRACE_STEP_US: u32 = 50;
/// How many times.
const GRACE_STEPS: u8 = 5;
/// In microseconds: after how long another core is notified again of vCPUs that are parked here because this core runs a
/// higher band.
const NOTIFY_AGAIN_US: u32 = 1_600;
/// In microseconds: after how long a vCPU that was sent away is taken back if no core has claimed it.
pub const TAKE_BACK_US: u32 = 500;
/// In microseconds: how often a vCPU is looked at while a preemption is deferred for it.
const DEFER_STEP_US: u32 = 20;

/// What the loaded vCPU does that makes it exit, though the guest may do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Catch {
    /// Nothing is caught.
    Nothing,
    /// Its kernel returns to a program.
    Exit,
    /// A program enters the kernel.
    Entry,
}

/// What a core is given at start.
#[derive(Clone, Copy, Debug)]
pub struct CoreSetup {
    /// Length of a time slice.
    pub quantum: Ticks,
    /// Frequency of the system counter.
    pub frequency_hz: u32,
    /// What the policy has the core do.
    pub rules: PolicyRules,
    /// Mechanisms that are turned off, to measure what they are worth.
    pub without: Without,
    /// vCPUs that may migrate to or from this core.
    pub moving: VcpuSet,
    /// vCPUs whose home is this core.
    pub home_vcpus: VcpuSet,
    /// Whether kernels of guests that migrate are kept off this core.
    pub excludes_kernels: bool,
}

/// One core's vCPUs. `T` is the token of a vCPU.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct CoreState<T> {
    /// Which vCPU runs, and which ones could.
    pub scheduler: Scheduler,
    /// Timers of vCPUs that are here and not loaded.
    pub deadlines: Deadlines,
    /// The tokens of the vCPUs that are on this core, by id.
    pub vcpus: [Option<T>; MAX_VCPUS],
    /// The vCPU that runs by the last decision; `None` while the core idles.
    pub running: Option<VcpuId>,
    /// The vCPU whose registers are on the core. An idle core keeps the last one loaded, because most often it runs
    /// next.
    pub loaded: Option<VcpuId>,
    /// Something has happened since the last decision that may change it.
    pub must_decide: bool,
    /// The time for which the alarm is armed.
    pub alarm: Ticks,
    /// A deadline has come or gone, or another vCPU runs, since the alarm was armed.
    pub alarm_is_stale: bool,
    /// vCPUs that may migrate to or from this core.
    pub moving: VcpuSet,
    /// What the policy has the core do.
    pub rules: PolicyRules,
    /// Whether kernels of guests that migrate are kept off this core.
    pub excludes_kernels: bool,
    /// What is caught of the loaded vCPU.
    pub catches: Catch,
    /// The alarm has rung since the last decision.
    pub(super) alarm_rang: bool,
    /// The band of the last decision, which the priority mask lets through; `None` while the core idles.
    pub(super) decided_band: Option<Band>,
    /// vCPUs that may migrate and whose home is this core.
    pub(super) home_vcpus: VcpuSet,
    /// vCPUs that this core has fetched although their home is elsewhere, where the policy returns vCPUs to their home.
    /// Another core may have claimed some of them since.
    pub(super) visitors: VcpuSet,
    /// vCPUs that this core has sent away. Another core may have claimed some of them since.
    pub(super) sent: VcpuSet,
    /// vCPUs that this core has taken back because no core claimed them: their kernel may run here.
    pub(super) taken_back: VcpuSet,
    /// A vCPU that this core has fetched and not parked, because it is to run next.
    pub(super) fetched: Option<VcpuId>,
    /// vCPUs that this core has parked. Another core may have claimed some of them since.
    pub(super) parked_here: VcpuSet,
    /// vCPUs that were preempted and are kept until the park delay is over.
    pub(super) park_later: VcpuSet,
    /// When to park those, and to notify another core of vCPUs that are parked here because this core runs a higher band.
    pub(super) notify_at: Ticks,
    /// When to look again for vCPUs that other cores have parked.
    pub(super) fetch_at: Ticks,
    /// Until when a preemption is deferred; [`Ticks::NEVER`]: none is.
    pub(super) deferred_until: Ticks,
    /// The grace of the running vCPU.
    pub(super) grace: Grace,
    /// Whether an interrupt for a vCPU that is cut off pulls it to the core that sends the interrupt.
    pub(super) pulls_for_interrupts: bool,
    /// See [`NOTIFY_AGAIN_US`].
    pub(super) notify_again_after: Ticks,
    /// See [`TAKE_BACK_US`].
    pub(super) take_back_after: Ticks,
    /// See [`DEFER_STEP_US`].
    pub(super) defer_step: Ticks,
}

impl<T> CoreState<T> {
    /// A core that has these tokens, and has decided nothing yet.
    pub fn new(setup: &CoreSetup, vcpus: [Option<T>; MAX_VCPUS]) -> Self {
        let micros = |micros| Ticks::from_micros(micros, setup.frequency_hz);
        let without = setup.without;
        let mut rules = setup.rules;
        if without.patience {
            rules.park_delay = Ticks(0);
        }
        let grace_steps = if without.grace { 0 } else { GRACE_STEPS };
        Self {
            scheduler: Scheduler::new(setup.quantum),
            deadlines: Deadlines::new(),
            vcpus,
            running: None,
            loaded: None,
            must_decide: true,
            alarm: Ticks::NEVER,
            alarm_is_stale: true,
            moving: setup.moving,
            rules,
            excludes_kernels: setup.excludes_kernels,
            catches: Catch::Nothing,
            alarm_rang: false,
            decided_band: None,
            home_vcpus: setup.moving & setup.home_vcpus,
            visitors: VcpuSet::EMPTY,
            sent: VcpuSet::EMPTY,
            taken_back: VcpuSet::EMPTY,
            fetched: None,
            parked_here: VcpuSet::EMPTY,
            park_later: VcpuSet::EMPTY,
            notify_at: Ticks::NEVER,
            fetch_at: Ticks::NEVER,
            deferred_until: Ticks::NEVER,
            grace: Grace::new(micros(GRACE_STEP_US), grace_steps, !without.yield_on_spin),
            pulls_for_interrupts: !without.ipi_pull,
            notify_again_after: micros(NOTIFY_AGAIN_US),
            take_back_after: micros(TAKE_BACK_US),
            defer_step: micros(DEFER_STEP_US),
        }
    }

    /// Whether a vCPU may migrate to or from this core.
    #[inline(always)]
    pub fn moves(&self, id: VcpuId) -> bool {
        self.moving.contains(id)
    }

    /// The token of a vCPU, if it is on this core.
    #[inline(always)]
    pub fn token(&self, id: VcpuId) -> Option<&T> {
        self.vcpus.get(id.index())?.as_ref()
    }

    /// Whether this core has sent a vCPU away. Another core may have claimed it since.
    pub fn has_sent(&self, id: VcpuId) -> bool {
        self.sent.contains(id)
    }

    /// When the core must decide next whatever its vCPUs do: to fetch, or to notify.
    #[inline(always)]
    pub fn next_own_deadline(&self) -> Ticks {
        self.fetch_at.min(self.notify_at)
    }

    /// When the core must decide next if no interrupt comes: the alarm, but for the hypervisor's own chores.
    #[inline(always)]
    pub fn next_deadline(&self) -> Ticks {
        let deadline = self.deadlines.next_alarm(self.scheduler.turn());
        deadline
            .unwrap_or(Ticks::NEVER)
            .min(self.next_own_deadline())
    }

    /// Whether a preemption is deferred, so that the last decision stands.
    #[inline(always)]
    pub fn defers_preemption(&self) -> bool {
        self.deferred_until != Ticks::NEVER
    }

    /// Whether a vCPU of a higher band than the last decision's is runnable, so that the decision must not wait for
    /// interrupts that are pending.
    #[inline(always)]
    pub(super) fn higher_band_waits(&self) -> bool {
        self.scheduler.highest_band() > self.decided_band
    }

    /// Whether the core must decide anew whenever it is kicked for this vCPU, which it has.
    #[inline(always)]
    pub(super) fn decides_on_kick(&self, id: VcpuId) -> bool {
        self.visitors.contains(id) || self.rules.gang
    }
}
