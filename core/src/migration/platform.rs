// SPDX-License-Identifier: MIT OR Apache-2.0
//! What migration needs of the core on which it runs: registers, interrupts and a clock in the hypervisor, a model of
//! them in the simulator and in tests.

use super::core_state::{Catch, CoreState};
use super::grace::Sample;
use super::policy::{Candidate, Fetcher, Verdict};
use super::shared::{Claim, Shared};
use crate::schedule::{Band, Ticks};
use crate::sets::VcpuSet;
use crate::vgic::Doorbell;
use spumone_config::types::{IntId, PcpuId, VcpuId};

/// An interrupt that a core has taken at EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// None was pending.
    Nothing,
    /// EL2's alarm. It does not expire again until it is armed.
    Alarm,
    /// Other cores have kicked this one for these vCPUs.
    Kicks(VcpuSet),
    /// The same, and there is something for the hypervisor itself to do ([`Next::Chore`](super::Next::Chore)).
    KicksAndChore(VcpuSet),
    /// There is something for the hypervisor itself to do.
    Chore,
    /// This timer of the loaded vCPU has expired. It is to be delivered.
    Timer(IntId),
    /// The virtual GIC of the loaded vCPU, if there is one, wants its list registers brought up to date. It does not signal that
    /// again, and no interrupt to the vCPU, before [`Delivery::All`].
    Maintenance,
    /// The virtual GIC of the loaded vCPU has the interrupt. The doorbells of these other vCPUs were rung for it.
    Delivered(VcpuSet),
    /// The interrupt is for vCPUs that are not loaded on this core: their doorbells were rung.
    Rung(VcpuSet),
    /// An interrupt that is for no vCPU, and after which the core has nothing more to do.
    Other,
}

impl Taken {
    /// Other cores have kicked this one for these vCPUs. `has_chore`: and for something that the hypervisor itself is to do.
    #[inline(always)]
    pub const fn of_kicks(vcpus: VcpuSet, has_chore: bool) -> Self {
        match has_chore {
            true => Self::KicksAndChore(vcpus),
            false => Self::Kicks(vcpus),
        }
    }
}

/// What is to be delivered to the loaded vCPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The interrupts for which its doorbell was rung.
    Doorbell,
    /// An expired timer of its own.
    Timer(IntId),
    /// An expired timer of its own, while the vCPU is about to be switched out: only noted, and delivered when the vCPU
    /// runs again.
    LateTimer(IntId),
    /// All that may have changed since its list registers were last brought up to date.
    All,
}

/// What saving the registers of a vCPU has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saved {
    /// When the first of its timers expires that has not expired yet.
    pub deadline: Option<Ticks>,
    /// Whether it slept and an interrupt has come for it meanwhile.
    pub wakes: bool,
    /// The doorbells of these vCPUs were rung.
    pub rung: VcpuSet,
}

/// A point that the core passes, for tools that measure or count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePoint {
    /// The core is about to decide.
    Decide,
    /// The core has looked at this many parking slots.
    Peeked(u32),
    /// Another core has parked a vCPU, or a time slice is over: the core is about to choose what it claims.
    Look,
    /// The core has claimed a vCPU.
    Take(VcpuId),
    /// Another core has claimed a vCPU that this core was about to claim.
    LostClaim,
    /// Interrupts of the claimed vCPU come here, and the scheduler has it.
    Taken,
    /// A vCPU of this core is about to be parked; its registers are saved.
    Park,
    /// The vCPU is parked.
    Parked,
    /// A vCPU is about to be sent away.
    Send(VcpuId),
    /// The core has looked at what this many other cores run, to notify one of them.
    Checked(u32),
    /// Another core has been notified.
    Notified,
    /// The core has looked whether this many cores run a band above the gang.
    CheckedGang(u32),
    /// Another core had claimed the chosen vCPU: the core decides again.
    Again,
    /// From this time on, that of the decision, the core is to run this vCPU; `None`: it idles.
    Dispatch(Option<VcpuId>, Ticks),
    /// The registers of the loaded vCPU are saved.
    Saved,
    /// The core has published that it is off.
    Off,
    /// The core, which is off, comes back.
    On,
}

/// The state of a core that runs on this platform.
pub type State<P> = CoreState<<P as Platform>::Token>;

/// One core, as the functions of this module use it. They decide; a platform acts, and only passes questions on:
/// [`verdict`](Self::verdict) to the policy (in the simulator also to chance), and in the hypervisor
/// [`may_hold_lock`](Self::may_hold_lock) and [`next_chore`](Self::next_chore) to other functions of this crate. A platform
/// gets the vCPU that it is to act on, and never the [`CoreState`], so it cannot call back into the functions of this module.
pub trait Platform {
    /// The right to touch a vCPU: there is one for each, and it cannot be copied.
    type Token;

    /// What all cores share.
    fn shared(&self) -> &Shared;
    /// The doorbell of a vCPU; `None`: there is no such vCPU.
    fn doorbell(&self, id: VcpuId) -> Option<&Doorbell>;
    /// Whether the guest of a vCPU runs. A core that has acknowledged the end of a life fetches nothing of it any more.
    fn guest_runs(&self, id: VcpuId) -> bool;
    /// The policy's verdict on a parked vCPU.
    fn verdict(&mut self, fetcher: &Fetcher, candidate: &Candidate) -> Verdict;

