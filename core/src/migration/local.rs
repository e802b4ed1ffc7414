//! What one core alone knows of vCPUs: who is here, who runs, and what became of those that left.

use super::{Catch, Conduct, Grace};
use crate::bits::bits;
use crate::schedule::{Band, Deadlines, Scheduler, Ticks};
use spumone_config::packed::Without;
use spumone_config::types::{MAX_VCPUS, VcpuId};

/// How often a vCPU that is to let go, but is in its kernel, is looked at, in microseconds.
const GRACE_STEP_US: u32 = 50;
/// How many times.
const GRACE_STEPS: u8 = 5;
/// After how long others are told again of vCPUs that are parked here for a more urgent one, in microseconds.
const RETELL_US: u32 = 1_600;
/// After how long a vCPU that was sent away is taken back if no core has taken it, in microseconds.
pub const TAKE_BACK_US: u32 = 500;
/// How often a vCPU for which a more urgent one is put off is looked at, in microseconds.
const PUT_OFF_STEP_US: u32 = 20;

/// What a core is told at start.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// How long equals take turns.
    pub quantum: Ticks,
    /// Of the system counter.
    pub frequency_hz: u32,
    /// What the policy has the core do.
    pub conduct: Conduct,
    /// What the policy does without.
    pub without: Without,
    /// vCPUs that change cores, this one among them; bit n for vCPU n.
    pub moving: u32,
    /// vCPUs whose home this core is.
    pub at_home: u32,
    /// Guests' kernels, but those of the most urgent, do not run here.
    pub keeps_kernels_off: bool,
}

/// One core's vCPUs. In masks bit n is for vCPU n.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub struct Local<T> {
    /// Who runs.
    pub scheduler: Scheduler,
    /// Timers of vCPUs that are here and do not run.
    pub deadlines: Deadlines,
    /// The tokens of the vCPUs that are on this core, by id.
    pub vcpus: [Option<T>; MAX_VCPUS],
    /// Who runs, as decided; `None` while the core idles.
    pub running: Option<VcpuId>,
    /// Whose registers the core holds. While the core idles it still holds those of the last
    /// vCPU: most often the same one is next.
    pub loaded: Option<VcpuId>,
    /// Something has happened that the scheduler must be asked about.
    pub must_decide: bool,
    /// What the alarm is armed for.
    pub alarm: Ticks,
    /// The alarm may be armed for the wrong time: a deadline has come or gone, or another vCPU runs, since it was armed.
    pub alarm_is_stale: bool,
    /// The alarm has rung since the last decision.
    pub(super) alarm_rang: bool,
    /// The band of the last decision, which the priority mask lets through; `None` while the core idles.
    pub(super) decided_band: Option<Band>,
    /// vCPUs that change cores, this one among them.
    pub moving: u32,
    /// What the policy has the core do.
    pub conduct: Conduct,
    /// Guests' kernels, but those of the most urgent, do not run here.
    pub keeps_kernels_off: bool,
    /// What brings the loaded vCPU back though it is allowed.
    pub catches: Catch,
    /// Of those that move, the ones whose home this core is.
    pub(super) at_home: u32,
    /// Those that this core has taken and whose home it is not, where the policy sends vCPUs home; perhaps others have
    /// taken them since.
    pub(super) strangers: u32,
    /// Those that this core has sent away; perhaps others have taken them since.
    pub(super) sent: u32,
    /// Those that this core has taken back, so that it lets their kernel run.
    pub(super) stays: u32,
    /// One that this core has just taken, and not parked, since it is to run next.
    pub(super) unparked: Option<VcpuId>,
    /// Those that this core has parked, and perhaps others have taken since.
    pub(super) has_parked: u32,
    /// Those that made room for a more urgent one, and are kept for a while before they are parked.
    pub(super) to_park: u32,
    /// When to park those, and to tell others of vCPUs that are parked here for a more urgent one.
    pub(super) tell_at: Ticks,
    /// When to look again what other cores have parked.
    pub(super) look_at: Ticks,
    /// Until when a more urgent vCPU is put off.
    pub(super) put_off_until: Ticks,
    /// What the running vCPU gets on top of its turn.
    pub(super) grace: Grace,
    /// Whether an interrupt fetches a vCPU from a core that hears nothing.
    pub(super) pulls_by_ipi: bool,
    /// See [`RETELL_US`].
    pub(super) retell_after: Ticks,
    /// See [`TAKE_BACK_US`].
    pub(super) take_back_after: Ticks,
    /// See [`PUT_OFF_STEP_US`].
    pub(super) put_off_step: Ticks,
}

