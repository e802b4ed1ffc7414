// SPDX-License-Identifier: MIT OR Apache-2.0
//! The core under test, and the machine around it.

use super::{CORES, EARLY, FREQUENCY_HZ, HANDLER, MIDDLE, OTHER, OWN, QUANTUM};
use crate::migration::call_cores::{look_for_waiting, must_look};
use crate::migration::core_state::Loaded;
use crate::migration::fetch::{Fetched, fetch};
use crate::migration::finish::finish;
use crate::migration::notify::publish_and_notify;
use crate::migration::*;
use crate::schedule::{Band, Ticks, VcpuState};
use crate::sets::{CoreSet, VcpuSet};
use crate::vgic::Doorbell;
use spumone_config::gic::VIRTUAL_TIMER;
use spumone_config::packed::{self, Without};
use spumone_config::types::{GuestId, MAX_VCPUS, PcpuId, VcpuId};
use std::vec::Vec;

/// Core [`OWN`]. vCPU n has band `bands[n]`.
pub struct Core {
    pub state: CoreState<VcpuId>,
    pub machine: Machine,
}

/// The machine around it.
pub struct Machine {
    pub shared: Shared,
    pub bands: Vec<Band>,
    pub tokens: [Option<VcpuId>; MAX_VCPUS],
    pub doorbells: [Doorbell; MAX_VCPUS],
    pub policy: Policy,
    pub now: Ticks,
    pub in_kernel: bool,
    /// Only these vCPUs are in their kernels, and they do not spin.
    pub only: Option<VcpuSet>,
    pub pc: core::cell::Cell<u64>,
    /// Whether the guests run; if not, they are being loaded.
    pub guests_run: bool,
    pub kicks: Vec<(PcpuId, VcpuId)>,
    /// vCPUs for which interrupts are pending; the last one is taken first.
    pub pending: Vec<VcpuId>,
    /// The priority mask lets through interrupts of this band and above.
    pub mask: Option<Band>,
    /// The time for which the alarm is armed.
    pub alarm: Ticks,
    /// When the timer of the loaded vCPU expires; its interrupt comes once.
    pub loaded_timer: Option<Ticks>,
    pub is_timer_taken: bool,
    /// When the timer of a vCPU expires whose registers are saved.
    pub saved_timer: Option<Ticks>,
    /// How long it takes to load a vCPU.
    pub load_takes: u64,
    /// Whether the loaded vCPU has much in its list registers.
    pub lists_many: bool,
    /// For each time that it was taken back: whether a vCPU of a higher band was waiting for the core.
    pub taken_back: Vec<bool>,
    /// How long it takes to look at the parking slots, and the vCPU for which another core has an interrupt meanwhile.
    pub fetch_takes: u64,
    /// How long it takes to ask the policy about what is in them.
    pub choice_takes: u64,
    pub rung_in_fetch: Option<VcpuId>,
    /// Another core parks one of these meanwhile, the last one first; it kicks this core for it.
    pub parked_in_fetch: Vec<VcpuId>,
    /// While registers are saved, the timer of the vCPU expires, and an interrupt comes for this vCPU.
    pub kicked_in_save: Option<VcpuId>,
    /// While a vCPU is parked, an interrupt comes for this one.
    pub kicked_in_park: Option<VcpuId>,
    /// Another core claims this vCPU as soon as this core has parked it.
    pub claimed_in_park: Option<VcpuId>,
    /// When the hypervisor's next chore is due.
    pub chore: Ticks,
    /// The cores that are to go off.
    pub unwanted: CoreSet,
    /// Whether another core is off that may come on.
    pub may_bring_back: bool,
    /// The vCPUs for which a core was called.
    pub called: Vec<VcpuId>,
    /// What was delivered to the loaded vCPU.
    pub delivered: Vec<Delivery>,
    /// The next delivery rings the doorbells of these vCPUs.
    pub rung_in_delivery: VcpuSet,
    /// During the next delivery, an interrupt comes for this vCPU.
    pub kicked_in_delivery: Option<VcpuId>,
    /// An interrupt comes for this vCPU once the core has read the timer of the loaded vCPU.
    pub kicked_after_timer: Option<VcpuId>,
    pub is_timer_read: core::cell::Cell<bool>,
}