    /// The system counter.
    fn now(&self) -> Ticks;
    /// Arms the alarm for this time. If the time is past, the alarm expires at once; [`Ticks::NEVER`]: it is disarmed.
    fn set_alarm(&mut self, at: Ticks);
    /// Holds back interrupts for bands below `band`; `None`: for no band.
    fn set_priority_mask(&mut self, band: Option<Band>);
    /// Whether an interrupt is pending that the priority mask lets through.
    fn is_interrupted(&self) -> bool;
    /// Takes the pending interrupt of the highest priority. There may be none any more although
    /// [`Self::is_interrupted`] said so.
    fn take_interrupt(&mut self, loaded: Option<&mut Self::Token>) -> Taken;
    /// Delivers interrupts to the loaded vCPU. The doorbells of the returned vCPUs were rung. The loaded vCPU is among them if the core
    /// was interrupted, so that [`Delivery::All`] is due before the vCPU runs.
    fn deliver(&mut self, loaded: &mut Self::Token, what: Delivery) -> VcpuSet;
    /// Kicks a core for a vCPU.
    fn kick(&mut self, core: PcpuId, id: VcpuId);
    /// Routes the physical interrupts of a vCPU's devices to this core, where the vCPU is from now on.
    fn route_devices(&mut self, vcpu: &Self::Token);

    /// Stores the token of a vCPU beside the vCPU's parking slot. The slot does not say yet that the vCPU is parked.
    fn store_token(&mut self, token: Self::Token);
    /// Takes the token of the claimed vCPU from beside its parking slot.
    fn take_token(&mut self, claim: Claim) -> Option<Self::Token>;

    /// Loads the registers of a vCPU, except those of its timers and interrupts. From now on, stage 2 is that of this
    /// vCPU.
    fn load_registers(&mut self, vcpu: &mut Self::Token);
    /// Loads the timers and interrupts of a vCPU that has been running since the decision at `since`. Returns the vCPUs whose doorbells were
    /// rung, and whether all interrupts are loaded. If not, an interrupt came in between, and [`Delivery::All`] is due before the vCPU
    /// runs.
    fn load_interrupts(&mut self, vcpu: &mut Self::Token, since: Ticks) -> (VcpuSet, bool);
    /// Whether the list registers of the loaded vCPU have so much that [`Self::take_back`] is due before its registers are saved.
    fn lists_many(&self, _loaded: &Self::Token) -> bool {
        false
    }
    /// Takes interrupts of the loaded vCPU back from its list registers. Returns the vCPUs with a rung doorbell, and whether that is done.
    /// If not, the core was interrupted, and [`Delivery::All`] is due if the vCPU runs again before it is saved. `is_urgent`: a vCPU of a
    /// higher band has the core next. Then most of it may be put off until the vCPU is loaded again; if the vCPU sleeps, that wakes it.
    fn take_back(&mut self, _loaded: &mut Self::Token, _is_urgent: bool) -> (VcpuSet, bool) {
        (VcpuSet::EMPTY, true)
    }
    /// Saves the registers of the loaded vCPU. `ended`: when another vCPU took the core from it, if one did. `is_urgent`: a vCPU of a higher band has the core next. Then the search for an interrupt that
    /// wakes a sleeping one may end early, as it does when the core is interrupted, with the answer that there is one.
    fn save(
        &mut self,
        loaded: &mut Self::Token,
        ended: Option<Ticks>,
        is_asleep: bool,
        is_urgent: bool,
    ) -> Saved;
    /// Whether a vCPU whose registers are saved was in its guest's kernel.
    fn was_in_kernel(&self, vcpu: &Self::Token) -> bool;
    /// When the first timer expires, or has expired, of a vCPU whose registers are saved.
    fn next_timer(&self, vcpu: &Self::Token) -> Option<Ticks>;
    /// When the first timer of the loaded vCPU expires, or has expired.
    fn loaded_timer(&self) -> Option<Ticks>;
    /// A sample of the running vCPU, which is loaded.
    fn sample(&self, loaded: &Self::Token) -> Sample;
    /// Whether the running vCPU, which is loaded, may hold a lock that other vCPUs of its guest want.
    fn may_hold_lock(&self, loaded: &Self::Token) -> bool;
    /// Makes the loaded vCPU exit when it does this. Returns whether the core can catch it.
    fn set_catch(&mut self, loaded: &Self::Token, catch: Catch) -> bool;
    /// Ends the catch that [`Self::set_catch`] has begun: its vCPU is being saved.
    fn end_catch(&mut self, _saved: &Self::Token) {}

    /// The core has decided at `now` that `band` runs; `defers`: for now only, since a preemption is deferred. Returns
    /// when the hypervisor's next chore on this core is due; [`Ticks::NEVER`]: there is none.
    fn next_chore(&mut self, now: Ticks, band: Option<Band>, defers: bool) -> Ticks;
    /// Whether a core is to be on. If not, it goes off when it idles ([`follow_wish`](super::follow_wish)).
    fn is_wanted(&self, _: PcpuId) -> bool {
        true
    }
    /// Whether a core is off that [`Self::waits_for_core`] may bring back.
    fn may_bring_core_back(&self) -> bool {
        false
    }
    /// The vCPU, which may migrate, has waited for a core for so long (or sleeps where it is cut off for so long) that another core should come on, if
    /// one is off. Returns whether one comes on.
    fn waits_for_core(&mut self, _: VcpuId) -> bool {
        false
    }
    /// The core passes this point.
    fn trace(&mut self, point: TracePoint);
}