impl<T> Local<T> {
    /// A core that has these tokens, and does nothing yet.
    pub fn new(setting: &Setting, vcpus: [Option<T>; MAX_VCPUS]) -> Self {
        let micros = |micros| Ticks::from_micros(micros, setting.frequency_hz);
        let without = setting.without;
        let mut conduct = setting.conduct;
        if without.patience {
            conduct.patience = Ticks(0);
        }
        let grace_steps = if without.grace { 0 } else { GRACE_STEPS };
        Self {
            scheduler: Scheduler::new(setting.quantum),
            deadlines: Deadlines::new(),
            vcpus,
            running: None,
            loaded: None,
            must_decide: true,
            alarm: Ticks::NEVER,
            alarm_is_stale: true,
            alarm_rang: false,
            decided_band: None,
            moving: setting.moving,
            conduct,
            keeps_kernels_off: setting.keeps_kernels_off,
            catches: Catch::Nothing,
            at_home: setting.moving & setting.at_home,
            strangers: 0,
            sent: 0,
            stays: 0,
            unparked: None,
            has_parked: 0,
            to_park: 0,
            tell_at: Ticks::NEVER,
            look_at: Ticks::NEVER,
            put_off_until: Ticks::NEVER,
            grace: Grace::new(micros(GRACE_STEP_US), grace_steps, !without.yield_on_spin),
            pulls_by_ipi: !without.ipi_pull,
            retell_after: micros(RETELL_US),
            take_back_after: micros(TAKE_BACK_US),
            put_off_step: micros(PUT_OFF_STEP_US),
        }
    }

    /// Whether a vCPU changes cores, this one among them.
    #[inline(always)]
    pub fn moves(&self, id: VcpuId) -> bool {
        self.moving >> (id.0 & 31) & 1 != 0
    }

    /// The token of a vCPU, if it is on this core.
    #[inline(always)]
    pub fn token(&self, id: VcpuId) -> Option<&T> {
        self.vcpus.get(id.index())?.as_ref()
    }

    /// Whether this core has sent a vCPU away; perhaps another one has taken it since.
    pub fn has_sent(&self, id: VcpuId) -> bool {
        self.sent >> (id.0 & 31) & 1 != 0
    }

    /// When the core has something to look at or to tell, whatever its vCPUs do.
    #[inline(always)]
    pub fn next_look(&self) -> Ticks {
        self.look_at.min(self.tell_at)
    }

    /// Whether a more urgent vCPU is put off.
    #[inline(always)]
    pub fn puts_off(&self) -> bool {
        self.put_off_until != Ticks::NEVER
    }

    /// Whether the core must decide anew whenever it is kicked for this vCPU, which it has.
    #[inline(always)]
    pub fn is_called(&self, id: VcpuId) -> bool {
        self.strangers >> (id.0 & 31) & 1 != 0 || self.conduct.gang
    }
}

/// The vCPUs of a mask.
#[inline(always)]
pub(super) fn ids(mask: u32) -> impl Iterator<Item = VcpuId> {
    bits(mask).map(|id| VcpuId(id as u8))
}

/// The bit of a vCPU in a mask.
#[inline(always)]
pub(super) const fn bit(id: VcpuId) -> u32 {
    1 << (id.0 & 31)
}

const _: () = assert!(
    MAX_VCPUS <= u32::BITS as usize,
    "a mask has a bit for each vCPU"
);
