// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state of one core that no other core sees: the vCPUs whose tokens it has, the one that runs, and those that it has
//! parked or sent away.

use super::grace::Grace;
use super::lead::{Early, Lead};
use super::policy::PolicyRules;
use super::shared::Shared;
use super::waiting::Waiting;
use crate::schedule::{Band, Deadlines, Level, Scheduler, Ticks, TimeSlice, VcpuState};
use crate::sets::VcpuSet;
use spumone_config::packed::Without;
use spumone_config::types::{MAX_VCPUS, PcpuId, VcpuId};

/// In microseconds: how often a vCPU that has to give up the core is sampled while it is in its kernel.
const GRACE_STEP_US: u32 = 50;
/// In microseconds: the time before its next sample, if an interrupt waits for the vCPU that is to get the core. After that the time doubles. Two samples
/// show whether it spins.
const SHORT_GRACE_STEP_US: u32 = 4;
/// How many times such a vCPU is sampled before it must leave.
const GRACE_STEPS: u8 = 5;
/// In microseconds: for how long a vCPU runs out of turn when an interrupt has come for it. Most handlers of interrupts take less.
const OUT_OF_TURN_US: u32 = 100;
/// In microseconds: how long a preempted vCPU is kept before it is parked, if the higher band ran for longer than the park delay the last time.
/// Longer than it takes until a real-time guest has been switched to, before its timer expires, and has begun its job.
const SHORT_PARK_DELAY_US: u32 = 16;
/// In microseconds: how much earlier a core begins to switch to a vCPU ([`Lead`]) if it is to park the preempted vCPU at once. Longer than it takes to park a
/// vCPU and to notify another core.
const PARK_TIME_US: u32 = 3;
/// In microseconds: after how long another core is notified again of vCPUs that are parked here because this core runs a
/// higher band.
const NOTIFY_AGAIN_US: u32 = 1_600;
/// In microseconds: after how long a vCPU that was sent away is taken back if no core has claimed it.
pub const TAKE_BACK_US: u32 = 500;
/// In microseconds: how long a vCPU waits for its timer at most ([`Await`]). It is longer than any vCPU is woken early, so it matters
/// only if the timer cannot interrupt the vCPU: the guest has not ended the timer's last interrupt. The alarm is not armed again when
/// the wait ends, which would add to the latency; so the time is longer than most jobs of a real-time guest, too.
const LONGEST_WAIT_US: u32 = 2_000;
/// In microseconds: how early a core begins to switch to a vCPU at most, if that is as long as a switch takes ([`Lead`]).
const LONGEST_LEAD_US: u32 = 10;
/// In microseconds: for how long an idle core does nothing of its own before it wakes a vCPU ([`quiet_from`](super::quiet_from)). It is longer than what the core
/// does when its alarm expires for a chore, with a step of it: about 1,000 instructions.
const QUIET_US: u32 = 10;
/// In microseconds: how often a vCPU is sampled while a preemption is deferred for it.
const DEFER_STEP_US: u32 = 20;

/// What has happened on a core since it entered a guest last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SinceEntry {
    /// An interrupt was delivered to the loaded vCPU.
    pub has_delivered: bool,
    /// One of those interrupts was not of its timers.
    pub has_delivered_other: bool,
    /// The running vCPU, which has to give up the core, was sampled.
    pub has_sampled: bool,
}

/// What is caught: the event at which the loaded vCPU exits, although the guest may do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Catch {
    /// Nothing is caught.
    Nothing,
    /// Its kernel returns to a program.
    Exit,
    /// A program enters the kernel.
    Entry,
}

/// In [`CoreState::fetch_at`]: the core must fetch at once.
pub(super) const FETCH_AGAIN: Ticks = Ticks(0);

/// What every core is given at start.
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
}

/// The vCPU whose registers are on the core.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Loaded<T> {
    pub(super) id: VcpuId,
    pub(super) token: T,
}

