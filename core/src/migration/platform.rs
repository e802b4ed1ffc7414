// SPDX-License-Identifier: MIT OR Apache-2.0
//! What migration needs of the core on which it runs: registers, interrupts and a clock in the hypervisor, a model of
//! them in the simulator and in tests.

use super::core_state::{Catch, CoreState};
use super::grace::Sample;
use super::policy::{Candidate, Here, Verdict};
use super::presence::{Level, Presence};
use super::slot::{Parked, ParkingSlot};
use crate::schedule::{Band, Ticks};
use crate::sets::CoreSet;
use spumone_config::types::{PcpuId, VcpuId};

/// An interrupt that a core has taken at EL2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// None was pending.
    Nothing,
    /// EL2's alarm; it is silent until it is armed again.
    Alarm,
    /// Another interrupt, which has been handled.
    Other,
}

/// A point that the core passes, for tools that measure or count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracePoint {
    /// The core is about to decide.
    Decide,
    /// The core has looked at so many parking slots.
    Peeked(u32),
    /// Another core has parked a vCPU, or a time slice is over: the core is about to choose.
    Look,
    /// The core has claimed a vCPU.
    Take(VcpuId),
    /// That vCPU's interrupts come here, and it is in the run queue.
    Taken,
    /// A vCPU of this core is about to be parked; its registers are saved.
    Park,
    /// It is parked.
    Parked,
    /// A vCPU is about to be sent away.
    Send(VcpuId),
    /// The core has looked what so many other cores run, to notify one of them.
    Checked(u32),
    /// Another core is notified.
    Notified,
    /// The core has looked whether so many cores run a band above the gang.
    CheckedGang(u32),
    /// Another core had claimed the chosen vCPU: the core decides again.
    Again,
    /// The core goes to this vCPU; `None`: it idles.
    Dispatch(Option<VcpuId>),
}

/// One core, as the functions of this module use it. They decide; what is here acts, and decides nothing.
pub trait Platform {
    /// The right to touch a vCPU: there is one for each, and it cannot be copied.
    type Token;

    /// What this core alone knows.
    fn local(&self) -> &CoreState<Self::Token>;
    /// The same, to change it.
    fn local_mut(&mut self) -> &mut CoreState<Self::Token>;
    /// Which core this is.
    fn core(&self) -> PcpuId;
    /// The system counter.
    fn now(&self) -> Ticks;

    /// Whether an interrupt is pending that the priority mask lets through.
    fn is_interrupted(&self) -> bool;
    /// Takes the pending interrupt of the highest priority, and does what it calls for on this core. There may be none
    /// any more although [`Self::is_interrupted`] said so.
    fn take_interrupt(&mut self) -> Taken;
    /// The loaded vCPU has something in its doorbell. Delivers it, if the vCPU runs; notes it, if the vCPU is about to
    /// be switched out, so that the next vCPU does not pay for it.
    fn deliver_to_loaded(&mut self, id: VcpuId);
    /// Holds back interrupts for bands below `band`; `None`: for no band.
    fn set_priority_mask(&mut self, band: Option<Band>);
    /// Arms the alarm for this time, at once if it is past; [`Ticks::NEVER`]: not at all.
    fn set_alarm(&mut self, at: Ticks);
    /// When the hypervisor has something to do here that concerns no vCPU, given what runs; [`Ticks::NEVER`]: nothing.
    fn next_chore(&self) -> Ticks;
    /// A decision was taken at `now`, and the priority mask is that of it. The alarm is armed next.
    fn decided(&mut self, now: Ticks);

    /// The parking slot of a vCPU.
    fn slot(&self, id: VcpuId) -> &ParkingSlot;
    /// Stores the token of this vCPU beside its slot, then parks it there.
    fn store_parked(&mut self, id: VcpuId, token: Self::Token, parked: Parked);
    /// Claims a vCPU, and takes the token from beside its slot.
    fn claim(&mut self, id: VcpuId, seen: Parked) -> Option<Self::Token>;

    /// What this core shows others.
    fn own_presence(&self) -> &Presence;
    /// What a core shows others.
    fn presence(&self, core: PcpuId) -> Option<&Presence>;
    /// Kicks another core for a vCPU.
    fn kick(&mut self, core: PcpuId, id: VcpuId);

    /// The band of a vCPU; `None`: there is no such vCPU.
    fn band(&self, id: VcpuId) -> Option<Band>;
    /// The home core of a vCPU.
    fn home(&self, id: VcpuId) -> Option<PcpuId>;
    /// The host core of a vCPU.
    fn host(&self, id: VcpuId) -> Option<PcpuId>;
    /// The cores on which a vCPU may run.
    fn cores_of(&self, id: VcpuId) -> CoreSet;
    /// Whether the guest of a vCPU runs. A core that has acknowledged the end of a life fetches nothing of it any more.
    fn guest_runs(&self, id: VcpuId) -> bool;
    /// Whether the doorbell of a vCPU has a bit set.
    fn is_rung(&self, id: VcpuId) -> bool;

    /// The highest level of a vCPU that may migrate.
    fn highest_movable(&self) -> Level;
    /// The lowest one.
    fn lowest_movable(&self) -> Level;
    /// Whether kernels of guests that migrate are kept off a core.
    fn excludes_kernels(&self, core: PcpuId) -> bool;
    /// The band of the gang, and its cores.
    fn gang(&self) -> Option<(Band, CoreSet)>;
    /// What the policy says of a parked vCPU.
    fn verdict(&mut self, here: &Here, candidate: &Candidate) -> Verdict;

    /// Whether a vCPU whose registers are saved was in its guest's kernel.
    fn was_in_kernel(&self, token: &Self::Token) -> bool;
    /// When the next timer expires of a vCPU whose registers are saved: not after `now` if one has expired.
    fn next_timer(&self, token: &Self::Token, now: Ticks) -> Option<Ticks>;
    /// Makes this core the host of a vCPU that it has just claimed: the vCPU's interrupts come here from now on.
    fn settle(&mut self, token: &Self::Token);

    /// Saves the registers of the loaded vCPU.
    fn save_loaded(&mut self);
    /// A sample of the vCPU that runs, which is loaded.
    fn sample(&self, id: VcpuId) -> Option<Sample>;
    /// Whether the vCPU that runs, which is loaded, may hold a lock that other vCPUs of its guest want.
    fn may_hold_lock(&self, id: VcpuId) -> bool;
    /// Has the loaded vCPU exit when it does this. Returns whether the core can tell.
    fn set_catch(&mut self, catch: Catch) -> bool;

    /// The core passes this point.
    fn trace(&mut self, point: TracePoint);
}
