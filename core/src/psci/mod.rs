// SPDX-License-Identifier: MIT OR Apache-2.0
//! Power control: what a guest's PSCI calls do to its vCPUs and to the guest.
//!
//! Source: Power State Coordination Interface, version 1.1 (DEN0022). To a guest the hypervisor is the firmware, and
//! the guest is the whole system: `SYSTEM_OFF` stops only that guest.
//!
//! [`handle`] decides; the hypervisor carries the [`Outcome`] out. [`GuestPower`] and [`Lifecycle`] are shared between
//! the cores that run the guest's vCPUs, so all of their state is atomic, and each change says which of several cores
//! wins.

mod lifecycle;
mod power;
mod restarts;

#[cfg(test)]
#[cfg(loom)]
pub(crate) mod loom_tests;
#[cfg(test)]
#[cfg(not(loom))]
mod tests;

pub use lifecycle::{AfterStop, Generation, Lifecycle, Phase, StopReason};
pub use power::{GuestPower, Power};
pub use restarts::{Ending, Restarts, Wishes};

use crate::mitigation::{Answer, Workaround};
use crate::smccc::{
    Call, CallError, FunctionId, RandomWidth, SMCCC_VERSION_1_1, SUCCESS, TRNG_UUID,
    TRNG_VERSION_1_0,
};
use spumone_config::types::GuestAddr;

/// `PSCI_VERSION`: 1.1.
const VERSION_1_1: u64 = 0x1_0001;

/// `MIGRATE_INFO_TYPE`: there is no trusted OS that would have to be migrated.
const NO_MIGRATION_REQUIRED: u64 = 2;

/// Fields of `power_state`, original format (DEN0022, `CPU_SUSPEND`).
mod power_state {
    /// Set: the state loses the context.
    pub const POWERDOWN: u32 = 1 << 16;
    /// 0: the core alone. The hypervisor has no deeper level.
    pub const LEVEL: u32 = 0b11 << 24;
    /// Must be zero.
    pub const RESERVED: u32 = 0xfcfe_0000;
}

/// Fields of an affinity argument, as in `MPIDR_EL1`.
mod affinity {
    /// Aff3 to Aff0.
    pub const FIELDS: u64 = 0xff_00ff_ffff;
    /// The highest affinity level.
    pub const HIGHEST_LEVEL: u32 = 3;
    /// Aff0, which is the number of a vCPU within its guest; the other fields are zero.
    pub const NUMBER: u64 = 0xff;
}

/// Where a vCPU starts, MMU off, at EL1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryPoint {
    /// Its program counter.
    pub entry: GuestAddr,
    /// Its x0 (`context_id`).
    pub context: u64,
}

/// What the hypervisor must do about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Return this in x0; x1 to x3 are preserved.
    Return(u64),
    /// Return these in x0 to x3.
    ReturnFour([u64; 4]),
    /// Wait for an interrupt, as WFI does.
    Suspend {
        /// `None`: then return `SUCCESS`. Otherwise reset the vCPU's context and resume there.
        powerdown: Option<EntryPoint>,
    },
    /// Turn the calling vCPU off, and call [`GuestPower::stopped`] when it is no longer in a run queue. The call does
    /// not return.
    StopSelf,
    /// The calling vCPU may start another vCPU of its guest: send the entry point to that vCPU's core, then return
    /// `SUCCESS`. That core calls [`GuestPower::started`].
    StartVcpu {
        /// Number of the vCPU within the guest.
        index: u8,
        /// Where it starts.
        entry_point: EntryPoint,
    },
    /// Stop the guest for good: [`Lifecycle::begin_stop`] with [`StopReason::Off`].
    GuestOff,
    /// Restart the guest: [`Lifecycle::begin_stop`] with [`StopReason::Reset`].
    GuestReset,
    /// Return what [`power::call`](crate::power::call) answers.
    PowerMode {
        /// What the call is to do.
        command: u32,
    },
    /// Return what [`Watchdog::call`](crate::watchdog::Watchdog::call) answers.
    Watchdog {
        /// What the watchdog is to do.
        command: u32,
        /// The argument of that.
        argument: u32,
    },
    /// Call this workaround on a core that needs it, and return [`SUCCESS`].
    Mitigate(Workaround),
    /// The guest executes the instruction again: what cores need is not known yet.
    Repeat,
    /// Return random bits: [`random_registers`](crate::smccc::random_registers), or
    /// [`NO_ENTROPY`](crate::smccc::NO_ENTROPY).
    Random {
        /// How many, from 1 to 96 or 192.
        bits: u32,
        /// How they are returned.
        width: RandomWidth,
    },
}