/// A vCPU that runs, and is not entered before an interrupt has come for it: its core switched to it before its timer expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Await {
    pub(super) id: VcpuId,
    /// When it is entered even if no interrupt has come.
    pub(super) until: Ticks,
    /// When the switch to it began, if the core measures how long that takes.
    pub(super) measured_since: Option<Ticks>,
    /// Up to when there is time, before its timer expires, to park the vCPU that it has preempted; `None`: there is none.
    pub(super) parks_until: Option<Ticks>,
}

/// One core's vCPUs. `T` is the token of a vCPU.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct CoreState<T> {
    /// Which core this is.
    pub(super) core: PcpuId,
    /// Which vCPU runs, and which ones are runnable.
    pub(super) scheduler: Scheduler,
    /// Timers of vCPUs that are here and not loaded.
    pub(super) deadlines: Deadlines,
    /// The vCPU whose registers are on the core. An idle core keeps the last one loaded, because most often it runs
    /// next.
    pub(super) loaded: Option<Loaded<T>>,
    /// The other vCPUs whose tokens are on this core, by id.
    pub(super) saved: [Option<T>; MAX_VCPUS],
    /// The vCPU that runs by the last decision; `None` while the core idles.
    pub(super) running: Option<VcpuId>,
    /// Whether something has happened since the last decision that may change it.
    pub(super) must_decide: bool,
    /// Whether interrupts for the loaded vCPU may have come that are not in its list registers.
    pub(super) must_refresh: bool,
    /// vCPUs whose doorbells were rung here, and whose host cores are not notified yet.
    pub(super) rung: VcpuSet,
    /// The time for which the alarm is armed.
    pub(super) alarm: Ticks,
    /// The running vCPU waits for its timer.
    pub(super) awaits: Option<Await>,
    /// How early the core begins to switch to a vCPU.
    pub(super) lead: Lead,
    /// Whether a deadline was added or removed, or another vCPU was chosen to run, since the alarm was armed.
    pub(super) alarm_is_stale: bool,
    /// When the hypervisor's next chore is due: work that is for no vCPU.
    pub(super) chore_at: Ticks,
    /// Whether it is due now.
    pub(super) chore_is_due: bool,
    /// vCPUs that may migrate to or from this core.
    pub(super) movable: VcpuSet,
    /// Those above the lowest band that moves. They may be of a real-time guest, so they do not wait for the park delay.
    pub(super) above_lowest: VcpuSet,
    /// What the policy has the core do.
    pub(super) rules: PolicyRules,
    /// Whether kernels of guests that migrate are kept off this core.
    pub(super) excludes_kernels: bool,
    /// What is caught of the loaded vCPU.
    pub(super) catches: Catch,
    /// Whether the alarm has expired since the last decision.
    pub(super) alarm_expired: bool,
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
    /// A vCPU that another one has preempted before it was loaded, and that is not parked yet.
    pub(super) preempted: Option<VcpuId>,
    /// Whether the last decision has left something for [`finish`](super::finish::finish).
    pub(super) is_unfinished: bool,
    /// vCPUs that this core has parked. Another core may have claimed some of them since.
    pub(super) parked_here: VcpuSet,
    /// vCPUs that were preempted and are kept until the park delay is over.
    pub(super) park_later: VcpuSet,
    /// When to park the vCPUs of `park_later`, and to notify another core of vCPUs that are parked here because this
    /// core runs a higher band.
    pub(super) notify_at: Ticks,
    /// This core was interrupted after it had parked a vCPU and before it notified another core. When it runs the lowest band that moves, or a lower one, the
    /// notification may go to a core that does not idle.
    pub(super) owes_notification: bool,
    /// Whether that was put off for an interrupt. It is put off once; after that, each decision goes on with it.
    pub(super) is_put_off: bool,
    /// When it goes on to notify of the vCPUs in `rung`: a vCPU of a higher band did not wait for that. [`Ticks::NEVER`]: none is put off.
    pub(super) rung_at: Ticks,
    /// What has happened since the core entered a guest last.
    pub(super) since_entry: SinceEntry,
    /// When this core will have run above the lowest band that moves for longer than the park delay; [`Ticks::NEVER`]: it does not run there.
    pub(super) long_at: Ticks,
    /// Whether it ran there that long the last time.
    pub(super) was_long: bool,
    /// See [`SHORT_PARK_DELAY_US`].
    pub(super) short_park_delay: Ticks,
    /// The vCPUs to which the core begins to switch earlier by [`PARK_TIME_US`], to have time to park the vCPU that runs then.
    pub(super) has_park_time: VcpuSet,
    /// See [`Roles`](super::Roles).
    pub(super) highest_movable: Level,
    /// See [`PARK_TIME_US`].
    pub(super) park_time: Ticks,
    /// When the core must decide again because of a vCPU that migrates: to look again at a vCPU that another core has
    /// parked, to sample a vCPU that has grace or for which a preemption is deferred, to send a vCPU away or take it
    /// back, or to look at vCPUs that wait for their turn.
    pub(super) fetch_at: Ticks,
    /// vCPUs that wait for their turn while a core is off.
    pub(super) waiting: Waiting,
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
    /// See [`LONGEST_WAIT_US`].
    pub(super) longest_wait: Ticks,
    /// See [`QUIET_US`].
    pub(super) quiet: Ticks,
}

