//! What the moves of vCPUs need of the core on which they are made: registers, interrupts and a clock in the
//! hypervisor, a model of them in the simulator.

use super::{
    Candidate, Catch, Here, Level, Local, Parked, ParkingSlot, Presence, Sample, Taken, Verdict,
};
use crate::schedule::{Band, Ticks};
use spumone_config::types::{PcpuId, VcpuId};

/// A step on the way of a move: for who measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// The core is about to decide.
    Decide,
    /// The core has glanced at so many slots.
    Glanced(u32),
    /// Other cores have parked a vCPU, or a turn is over: the core is about to choose.
    Look,
    /// It has claimed a vCPU.
    Take(VcpuId),
    /// The vCPU is settled, and in the run queue.
    Taken,
    /// A vCPU of this core is about to be parked; its registers are saved.
    Park,
    /// It is parked.
    Parked,
    /// A vCPU is about to be sent away.
    Send(VcpuId),
    /// So many cores were asked whom they run, to tell one of them.
    Asked(u32),
    /// Another core is told.
    Told,
    /// So many cores were asked whether they run somebody above the gang.
    AskedGang(u32),
    /// Another core was faster: the core decides again.
    Again,
    /// The core goes to this vCPU; `None`: it idles.
    Dispatch(Option<VcpuId>),
}

/// One core, as the functions of this module use it. They decide and call what is here, which does and decides nothing.
pub trait Site {
    /// The right to touch a vCPU: there is one for each, and it cannot be copied.
    type Token;

    /// What this core alone knows.
    fn local(&self) -> &Local<Self::Token>;
    /// The same, to change it.
    fn local_mut(&mut self) -> &mut Local<Self::Token>;
    /// Which core this is.
    fn core(&self) -> PcpuId;
    /// The time.
    fn now(&self) -> Ticks;

    /// Whether an interrupt is pending that the priority mask lets through.
    fn is_interrupted(&self) -> bool;
    /// Takes the interrupt of the highest priority that is pending, and does what it calls for on this core. It may take
    /// none though [`Self::is_interrupted`], never the other way round.
    fn take_interrupt(&mut self) -> Taken;
    /// Holds back interrupts of lower bands than `band`; `None`: of no band.
    fn set_priority_mask(&mut self, band: Option<Band>);
    /// Has the alarm ring at this time, at once if it is past; [`Ticks::NEVER`]: not at all.
    fn set_alarm(&mut self, at: Ticks);
    /// When the hypervisor has something to do here that concerns no vCPU.
    fn next_chore(&self) -> Ticks;
    /// A decision was taken at `now`, and is in force.
    fn decided(&mut self, now: Ticks);

    /// Who may take the token of a vCPU.
    fn slot(&self, id: VcpuId) -> &ParkingSlot;
    /// Lays a token, which is this vCPU's, beside its slot, then parks it there.
    fn lay(&mut self, id: VcpuId, token: Self::Token, parked: Parked);
    /// Claims a vCPU, and takes the token from beside its slot.
    fn claim(&mut self, id: VcpuId, seen: Parked) -> Option<Self::Token>;

    /// What this core tells others.
    fn own_presence(&self) -> &Presence;
    /// What a core tells others.
    fn presence(&self, core: PcpuId) -> Option<&Presence>;
    /// Tells another core that there is something for a vCPU.
    fn kick(&mut self, core: PcpuId, id: VcpuId);

    /// The band of a vCPU; `None`: there is no such vCPU.
    fn band(&self, id: VcpuId) -> Option<Band>;
    /// The home core of a vCPU.
    fn home(&self, id: VcpuId) -> Option<PcpuId>;
    /// The core where interrupts for a vCPU are sent.
    fn host(&self, id: VcpuId) -> Option<PcpuId>;
    /// The cores that a vCPU may run on; bit n for core n.
    fn cores_of(&self, id: VcpuId) -> u32;
    /// Whether the guest of a vCPU runs. A core that has acknowledged the end of a life takes nothing of it any more.
    fn guest_runs(&self, id: VcpuId) -> bool;
    /// Whether something was rung for a vCPU, and not taken.
    fn is_rung(&self, id: VcpuId) -> bool;

    /// The highest level of a vCPU that may change cores.
    fn moving_level(&self) -> Level;
    /// The lowest one.
    fn moving_floor(&self) -> Level;
    /// Whether no kernel of a guest whose vCPUs move is to run on a core.
    fn keeps_kernels_off(&self, core: PcpuId) -> bool;
    /// The band of the vCPUs that run together or not at all, and their cores; bit n for core n.
    fn gang(&self) -> Option<(Band, u32)>;
    /// What the policy says of a parked vCPU.
    fn verdict(&mut self, here: &Here, candidate: &Candidate) -> Verdict;

    /// Whether a vCPU whose registers are saved was in its guest's kernel.
    fn was_in_kernel(&self, token: &Self::Token) -> bool;
    /// When the next timer rings of a vCPU whose registers are saved: not after `now` if one has run out.
    fn next_timer(&self, token: &Self::Token, now: Ticks) -> Option<Ticks>;
    /// Has the interrupts of a vCPU, which this core has just claimed, come here from now on.
    fn settle(&mut self, token: &Self::Token);

    /// Takes the registers of the loaded vCPU from the core.
    fn save_loaded(&mut self);
    /// A look at the vCPU that runs, which is loaded.
    fn sample(&self, id: VcpuId) -> Option<Sample>;
    /// Whether the vCPU that runs, which is loaded, may hold a lock that other vCPUs of its guest want.
    fn may_hold_lock(&self, id: VcpuId) -> bool;
    /// Has the loaded vCPU come back when it does this. Returns whether the core can tell.
    fn set_catch(&mut self, catch: Catch) -> bool;

    /// A step is passed.
    fn mark(&mut self, mark: Mark);
}
