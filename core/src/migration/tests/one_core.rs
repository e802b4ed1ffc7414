// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one core does, on a machine of three cores that are only what others see of them.

use crate::migration::fetch::fetch;
use crate::migration::notify::publish_and_notify;
use crate::migration::park::acquire_current;
use crate::migration::pull::pull_for_interrupt;
use crate::migration::*;
use crate::schedule::{Band, Scheduler, Ticks, VcpuState};
use crate::sets::{CoreSet, VcpuSet};
use spumone_config::packed::{self, Without};
use spumone_config::types::{MAX_VCPUS, PcpuId, VcpuId};
use std::vec::Vec;

const OWN: PcpuId = PcpuId(0);
const OTHER: PcpuId = PcpuId(1);
const CORES: usize = 3;
const FREQUENCY_HZ: u32 = 1_000_000;
/// In microseconds, and ticks.
const QUANTUM: u64 = 2_000;
/// How long the handler of an interrupt takes, in ticks.
const HANDLER: u64 = 10;
const MIDDLE: Band = match Band::new(1) {
    Some(band) => band,
    None => Band::HIGHEST,
};

/// The core [`OWN`]. vCPU n has band `bands[n]`.
struct Core {
    local: CoreState<VcpuId>,
    bands: Vec<Band>,
    slots: [ParkingSlot; MAX_VCPUS],
    tokens: [Option<VcpuId>; MAX_VCPUS],
    presences: [Presence; CORES],
    policy: Policy,
    rung: u32,
    now: Ticks,
    in_kernel: bool,
    kicks: Vec<(PcpuId, VcpuId)>,
    /// vCPUs for which interrupts are pending, the last one first.
    pending: Vec<VcpuId>,
    /// Interrupts of this band and above get through.
    mask: Option<Band>,
    /// What the alarm is set to.
    alarm: Ticks,
}

impl Core {
    fn new(policy: packed::Policy, without: Without, bands: &[Band]) -> Self {
        let policy = Policy::new(policy, FREQUENCY_HZ);
        let setting = CoreSetup {
            quantum: Ticks(QUANTUM),
            frequency_hz: FREQUENCY_HZ,
            rules: policy.rules(),
            without,
            moving: VcpuSet::from_bits((1 << bands.len()) - 1),
            home_vcpus: VcpuSet::from_bits(u32::MAX),
            excludes_kernels: false,
        };
        Self {
            local: CoreState::new(&setting, [None; MAX_VCPUS]),
            bands: bands.to_vec(),
            slots: core::array::from_fn(|_| ParkingSlot::new()),
            tokens: [None; MAX_VCPUS],
            presences: core::array::from_fn(|_| Presence::new()),
            policy,
            rung: 0,
            now: Ticks(1),
            in_kernel: true,
            kicks: Vec::new(),
            pending: Vec::new(),
            mask: None,
            alarm: Ticks::NEVER,
        }
    }

    fn steal(bands: &[Band]) -> Self {
        Self::new(packed::Policy::Steal, Without::default(), bands)
    }

    fn scheduler(&mut self) -> &mut Scheduler {
        &mut self.local.scheduler
    }

    /// A vCPU has been placed here, as what it does.
    fn admit(&mut self, id: u8, state: VcpuState) {
        let (id, band) = (VcpuId(id), self.bands[usize::from(id)]);
        self.local.vcpus[id.index()] = Some(id);
        self.scheduler().admit(id, band, state).unwrap();
    }

    /// Runs the first in the queue, which is loaded.
    fn dispatch(&mut self) {
        let now = self.now;
        self.scheduler().decide(now);
        self.local.running = self.local.scheduler.current();
        self.local.loaded = self.local.running;
    }

    /// Another core has parked a vCPU.
    fn parked_elsewhere(&mut self, id: u8, state: ParkedState, since: u64) {
        let parked = Parked { host: OTHER, state };
        self.tokens[usize::from(id)] = Some(VcpuId(id));
        self.slots[usize::from(id)].park(parked, Ticks(since));
    }

