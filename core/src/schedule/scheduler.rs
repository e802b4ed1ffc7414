// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state machine of one core's scheduler.
//!
//! Events (`start`, `wake`, `sleep`, …) only change the state of a vCPU; [`Scheduler::decide`] then decides once for
//! all of them. Assumes that only its own core calls it, and that `now` never goes back.

use super::out_of_turn::{Allowance, OutOfTurn};
use super::short_turns::ShortTurns;
use super::{Band, Level, RunQueue, Ticks};
use core::fmt;
use spumone_config::types::{MAX_VCPUS, VcpuId};

#[cfg(test)]
mod inspection;

/// The state of a vCPU of this core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VcpuState {
    /// Turned off (PSCI): its registers are not kept.
    Off,
    /// Waits for an interrupt (WFI).
    Sleep,
    /// Does not run, but could.
    Runnable,
    /// Runs from the next entry on.
    Running,
}

/// The time slice of the vCPU that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSlice {
    /// Its band.
    pub band: Band,
    /// Since when it runs.
    pub since: Ticks,
    /// When the time slice is over. If no other vCPU of its band is runnable then, the vCPU runs on until one is.
    pub end: Ticks,
    /// Whether a vCPU of the same band waits, so that an alarm for `end` is needed.
    pub same_band_waits: bool,
}

/// Whether another vCPU was chosen than in the last decision, or none. Registers are switched only if the chosen vCPU
/// is not loaded: [`next_action`](crate::migration::next_action) looks at that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The same vCPU goes on, or the core stays idle.
    Same,
    /// This vCPU runs from now on; `None`: the core idles from now on, and the vCPU that is loaded stays loaded.
    Run(Option<VcpuId>),
}

/// A decision, and the time slice that it begins or continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether another vCPU was chosen.
    pub action: Action,
    /// The time slice of the vCPU that runs from now on; `None` if the core idles. For
    /// [`Deadlines::next_alarm`](super::Deadlines::next_alarm).
    pub time_slice: Option<TimeSlice>,
}

/// Why an event was refused. The scheduler has not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No vCPU can have this id.
    NoSuchVcpu(VcpuId),
    /// The vCPU is not on this core.
    NotHere(VcpuId),
    /// The vCPU is on this core already.
    AlreadyHere(VcpuId),
    /// The vCPU's state does not permit it.
    WrongState(VcpuId, VcpuState),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchVcpu(vcpu) => write!(f, "there can be no vCPU {vcpu}"),
            Self::NotHere(vcpu) => write!(f, "vCPU {vcpu} is not on this core"),
            Self::AlreadyHere(vcpu) => write!(f, "vCPU {vcpu} is on this core already"),
            Self::WrongState(vcpu, state) => write!(f, "vCPU {vcpu} is in state {state:?}"),
        }
    }
}

/// The scheduler of one core.
#[derive(Clone, Debug)]
pub struct Scheduler {
    quantum: Ticks,
    /// Exactly the vCPUs in state `Runnable` or `Running`; the latter, `current`, is the first of its band, unless it runs
    /// out of turn or has taken its turn early.
    queue: RunQueue,
    /// By id; `None` for those of other cores.
    vcpus: [Option<Entry>; MAX_VCPUS],
    /// The vCPU in state `Running`, and its band.
    current: Option<(VcpuId, Band)>,
    /// When `current` was dispatched.
    since: Ticks,
    /// When the time slice of `current` is over.
    quantum_end: Ticks,
    /// By how much extensions have delayed `quantum_end`.
    extended_by: Ticks,
    /// vCPUs of this band and below wait.
    paused: Level,
    out_of_turn: OutOfTurn,
    short_turns: ShortTurns,
    chosen: Chosen,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    band: Band,
    state: VcpuState,
    /// The rest of its time slice when it runs next.
    quantum_left: Ticks,
    out_of_turn: Allowance,
}

/// What the last decision has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chosen {
    Idle,
    Vcpu(VcpuId),
    /// A vCPU that was turned off or has left since. If the next decision chooses the same vCPU, that counts as another
    /// one, since it may have begun a new life.
    Stale,
}