/// What the hypervisor and the simulator call, beside the functions of this module.
impl<T> CoreState<T> {
    /// A core that has no vCPUs yet, and has decided nothing.
    pub fn new(core: PcpuId, setup: &CoreSetup, shared: &Shared) -> Self {
        let micros = |micros| Ticks::from_micros(micros, setup.frequency_hz);
        let without = setup.without;
        let mut rules = setup.rules;
        if without.patience {
            rules.park_delay = Ticks(0);
        }
        if without.short_turns {
            rules.short_turn = None;
        }
        let vcpus = || shared.vcpus();
        let movable: VcpuSet = vcpus()
            .filter(|(_, it)| it.moves && it.cores.contains(core))
            .map(|(id, _)| id)
            .collect();
        let above_lowest: VcpuSet = vcpus()
            .filter(|(_, it)| Level::of(Some(it.band)) > shared.roles.lowest_movable)
            .map(|(id, _)| id)
            .collect();
        let home_vcpus: VcpuSet = vcpus()
            .filter(|(_, it)| it.home == core)
            .map(|(id, _)| id)
            .collect();
        let mut at_home = [0_u8; Band::COUNT];
        // At most 32 times: vCPUs.
        for (_, vcpu) in vcpus().filter(|(id, it)| it.home == core && movable.contains(*id)) {
            at_home[vcpu.band.index()] += 1;
        }
        let shares = at_home.iter().any(|&count| count > 1);
        // vCPUs that share their home core would run out of turn all the time, and get less done.
        let is_in_turn = shares || without.out_of_turn;
        let out_of_turn = micros(if is_in_turn { 0 } else { OUT_OF_TURN_US });
        let grace_steps = if without.grace { 0 } else { GRACE_STEPS };
        Self {
            core,
            scheduler: Scheduler::new(setup.quantum, out_of_turn),
            deadlines: Deadlines::new(),
            loaded: None,
            saved: [const { None }; MAX_VCPUS],
            running: None,
            must_decide: true,
            must_refresh: false,
            rung: VcpuSet::EMPTY,
            alarm: Ticks::NEVER,
            awaits: None,
            lead: Lead::new(micros(LONGEST_LEAD_US)),
            alarm_is_stale: true,
            chore_at: Ticks::NEVER,
            chore_is_due: false,
            movable,
            above_lowest: movable & above_lowest,
            rules,
            excludes_kernels: shared.excludes_kernels(core),
            catches: Catch::Nothing,
            alarm_expired: false,
            decided_band: None,
            home_vcpus: movable & home_vcpus,
            visitors: VcpuSet::EMPTY,
            sent: VcpuSet::EMPTY,
            taken_back: VcpuSet::EMPTY,
            fetched: None,
            preempted: None,
            is_unfinished: false,
            parked_here: VcpuSet::EMPTY,
            park_later: VcpuSet::EMPTY,
            notify_at: Ticks::NEVER,
            owes_notification: false,
            rung_at: Ticks::NEVER,
            is_put_off: false,
            since_entry: SinceEntry::default(),
            long_at: Ticks::NEVER,
            was_long: false,
            short_park_delay: micros(SHORT_PARK_DELAY_US),
            has_park_time: VcpuSet::EMPTY,
            highest_movable: shared.roles.highest_movable,
            park_time: micros(PARK_TIME_US),
            fetch_at: Ticks::NEVER,
            waiting: Waiting::new(setup.frequency_hz),
            deferred_until: Ticks::NEVER,
            grace: Grace::new(
                micros(GRACE_STEP_US),
                micros(SHORT_GRACE_STEP_US),
                grace_steps,
                !without.yield_on_spin,
            ),
            pulls_for_interrupts: !without.ipi_pull,
            notify_again_after: micros(NOTIFY_AGAIN_US),
            take_back_after: micros(TAKE_BACK_US),
            defer_step: micros(DEFER_STEP_US),
            longest_wait: micros(LONGEST_WAIT_US),
            quiet: micros(QUIET_US),
        }
    }