    /// Where it is parked, or held.
    fn host_of(&self, id: u8) -> Option<PcpuId> {
        match self.local.token(VcpuId(id)) {
            Some(_) => Some(OWN),
            None => self.slots[usize::from(id)].parked().map(|it| it.host),
        }
    }

    fn next_pending(&self) -> Option<VcpuId> {
        let passes = |id: &VcpuId| Some(self.bands[id.index()]) >= self.mask;
        self.pending.last().copied().filter(passes)
    }

    fn runs(&self, core: PcpuId, band: Band) {
        self.presences[core.index()].publish(Level::of(Some(band)));
    }
}

impl Platform for Core {
    type Token = VcpuId;

    fn local(&self) -> &CoreState<VcpuId> {
        &self.local
    }

    fn local_mut(&mut self) -> &mut CoreState<VcpuId> {
        &mut self.local
    }

    fn core(&self) -> PcpuId {
        OWN
    }

    fn now(&self) -> Ticks {
        self.now
    }

    fn is_interrupted(&self) -> bool {
        self.alarm <= self.now || self.next_pending().is_some()
    }

    fn take_interrupt(&mut self) -> Taken {
        if self.alarm <= self.now {
            self.alarm = Ticks::NEVER;
            return Taken::Alarm;
        }
        let Some(id) = self.next_pending() else {
            return Taken::Nothing;
        };
        self.pending.pop();
        self.now.0 += HANDLER;
        kicked(self, id);
        Taken::Other
    }

    fn deliver_to_loaded(&mut self, id: VcpuId) {
        wake(self, id);
    }

    fn set_priority_mask(&mut self, band: Option<Band>) {
        self.mask = band;
    }

    fn set_alarm(&mut self, at: Ticks) {
        self.alarm = at;
    }

    fn next_chore(&self) -> Ticks {
        Ticks::NEVER
    }

    fn decided(&mut self, _: Ticks) {}

    fn slot(&self, id: VcpuId) -> &ParkingSlot {
        &self.slots[id.index()]
    }

    fn store_parked(&mut self, id: VcpuId, token: VcpuId, parked: Parked) {
        assert_eq!(id, token);
        self.tokens[id.index()] = Some(token);
        self.slots[id.index()].park(parked, self.now);
    }

    fn claim(&mut self, id: VcpuId, seen: Parked) -> Option<VcpuId> {
        self.slots[id.index()].claim(seen).then_some(())?;
        self.tokens[id.index()].take()
    }

    fn own_presence(&self) -> &Presence {
        &self.presences[OWN.index()]
    }

    fn presence(&self, core: PcpuId) -> Option<&Presence> {
        self.presences.get(core.index())
    }

    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.kicks.push((core, id));
    }

    fn band(&self, id: VcpuId) -> Option<Band> {
        self.bands.get(id.index()).copied()
    }

    fn home(&self, id: VcpuId) -> Option<PcpuId> {
        Some(PcpuId(id.0 % CORES as u8))
    }

    fn host(&self, _: VcpuId) -> Option<PcpuId> {
        Some(OTHER)
    }

    fn cores_of(&self, _: VcpuId) -> CoreSet {
        CoreSet::from_bits((1 << CORES) - 1)
    }

    fn guest_runs(&self, _: VcpuId) -> bool {
        true
    }

    fn is_rung(&self, id: VcpuId) -> bool {
        self.rung >> id.0 & 1 != 0
    }

    fn highest_movable(&self) -> Level {
        Level::of(self.bands.iter().copied().max())
    }

    fn lowest_movable(&self) -> Level {
        Level::of(self.bands.iter().copied().min())
    }

    fn excludes_kernels(&self, _: PcpuId) -> bool {
        false
    }

    fn gang(&self) -> Option<(Band, CoreSet)> {
        None
    }

    fn verdict(&mut self, here: &Here, candidate: &Candidate) -> Verdict {
        self.policy.verdict(here, candidate)
    }

    fn was_in_kernel(&self, _: &VcpuId) -> bool {
        self.in_kernel
    }

    fn next_timer(&self, _: &VcpuId, _: Ticks) -> Option<Ticks> {
        None
    }

    fn settle(&mut self, _: &VcpuId) {}

    fn save_loaded(&mut self) {
        self.local.loaded = None;
    }

    fn sample(&self, _: VcpuId) -> Option<Sample> {
        Some(Sample {
            in_kernel: self.in_kernel,
            pc: 0,
            stack: 0,
        })
    }

    fn may_hold_lock(&self, _: VcpuId) -> bool {
        self.in_kernel
    }

    fn set_catch(&mut self, _: Catch) -> bool {
        true
    }

    fn trace(&mut self, _: TracePoint) {}
}