impl Scheduler {
    /// A core that idles and has no vCPUs. vCPUs of one band get time slices of `quantum`, at least one tick; for `out_of_turn`, a vCPU
    /// runs [out of turn](Self::run_out_of_turn), never if it is zero.
    pub const fn new(quantum: Ticks, out_of_turn: Ticks) -> Self {
        let quantum = if quantum.0 == 0 { Ticks(1) } else { quantum };
        Self {
            quantum,
            queue: RunQueue::new(),
            vcpus: [None; MAX_VCPUS],
            current: None,
            since: Ticks(0),
            quantum_end: Ticks(0),
            extended_by: Ticks(0),
            paused: Level::IDLE,
            out_of_turn: OutOfTurn::new(out_of_turn),
            short_turns: ShortTurns::new(quantum),
            chosen: Chosen::Idle,
        }
    }

    /// A vCPU comes to this core, in a state other than `Running`; a runnable one is queued behind the others of its
    /// band.
    ///
    /// # Errors
    ///
    /// [`Refused`] if it is here already, or comes `Running`.
    pub fn admit(&mut self, vcpu: VcpuId, band: Band, state: VcpuState) -> Result<(), Refused> {
        let quantum_left = self.quantum;
        let entry = self
            .vcpus
            .get_mut(vcpu.index())
            .ok_or(Refused::NoSuchVcpu(vcpu))?;
        if entry.is_some() {
            return Err(Refused::AlreadyHere(vcpu));
        }
        if state == VcpuState::Running {
            return Err(Refused::WrongState(vcpu, state));
        }
        *entry = Some(Entry {
            band,
            state,
            quantum_left,
            out_of_turn: Allowance::default(),
        });
        if state == VcpuState::Runnable {
            self.queue.wake(vcpu, band);
        }
        Ok(())
    }

    /// A vCPU leaves this core. Returns the state it was in.
    ///
    /// # Errors
    ///
    /// [`Refused::NotHere`].
    pub fn remove(&mut self, vcpu: VcpuId) -> Result<VcpuState, Refused> {
        let state = self.entry(vcpu)?.state;
        self.forget(vcpu);
        if let Some(entry) = self.vcpus.get_mut(vcpu.index()) {
            *entry = None;
        }
        Ok(state)
    }

    /// A vCPU is turned on (PSCI `CPU_ON`): `Off` becomes `Runnable`.
    ///
    /// # Errors
    ///
    /// [`Refused`] if it is not here, or not off.
    pub fn start(&mut self, vcpu: VcpuId) -> Result<(), Refused> {
        self.make_runnable(vcpu, VcpuState::Off)
    }

    /// A vCPU is turned off, whatever it was doing (PSCI `CPU_OFF`, end of its guest). Does nothing if it is off
    /// already.
    ///
    /// # Errors
    ///
    /// [`Refused::NotHere`].
    pub fn stop(&mut self, vcpu: VcpuId) -> Result<(), Refused> {
        self.entry(vcpu)?;
        self.forget(vcpu);
        self.set_state(vcpu, VcpuState::Off);
        Ok(())
    }

    /// An interrupt has come for a vCPU: `Sleep` becomes `Runnable`, with a full quantum. Returns
    /// whether it slept; in any other state nothing changes.
    pub fn wake(&mut self, vcpu: VcpuId) -> bool {
        self.make_runnable(vcpu, VcpuState::Sleep).is_ok()
    }

    /// The running vCPU waits for an interrupt (WFI): `Running` becomes `Sleep`. Returns it;
    /// `None` if none runs. `now` reads the time, if it is needed.
    pub fn sleep_current(&mut self, now: impl FnOnce() -> Ticks) -> Option<VcpuId> {
        let (vcpu, band) = self.current.take()?;
        self.short_turns.give_up(band);
        let (since, quantum) = (self.since, self.quantum);
        if let Some(Some(entry)) = self.vcpus.get_mut(vcpu.index()) {
            entry.state = VcpuState::Sleep;
            // If it is the first, its turn has come.
            if entry.out_of_turn.has_had_turn() && self.queue.next() != Some(vcpu) {
                let now = now();
                let ran = now.saturating_sub(since);
                let allowance = &mut entry.out_of_turn;
                self.out_of_turn.count(allowance, ran, quantum, now);
            }
        }
        self.queue.remove(vcpu);
        Some(vcpu)
    }