    /// A vCPU is placed on this core at start, in this state. Each vCPU is placed once.
    pub fn place(&mut self, id: VcpuId, token: T, band: Band, state: VcpuState) {
        let admitted = self.scheduler.admit(id, band, state);
        debug_assert!(admitted.is_ok(), "each vCPU is placed once");
        self.keep(id, token);
    }

    /// The vCPU that runs by the last decision; `None` while the core idles.
    #[inline(always)]
    pub fn running(&self) -> Option<VcpuId> {
        self.running
    }

    /// The vCPU whose registers are on the core.
    #[inline(always)]
    pub fn loaded(&self) -> Option<VcpuId> {
        Some(self.loaded.as_ref()?.id)
    }

    /// The token of that vCPU.
    #[inline(always)]
    pub fn loaded_vcpu_mut(&mut self) -> Option<&mut T> {
        Some(&mut self.loaded.as_mut()?.token)
    }

    /// The token of a vCPU that is on this core and whose registers are saved.
    #[inline(always)]
    pub fn saved_vcpu_mut(&mut self, id: VcpuId) -> Option<&mut T> {
        self.saved.get_mut(id.index())?.as_mut()
    }

    /// The vCPUs whose tokens this core has: the loaded one and the saved ones.
    pub fn tokens(&self) -> VcpuSet {
        let saved = (0..).map(VcpuId).zip(&self.saved);
        let saved = saved.filter_map(|(id, token)| token.as_ref().map(|_| id));
        saved.chain(self.loaded()).collect()
    }

    /// Whether something has happened since the last decision that may change it.
    #[inline(always)]
    pub fn must_decide(&self) -> bool {
        self.must_decide
    }

    /// Makes the core decide again before a guest runs.
    #[inline(always)]
    pub fn decide_anew(&mut self) {
        self.must_decide = true;
    }

    /// The band that runs; `None` while the core idles.
    #[inline(always)]
    pub fn current_band(&self) -> Option<Band> {
        self.scheduler.current_band()
    }

    /// The state of a vCPU of this core; `None`: the scheduler does not have it.
    #[inline(always)]
    pub fn vcpu_state(&self, id: VcpuId) -> Option<VcpuState> {
        self.scheduler.state(id)
    }

    /// The running vCPU gives up the rest of its time slice.
    pub fn yield_running(&mut self) {
        self.scheduler.yield_current();
        self.must_decide = true;
    }