/// A vCPU in its kernel, whose turn is over, gets time for an equal that waits; not for a more urgent one that is
/// parked elsewhere.
#[test]
fn a_more_urgent_vcpu_does_not_wait_for_the_grace_of_another() {
    for (is_more_urgent, host) in [(false, OTHER), (true, OWN)] {
        let band = if is_more_urgent { MIDDLE } else { Band::LOWEST };
        let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST, band]);
        core.admit(0, VcpuState::Suspend);
        core.admit(1, VcpuState::Suspend);
        core.dispatch();
        core.parked_elsewhere(2, ParkedState::Runnable, 0);
        core.now = Ticks(QUANTUM + 1);
        assert_eq!(fetch(&mut core, Ticks(QUANTUM + 1)), Some(true));
        assert_eq!(core.host_of(2), Some(host));
        if is_more_urgent {
            core.dispatch();
            assert_eq!(core.local.running, Some(VcpuId(2)));
        }
    }
}

#[test]
fn of_two_that_are_parked_elsewhere_the_more_urgent_is_taken() {
    let mut core = Core::steal(&[Band::LOWEST, MIDDLE]);
    core.parked_elsewhere(0, ParkedState::Runnable, 10);
    core.parked_elsewhere(1, ParkedState::Runnable, 20);
    assert_eq!(fetch(&mut core, Ticks(30)), Some(true));
    assert_eq!((core.host_of(0), core.host_of(1)), (Some(OTHER), Some(OWN)));
}

/// A core that takes vCPU 0, and before it has decided who runs is told of vCPU 1, which slept and has this band. vCPU 2
/// waits here.
fn overtaken_by(band: Band) -> Core {
    let mut core = Core::steal(&[Band::LOWEST, band, Band::LOWEST]);
    core.runs(OWN, band);
    core.admit(1, VcpuState::Sleep);
    core.admit(2, VcpuState::Suspend);
    core.parked_elsewhere(0, ParkedState::Runnable, 0);
    let now = core.now;
    assert_eq!(fetch(&mut core, now), Some(true));
    assert_eq!(
        core.slots[0].parked(),
        None,
        "it is parked where it was only"
    );
    core.scheduler().wake(VcpuId(1));
    let decision = core.scheduler().decide(now);
    acquire_current(&mut core, now, decision);
    core
}

#[test]
fn who_is_taken_and_has_to_wait_for_an_equal_is_parked() {
    let core = overtaken_by(Band::LOWEST);
    assert_eq!(core.local.scheduler.current(), Some(VcpuId(2)));
    let parked = Parked {
        host: OWN,
        state: ParkedState::Wanted,
    };
    assert_eq!(core.slots[0].parked(), Some(parked));
}

/// The more urgent one pays for nothing; when it has run for a while, others are told, even if they never learnt that the
/// core was free in between.
#[test]
fn who_is_taken_and_overtaken_is_kept_for_a_while() {
    let mut core = overtaken_by(Band::HIGHEST);
    core.rung = 1;
    let now = core.now;
    assert_eq!(core.local.scheduler.current(), Some(VcpuId(1)));
    publish_and_notify(&mut core, now);
    assert_eq!((core.slots[0].parked(), core.kicks.len()), (None, 0));
    let later = core.local.next_own_deadline();
    assert!(later > now && later < Ticks::NEVER);
    publish_and_notify(&mut core, later);
    let state = core.slots[0].parked().map(|it| it.state);
    assert_eq!(state, Some(ParkedState::Wanted), "what was rung presses it");
    assert_eq!(core.kicks, [(PcpuId(1), VcpuId(0))]);
}