    /// The running vCPU gives up the rest of its time slice (it spins): it is queued behind the others of its band.
    /// Returns it; `None` if none runs.
    pub fn yield_current(&mut self) -> Option<VcpuId> {
        let (vcpu, band) = self.current?;
        self.short_turns.give_up(band);
        self.requeue_current(None, Ticks(0));
        Some(vcpu)
    }

    /// An interrupt has come for a vCPU that may have to wait for its turn: if it is runnable and another vCPU of its band runs, it is to
    /// run [out of turn](mod@super::out_of_turn). Returns whether it will: from the next decision on, if the current vCPU's time slice
    /// is not extended. It will not if it runs next: the current vCPU runs out of turn, and it is the first of its band.
    pub fn run_out_of_turn(&mut self, vcpu: VcpuId, now: Ticks) -> bool {
        let Self {
            current: Some((_, current)),
            vcpus,
            out_of_turn,
            queue,
            ..
        } = self
        else {
            return false;
        };
        let Some(Some(entry)) = vcpus.get_mut(vcpu.index()) else {
            return false;
        };
        entry.state == VcpuState::Runnable
            && entry.band == *current
            // The first runs in turn then.
            && match queue.next() == Some(vcpu) {
                true => !out_of_turn.runs(),
                false => entry.quantum_left > out_of_turn.length(),
            }
            && out_of_turn.ask(vcpu, *current, &mut entry.out_of_turn, now)
    }

    /// Whether the current vCPU runs out of turn, and its time is not over.
    #[inline(always)]
    pub fn runs_out_of_turn(&self) -> bool {
        self.out_of_turn.runs() && self.current.is_some() && self.quantum_end > self.since
    }

    /// If the current vCPU runs out of turn, its time is over.
    pub fn end_out_of_turn(&mut self) {
        if self.runs_out_of_turn() {
            self.quantum_end = self.since;
            self.extended_by = Ticks(0);
        }
    }

    /// The current vCPU, which runs out of turn, goes on: its time slice begins now, and no other vCPU cuts it short for now.
    pub fn take_turn(&mut self, now: Ticks) {
        if let Some((vcpu, band)) = self.current
            && let Some(entry) = self.entry_mut(vcpu)
        {
            entry.out_of_turn.take_turn();
            let quantum_left = entry.quantum_left;
            self.out_of_turn.runs_in_turn(vcpu);
            self.out_of_turn.cancel();
            let length = self.turn_of(vcpu, band, quantum_left);
            self.quantum_end = now.saturating_add(length);
            self.extended_by = Ticks(0);
        }
    }

    /// Whether the current vCPU is to give up the core to one that runs out of turn.
    pub fn is_cut(&self) -> bool {
        self.current
            .is_some_and(|(_, band)| self.out_of_turn.due(band).is_some())
    }

    /// The vCPUs that are to run out of turn wait for their turn after all.
    pub fn stay_in_turn(&mut self) {
        self.out_of_turn.cancel();
    }

    /// Decides which vCPU runs from `now` on. The caller must carry the decision out.
    #[inline(always)]
    pub fn decide(&mut self, now: Ticks) -> Decision {
        if let Some((vcpu, band)) = self.current {
            let left = self.quantum_end.saturating_sub(now);
            let is_over = left == Ticks(0) && self.queue.has_others(vcpu);
            let is_cut = self.out_of_turn.due(band).is_some_and(|due| due <= now);
            let level = Level::of(Some(band));
            if is_over || is_cut || self.queue.highest_level() > level || self.paused >= level {
                self.requeue_with_rest(left, now);
            }
        }
        if self.current.is_none() {
            self.dispatch(now);
        }
        let next = self.current().map_or(Chosen::Idle, Chosen::Vcpu);
        let action = if self.chosen == next {
            Action::Same
        } else {
            Action::Run(self.current())
        };
        self.chosen = next;
        Decision {
            action,
            time_slice: self.time_slice(),
        }
    }

    /// The first vCPU in the queue of the highest band, if that band is above the band that runs.
    #[inline(always)]
    pub fn first_above_current(&self) -> Option<VcpuId> {
        match self.queue.highest_level() > self.current_level() {
            true => self.queue.next(),
            false => None,
        }
    }