    /// A vCPU of this core that was off is turned on.
    pub fn start(&mut self, id: VcpuId) {
        if self.scheduler.start(id).is_ok() {
            self.must_decide = true;
        }
    }

    /// A vCPU of this core, whose registers are saved, is turned off.
    pub fn stop(&mut self, id: VcpuId) {
        self.deadlines.clear(id);
        self.end_await(id);
        if self.scheduler.stop(id).is_ok() {
            self.must_decide = true;
        }
        if self.running == Some(id) {
            self.running = None;
        }
    }

    /// Has the core park a saved vCPU that does not run here, when it has decided next. If the core then runs a band above the lowest that
    /// moves, it parks the vCPU after the park delay.
    pub fn park_soon(&mut self, id: VcpuId) {
        if self.moves(id) {
            self.keep_for_park_delay(id);
        }
        self.must_decide = true;
    }

    /// This core is not the host core of the vCPU any more: drops what it still knows of it.
    pub fn forget(&mut self, id: VcpuId) {
        let _ = self.scheduler.remove(id);
        self.deadlines.clear(id);
    }

    /// A vCPU that this core had parked is not parked here any more. If another core has the vCPU, this core drops what it knows of it: the deadline
    /// would only wake this core.
    pub(super) fn no_longer_parked_here(&mut self, id: VcpuId) {
        self.parked_here.remove(id);
        if !self.has(id) {
            self.forget(id);
        }
    }

    /// Removes the deadline of a vCPU of this core: its timers do not wake it.
    pub fn clear_deadline(&mut self, id: VcpuId) {
        self.deadlines.clear(id);
    }

    /// What is caught of the loaded vCPU.
    #[inline(always)]
    pub fn catches(&self) -> Catch {
        self.catches
    }

    /// An interrupt was delivered to the loaded vCPU. Work that can wait for its guest waits until it is entered.
    #[inline(always)]
    pub fn note_delivery(&mut self) {
        self.since_entry.has_delivered = true;
    }

    /// As [`Self::note_delivery`], for an interrupt that is not of the vCPU's timers.
    #[inline(always)]
    pub fn note_other_delivery(&mut self) {
        self.note_delivery();
        self.since_entry.has_delivered_other = true;
    }

    /// As [`Self::note_delivery`], for the running vCPU: the interrupt also ends a spin.
    #[inline(always)]
    pub(super) fn interrupted(&mut self) {
        self.note_delivery();
        self.grace.interrupted();
    }

    /// The running vCPU enters its guest: to be called right before the entry, unless the vCPU has left its guest for a delivery only of which nothing was
    /// noted ([`Self::note_delivery`]).
    #[inline(always)]
    pub fn enters_guest(&mut self) {
        self.since_entry = SinceEntry::default();
    }

    /// Whether interrupts for the loaded vCPU may have come that are not in its list registers:
    /// [`refresh`](super::refresh) is to be called before it runs.
    #[inline(always)]
    pub fn must_refresh(&self) -> bool {
        self.must_refresh
    }

    /// Makes [`Self::must_refresh`] return `true`.
    #[inline(always)]
    pub fn refresh_before_entry(&mut self) {
        self.must_refresh = true;
    }

    /// The time for which the alarm is armed.
    #[inline(always)]
    pub fn alarm(&self) -> Ticks {
        self.alarm
    }

    /// Whether this core has sent a vCPU away. Another core may have claimed it since.
    pub fn has_sent(&self, id: VcpuId) -> bool {
        self.sent.contains(id)
    }
}

/// What only the functions of this module call.
impl<T> CoreState<T> {
    /// The running vCPU sleeps: it waits for an interrupt.
    pub(super) fn sleep_running(&mut self, now: impl FnOnce() -> Ticks) {
        self.scheduler.sleep_current(now);
        self.must_decide = true;
    }

    /// Whether the vCPU waits for its timer.
    #[inline(always)]
    pub(super) fn awaits(&self, id: VcpuId) -> bool {
        self.awaits.is_some_and(|it| it.id == id)
    }