/// Of which vCPU others are told while somebody more urgent runs here.
fn told(bands: [Band; 3], states: [VcpuState; 3]) -> Option<VcpuId> {
    let mut core = Core::steal(&[bands[0], bands[1], bands[2], Band::HIGHEST]);
    for (id, state) in (0..).zip(states) {
        core.admit(id, state);
        park(&mut core, VcpuId(id));
    }
    core.admit(3, VcpuState::Suspend);
    core.dispatch();
    // It has run for a while, and nobody else does anything.
    let now = core.now;
    publish_and_notify(&mut core, now);
    core.kicks.clear();
    core.now = Ticks(1_000_000);
    publish_and_notify(&mut core, Ticks(1_000_000));
    assert!(core.kicks.len() <= 1);
    core.kicks.first().map(|&(_, id)| id)
}

#[test]
fn others_are_told_of_the_one_that_is_most_wanted() {
    use VcpuState::{Sleep, Suspend};
    let low = Band::LOWEST;
    let one = |id| Some(VcpuId(id));
    assert_eq!(told([low, MIDDLE, low], [Suspend; 3]), one(1));
    assert_eq!(told([low, MIDDLE, low], [Suspend, Sleep, Suspend]), one(0));
    assert_eq!(told([low, MIDDLE, low], [Sleep, Sleep, Suspend]), one(2));
    assert_eq!(told([low, MIDDLE, low], [Sleep; 3]), one(1));
}

#[test]
fn who_makes_room_is_kept_for_a_while_unless_the_policy_is_without_patience() {
    let impatient = Without {
        patience: true,
        ..Without::default()
    };
    for (without, is_parked) in [(Without::default(), false), (impatient, true)] {
        let bands = [Band::LOWEST, Band::HIGHEST];
        let mut core = Core::new(packed::Policy::Steal, without, &bands);
        core.admit(0, VcpuState::Suspend);
        core.admit(1, VcpuState::Suspend);
        core.dispatch();
        release_preempted(&mut core, VcpuId(0));
        assert_eq!(core.slots[0].parked().is_some(), is_parked);
        assert_eq!(core.kicks.len(), usize::from(is_parked));
        assert_eq!(core.local.token(VcpuId(0)).is_some(), !is_parked);
    }
}

/// One that could run is pressed and stays where it is; a sleeper is taken, unless it would be cut off here too.
#[test]
fn an_interrupt_presses_one_that_could_run_and_fetches_a_sleeper() {
    let fetched = |state, own| {
        let mut core = Core::steal(&[Band::LOWEST, Band::HIGHEST]);
        core.parked_elsewhere(0, state, 0);
        core.runs(OTHER, Band::HIGHEST);
        if own {
            core.admit(1, VcpuState::Suspend);
            core.dispatch();
        }
        let served = pull_for_interrupt(&mut core, VcpuId(0), OTHER);
        (served, core.slots[0].parked().unwrap(), core.kicks)
    };
    let at = |host, state| Parked { host, state };
    let told = [(PcpuId(2), VcpuId(0))];
    let (served, parked, kicks) = fetched(ParkedState::Runnable, false);
    assert_eq!((served, parked), (true, at(OTHER, ParkedState::Wanted)));
    assert!(kicks.is_empty());
    let (served, parked, _) = fetched(ParkedState::Asleep, false);
    assert_eq!((served, parked), (true, at(OWN, ParkedState::Asleep)));
    let (served, parked, kicks) = fetched(ParkedState::Asleep, true);
    assert_eq!((served, parked), (false, at(OTHER, ParkedState::Asleep)));
    assert_eq!(kicks, told);
}