    /// `vcpu` preempts the current vCPU: [`Self::wake`], if `vcpu` sleeps, and [`Self::decide`] in one. Returns whether `vcpu` is the current
    /// vCPU now; if not, nothing has changed. That is so if `vcpu` sleeps and its band is not above those of all queued vCPUs, or if `vcpu` is
    /// runnable and not the first of the highest band.
    #[inline(always)]
    pub fn preempt(&mut self, vcpu: VcpuId, now: Ticks) -> bool {
        let Ok(&entry) = self.entry(vcpu) else {
            return false;
        };
        let level = Level::of(Some(entry.band));
        let sleeps = entry.state == VcpuState::Sleep;
        let is_first = match sleeps {
            true => self.queue.highest_level() < level,
            false => entry.state == VcpuState::Runnable && self.queue.next() == Some(vcpu),
        };
        let next = Chosen::Vcpu(vcpu);
        if !is_first || self.paused >= level || self.chosen == next {
            return false;
        }
        if self.current.is_some() {
            let left = self.quantum_end.saturating_sub(now);
            self.requeue_with_rest(left, now);
        }
        let quantum_left = match sleeps {
            true => self.quantum,
            false => entry.quantum_left,
        };
        if sleeps {
            self.queue.wake_first(vcpu, entry.band);
        }
        self.run(vcpu, entry.band, quantum_left, now);
        self.chosen = next;
        true
    }

    /// The vCPU that runs; `None` while the core idles, and between a vCPU's end, sleep or yield and the next decision.
    pub fn current(&self) -> Option<VcpuId> {
        Some(self.current?.0)
    }

    /// Since when the vCPU that runs has done so.
    #[inline(always)]
    pub fn since(&self) -> Option<Ticks> {
        self.current.map(|_| self.since)
    }

    /// The band of the vCPU that runs.
    pub fn current_band(&self) -> Option<Band> {
        Some(self.current?.1)
    }

    /// The time slice of the vCPU that runs.
    pub fn time_slice(&self) -> Option<TimeSlice> {
        let (_, band) = self.current?;
        Some(TimeSlice {
            band,
            since: self.since,
            end: match self.out_of_turn.due(band) {
                Some(due) => due.min(self.quantum_end),
                None => self.quantum_end,
            },
            same_band_waits: self.same_band_waits(),
        })
    }

    /// Whether another vCPU of the band that runs is runnable.
    #[inline(always)]
    pub fn same_band_waits(&self) -> bool {
        self.current
            .is_some_and(|(vcpu, _)| self.queue.has_others(vcpu))
    }