    /// A vCPU that waits for its timer waits no longer.
    #[inline(always)]
    pub(super) fn end_await(&mut self, id: VcpuId) {
        if self.awaits(id) {
            self.awaits = None;
        }
    }

    /// The first timer of a vCPU of this core, which is not loaded, expires at this time. `early`: see [`VcpuFacts`](super::VcpuFacts).
    #[inline(always)]
    pub(super) fn set_deadline(&mut self, id: VcpuId, band: Band, early: Early, timer: Ticks) {
        let has_park_time = self.parks_before_timer(early, Some(band));
        self.has_park_time.remove(id);
        self.has_park_time.insert_if(id, has_park_time);
        let early = self.begins_before(early, Some(band));
        self.deadlines.set(id, band, timer.saturating_sub(early));
    }

    /// How long before its timer expires the core begins to switch to a vCPU.
    #[inline(always)]
    pub(super) fn begins_before(&self, early: Early, band: Option<Band>) -> Ticks {
        let lead = self.lead.of(early);
        match self.parks_before_timer(early, band) {
            true => lead.saturating_add(self.park_time),
            false => lead,
        }
    }

    /// Whether a vCPU that is preempted for a vCPU's timer is parked before that timer expires. If the higher band runs for longer than the park delay,
    /// as it did the last time, the vCPU is parked in any case, and now this does not interrupt the higher band.
    fn parks_before_timer(&self, early: Early, band: Option<Band>) -> bool {
        let is_above_all = Level::of(band) > self.highest_movable;
        let is_long = self.was_long && self.rules.park_delay > Ticks(0);
        is_long && early == Early::BySwitch && is_above_all
    }

    /// Up to when there is time to park the vCPU that `id` preempts, in the switch that was to begin at `deadline`: when that is over without parking. Most of
    /// the switch comes before the core parks.
    #[inline(always)]
    pub(super) fn has_time_until(
        &self,
        id: VcpuId,
        early: Early,
        deadline: Ticks,
    ) -> Option<Ticks> {
        let until = deadline.saturating_add(self.lead.of(early));
        self.has_park_time.contains(id).then_some(until)
    }

    /// Whether a vCPU may migrate to or from this core.
    #[inline(always)]
    pub(super) fn moves(&self, id: VcpuId) -> bool {
        self.movable.contains(id)
    }

    /// Whether a vCPU that migrates is kept until the park delay is over when a higher band preempts it.
    #[inline(always)]
    pub(super) fn waits_for_park_delay(&self, id: VcpuId) -> bool {
        self.rules.park_delay > Ticks(0) && !self.above_lowest.contains(id)
    }

    /// The core must decide, and look at what other cores have parked, for this vCPU. A decision that has looked already clears
    /// `must_decide` all the same, so the core also looks again after it.
    #[inline(always)]
    pub(super) fn fetch_again(&mut self, id: VcpuId) {
        self.must_decide = true;
        if self.moves(id) {
            self.fetch_at = FETCH_AGAIN;
        }
    }

    /// How long a preempted vCPU is kept before it is parked.
    #[inline(always)]
    pub(super) fn park_delay(&self) -> Ticks {
        match self.was_long {
            true => self.rules.park_delay.min(self.short_park_delay),
            false => self.rules.park_delay,
        }
    }

    /// Keeps a vCPU for the park delay, which begins when the core publishes its band next.
    #[inline(always)]
    pub(super) fn keep_for_park_delay(&mut self, id: VcpuId) {
        self.park_later.insert(id);
        self.notify_at = Ticks::NEVER;
    }

    /// Whether this core has the token of a vCPU.
    #[inline(always)]
    pub(super) fn has(&self, id: VcpuId) -> bool {
        matches!(self.saved.get(id.index()), Some(Some(_))) || self.loaded() == Some(id)
    }

    /// Keeps the token of a vCPU whose registers are saved.
    #[inline(always)]
    pub(super) fn keep(&mut self, id: VcpuId, token: T) {
        if let Some(place) = self.saved.get_mut(id.index()) {
            *place = Some(token);
        }
    }