/// Decides about a call of one of the guest's vCPUs.
///
/// `is_memory` says whether a guest address is in the guest's memory, so that a vCPU can start there. `stolen_time`: where the calling vCPU reads
/// its stolen time, if its guest does. `offer`: what the guest is told about a workaround; `None`: that is not known yet. Changes nothing, except that a successful `CPU_ON` marks its target as being started.
pub fn handle(
    call: Call,
    power: &GuestPower,
    stolen_time: Option<GuestAddr>,
    offer: impl FnOnce(Workaround) -> Option<Answer>,
    is_memory: impl Fn(GuestAddr) -> bool,
) -> Outcome {
    let outcome = match call {
        Call::SmcccVersion => Ok(Outcome::Return(SMCCC_VERSION_1_1)),
        Call::ArchFeatures(id) => match id.workaround() {
            Some(workaround) => Ok(match offer(workaround) {
                Some(answer) => Outcome::Return(answer.to_register()),
                None => Outcome::Repeat,
            }),
            None => {
                let is_pv_time = stolen_time.is_some() && id == FunctionId::PV_TIME_FEATURES;
                success_if(is_arch_call(id) || is_pv_time)
            }
        },
        Call::Workaround(workaround) => match offer(workaround) {
            None => Ok(Outcome::Repeat),
            Some(Answer::Needed | Answer::NotNeeded) => Ok(Outcome::Mitigate(workaround)),
            Some(Answer::NeverNeeded | Answer::Absent) => Err(CallError::NotSupported),
        },
        Call::PsciVersion => Ok(Outcome::Return(VERSION_1_1)),
        Call::CpuSuspend {
            power_state,
            entry,
            context,
        } => suspend(power_state, EntryPoint { entry, context }, is_memory),
        Call::CpuOff => Ok(Outcome::StopSelf),
        Call::CpuOn {
            target,
            entry,
            context,
        } => start(power, target, EntryPoint { entry, context }, is_memory),
        Call::AffinityInfo {
            target,
            lowest_level,
        } => affinity_info(power, target, lowest_level),
        Call::MigrateInfoType => Ok(Outcome::Return(NO_MIGRATION_REQUIRED)),
        Call::SystemOff => Ok(Outcome::GuestOff),
        Call::SystemReset => Ok(Outcome::GuestReset),
        // No feature flags: CPU_SUSPEND has the original format and platform coordination.
        Call::PsciFeatures(id) => success_if(is_psci_call(id) || id == FunctionId::SMCCC_VERSION),
        Call::TrngVersion => Ok(Outcome::Return(TRNG_VERSION_1_0)),
        Call::TrngFeatures(id) => success_if(is_trng_call(id)),
        Call::TrngUuid => Ok(Outcome::ReturnFour(TRNG_UUID)),
        Call::TrngRandom { bits, width } => random(bits, width),
        Call::PvTimeFeatures(id) => success_if(stolen_time.is_some() && is_pv_time_call(id)),
        Call::PvTimeStolen => match stolen_time {
            Some(place) => Ok(Outcome::Return(place.0)),
            None => Err(CallError::NotSupported),
        },
        Call::Watchdog { command, argument } => Ok(Outcome::Watchdog { command, argument }),
        Call::PowerMode { command } => Ok(Outcome::PowerMode { command }),
        Call::Unknown(_) => Err(CallError::NotSupported),
    };
    outcome.unwrap_or_else(|error| Outcome::Return(error.to_register()))
}

fn suspend(
    power_state: u32,
    entry_point: EntryPoint,
    is_memory: impl Fn(GuestAddr) -> bool,
) -> Result<Outcome, CallError> {
    // StateID does not matter: there is one standby state, WFI, and one powerdown state.
    if power_state & (power_state::RESERVED | power_state::LEVEL) != 0 {
        return Err(CallError::InvalidParameters);
    }
    if power_state & power_state::POWERDOWN == 0 {
        return Ok(Outcome::Suspend { powerdown: None });
    }
    check_entry(entry_point, is_memory)?;
    Ok(Outcome::Suspend {
        powerdown: Some(entry_point),
    })
}