impl Core {
    /// All vCPUs may migrate, where the policy moves vCPUs.
    pub fn new(named: packed::Policy, without: Without, bands: &[Band]) -> Self {
        Self::with_staying(named, without, bands, None)
    }

    /// As [`Self::new`], but vCPUs of the band `staying` do not migrate.
    pub fn with_staying(
        named: packed::Policy,
        without: Without,
        bands: &[Band],
        staying: Option<Band>,
    ) -> Self {
        let policy = Policy::new(named, FREQUENCY_HZ);
        let moves_vcpus = named.moves_vcpus();
        let facts = |(id, &band): (usize, &Band)| VcpuFacts {
            guest: GuestId(band.index() as u8),
            band,
            home: PcpuId((id % CORES) as u8),
            cores: CoreSet::from_bits((1 << CORES) - 1),
            moves: moves_vcpus && Some(band) != staying,
            early: match band {
                MIDDLE => Early::By(EARLY),
                Band::HIGHEST => Early::BySwitch,
                _ => Early::AtTimer,
            },
        };
        let mut vcpus = [None; MAX_VCPUS];
        for (place, band) in vcpus.iter_mut().zip(bands.iter().enumerate()) {
            *place = Some(facts(band));
        }
        let moving = || bands.iter().copied().filter(|&it| Some(it) != staying);
        let roles = Roles {
            kernel_free: CoreSet::EMPTY,
            gang: None,
            highest_movable: Level::of(moving().max()),
            lowest_movable: Level::of(moving().min()),
        };
        let shared = Shared::new(roles, vcpus);
        let setup = CoreSetup {
            quantum: Ticks(QUANTUM),
            frequency_hz: FREQUENCY_HZ,
            rules: policy.rules(),
            without,
        };
        let doorbells = core::array::from_fn(|_| {
            let doorbell = Doorbell::new();
            doorbell.settle(OTHER);
            doorbell
        });
        Self {
            state: CoreState::new(OWN, &setup, &shared),
            machine: Machine {
                shared,
                bands: bands.to_vec(),
                tokens: [None; MAX_VCPUS],
                doorbells,
                policy,
                now: Ticks(1),
                in_kernel: true,
                only: None,
                pc: core::cell::Cell::new(0),
                guests_run: true,
                kicks: Vec::new(),
                pending: Vec::new(),
                mask: None,
                alarm: Ticks::NEVER,
                loaded_timer: None,
                is_timer_taken: false,
                saved_timer: None,
                load_takes: 0,
                lists_many: false,
                taken_back: Vec::new(),
                fetch_takes: 0,
                choice_takes: 0,
                rung_in_fetch: None,
                kicked_in_save: None,
                kicked_in_park: None,
                claimed_in_park: None,
                parked_in_fetch: Vec::new(),
                chore: Ticks::NEVER,
                unwanted: CoreSet::EMPTY,
                may_bring_back: false,
                called: Vec::new(),
                delivered: Vec::new(),
                rung_in_delivery: VcpuSet::EMPTY,
                kicked_in_delivery: None,
                kicked_after_timer: None,
                is_timer_read: core::cell::Cell::new(false),
            },
        }
    }

    pub fn steal(bands: &[Band]) -> Self {
        Self::new(packed::Policy::Steal, Without::default(), bands)
    }

    /// Places a vCPU here, in this state.
    pub fn admit(&mut self, id: u8, state: VcpuState) {
        let (id, band) = (VcpuId(id), self.machine.bands[usize::from(id)]);
        self.state.place(id, id, band, state);
        self.machine.doorbells[id.index()].settle(OWN);
    }

    /// Runs the first vCPU in the queue, which is then loaded.
    pub fn dispatch(&mut self) {
        self.state.scheduler.decide(self.machine.now);
        self.state.running = self.state.scheduler.current();
        if let Some(id) = self.state.running
            && let Some(token) = self.state.saved[id.index()].take()
        {
            self.state.loaded = Some(Loaded { id, token });
        }
    }

    /// One iteration of the core's loop.
    pub fn iterate(&mut self) -> Next {
        next_action(&mut self.state, &mut self.machine)
    }