/// What was rung while the vCPU was on its way into the slot presses it as well: nobody rings for it a second time.
#[test]
fn who_is_parked_with_an_interrupt_rung_is_pressed_where_nothing_gets_through() {
    let laid_down = |state, is_cut_off, without| {
        let bands = [Band::LOWEST, Band::HIGHEST];
        let mut core = Core::new(packed::Policy::Steal, without, &bands);
        core.in_kernel = false;
        core.admit(0, state);
        core.admit(1, VcpuState::Suspend);
        if is_cut_off {
            core.dispatch();
            core.runs(OWN, Band::HIGHEST);
        }
        core.rung = 1;
        park(&mut core, VcpuId(0));
        core.slots[0].parked().unwrap().state
    };
    let all = Without::default();
    let no_pull = Without {
        ipi_pull: true,
        ..Without::default()
    };
    for state in [VcpuState::Suspend, VcpuState::Sleep] {
        assert_eq!(laid_down(state, true, all), ParkedState::Wanted);
        assert_eq!(laid_down(state, false, all), ParkedState::Runnable);
        assert_eq!(laid_down(state, true, no_pull), ParkedState::Runnable);
    }
}

/// The moment that was waited for: not the end of the time that was given.
#[test]
fn who_is_caught_on_the_way_back_to_a_program_lets_go_at_once() {
    let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST]);
    core.admit(0, VcpuState::Suspend);
    core.dispatch();
    core.parked_elsewhere(1, ParkedState::Runnable, 0);
    let over = Ticks(QUANTUM + 1);
    assert_eq!(fetch(&mut core, over), Some(true));
    assert_eq!(core.host_of(1), Some(OTHER));
    core.in_kernel = false;
    caught(&mut core, VcpuId(0));
    assert!(core.local.must_decide);
    assert_eq!(fetch(&mut core, over), Some(true));
    assert_eq!(core.host_of(1), Some(OWN));
    assert_eq!(core.local.scheduler.current(), None);
}

/// Whoever waited was taken elsewhere. The next time is looked at anew: all of the grace, and no spin seen before.
#[test]
fn what_one_turn_has_used_of_the_grace_the_next_one_has_again() {
    let mut core = Core::steal(&[Band::LOWEST, Band::LOWEST]);
    core.admit(0, VcpuState::Suspend);
    core.dispatch();
    for turn in 1..9 {
        let over = turn * QUANTUM + 1;
        core.parked_elsewhere(1, ParkedState::Runnable, 0);
        assert_eq!(fetch(&mut core, Ticks(over)), Some(true));
        assert_eq!(core.host_of(1), Some(OTHER), "turn {turn}");
        let seen = core.slots[1].parked().unwrap();
        assert!(core.slots[1].claim(seen));
        assert_eq!(fetch(&mut core, Ticks(over + 1)), Some(false));
    }
}

/// A core that runs vCPU 0, of the lowest band, and where the real-time vCPU 1 sleeps.
fn beside_sleeping_rt() -> Core {
    let mut core = Core::new(
        packed::Policy::None,
        Without::default(),
        &[Band::LOWEST, MIDDLE],
    );
    core.local.moving = VcpuSet::EMPTY;
    core.admit(0, VcpuState::Suspend);
    core.admit(1, VcpuState::Sleep);
    next_action(&mut core);
    core.local.loaded = core.local.running;
    assert_eq!(core.local.running, Some(VcpuId(0)));
    core
}

#[test]
fn a_deadline_is_in_the_alarm_before_an_interrupt_is_taken() {
    let mut core = beside_sleeping_rt();
    // Due while the second of many interrupts is handled.
    let due = Ticks(core.now.0 + HANDLER + HANDLER / 2);
    core.local.deadlines.set(VcpuId(1), MIDDLE, due);
    core.local.alarm_is_stale = true;
    core.local.must_decide = true;
    core.pending = [VcpuId(0); 100].to_vec();
    while core.local.running != Some(VcpuId(1)) {
        next_action(&mut core);
    }
    assert!(core.now.0 < due.0 + HANDLER, "{:?} after {due:?}", core.now);
}

#[test]
fn a_preemption_is_decided_before_the_next_interrupt_is_taken() {
    let mut core = beside_sleeping_rt();
    core.local.must_decide = true;
    core.pending = [VcpuId(0); 100].to_vec();
    core.pending.push(VcpuId(1));
    next_action(&mut core);
    assert_eq!(core.local.running, Some(VcpuId(1)));
    assert_eq!(core.pending.len(), 100);
}