    /// Whether several vCPUs of the highest band run or are runnable.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        let first = self.queue.next();
        first.is_some_and(|vcpu| self.queue.has_others(vcpu))
    }

    /// The vCPUs of the running one's band that wait for their turn, in the order of their turns.
    pub fn waiting(&self) -> impl Iterator<Item = VcpuId> {
        let current = self.current();
        let after = move |id| self.queue.after(id).filter(|_| current.is_some());
        // At most 32 times: vCPUs.
        core::iter::successors(current.and_then(after), move |&id| {
            after(id).filter(|&next| Some(next) != current)
        })
    }

    /// vCPUs of `band` and below do not run from the next decision on; `None`: all may run.
    pub fn pause_up_to(&mut self, band: Option<Band>) {
        self.paused = Level::of(band);
    }

    /// Extends the time slice of the running vCPU to `end`, if it ends earlier. Until then no vCPU runs out of turn.
    pub fn extend_time_slice(&mut self, end: Ticks) {
        self.out_of_turn.put_off(end);
        let more = end.saturating_sub(self.quantum_end);
        self.quantum_end = self.quantum_end.saturating_add(more);
        self.extended_by = self.extended_by.saturating_add(more);
    }

    /// Whether the running vCPU's time slice is extended.
    #[inline(always)]
    pub fn is_extended(&self) -> bool {
        self.extended_by > Ticks(0)
    }

    /// From when on the turn of the running vCPU may be [ended early](mod@super::short_turns), if a turn lasts at least for `shortest`; `None`: it may
    /// not, since the vCPU runs out of turn, or its time slice is extended.
    #[inline(always)]
    pub fn early_end(&self, shortest: Ticks) -> Option<Ticks> {
        let (_, band) = self.current?;
        let may_end = !self.out_of_turn.runs() && !self.is_extended();
        let least = self.short_turns.least(band, shortest);
        may_end.then(|| self.since.saturating_add(least))
    }

    /// Ends the turn of the running vCPU at `now`, before its time slice is over. The vCPUs of its band that wait have turns of the same length next.
    #[inline(never)]
    pub fn end_early(&mut self, now: Ticks) {
        let waiting = self.waiting().take(MAX_VCPUS).count();
        if let Some((_, band)) = self.current
            && self.early_end(Ticks(0)).is_some()
            && now < self.quantum_end
        {
            let ran = now.saturating_sub(self.since);
            self.short_turns.end_early(band, ran, waiting);
            self.quantum_end = now;
        }
    }

    /// Withdraws the [extensions](Self::extend_time_slice) of the running vCPU's time slice: it ends when it would have
    /// ended without them, at once if that time is past, or if another vCPU is to run out of turn.
    pub fn withdraw_extension(&mut self) {
        self.quantum_end = self.quantum_end.saturating_sub(self.extended_by);
        self.extended_by = Ticks(0);
        self.out_of_turn.no_longer_put_off();
    }

    /// Whether a vCPU above this band runs or is runnable; `None`: any vCPU.
    #[inline(always)]
    pub fn waits_above(&self, band: Option<Band>) -> bool {
        self.queue.has_above(band)
    }

    /// The highest band that runs or is runnable.
    #[inline(always)]
    pub fn highest_band(&self) -> Option<Band> {
        self.queue.highest_band()
    }

    /// The level of the highest band that runs or is runnable.
    #[inline(always)]
    pub fn highest_level(&self) -> Level {
        self.queue.highest_level()
    }

    /// The level of the band that runs.
    #[inline(always)]
    pub fn current_level(&self) -> Level {
        Level::of(self.current_band())
    }

    /// The state of a vCPU; `None` if it is not on this core.
    pub fn state(&self, vcpu: VcpuId) -> Option<VcpuState> {
        self.entry(vcpu).ok().map(|entry| entry.state)
    }

    /// As [`Self::requeue_current`]. `left`: of its time slice with extensions. A vCPU does not keep extensions: it would get new ones each time that it is
    /// preempted.
    #[inline(always)]
    fn requeue_with_rest(&mut self, left: Ticks, now: Ticks) {
        let rest = left.saturating_sub(self.extended_by);
        let ran = now.saturating_sub(self.since);
        if let Some((_, band)) = self.current
            && !self.out_of_turn.runs()
        {
            match rest > Ticks(0) {
                true => self.short_turns.pause(band, ran),
                false => self.short_turns.end(band, ran),
            }
        }
        self.requeue_current((rest > Ticks(0)).then_some(rest), ran);
    }

    /// The current vCPU does not run any more: with a `rest` of its time slice it stays before the others of its band, else it goes
    /// behind them. If it has run out of turn, or has had its turn before that has come, it keeps its place. `ran`: for how long it has run.
    #[inline(always)]
    fn requeue_current(&mut self, rest: Option<Ticks>, ran: Ticks) {
        let Some((vcpu, band)) = self.current.take() else {
            return;
        };
        let full = self.quantum;
        let is_in_turn = !self.out_of_turn.runs();
        let Some(entry) = self.entry_mut(vcpu) else {
            return;
        };
        entry.state = VcpuState::Runnable;
        if is_in_turn {
            entry.out_of_turn.has_run(ran);
            entry.quantum_left = rest.unwrap_or(full);
            if rest.is_none() && !entry.out_of_turn.has_taken_turn() {
                self.queue.put_last(vcpu, band);
            }
        }
    }

    /// Makes the first vCPU in the queue the current one, or one that is to run out of turn.
    #[inline(always)]
    fn dispatch(&mut self, now: Ticks) {
        if self.queue.highest_level() <= self.paused {
            return;
        }
        let Some(first) = self.first_in_turn() else {
            return;
        };
        let Ok(&Entry {
            band, quantum_left, ..
        }) = self.entry(first)
        else {
            return;
        };
        self.out_of_turn.forget(first);
        match self.out_of_turn.next(band, now) {
            None => self.run(first, band, quantum_left, now),
            Some(vcpu) => self.run_before_turn(vcpu, band, now),
        }
    }

    /// The first vCPU in the queue. Those that have had this turn already go behind the others of their band; not one to which a rest of that turn is left.
    #[inline(always)]
    fn first_in_turn(&mut self) -> Option<VcpuId> {
        let full = self.quantum;
        // At most 33 times: each vCPU goes behind the others once.
        for _ in 0..=MAX_VCPUS {
            let first = self.queue.next()?;
            let entry = self.entry_mut(first)?;
            if !entry.out_of_turn.has_had_turn() || entry.quantum_left < full {
                return Some(first);
            }
            let band = entry.band;
            self.queue.put_last(first, band);
        }
        None
    }

    /// Makes a queued vCPU the current one, out of turn.
    #[inline(never)]
    fn run_before_turn(&mut self, vcpu: VcpuId, band: Band, now: Ticks) {
        let length = self.out_of_turn.length();
        let Ok(&Entry { quantum_left, .. }) = self.entry(vcpu) else {
            return;
        };
        self.begin(vcpu, band, quantum_left.saturating_sub(length), now, length);
    }

    /// Makes a queued vCPU the current one, in turn. `quantum_left`: the rest of its time slice.
    #[inline(always)]
    fn run(&mut self, vcpu: VcpuId, band: Band, quantum_left: Ticks, now: Ticks) {
        self.out_of_turn.runs_in_turn(vcpu);
        let length = self.turn_of(vcpu, band, quantum_left);
        self.begin(vcpu, band, quantum_left, now, length);
    }

    /// How long the turn of a vCPU of `band` that gets the core may last. `quantum_left` is left of its time slice.
    #[inline(always)]
    fn turn_of(&mut self, vcpu: VcpuId, band: Band, quantum_left: Ticks) -> Ticks {
        let is_alone = !self.queue.has_others(vcpu);
        self.short_turns.begin(band, quantum_left, is_alone)
    }

    /// Makes a queued vCPU the current one, for `length` from `now` on. `quantum_left`: the rest of its time slice.
    #[inline(always)]
    fn begin(&mut self, vcpu: VcpuId, band: Band, quantum_left: Ticks, now: Ticks, length: Ticks) {
        if let Some(entry) = self.entry_mut(vcpu) {
            entry.state = VcpuState::Running;
            entry.quantum_left = quantum_left;
            self.since = now;
            self.quantum_end = now.saturating_add(length);
            self.extended_by = Ticks(0);
            self.current = Some((vcpu, band));
        }
    }

    fn make_runnable(&mut self, vcpu: VcpuId, from: VcpuState) -> Result<(), Refused> {
        let full = self.quantum;
        let Entry { band, state, .. } = *self.entry(vcpu)?;
        if state != from {
            return Err(Refused::WrongState(vcpu, state));
        }
        if let Some(entry) = self.entry_mut(vcpu) {
            entry.state = VcpuState::Runnable;
            entry.quantum_left = full;
        }
        self.queue.wake(vcpu, band);
        Ok(())
    }

    /// The vCPU is turned off or leaves: nothing here refers to it any more, except its entry.
    fn forget(&mut self, vcpu: VcpuId) {
        self.queue.remove(vcpu);
        self.out_of_turn.forget(vcpu);
        if let Some((current, band)) = self.current
            && current == vcpu
        {
            self.short_turns.give_up(band);
            self.current = None;
        }
        if self.chosen == Chosen::Vcpu(vcpu) {
            self.chosen = Chosen::Stale;
        }
    }

    fn set_state(&mut self, vcpu: VcpuId, state: VcpuState) {
        if let Some(entry) = self.entry_mut(vcpu) {
            entry.state = state;
        }
    }

    fn entry(&self, vcpu: VcpuId) -> Result<&Entry, Refused> {
        self.vcpus
            .get(vcpu.index())
            .ok_or(Refused::NoSuchVcpu(vcpu))?
            .as_ref()
            .ok_or(Refused::NotHere(vcpu))
    }

    fn entry_mut(&mut self, vcpu: VcpuId) -> Option<&mut Entry> {
        self.vcpus.get_mut(vcpu.index())?.as_mut()
    }
}