    /// What the core does from an exit of its vCPU on, until it enters one or idles.
    pub fn go_on(&mut self) {
        take_interrupts(&mut self.state, &mut self.machine);
        for _ in 0..10 {
            match self.iterate() {
                Next::Decide => {}
                Next::Switch(id) => switch(&mut self.state, &mut self.machine, id),
                Next::Run(_) => return self.state.enters_guest(),
                _ => return,
            }
        }
        panic!("the core enters no vCPU");
    }

    pub fn fetch(&mut self, now: u64) -> Fetched {
        fetch(&mut self.state, &mut self.machine, Ticks(now))
    }

    pub fn park(&mut self, id: u8) {
        park(&mut self.state, &mut self.machine, VcpuId(id));
    }

    /// Finishes the decision that the scheduler has made.
    pub fn finish(&mut self) -> bool {
        self.state.must_decide = false;
        self.state.running = self.state.scheduler.current();
        self.state.is_unfinished = true;
        finish(&mut self.state, &mut self.machine)
    }

    pub fn publish_and_notify(&mut self, now: Ticks) {
        publish_and_notify(&mut self.state, &mut self.machine, now);
    }

    /// Decides at `now`, and looks for vCPUs that wait for their turn.
    pub(super) fn decide_and_look(&mut self, now: u64) {
        let now = Ticks(now);
        self.machine.now = now;
        self.state.scheduler.decide(now);
        self.publish_and_notify(now);
        if must_look(&self.state, &self.machine) {
            look_for_waiting(&mut self.state, &mut self.machine, now);
        }
    }

    /// Another core has parked a vCPU.
    pub fn parked_elsewhere(&mut self, id: u8, state: ParkedState, since: u64) {
        let parked = Parked { host: OTHER, state };
        self.machine.tokens[usize::from(id)] = Some(VcpuId(id));
        self.slot(id).park(parked, Ticks(since));
    }

    pub fn slot(&self, id: u8) -> &ParkingSlot {
        self.machine.shared.slot(VcpuId(id))
    }

    pub fn ring(&self, id: u8) {
        self.machine.doorbells[usize::from(id)].ring_spis(1);
    }

    /// The core that has a vCPU or has parked it.
    pub fn host_core_of(&self, id: u8) -> Option<PcpuId> {
        match self.state.has(VcpuId(id)) {
            true => Some(OWN),
            false => self.slot(id).parked().map(|it| it.host),
        }
    }

    pub fn runs(&self, core: PcpuId, band: Band) {
        let presence = self.machine.shared.presence(core);
        presence.publish(Level::of(Some(band)));
    }
}

impl Machine {
    pub fn next_pending(&self) -> Option<VcpuId> {
        let passes = |id: &VcpuId| Some(self.bands[id.index()]) >= self.mask;
        let late = self.kicked_after_timer.filter(|_| self.is_timer_read.get());
        late.or(self.pending.last().copied()).filter(passes)
    }

    pub fn is_timer_pending(&self) -> bool {
        !self.is_timer_taken && self.loaded_timer.is_some_and(|at| at <= self.now)
    }
}

impl Platform for Machine {
    type Token = VcpuId;

    fn shared(&self) -> &Shared {
        &self.shared
    }

    fn doorbell(&self, id: VcpuId) -> Option<&Doorbell> {
        self.doorbells.get(id.index())
    }

    fn guest_runs(&self, _: VcpuId) -> bool {
        self.guests_run
    }