    /// Gives up the token of a vCPU whose registers are saved.
    #[inline(always)]
    pub(super) fn give_up(&mut self, id: VcpuId) -> Option<T> {
        self.saved.get_mut(id.index())?.take()
    }

    /// The core decides anew. What the last decision has left to be parked is parked when the new decision is finished, or after the park
    /// delay: see [`park_soon`](Self::park_soon).
    #[inline(always)]
    pub(super) fn leave_unfinished(&mut self) {
        if self.is_unfinished {
            self.is_unfinished = false;
            if let Some(id) = self.fetched.take() {
                self.keep_for_park_delay(id);
            }
            if let Some(id) = self.preempted.take() {
                self.keep_for_park_delay(id);
            }
        }
    }

    /// When the core must decide next whatever its vCPUs do: to fetch, to park or to notify. A decision that is not finished yet is before
    /// anything runs; its end arms the alarm for parking and notifying.
    #[inline(always)]
    pub(super) fn next_own_deadline(&self) -> Ticks {
        let own = match self.is_unfinished {
            true => self.fetch_at,
            false => self.fetch_at.min(self.notify_at).min(self.rung_at),
        };
        self.awaits.map_or(own, |it| own.min(it.until))
    }

    /// The time for which the alarm is armed: when the core must decide next if no interrupt comes, or do a chore. While it must decide
    /// already, only vCPUs of higher bands count, which end the decision early; it sees to all others.
    #[inline(always)]
    pub(super) fn next_alarm(&self) -> Ticks {
        if self.must_decide {
            let slice = self.scheduler.time_slice().map(|slice| TimeSlice {
                same_band_waits: false,
                end: Ticks::NEVER,
                ..slice
            });
            return self.next_of_vcpus(slice);
        }
        let own = self.next_own_deadline().min(self.chore_at);
        if self.deadlines.is_empty() && !self.scheduler.same_band_waits() {
            // The most frequent case.
            return own;
        }
        self.next_of_vcpus(self.scheduler.time_slice()).min(own)
    }

    /// When the core must decide next for its vCPUs, while one with this time slice runs; `None`: it idles.
    #[inline(always)]
    fn next_of_vcpus(&self, slice: Option<TimeSlice>) -> Ticks {
        let runs = Level::of(slice.map(|it| it.band));
        match self.scheduler.highest_level() > runs {
            true => self.next_of_higher(slice),
            false => self.deadlines.next_alarm(slice).unwrap_or(Ticks::NEVER),
        }
    }

    /// The same while a higher band is runnable, which is paused, or whose preemption is deferred; or while the core decides that it runs.
    #[cold]
    #[inline(never)]
    fn next_of_higher(&self, slice: Option<TimeSlice>) -> Ticks {
        let of_deadlines = self
            .deadlines
            .next_alarm_from(self.scheduler.highest_band());
        let slice = slice.filter(|it| it.same_band_waits);
        let of_slice = slice.map_or(Ticks::NEVER, |it| it.end);
        of_deadlines.unwrap_or(Ticks::NEVER).min(of_slice)
    }

    /// Whether a preemption is deferred, so that the last decision remains valid.
    #[inline(always)]
    pub(super) fn defers_preemption(&self) -> bool {
        self.deferred_until != Ticks::NEVER
    }

    /// Whether a vCPU of a higher band than the last decision's is runnable, so that the decision must not wait for
    /// interrupts that are pending.
    #[inline(always)]
    pub(super) fn higher_band_waits(&self) -> bool {
        self.scheduler.waits_above(self.decided_band)
    }

    /// Whether the core must decide again whenever it is kicked for this vCPU, whose token it has.
    #[inline(always)]
    pub(super) fn decides_on_kick(&self, id: VcpuId) -> bool {
        self.visitors.contains(id) || self.rules.gang
    }
}