fn start(
    power: &GuestPower,
    target: u64,
    entry_point: EntryPoint,
    is_memory: impl Fn(GuestAddr) -> bool,
) -> Result<Outcome, CallError> {
    let index = vcpu_index(power, target)?;
    check_entry(entry_point, is_memory)?;
    match power.request_start(index) {
        Ok(()) => Ok(Outcome::StartVcpu { index, entry_point }),
        Err(Power::On) => Err(CallError::AlreadyOn),
        Err(Power::OnPending) => Err(CallError::OnPending),
        Err(Power::Off) => Err(CallError::InvalidParameters),
    }
}

fn affinity_info(power: &GuestPower, target: u64, level: u32) -> Result<Outcome, CallError> {
    if level > affinity::HIGHEST_LEVEL {
        return Err(CallError::InvalidParameters);
    }
    let state = if level == 0 {
        power.get(vcpu_index(power, target)?)
    } else {
        // All vCPUs are in one node of this level, whose affinity fields are zero.
        let ignored = (1_u64 << (8 * level)) - 1;
        if target & !(affinity::FIELDS & ignored) != 0 {
            return Err(CallError::InvalidParameters);
        }
        let states = || (0..power.count()).filter_map(|index| power.get(index));
        // At most 8 times: vCPUs of the guest.
        [Power::On, Power::OnPending, Power::Off]
            .into_iter()
            .find(|&wanted| states().any(|state| state == wanted))
    };
    let state = state.ok_or(CallError::InvalidParameters)?;
    Ok(Outcome::Return(state as u64))
}

fn random(bits: u64, width: RandomWidth) -> Result<Outcome, CallError> {
    match u32::try_from(bits) {
        Ok(bits) if (1..=width.most_bits()).contains(&bits) => Ok(Outcome::Random { bits, width }),
        _ => Err(CallError::InvalidParameters),
    }
}

/// The number of the vCPU whose affinity fields are `target`.
fn vcpu_index(power: &GuestPower, target: u64) -> Result<u8, CallError> {
    let index = (target & affinity::NUMBER) as u8;
    if u64::from(index) == target && index < power.count() {
        Ok(index)
    } else {
        Err(CallError::InvalidParameters)
    }
}

fn check_entry(
    entry_point: EntryPoint,
    is_memory: impl Fn(GuestAddr) -> bool,
) -> Result<(), CallError> {
    // An A64 instruction is 4 bytes, aligned.
    if entry_point.entry.is_aligned(4) && is_memory(entry_point.entry) {
        Ok(())
    } else {
        Err(CallError::InvalidAddress)
    }
}

fn success_if(is_there: bool) -> Result<Outcome, CallError> {
    if is_there {
        Ok(Outcome::Return(SUCCESS))
    } else {
        Err(CallError::NotSupported)
    }
}

fn is_pv_time_call(id: FunctionId) -> bool {
    matches!(id, FunctionId::PV_TIME_FEATURES | FunctionId::PV_TIME_ST)
}

fn is_arch_call(id: FunctionId) -> bool {
    matches!(
        id,
        FunctionId::SMCCC_VERSION | FunctionId::SMCCC_ARCH_FEATURES
    )
}

fn is_psci_call(id: FunctionId) -> bool {
    matches!(
        id,
        FunctionId::PSCI_VERSION
            | FunctionId::CPU_SUSPEND
            | FunctionId::CPU_SUSPEND_64
            | FunctionId::CPU_OFF
            | FunctionId::CPU_ON
            | FunctionId::CPU_ON_64
            | FunctionId::AFFINITY_INFO
            | FunctionId::AFFINITY_INFO_64
            | FunctionId::MIGRATE_INFO_TYPE
            | FunctionId::SYSTEM_OFF
            | FunctionId::SYSTEM_RESET
            | FunctionId::PSCI_FEATURES
    )
}

fn is_trng_call(id: FunctionId) -> bool {
    matches!(
        id,
        FunctionId::TRNG_VERSION
            | FunctionId::TRNG_FEATURES
            | FunctionId::TRNG_GET_UUID
            | FunctionId::TRNG_RND32
            | FunctionId::TRNG_RND64
    )
}