    fn verdict(&mut self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict {
        self.policy.verdict(fetcher, candidate)
    }

    fn now(&self) -> Ticks {
        self.now
    }

    fn set_alarm(&mut self, at: Ticks) {
        self.alarm = at;
    }

    fn set_priority_mask(&mut self, band: Option<Band>) {
        self.mask = band;
    }

    fn is_interrupted(&self) -> bool {
        self.alarm <= self.now || self.next_pending().is_some() || self.is_timer_pending()
    }

    fn take_interrupt(&mut self, _: Option<&mut VcpuId>) -> Taken {
        if self.alarm <= self.now {
            self.alarm = Ticks::NEVER;
            return Taken::Alarm;
        }
        if self.is_timer_pending() {
            self.is_timer_taken = true;
            return Taken::Timer(VIRTUAL_TIMER);
        }
        let Some(id) = self.next_pending() else {
            return Taken::Nothing;
        };
        match self.is_timer_read.get() {
            true if self.kicked_after_timer.take().is_some() => {}
            _ => _ = self.pending.pop(),
        }
        self.now.0 += HANDLER;
        Taken::Kicks(VcpuSet::of(id))
    }

    fn deliver(&mut self, loaded: &mut VcpuId, what: Delivery) -> VcpuSet {
        self.delivered.push(what);
        self.doorbells[loaded.index()].reset();
        self.pending.extend(self.kicked_in_delivery.take());
        self.rung_in_delivery.take()
    }

    fn is_wanted(&self, core: PcpuId) -> bool {
        !self.unwanted.contains(core)
    }

    fn may_bring_core_back(&self) -> bool {
        self.may_bring_back
    }

    fn waits_for_core(&mut self, id: VcpuId) -> bool {
        self.called.push(id);
        true
    }

    fn kick(&mut self, core: PcpuId, id: VcpuId) {
        self.kicks.push((core, id));
    }

    fn route_devices(&mut self, _: &VcpuId) {}

    fn store_token(&mut self, token: VcpuId) {
        self.tokens[token.index()] = Some(token);
    }

    fn take_token(&mut self, claim: Claim) -> Option<VcpuId> {
        self.tokens[claim.vcpu().index()].take()
    }

    fn load_registers(&mut self, _: &mut VcpuId) {}

    fn load_interrupts(&mut self, vcpu: &mut VcpuId, _: Ticks) -> (VcpuSet, bool) {
        self.doorbells[vcpu.index()].reset();
        self.now.0 += self.load_takes;
        (VcpuSet::EMPTY, true)
    }

    fn lists_many(&self, _: &VcpuId) -> bool {
        self.lists_many
    }

    fn take_back(&mut self, _: &mut VcpuId, is_urgent: bool) -> (VcpuSet, bool) {
        self.taken_back.push(is_urgent);
        (VcpuSet::EMPTY, true)
    }

    fn save(&mut self, _: &mut VcpuId, _: Option<Ticks>, _: bool, _: bool) -> Saved {
        let kicked = self.kicked_in_save.take();
        self.pending.extend(kicked);
        Saved {
            deadline: self.saved_timer,
            wakes: kicked.is_some(),
            rung: VcpuSet::EMPTY,
        }
    }

    fn was_in_kernel(&self, id: &VcpuId) -> bool {
        self.in_kernel && self.only.is_none_or(|it| it.contains(*id))
    }

    fn next_timer(&self, _: &VcpuId) -> Option<Ticks> {
        None
    }

    fn loaded_timer(&self) -> Option<Ticks> {
        self.is_timer_read.set(true);
        self.loaded_timer
    }

    fn sample(&self, id: &VcpuId) -> Sample {
        self.pc.set(self.pc.get() + 4096);
        Sample {
            in_kernel: self.was_in_kernel(id),
            pc: if self.only.is_some() {
                self.pc.get()
            } else {
                0
            },
            stack: 0,
        }
    }

    fn may_hold_lock(&self, _: &VcpuId) -> bool {
        self.in_kernel
    }

    fn set_catch(&mut self, _: &VcpuId, _: Catch) -> bool {
        true
    }

    fn next_chore(&mut self, _: Ticks, _: Option<Band>, _: bool) -> Ticks {
        self.chore
    }

    fn trace(&mut self, point: TracePoint) {
        if let TracePoint::Parked = point {
            self.pending.extend(self.kicked_in_park.take());
            if let Some(id) = self.claimed_in_park.take() {
                let seen = self.shared.slot(id).parked().unwrap();
                assert!(self.shared.claim(id, seen).is_some());
            }
        }
        if let TracePoint::Look = point {
            self.now.0 += self.choice_takes;
        }
        if let TracePoint::Peeked(_) = point {
            self.now.0 += self.fetch_takes;
            if let Some(id) = self.parked_in_fetch.pop() {
                let (host, state) = (OTHER, ParkedState::Runnable);
                self.tokens[id.index()] = Some(id);
                self.shared.slot(id).park(Parked { host, state }, self.now);
                self.pending.push(id);
            }
            if let Some(id) = self.rung_in_fetch.take() {
                self.doorbells[id.index()].ring_spis(1);
                let slot = self.shared.slot(id);
                assert!(slot.parked().is_some_and(|seen| slot.mark_wanted(seen)));
            }
        }
    }
}
